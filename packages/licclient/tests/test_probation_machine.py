"""Any order of updates, starts, crashes, damage, confirmations and deaths (D-360, D-399, D-400).

An oracle of its own says what the disk may have. The disk is real; programs and signals are not:
`test_probation_starts` has them.
"""

import errno
import os
import re
import shutil
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)
from stage.archives import APP, downloaded, pack

from licclient.install import Installation

CRASHES = (1, 3, 255, -9, -11, -6, 137, 0xC0000005)
ORDERLY = (0, -15, 143, -1, -2, 130, 0xC000013A)
KILLED = None
"""In place of a status: the launcher dies with its program."""


FAULTS = ("death", "error", "full disk", "no permission")
"""What happens at a change of the disk: the process ends, this change fails, or all from this one on do."""

GOOD = frozenset({"1.0", "1.2", "1.9"})
"""The versions that work, where a scene does not say it otherwise."""


class DeathError(BaseException):
    """The process ends here: nothing that follows happens."""


@dataclass(frozen=True)
class State:
    """All that the disk says about versions."""

    current: str
    back: str | None = None
    confirmed: frozenset[str] = frozenset()
    noted: frozenset[str] = frozenset()
    counted: tuple[str, int] | None = None
    is_torn: bool = False

    @property
    def starts(self) -> int:
        """Return how often the current version was started without a confirmation."""
        return self.counted[1] if self.counted and self.counted[0] == self.current else 0

    @property
    def is_protected(self) -> bool:
        """Whether the launcher looks after the current version."""
        return (
            not self.is_torn
            and self.back is not None
            and self.back in self.confirmed - self.noted
            and self.current not in self.confirmed
        )


