"""Replace an application by its downloaded update, and go back to the version before.

::

    from licclient.install import Installation

    Installation(folder).apply(client.download(update, downloads))

The app's own folder has a folder for each version, and a pointer to the one that is current::

    Photo Lab/
    ├── photo-lab              the launcher: never replaced, starts the current version
    ├── current.txt            the pointer: the current version's folder, then the one before
    └── versions/
        ├── 1.0.0-6b1f3c2a90d1e4f7/
        └── 1.1.0-0c4de81f7a55b392/

A folder gets its name in `versions` when it is complete, and the pointer is replaced atomically: a process
that is killed at any moment leaves either the old version current or the new one.
"""

import errno
import os
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.arguments import check_flag, check_text, is_text, wrong_type
from licclient._core.computer import ROLLED_BACK, VERSIONS, read_rolled_back
from licclient._core.environment import clean_environment
from licclient._core.lazy import lazy
from licclient._core.process import LOCKS
from licclient._core.storage import (
    CANNOT_LOCK,
    FOLDER_PAUSES,
    MAX_PATH,
    create_lock,
    disk_name,
    is_absence,
    is_folder,
    make_folder,
    read_folder,
    read_with_retries,
    replace_file,
    sync_folder,
    write_file,
)
from licclient.errors import UntrustedResponseError, UnusableArchiveError
from licclient.install._versions import (
    DISCARDED,
    DRAFT,
    POINTER,
    Pointer,
    folder_name,
    leftovers,
    read_pointer,
    version_of,
    write_pointer,
)

if TYPE_CHECKING:
    import shutil
    import subprocess

    import filelock

    from licclient._core import update_model
    from licclient._core.update_model import Downloaded
    from licclient.install import _unpack as _unpack_module
else:
    filelock = lazy("filelock")
    update_model = lazy("licclient._core.update_model")
    _unpack_module = lazy("licclient.install._unpack")
    shutil = lazy("shutil")
    subprocess = lazy("subprocess")

__all__ = ["Installation", "Installed"]

LOCK_SECONDS: Final = 120.0
"""Time limit for another process that is unpacking the same app."""

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
        stays for `roll_back`; older ones, and what was left by a process that died, are removed. What is
        there already, whole, is not unpacked again.

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
        name = folder_name(downloaded.version, downloaded.sha256)
        with self._alone():
            before = self._pointer()
            self._clean_up(before)  # first: what the dead left may be the room that is needed
            if not self._is_whole(downloaded, name):
                runs = before is not None and _has_program(self._versions / before.current)
                self._unpack(downloaded, name, demand_program=runs)
            if before is None or before.current != name:
                after = Pointer(name, before.current if before is not None else None)
                self._write(POINTER, write_pointer(after))
                with suppress(OSError):  # the version is current, whatever is noted about it
                    self._note_rolled_back(version_of(name), is_rolled_back=False)
                # Without a pointer before, the needed versions are unknown until the next update.
                self._clean_up(after if before is not None else None)
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
                version = version_of(before.current)
                self._note_rolled_back(version, is_rolled_back=True)
                try:
                    # What was current is not kept as the previous one: the next `apply` removes it.
                    self._write(POINTER, write_pointer(Pointer(before.previous)))
                except OSError:  # then it is not rolled back
                    with suppress(OSError):
                        self._note_rolled_back(version, is_rolled_back=False)
                    raise
            return installed

    def start(self, program: str, arguments: Sequence[str] = ()) -> int:  # noqa: RET503 - exec does not return
        """Run a program of the current version: for the launcher, which does nothing else.

        On Linux and macOS the program takes this process's place, and this never returns. On Windows it is
        waited for.

        Args:
            program: Its path within the version's folder; `.exe` may be left out.
            arguments: What it is called with.

        Returns:
            The program's exit status.

        Raises:
            OSError: There is no current version, or no such program in it; or the folder cannot be read.
        """
        check_program(program, arguments)
        installed = self.current
        if installed is None:
            raise FileNotFoundError(errno.ENOENT, "No version of the app is installed", str(self._folder))
        path = installed.folder / disk_name(program)
        if os.name == "nt":
            return _run(path, arguments)
        os.execve(path, [str(path), *arguments], clean_environment())  # noqa: S606 - ours, and no shell

    # --- the disk -----------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Generator[None]:
        make_folder(self._versions)
        path, guard = self._folder / _LOCK, LOCKS.get(str(self._versions))
        busy = OSError(errno.EBUSY, "Another process is changing this installation", str(path))
        if not guard.acquire(timeout=LOCK_SECONDS):
            raise busy
        with ExitStack() as stack:
            stack.callback(guard.release)
            try:
                stack.enter_context(create_lock(path, LOCK_SECONDS))
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
        """Replace a file of the folder atomically and durably."""
        write_file(self._folder / name, content, self._folder / f"{name}.draft", 0o666)
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
            if is_folder(self._versions / name):  # a damaged version
                self._discard(name)
            replace_file(draft, self._versions / name, FOLDER_PAUSES)
        except BaseException:
            _remove(draft)
            raise
        sync_folder(self._versions)

    def _is_whole(self, downloaded: "Downloaded", name: str) -> bool:
        """Return whether a version is there with all of its files: virus scanners take some away later."""
        folder = self._versions / name
        if not is_folder(folder):
            return False
        return _unpack_module.is_unpacked(downloaded.path, downloaded.size, downloaded.sha256, folder)

    def _clean_up(self, pointer: Pointer | None) -> None:
        """Remove unneeded versions; one that runs on Windows cannot be removed, and stays whole."""
        names = [path.name for path in self._versions.iterdir()]
        try:
            running = self._running()
        except OSError:  # the needed versions are unknown until the next update
            return
        for name in leftovers(pointer, names, running):
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


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _run(path: Path, arguments: Sequence[str]) -> int:
    """Run a program and wait for it: what Windows calls exec keeps neither the console nor the status."""
    program = path if path.is_file() else path.with_name(f"{path.name}.exe")
    command = [str(program), *arguments]
    try:
        return subprocess.run(command, env=clean_environment(), check=False).returncode
    except OSError as problem:
        if problem.filename is None:  # there, the system's call names no file
            problem.filename = str(program if program.is_file() else path)
        raise
