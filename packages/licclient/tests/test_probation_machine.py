"""Any order of updates, starts, crashes, confirmations and deaths (D-360), with an oracle of its own.

The disk is real; programs and signals are not: `test_probation_starts` has them.
"""

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
        """Return the folder of a version."""
        return self.root / "versions" / f"{version}-{self.release(version).sha256[:16]}"

    def change(self) -> None:
        """Die, if it is time."""
        if self.changes_left is not None:
            self.changes_left -= 1
            if self.changes_left < 0:
                raise DeathError

    def read(self) -> State:
        """Read the disk by other code than ours."""

        def lines(name: str) -> list[str]:
            path = self.root / name
            return path.read_text().splitlines() if path.exists() else []

        current, back, *_ = [*(name.rpartition("-")[0] for name in lines("current.txt")), None]
        pair = frozenset(filter(None, (current, back)))
        confirmed = {name for name in pair if (self.folder_of(name) / ".licclient-confirmed").exists()}
        file = self.root / "probation.txt"
        match = re.fullmatch(r"1\n(.+)-[0-9a-f]{16}\n(\d)\n", file.read_text() if file.exists() else "")
        counted = (match[1], int(match[2])) if match else None
        is_torn = file.exists() and match is None
        return State(
            current, back, frozenset(confirmed), frozenset(lines("rolled-back.txt")), counted, is_torn
        )

    @contextmanager
    def dying(self, changes: int | None):
        """Let each process within the block die before so many changes of the disk."""
        self.changes_left = changes
        try:
            with suppress(DeathError):
                yield
        finally:
            self.changes_left = None

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
                with self.running(version):
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


@contextmanager
def world_on_disk():
    """Make a world whose changes of the disk are counted, and never wait for the disk."""
    folder = Path(tempfile.mkdtemp())
    world = World(folder)
    real = {name: getattr(Path, name) for name in ("replace", "unlink", "rename")}
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

    patches = [mock.patch.object(Path, name, counted(name)) for name in real]
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
        if confirms:
            return [state, replace(state, confirmed=state.confirmed | {state.current})], state.current
        return [state], state.current
    if state.starts >= 2:
        noted = replace(state, noted=state.noted | {state.current})
        return [
            state,
            noted,
            replace(noted, current=state.back, back=None, confirmed=frozenset({state.back})),
        ], (state.back or "")
    states = [state, replace(state, counted=(state.current, state.starts + 1))]
    if confirms:
        states.append(replace(states[-1], confirmed=state.confirmed | {state.current}))
    if status is not KILLED and status in ORDERLY:
        states.append(replace(states[-1], counted=(state.current, state.starts)))
    return states, state.current


def states_of_update(state: State, version: str) -> list[State]:
    """Return the states while a version is installed."""
    if version == state.current:
        return [state]
    back = state.current
    if replace(state, is_torn=False).is_protected and state.back != version:
        back = state.back
    forgotten = replace(state, counted=None, is_torn=False)
    unmarked = replace(forgotten, confirmed=state.confirmed - {version})
    moved = replace(unmarked, current=version, back=back, confirmed=unmarked.confirmed & {version, back})
    return [state, forgotten, unmarked, moved, replace(moved, noted=moved.noted - {version})]


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
        states.append(replace(last, confirmed=last.confirmed | {version}))
    return states


class ProbationMachine(RuleBasedStateMachine):
    """Plays versions, starts, deaths and confirmations; after each step the disk is as the oracle says."""

    deaths = st.one_of(st.none(), st.integers(0, 14))

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

    def ended(self, states: list[State], death: int | None, *, died: bool) -> None:
        """Compare the disk with what may be there."""
        is_dead = died or (self.world.changes_left is not None) or death is not None
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
        with self.world.dying(death):
            self.world.start(outcome, confirms=confirms)
        if death is None:
            assert self.world.ran == [version]
        if self.world.ran:
            assert self.world.ran == [version]
            self.running = version
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
        states = states_of_update(self.state, version)
        with self.world.running(self.running), self.world.dying(death):
            self.world.installation.apply(self.world.release(version))
        self.ended(states, death, died=False)

    @rule(death=deaths)
    def roll_back(self, death):
        """Go back by hand."""
        with self.world.dying(death):
            self.world.installation.roll_back()
        self.ended(states_of_roll_back(self.state), death, died=False)

    @precondition(lambda self: self.world.folder_of(self.running).exists())
    @rule(no_way_back=st.booleans(), death=deaths)
    def confirm_late(self, no_way_back, death):
        """Confirm by the version that runs, though others were installed meanwhile."""
        states = states_of_confirmation(self.state, self.running, no_way_back=no_way_back)
        with self.world.running(self.running), self.world.dying(death):
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
    run_state_machine_as_test(ProbationMachine, settings=settings(max_examples=40, **PROFILE))


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


SCENES = {
    # what was before; what is done; which versions may run at the next start
    "the first start": (lambda w: bad(w, 0), lambda w: w.start(3), {"1.1"}),
    "a start in order": (lambda w: bad(w, 1), lambda w: w.start(0), {"1.1", "1.0"}),
    "the second start": (lambda w: bad(w, 1), lambda w: w.start(3), {"1.1", "1.0"}),
    "going back": (lambda w: bad(w, 2), lambda w: w.start(0), {"1.0"}),
    "a person goes back": (lambda w: bad(w, 0), lambda w: w.installation.roll_back(), {"1.1", "1.0"}),
    "the next one": (lambda w: bad(w, 1), lambda w: w.installation.apply(w.release("1.2")), {"1.1", "1.2"}),
    "after two": (
        lambda w: bad(w, 2),
        lambda w: w.installation.apply(w.release("1.2")),
        {"1.0", "1.1", "1.2"},
    ),
    "a confirmation": (lambda w: bad(w, 1), confirmed, {"1.1"}),
    "no way back": (lambda w: bad(w, 1), lambda w: confirmed(w, no_way_back=True), {"1.1"}),
}


@pytest.mark.parametrize("scene", SCENES)
def test_each_write_cut_at_each_point(scene):
    """Whatever a death leaves, the app starts, the good version is there, and what was begun is finished."""
    before, act, versions = SCENES[scene]
    deaths = 0
    while True:
        with world_on_disk() as world:
            before(world)
            with world.dying(deaths):
                act(world)
                break
            world.ran.clear()
            for _ in range(4):
                world.start(3)
            assert world.ran[0] in versions
            assert (world.folder_of("1.0") / ".licclient-confirmed").exists() or scene == "no way back"
            state = world.read()
            is_left = world.ran[-1] == "1.0"
            assert is_left == (state.current == "1.0")
            assert not is_left or (state.noted and state.back is None)
            world.installation.apply(world.release("1.9"))  # nothing of the dead is in the way
            assert world.read().current == "1.9"
        deaths += 1
    assert deaths >= 1