@dataclass
class World:
    """A folder with an app, and the hand that ends a process before its n-th change of the disk."""

    folder: Path
    releases: dict[str, object] = field(default_factory=dict)
    changes_left: int | None = None
    fault: str = "death"
    is_cut: bool = False
    ran: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.root = self.folder / "Photo Lab"
        self.installation = Installation(self.root)

    def release(self, version: str) -> object:
        """Return the zip of a version."""
        if version not in self.releases:
            content = pack(APP | {"version.txt": version.encode()})
            self.releases[version] = downloaded(self.folder, content, version)
        return self.releases[version]

    def folder_of(self, version: str) -> Path:
        """Return the folder of a version: that of the pointer, or else one that is there."""
        digest = self.release(version).sha256
        names = [f"{version}-{digest[start : start + 16]}" for start in (0, 16, 32)]
        folders = [self.root / "versions" / name for name in names]
        return min(folders, key=lambda path: (path.name not in self.lines("current.txt"), not path.exists()))

    def lines(self, name: str) -> list[str]:
        """Read a file of names."""
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []

    def is_damaged(self, version: str) -> bool:
        """Return whether `damage` was done to a version that is there."""
        return not (self.folder_of(version) / "version.txt").exists()

    def damage(self, version: str) -> None:
        """Take a file away that the program does not need."""
        (self.folder_of(version) / "version.txt").unlink(missing_ok=True)

    def change(self) -> None:
        """Die, or fail, if it is time."""
        if self.changes_left is None:
            return
        self.changes_left -= 1
        if self.changes_left >= 0 or (self.fault == "error" and self.is_cut):
            return
        self.is_cut = True
        if self.fault == "death":
            raise DeathError
        number = {"error": errno.EIO, "full disk": errno.ENOSPC}.get(self.fault, errno.EACCES)
        raise OSError(number, os.strerror(number))

    def read(self) -> State:
        """Read the disk by other code than ours."""
        names = self.lines("current.txt")
        current, back, *_ = [*(name.rpartition("-")[0] for name in names), None]
        pair = frozenset(filter(None, (current, back)))
        confirmed = {name for name in pair if (self.folder_of(name) / ".licclient-confirmed").is_file()}
        file = self.root / "probation.txt"
        match = re.fullmatch(r"1\n((.+)-[0-9a-f]{16})\n(\d)\n", file.read_text() if file.exists() else "")
        # A damaged copy's starts are not those of the one in its place.
        counted = (match[2], int(match[3])) if match and (match[1] in names or match[2] not in pair) else None
        is_torn = file.exists() and match is None
        noted = frozenset(self.lines("rolled-back.txt"))
        return State(current, back, frozenset(confirmed), noted, counted, is_torn)

    @contextmanager
    def cut(self, changes: int | None, fault: str = "death"):
        """Let each process within the block die, or fail, at so many changes of the disk."""
        self.changes_left, self.fault, self.is_cut = changes, fault, False
        try:
            with suppress(DeathError), self.failing():
                yield
        finally:
            self.changes_left = None

    @contextmanager
    def failing(self):
        """Let the app's process go on where the disk fails it."""
        try:
            yield
        except OSError:
            if not self.is_cut:
                raise

    @contextmanager
    def running(self, version: str):
        """Run the app's code in a version."""
        with mock.patch("sys.argv", [str(self.folder_of(version) / "photo-lab")]):
            yield

    def start(self, status: int | None, *, confirms: bool = False, clicks: int = 0) -> None:
        """Start the launcher; the program may confirm, be started again meanwhile, and ends with a status."""

        def ran(path: Path) -> str:
            version = path.parent.name.rpartition("-")[0]
            self.ran.append(version)
            if confirms:
                with self.running(version), self.failing():
                    self.installation.confirm()
            for _ in range(clicks):
                self.start(1)
            return version

        def run_watched(path, _):
            ran(path)
            if status is KILLED:
                raise DeathError
            return status, False

        def run(path, _):
            ran(path)
            return 0

        launch = import_module("licclient.install._launch")
        with (
            mock.patch.object(launch, "run_watched", run_watched),
            mock.patch.object(launch, "run", run),
            mock.patch("os.execve", lambda path, *_: ran(Path(path))),
        ):
            self.installation.start("photo-lab")

    def use(self, good: frozenset[str] = GOOD, times: int = 4) -> str:
        """Start the app so often, where good versions confirm and others crash; return the last that ran."""

        def run_watched(path, _):
            version = path.parent.name.rpartition("-")[0]
            self.ran.append(version)
            if version not in good:
                return 3, False
            with mock.patch("sys.argv", [str(path)]):
                self.installation.confirm()
            return 0, False

        launch = import_module("licclient.install._launch")
        for _ in range(times):
            with (
                mock.patch.object(launch, "run_watched", run_watched),
                mock.patch.object(launch, "run", lambda path, _: run_watched(path, None)[0]),
                mock.patch("os.execve", lambda path, *_: run_watched(Path(path), None)),
            ):
                self.installation.start("photo-lab")
        return self.ran[-1]


