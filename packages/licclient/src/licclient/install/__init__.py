"""Replace an application by its downloaded update, and go back to the version before.

::

    from licclient.install import Installation

    Installation(folder).apply(client.download(update, downloads))

The app's own folder has a folder for each version, and a pointer to the one that is current::

    Photo Lab/
    ├── photo-lab              the launcher: never replaced, starts the current version
    ├── current.txt            the pointer: the current version's folder, then the one before
    ├── probation.txt          how often the launcher started a new version that was not confirmed yet
    └── versions/
        ├── 1.0.0-6b1f3c2a90d1e4f7/
        └── 1.1.0-0c4de81f7a55b392/

A folder gets its name in `versions` when it is complete, and the pointer is replaced atomically: a process
that is killed at any moment leaves either the old version current or the new one. That holds for a damaged
version as well: it is unpacked into another folder.

An app that calls `confirm` when its main window stands is protected from a release that does not start: after
two starts without it the launcher goes back.
"""

import errno
import os
import stat
import sys
from collections.abc import Collection, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.arguments import check_flag, check_text, is_text, wrong_type
from licclient._core.computer import ROLLED_BACK, VERSIONS, list_app_folders, read_rolled_back
from licclient._core.environment import clean_environment
from licclient._core.kinds import InstallationKind
from licclient._core.lazy import lazy
from licclient._core.model import UpdateFeed, is_version_folder
from licclient._core.process import LOCKS
from licclient._core.storage import (
    CANNOT_LOCK,
    FOLDER_PAUSES,
    MAX_PATH,
    NEW_FILE,
    create_lock,
    disk_name,
    is_absence,
    is_folder,
    look_at,
    make_folder,
    read_folder,
    read_with_retries,
    repeat,
    replace_file,
    sync_folder,
    write_file,
)
from licclient.errors import UntrustedResponseError, UnusableArchiveError
from licclient.install._detection import DetectedInstallation, detect
from licclient.install._handover import Sparkle, WinSparkle
from licclient.install._plan import InstallationReceipt, InstalledUpdate, UpdatePlan
from licclient.install._probation import (
    CONFIRMED,
    STARTING,
    STARTS,
    Step,
    is_counted,
    is_noted,
    is_noted_by_mistake,
    next_pointer,
    next_step,
    read_starts,
    without_way_back,
    write_starts,
)
from licclient.install._versions import (
    DISCARDED,
    DRAFT,
    POINTER,
    Pointer,
    folder_names,
    leftovers,
    read_pointer,
    version_of,
    write_pointer,
)

if TYPE_CHECKING:
    import logging
    import shutil

    import filelock

    from licclient._core import update_model
    from licclient._core.update_model import Downloaded
    from licclient.install import _launch
    from licclient.install import _unpack as _unpack_module
else:
    filelock = lazy("filelock")
    logging = lazy("logging")
    update_model = lazy("licclient._core.update_model")
    _launch = lazy("licclient.install._launch")
    _unpack_module = lazy("licclient.install._unpack")
    shutil = lazy("shutil")

__all__ = [
    "DetectedInstallation",
    "Installation",
    "InstallationKind",
    "InstallationReceipt",
    "Installed",
    "InstalledUpdate",
    "Sparkle",
    "UpdateFeed",
    "UpdatePlan",
    "WinSparkle",
    "detect",
]

LOCK_SECONDS: Final = 120.0
"""Time limit for another process that is unpacking the same app."""

START_SECONDS: Final = 2.0
"""The same for a launcher: a start must not wait for long."""

_LOCK: Final = ".licclient.lock"


@dataclass(frozen=True, slots=True)
class Installed:
    """A version that is completely there.

    Attributes:
        version: `Downloaded.version`, as PEP 440 normalises it.
        folder: The content of the zip.
    """

    version: str
    folder: Path