@contextmanager
def world_on_disk():
    """Make a world whose changes of the disk are counted, and never wait for the disk."""
    folder = Path(tempfile.mkdtemp())
    world = World(folder)
    real = {name: getattr(os, name) for name in ("replace", "unlink", "rename", "mkdir", "rmdir")}
    real_open = os.open

    def counted(name):
        def act(*arguments: object, **options: object):
            world.change()
            return real[name](*arguments, **options)

        return act

    def opened(path, flags, *arguments: object, **options: object):
        if flags & os.O_CREAT:
            world.change()
        return real_open(path, flags, *arguments, **options)

    def synced(file):
        size = os.fstat(file.fileno()).st_size
        try:
            world.change()
        except DeathError:
            os.ftruncate(file.fileno(), size // 2)  # torn
            raise

    patches = [mock.patch.object(os, name, counted(name)) for name in real]
    patches += [mock.patch("licclient._core.storage.sleep")]
    patches += [mock.patch("os.open", opened), mock.patch("licclient._core.storage.sync_file", synced)]
    patches += [mock.patch(f"licclient.install{part}.sync_folder") for part in ("", "._unpack")]
    patches += [mock.patch("licclient.install._unpack.sync_file")]
    try:
        for patch in patches:
            patch.start()
        yield world
    finally:
        for patch in patches:
            patch.stop()
        shutil.rmtree(folder)


# --- the oracle: the states that a disk may be in, in order, while something is done --------------------


def states_of_start(state: State, status: int | None, *, confirms: bool) -> tuple[list[State], str]:
    """Return them, the last of which is the end; and the version that must run."""
    if not state.is_protected:
        return [state, *states_of_mark(state, state.current)] if confirms else [state], state.current
    if state.starts >= 2:
        noted = replace(state, noted=state.noted | {state.current})
        return [
            state,
            noted,
            replace(noted, current=state.back, back=None, confirmed=frozenset({state.back})),
        ], (state.back or "")
    states = [state, replace(state, counted=(state.current, state.starts + 1))]
    if confirms:
        # The first two where it could not be counted.
        states[1:1] = states_of_mark(state, state.current)
        states += states_of_mark(states[-1], state.current)
    if status is not KILLED and status in ORDERLY:
        states.append(replace(states[-1], counted=(state.current, state.starts)))
    return states, state.current


def states_of_mark(state: State, version: str) -> list[State]:
    """Return the states after a version of the pointer was confirmed: it works, whatever was noted."""
    marked = replace(state, confirmed=state.confirmed | {version})
    return [marked, replace(marked, noted=marked.noted - {version})]


def states_of_update(state: State, version: str, *, is_damaged: bool = False) -> list[State]:
    """Return the states while a version is installed."""
    if version == state.current and not is_damaged:
        return [state]
    back = state.back if version == state.current else state.current
    if version not in (state.current, state.back) and replace(state, is_torn=False).is_protected:
        back = state.back
    known = replace(state, noted=state.noted - (state.confirmed & {back}))
    forgotten = replace(known, counted=None, is_torn=False)
    moved = replace(forgotten, current=version, back=back, confirmed=state.confirmed & {version, back})
    # One that was damaged stays confirmed where it was current; any other begins anew.
    anew = moved if version == state.current else replace(moved, confirmed=moved.confirmed - {version})
    return [state, known, forgotten, moved, anew, replace(anew, noted=anew.noted - {version})]


def states_of_roll_back(state: State) -> list[State]:
    """Return the states while a person goes back."""
    if state.back is None:
        return [state]
    noted = replace(state, noted=state.noted | {state.current})
    return [
        state,
        noted,
        replace(noted, current=state.back, back=None, confirmed=state.confirmed & {state.back}),
    ]


def states_of_confirmation(state: State, version: str, *, no_way_back: bool) -> list[State]:
    """Return the states while a version that runs confirms."""
    states = [state]
    if no_way_back and state.current == version and state.back is not None:
        states.append(replace(state, back=None, confirmed=state.confirmed & {version}))
    elif no_way_back and version not in (state.current, state.back):
        states.append(replace(state, back=version, confirmed=state.confirmed & {state.current}))
    last = states[-1]
    if version in (last.current, last.back):
        states += states_of_mark(last, version)
    return states


class ProbationMachine(RuleBasedStateMachine):
    """Plays versions, starts, deaths and confirmations; after each step the disk is as the oracle says."""

    deaths = st.one_of(st.none(), st.tuples(st.integers(0, 25), st.sampled_from(FAULTS)))

    @initialize()
    def install(self):
        """Begin with a version that was installed."""
        self.context = world_on_disk()
        self.world = self.context.__enter__()
        self.number, self.running = 0, "1.0"
        self.world.installation.apply(self.world.release("1.0"))
        self.state = self.world.read()

    def teardown(self):
        """Remove it."""
        if hasattr(self, "context"):
            self.context.__exit__(None, None, None)

    def cut(self, death: tuple[int, str] | None):
        """Cut what is done within the block, unless there is no death."""
        return self.world.cut(*(death or (None,)))

    def ended(self, states: list[State], death: tuple[int, str] | None, *, died: bool) -> None:
        """Compare the disk with what may be there."""
        is_dead = died or death is not None
        state = self.world.read()
        assert state in (states if is_dead else states[-1:])
        self.state = state

    @rule(
        outcome=st.one_of(st.sampled_from(CRASHES), st.sampled_from(ORDERLY), st.just(KILLED)),
        confirms=st.booleans(),
        death=deaths,
    )
    def start(self, outcome, confirms, death):
        """Start the app: it runs, in the version that the oracle names, unless the launcher dies."""
        states, version = states_of_start(self.state, outcome, confirms=confirms)
        self.world.ran.clear()
        with self.cut(death):
            self.world.start(outcome, confirms=confirms)
        if death is None:
            assert self.world.ran == [version]
        if self.world.ran:
            # What cannot be locked is not counted, nor a reason to go back.
            assert self.world.ran in ([version], [self.state.current] if self.world.is_cut else [version])
            self.running = self.world.ran[0]
        self.ended(states, death, died=outcome is KILLED)

    @rule(clicks=st.integers(1, 3))
    def start_impatiently(self, clicks):
        """Start it again while the first one loads: whatever becomes of the others, they are not counted."""
        states, version = states_of_start(self.state, 1, confirms=False)
        self.world.ran.clear()
        is_counted = self.state.is_protected and self.state.starts < 2
        self.world.start(1, clicks=clicks if is_counted else 0)
        assert set(self.world.ran) == {version}
        self.running = version
        self.ended(states, None, died=False)

    @rule(death=deaths, older=st.integers(0, 3))
    def update(self, death, older):
        """Install a version: mostly a new one, or one that was there before."""
        self.number += older == 0
        version = f"1.{max(self.number - older, 0)}"
        states = states_of_update(self.state, version, is_damaged=self.world.is_damaged(version))
        with self.world.running(self.running), self.cut(death):
            self.world.installation.apply(self.world.release(version))
        self.ended(states, death, died=False)

    @rule(is_current=st.booleans())
    def damage(self, is_current):
        """Take a file of a version away, as a virus scanner does."""
        self.world.damage(self.state.current if is_current else self.state.back or self.state.current)
        assert self.world.read() == self.state

    @rule(death=deaths)
    def roll_back(self, death):
        """Go back by hand."""
        with self.cut(death):
            self.world.installation.roll_back()
        self.ended(states_of_roll_back(self.state), death, died=False)

    @precondition(lambda self: self.world.folder_of(self.running).exists())
    @rule(no_way_back=st.booleans(), death=deaths)
    def confirm_late(self, no_way_back, death):
        """Confirm by the version that runs, though others were installed meanwhile."""
        states = states_of_confirmation(self.state, self.running, no_way_back=no_way_back)
        with self.world.running(self.running), self.cut(death):
            self.world.installation.confirm(no_way_back=no_way_back)
        self.ended(states, death, died=False)

    @precondition(lambda self: self.state.counted is not None)
    @rule(share=st.integers(0, 99))
    def tear(self, share):
        """Cut the launcher's file, as a disk does that lies about what it has stored."""
        path = self.world.root / "probation.txt"
        raw = path.read_bytes()
        path.write_bytes(raw[: len(raw) * share // 100])
        self.state = replace(self.state, counted=None, is_torn=True)
        assert self.world.read() == self.state


PROFILE = {
    "deadline": None,
    "stateful_step_count": 30,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}


def test_any_order():
    """The version that runs is the one that the oracle names, and a death leaves no third state."""
    run_state_machine_as_test(ProbationMachine, settings=settings(max_examples=15, **PROFILE))


@pytest.mark.slow
def test_any_order_for_long():
    """The same, more often."""
    examples = 150 * int(os.environ.get("LICENSING_LONGER", "1"))  # `nox -s crash` asks for 10
    run_state_machine_as_test(ProbationMachine, settings=settings(max_examples=examples, **PROFILE))


# --- each write, cut at each point -----------------------------------------------------------------------


def good(world):
    """Install a version that works."""
    world.installation.apply(world.release("1.0"))
    world.start(0, confirms=True)


def bad(world, starts):
    """Install one after it that was started so often."""
    good(world)
    world.installation.apply(world.release("1.1"))
    for _ in range(starts):
        world.start(3)


def confirmed(world, *, no_way_back=False):
    """Let it confirm."""
    with world.running("1.1"):
        world.installation.confirm(no_way_back=no_way_back)


def works(world):
    """Install a second version that works, after the first."""
    good(world)
    world.installation.apply(world.release("1.2"))
    world.start(0, confirms=True)


def left(world):
    """Go back from it by hand."""
    works(world)
    world.installation.roll_back()


def damaged(world, version, before=works):
    """Take a file of a version away, and note the starts of one on probation."""
    before(world)
    world.damage(version)


def applied(version):
    """Return the installation of a version."""
    return lambda world: world.installation.apply(world.release(version))


SCENES = {
    # what was before; what is done; which versions may run at the next start; and at last
    "the first start": (lambda w: bad(w, 0), lambda w: w.start(3), {"1.1"}, {"1.0"}),
    "a start in order": (lambda w: bad(w, 1), lambda w: w.start(0), {"1.1", "1.0"}, {"1.0"}),
    "the second start": (lambda w: bad(w, 1), lambda w: w.start(3), {"1.1", "1.0"}, {"1.0"}),
    "going back": (lambda w: bad(w, 2), lambda w: w.start(0), {"1.0"}, {"1.0"}),
    "a person goes back": (
        lambda w: bad(w, 0),
        lambda w: w.installation.roll_back(),
        {"1.1", "1.0"},
        {"1.0"},
    ),
    "a person goes back from what works": (
        works,
        lambda w: w.installation.roll_back(),
        {"1.2", "1.0"},
        {"1.2", "1.0"},
    ),
    "the next one": (lambda w: bad(w, 1), applied("1.2"), {"1.1", "1.2"}, {"1.0", "1.2"}),
    "after two": (lambda w: bad(w, 2), applied("1.2"), {"1.0", "1.1", "1.2"}, {"1.0", "1.2"}),
    "what was left, again": (left, applied("1.2"), {"1.0", "1.2"}, {"1.0", "1.2"}),
    "the good one, again": (lambda w: bad(w, 1), applied("1.0"), {"1.0", "1.1"}, {"1.0"}),
    "the current one, damaged": (lambda w: damaged(w, "1.2"), applied("1.2"), {"1.2"}, {"1.2"}),
    "the only one, damaged": (lambda w: damaged(w, "1.0", good), applied("1.0"), {"1.0"}, {"1.0"}),
    "the one before, damaged": (
        lambda w: damaged(w, "1.0", lambda w: bad(w, 1)),
        applied("1.0"),
        {"1.0", "1.1"},
        {"1.0"},
    ),
    "the one on probation, damaged": (
        lambda w: damaged(w, "1.1", lambda w: bad(w, 1)),
        applied("1.1"),
        {"1.1"},
        {"1.0"},
    ),
    "a confirmation": (lambda w: bad(w, 1), confirmed, {"1.1"}, {"1.1"}),
    "no way back": (lambda w: bad(w, 1), lambda w: confirmed(w, no_way_back=True), {"1.1"}, {"1.1"}),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.sampled(2)
def test_each_change_cut_at_each_point(scene, fault):
    """Whatever is left, a version that works runs in the end, and again after the next bad release."""
    before, act, first, last = SCENES[scene]
    good = GOOD | last
    cut = 0
    while True:
        with world_on_disk() as world:
            before(world)
            pointer, result = world.lines("current.txt"), None
            with world.cut(cut, fault):
                act(world)
                result = world.lines("current.txt")
            is_whole = not world.is_cut
            # What raised has changed nothing; but without a way back nothing goes back, whatever follows.
            is_raised = result is None and fault != "death" and scene != "no way back"
            assert not is_raised or world.lines("current.txt") == pointer
            world.ran.clear()
            version = world.use(good)
            assert world.ran[0] in first
            assert version in last
            assert world.use(good) == version
            world.installation.apply(world.release("6.6"))  # nothing of the dead is in the way
            assert world.ran[-1] == version
            assert world.use(good) == version
            assert world.lines("rolled-back.txt")[-1] == "6.6"
            world.installation.apply(world.release("1.9"))
            assert world.use(good) == "1.9"
        if is_whole:
            break
        cut += 1
    assert cut >= 1