class Installation:
    """The folder of an app that replaces itself: puts a downloaded version beside the old one.

    Constructing one opens nothing. Threads and processes may share the folder; changes hold its lock.

    Args:
        folder: The app's own folder, which the user may write to. `apply` makes it if it is missing.

    Raises:
        TypeError: `folder` is not a path, or one of bytes.
        ValueError: `folder` is blank.
    """

    def __init__(self, folder: str | PathLike[str]) -> None:
        self._folder = read_folder("folder", folder)
        self._versions = self._folder / VERSIONS

    def __repr__(self) -> str:
        return f"Installation({str(self._folder)!r})"

    @property
    def current(self) -> Installed | None:
        """The version that starts next; None if none was applied, or it is gone.

        Raises:
            OSError: The folder cannot be read.
        """
        pointer = self._pointer()
        return None if pointer is None else self._installed(pointer.current)

    @property
    def previous(self) -> Installed | None:
        """The version that `roll_back` goes back to; as `current`."""
        pointer = self._pointer()
        return None if pointer is None or pointer.previous is None else self._installed(pointer.previous)

    def apply(self, downloaded: "Downloaded", *, allow_unverified: bool = False) -> Installed:
        """Unpack a downloaded zip into a folder of its own, and make it the current version.

        The running version is not touched: the new one runs from the next start on. The version before
        stays for `roll_back`, or the last one that was confirmed if that one is still on probation; older
        ones, and what was left by a process that died, are removed. What is there already, whole, is not
        unpacked again.

        Args:
            downloaded: From `download`; its size and digest are checked once more.
            allow_unverified: Install also a file of which the service sent no digest.

        Returns:
            The version that is current now.

        Raises:
            UntrustedResponseError: The file is not the one that was downloaded; or it was not verified, and
                `allow_unverified` is not set.
            UnusableArchiveError: Not a zip, or with forbidden content; nothing has changed.
            OSError: The folder cannot be read or written, has no room, or another process holds it for two
                minutes.
            TypeError: `downloaded` is not a `Downloaded`.
            ValueError: `downloaded.version` is not a version of PEP 440.
        """
        if not isinstance(downloaded, update_model.Downloaded):
            raise wrong_type("downloaded", "what download returned", downloaded)
        _check_fields(downloaded)
        check_flag("allow_unverified", allow_unverified)
        if not (downloaded.is_verified or allow_unverified):
            raise UntrustedResponseError(
                "The file was not verified, because the service sent no digest of it. "
                "To install it all the same, pass allow_unverified=True."
            )
        names = folder_names(downloaded.version, downloaded.sha256)
        with self._alone():
            before = self._pointer()
            current = None if before is None else before.current
            if current in names and self._is_whole(downloaded, current):
                self._clean_up(None)  # this is no update: what ran before the current version may run on
                return Installed(version_of(current), self._versions / current)
            self._clean_up(before)  # first: what the dead left may be the room that is needed
            name = next(
                (name for name in names if name != current and self._is_whole(downloaded, name)), None
            )
            if name is None:
                name = self._choose_name(names, before)
                runs = current is not None and _has_program(self._versions / current)
                self._unpack(downloaded, name, demand_program=runs)
            self._make_current(name, names, before)
            return Installed(version_of(name), self._versions / name)

    def roll_back(self) -> Installed | None:
        """Make the version before the current one again; it runs from the next start on.

        The version that was current is offered to this app only on request.

        Returns:
            The version that is current now; None without a previous version, and nothing has changed.

        Raises:
            OSError: The folder cannot be read or written, or another process holds it for two minutes.
        """
        if not is_folder(self._folder):  # none is made by going back
            return None
        with self._alone():
            before = self._pointer()
            if before is None or before.previous is None:
                return None
            installed = self._installed(before.previous)
            if installed is not None:
                try:
                    self._leave(before.current, before.previous)
                except OSError:  # then it is not rolled back
                    with suppress(OSError):
                        self._note_rolled_back(version_of(before.current), is_rolled_back=False)
                    raise
            return installed

    def confirm(self, *, no_way_back: bool = False) -> Installed | None:
        """Report that the running version works: call it at each start, when the main window stands.

        Only the first call for a version writes, and one after an interrupted `roll_back` or `apply`, which
        takes it off the list of those that were rolled back. From the first version that does so on, each
        later one is on probation until it does: after two starts without it the launcher makes the version
        before current again. So an app that once began must go on.

        Args:
            no_way_back: This version is about to change the user's data so that the one before cannot read
                them: nothing goes back any more, neither the launcher nor `roll_back`. Call it before that.

        Returns:
            The version that runs; None if this program does not run from a version's folder here, and
            nothing has changed.

        Raises:
            OSError: The folder cannot be read or written; or, with `no_way_back`, another process holds it
                for two minutes.
        """
        check_flag("no_way_back", no_way_back)
        name = next((name for name in self._running() if is_version_folder(name)), None)
        if name is None:
            return None
        if no_way_back and self._leads_back(name):
            with self._alone():
                pointer = self._pointer()
                if pointer is not None:
                    self._write(POINTER, write_pointer(without_way_back(pointer, name)))
        if not self._is_confirmed(name):
            self._mark_confirmed(name)
        with suppress(OSError):  # it is confirmed, and the next `apply` takes it off the list as well
            if self._is_noted_by_mistake(name):
                with self._alone(START_SECONDS):
                    if self._is_noted_by_mistake(name):
                        self._note_rolled_back(version_of(name), is_rolled_back=False)
        return self._installed(name)

    def start(self, program: str, arguments: Sequence[str] = ()) -> int:
        """Run a program of the current version: for the launcher, which does nothing else.

        If the version is on probation, its start is counted; after two that were not confirmed, the version
        before is made current and runs. On Linux and macOS the program takes this process's place,
        and this never returns. On Windows, and where its start is counted, it is waited for.

        Args:
            program: Its path within the version's folder; `.exe` may be left out.
            arguments: What it is called with.

        Returns:
            The program's exit status.

        Raises:
            OSError: There is no current version, or no such program in it; or the folder cannot be read.
        """
        check_program(program, arguments)
        installed, path = self.current, disk_name(program)
        try:
            return self._start(installed, path, arguments)
        except FileNotFoundError:
            later = self.current
            if later is None or later == installed:
                raise
            return self._start(later, path, arguments)  # an update has removed the other one meanwhile

    def _start(  # noqa: RET503 - exec does not return
        self, installed: Installed | None, path: str, arguments: Sequence[str]
    ) -> int:
        if installed is None:
            raise FileNotFoundError(errno.ENOENT, "No version of the app is installed", str(self._folder))
        name = installed.folder.name
        with ExitStack() as stack:
            step, starts = self._begin_start(name, path, stack)
            if step is Step.COUNT:
                return self._run_counted(installed.folder / path, arguments, name, starts)
            if step is Step.GO_BACK:
                installed = self._go_back(name, path) or installed
        if os.name == "nt":
            return _launch.exit_status(_launch.run(installed.folder / path, arguments))
        program = str(installed.folder / path)
        os.execve(program, [program, *arguments], clean_environment())  # noqa: S606 - ours, and no shell

    # --- probation (D-360) --------------------------------------------------------------------

    def _begin_start(self, name: str, program: str, stack: ExitStack) -> tuple[Step, int]:
        """Decide about a start and count it; the lock of a counted one is held by `stack`.

        What cannot be read or written is neither counted nor a reason to go back, and never prevents a start.
        """
        try:
            if self._next_step(name, program)[0] is Step.START:
                return Step.START, 0
            lock = self._versions / name / STARTING
            _remove_unless_plain(lock)
            # Another launcher that waits for this version has counted: this is a second instance.
            stack.enter_context(create_lock(lock, 0))
            step, starts = self._next_step(name, program)  # what it wrote meanwhile
            if step is Step.COUNT:
                self._write(STARTS, write_starts(name, starts + 1))
        except (OSError, NotImplementedError):  # the latter: a file system without locks
            return Step.START, 0
        return step, starts

    def _next_step(self, name: str, program: str) -> tuple[Step, int]:
        pointer = self._pointer()
        if pointer is None or pointer.current != name:  # an update came meanwhile
            return Step.START, 0
        if pointer.previous is not None and not self._has_program(pointer.previous, program):
            return Step.START, 0  # a virus scanner has taken it: there is nothing to go back to
        starts = read_starts(read_with_retries(self._folder / STARTS), name)
        return next_step(pointer, starts, *self._records(pointer)), starts or 0

    def _has_program(self, name: str, program: str) -> bool:
        path = self._versions / name / program
        return any(look_at(path, follow_links=True) for path in (path, path.with_name(f"{path.name}.exe")))

    def _run_counted(self, path: Path, arguments: Sequence[str], name: str, before: int) -> int:
        status, was_asked = _launch.run_watched(path, arguments)
        if not is_counted(status, was_asked=was_asked):
            with suppress(OSError):
                self._write(STARTS, write_starts(name, before))
        return _launch.exit_status(status)

    def _go_back(self, name: str, program: str) -> Installed | None:
        """Make the last confirmed version current, and return it; also where that cannot be written.

        Then the next start tries again.
        """
        previous = self.previous
        try:
            with self._alone(START_SECONDS):
                step, _ = self._next_step(name, program)
                pointer = self._pointer()
                if step is not Step.GO_BACK or pointer is None or pointer.previous is None:
                    return self.current  # an update came meanwhile
                self._leave(name, pointer.previous)
        except OSError as problem:
            reason = problem.strerror or type(problem).__name__
            logging.getLogger("licclient").warning(
                "Going back cannot be written (%s): %s", reason, self._folder
            )
        return previous

    def _leave(self, current: str, previous: str) -> None:
        """Note the current version as bad, and make the one before current; in this order.

        A process that is killed in between has left a launcher that does it again.
        """
        if is_noted(current, previous):
            self._note_rolled_back(version_of(current), is_rolled_back=True)
        # What was current is not kept as the previous one: the next `apply` removes it.
        self._write(POINTER, write_pointer(Pointer(previous)))

    def _records(self, pointer: Pointer | None) -> tuple[list[str], list[str]]:
        """Return which of the pointer's folders were confirmed, and which versions were rolled back."""
        names = (pointer.current, pointer.previous) if pointer is not None else ()
        return [name for name in names if name and self._is_confirmed(name)], read_rolled_back(self._folder)

    def _is_confirmed(self, name: str) -> bool:
        return _is_plain(self._versions / name / CONFIRMED)

    def _is_noted_by_mistake(self, name: str) -> bool:
        return is_noted_by_mistake(self._pointer(), name, read_rolled_back(self._folder))

    def _mark_confirmed(self, name: str) -> None:
        folder = self._versions / name
        _remove_unless_plain(folder / CONFIRMED)
        with suppress(FileExistsError):  # another process of the same version
            os.close(os.open(folder / CONFIRMED, os.O_WRONLY | NEW_FILE, 0o666))
        sync_folder(folder)

    def _make_current(self, name: str, names: Collection[str], before: Pointer | None) -> None:
        """Make a whole version current, on probation anew unless it replaces a damaged copy that was current.

        `names` are all folders that its archive may have. Whatever is cut off here, the next start runs a
        version that works, and goes back to one (D-399, D-400): until the pointer is replaced the version
        before keeps its protection, and from then on nothing raises.
        """
        confirmed, rolled_back = self._records(before)
        after = next_pointer(before, name, names, confirmed, rolled_back)
        if after.previous is not None and after.previous in confirmed:
            self._note_rolled_back(version_of(after.previous), is_rolled_back=False)
        is_repaired = before is not None and before.current in names and before.current in confirmed
        mark = self._versions / name / CONFIRMED
        has_mark = look_at(mark) is not None
        if is_repaired:
            self._mark_confirmed(name)
        _erase(self._folder / STARTS)
        self._write(POINTER, write_pointer(after))
        with suppress(OSError):  # the version is current, whatever is noted about it
            if has_mark and not is_repaired:  # not earlier: the one before may go back to this version
                _erase(mark)
            self._note_rolled_back(version_of(name), is_rolled_back=False)
        # Without a pointer before, the needed versions are unknown until the next update. A version that was
        # current may still run, whatever process installs this one.
        if before is None:
            self._clean_up(None)
        else:
            self._clean_up(after, before.current)

    def _leads_back(self, name: str) -> bool:
        pointer = self._pointer()
        return pointer is not None and without_way_back(pointer, name) != pointer

    # --- the disk -----------------------------------------------------------------------------

    @contextmanager
    def _alone(self, seconds: float | None = None) -> Generator[None]:
        seconds = LOCK_SECONDS if seconds is None else seconds
        make_folder(self._versions)
        path, guard = self._folder / _LOCK, LOCKS.get(str(self._versions))
        busy = OSError(errno.EBUSY, "Another process is changing this installation", str(path))
        if not guard.acquire(timeout=seconds):
            raise busy
        with ExitStack() as stack:
            stack.callback(guard.release)
            try:
                stack.enter_context(create_lock(path, seconds))
            except filelock.Timeout:
                raise busy from None
            except (OSError, NotImplementedError) as problem:
                if isinstance(problem, OSError) and problem.errno not in CANNOT_LOCK:
                    raise
                raise OSError(errno.ENOLCK, "Files cannot be locked here", str(path)) from problem
            yield

    def _pointer(self) -> Pointer | None:
        raw = read_with_retries(self._folder / POINTER)
        return None if raw is None else read_pointer(raw)

    def _note_rolled_back(self, version: str, *, is_rolled_back: bool) -> None:
        """Add a version to those that are offered only on request, or remove it."""
        before = read_rolled_back(self._folder)
        after = [other for other in before if other != version] + [version] * is_rolled_back
        if after != before:
            self._write(ROLLED_BACK, "".join(f"{line}\n" for line in after).encode())

    def _write(self, name: str, content: bytes) -> None:
        """Replace a file of the folder atomically and durably; who may read the folder may read it."""
        shared = _unpack_module.read_shared(self._folder)
        write_file(self._folder / name, content, self._folder / f"{name}.draft", 0o666, shared & 0o044)
        sync_folder(self._folder)

    def _installed(self, name: str) -> Installed | None:
        folder = self._versions / name
        return Installed(version_of(name), folder) if is_folder(folder) else None

    def _unpack(self, downloaded: "Downloaded", name: str, *, demand_program: bool) -> None:
        draft = self._versions / f"{DRAFT}{name}"
        try:
            _unpack_module.unpack(downloaded.path, downloaded.size, downloaded.sha256, draft)
            if demand_program:
                _demand_program(draft)
            self._demand_started(draft)
            _unpack_module.share(draft, _unpack_module.read_shared(self._folder))
            if is_folder(self._versions / name):  # damaged, and the pointer does not lead to it
                self._discard(name)
            replace_file(draft, self._versions / name, FOLDER_PAUSES)
        except BaseException:
            _remove(draft)
            raise
        sync_folder(self._versions)

    def _demand_started(self, draft: Path) -> None:
        """Raise `UnusableArchiveError` if a version lacks the frozen program that runs, by its name."""
        started = Path(sys.executable or "")
        try:
            inner = started.resolve().relative_to(self._versions.resolve()).parts[1:]
        except (OSError, RuntimeError, ValueError):
            return
        if inner and getattr(sys, "frozen", False) and not draft.joinpath(*inner).is_file():
            raise UnusableArchiveError(
                f"The archive has no {'/'.join(inner)}, the program that is started. Pack the content of the"
                " app's folder, not the folder, and keep the program's name."
            )

    def _is_whole(self, downloaded: "Downloaded", name: str) -> bool:
        """Return whether a version is there with all of its files: virus scanners take some away later."""
        folder = self._versions / name
        if not is_folder(folder):
            return False
        return _unpack_module.is_unpacked(downloaded.path, downloaded.size, downloaded.sha256, folder)

    def _choose_name(self, names: Collection[str], before: Pointer | None) -> str:
        """Return the name for a new folder: never that of a damaged one in the pointer (D-399)."""
        kept = () if before is None else (before.current, before.previous)
        return next(name for name in names if name not in kept or look_at(self._versions / name) is None)

    def _clean_up(self, pointer: Pointer | None, *needed: str) -> None:
        """Remove unneeded versions; one that runs on Windows cannot be removed, and stays whole.

        What fails is logged, and done by the next update.
        """
        try:
            names = [path.name for path in self._versions.iterdir()]
            running = self._running()  # else the needed versions are unknown
        except OSError as problem:
            reason = problem.strerror or type(problem).__name__
            logging.getLogger("licclient").warning(
                "Old versions cannot be removed (%s): %s", reason, self._versions
            )
            return
        for name in leftovers(pointer, names, {*running, *needed}):
            with suppress(OSError):
                self._discard(name)

    def _discard(self, name: str) -> None:
        # Rename it first: a folder under a version's name is always complete.
        discarded = self._versions / f"{DISCARDED}{name.removeprefix(DISCARDED)}"
        _remove(discarded)  # of an earlier run
        (self._versions / name).rename(discarded)
        _remove(discarded)

    def _running(self) -> set[str]:
        """Name the version that this very process runs from: it may yet load more of its files.

        Raise `OSError` if that cannot be found out.
        """
        versions, running = self._versions.resolve(), set()
        for program in filter(None, (sys.executable, *sys.argv[:1])):
            try:
                path = Path(program).resolve(strict=True)
            except OSError as problem:
                if is_absence(problem):  # such as the name that a compiled app is given for Python
                    continue
                raise
            if versions in path.parents:
                running.add(path.relative_to(versions).parts[0])
        return running


def confirm_running(*, no_way_back: bool = False) -> None:
    """Confirm the running version in the app's own folder; log what fails without `no_way_back`."""
    check_flag("no_way_back", no_way_back)
    for folder in list_app_folders():
        try:
            Installation(folder).confirm(no_way_back=no_way_back)
        except OSError as problem:
            if no_way_back:
                raise
            reason = problem.strerror or type(problem).__name__
            logging.getLogger("licclient").warning("The version cannot be confirmed (%s): %s", reason, folder)


def _check_fields(downloaded: "Downloaded") -> None:
    """Raise `TypeError` for fields that `download` does not make, such as restored ones."""
    for name, kind, expected in (
        ("path", PathLike, "a pathlib.Path"),
        ("size", int, "a whole number"),
        ("sha256", str, "a string"),
        ("version", str, "a string"),
    ):
        value = getattr(downloaded, name)
        if not isinstance(value, kind):
            raise wrong_type(f"{name} of downloaded", expected, value)
    path = os.fspath(downloaded.path)  # with halves of surrogates where the file system is one of ASCII
    if not path or "\0" in path or len(path) > MAX_PATH:
        raise ValueError("path of downloaded must be the path of a file")


def check_program(program: object, arguments: object) -> None:
    """Raise `TypeError` or `ValueError` for what no system can start."""
    check_text("program", program, "a path of text")
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Sequence):
        raise wrong_type("arguments", "a list of strings", arguments)
    is_path = isinstance(program, str) and program.strip() and is_text(program) and len(program) <= MAX_PATH
    if not is_path:
        raise ValueError("program must be the path of a program, within the folder of the version")
    if not all(isinstance(argument, str) for argument in arguments):
        raise TypeError("arguments must be a list of strings")
    if not all("\0" not in argument for argument in arguments):
        raise ValueError("arguments must not contain NUL")


def _demand_program(folder: Path) -> None:
    if not _has_program(folder):
        raise UnusableArchiveError(
            "The archive has no program for this system, as the installed version has: none of its files is"
            " executable. Pack it with the permissions of Unix."
        )


def _has_program(folder: Path) -> bool:
    """Return whether a version has a file that Unix runs; False on Windows, which goes by names."""
    if os.name == "nt":
        return False

    def fail(problem: OSError) -> None:
        if not is_absence(problem):
            raise problem

    paths = (Path(place, name) for place, _, names in os.walk(folder, onerror=fail) for name in names)
    return any(path.lstat().st_mode & 0o111 for path in paths)


def _remove(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
    if is_folder(path):
        _make_removable(path)
        shutil.rmtree(path, ignore_errors=True)
    with suppress(OSError):  # a file
        path.unlink(missing_ok=True)


def _make_removable(folder: Path) -> None:
    """Let this user change a folder: Windows removes no read-only file, others nothing in such a folder."""
    with suppress(OSError):
        for parent, folders, files in os.walk(folder):
            for path in (Path(parent), *(Path(parent, name) for name in (*folders, *files))):
                if not path.is_symlink():  # it may lead elsewhere
                    path.chmod(path.stat().st_mode | stat.S_IRWXU)


def _is_plain(path: Path) -> bool:
    status = look_at(path)
    return status is not None and stat.S_ISREG(status.st_mode)


def _remove_unless_plain(path: Path) -> None:
    """Remove what is in the place of a file: a folder there would end the counting of starts (D-401)."""
    if not _is_plain(path):
        _erase(path)


def _erase(path: Path) -> None:
    """Remove a file, or whatever is in its place."""

    def erase() -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    repeat(erase)
