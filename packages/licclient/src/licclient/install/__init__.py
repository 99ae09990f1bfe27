"""Replace an application by its downloaded update, and go back to the version before (D-80, D-81).

::

    from licclient.install import Installation

    Installation(folder).apply(client.download(update, downloads))

The app's own folder has a folder for each version, and a pointer to the one that is current::

    Photo Lab/
    ├── photo-lab              the launcher: never replaced, starts what is current
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._computer import ROLLED_BACK, VERSIONS, read_rolled_back
from licclient._storage import FOLDER_PAUSES, read_folder, read_private, replace_file
from licclient.errors import UntrustedResponseError
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
    from licclient._part_file import Downloaded

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
        """The version that starts next; None if none was applied, or it is gone."""
        pointer = self._pointer()
        return None if pointer is None else self._installed(pointer.current)

    @property
    def previous(self) -> Installed | None:
        """The version that `roll_back` goes back to."""
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
            UnusableArchiveError: Not a zip, or it contains what is not allowed (D-80); nothing has changed.
            OSError: The folder cannot be written, has no room, or another process holds it for two minutes.
            TypeError: `downloaded` is not a `Downloaded`.
            ValueError: `downloaded.version` is not a version of PEP 440.
        """
        from licclient._part_file import Downloaded  # noqa: PLC0415 - a launcher applies nothing

        if not isinstance(downloaded, Downloaded):
            raise TypeError(f"downloaded must be what download returned, not {type(downloaded).__name__}")
        if not (downloaded.is_verified or allow_unverified):
            raise UntrustedResponseError(
                "The file was not verified, because the service sent no digest of it. "
                "To install it all the same, pass allow_unverified=True."
            )
        name = folder_name(downloaded.version, downloaded.sha256)
        with self._alone():
            before = self._pointer()
            self._clean_up(before)  # first: what the dead left may be the room that is needed
            if not (self._versions / name).is_dir():
                self._unpack(downloaded, name)
            if before is None or before.current != name:
                after = Pointer(name, before.current if before is not None else None)
                self._write(POINTER, write_pointer(after))
                with suppress(OSError):  # the version is current, whatever is noted about it
                    self._note_rolled_back(version_of(name), is_rolled_back=False)
                # Without a pointer before, nobody knows which versions are needed: the next update will.
                self._clean_up(after if before is not None else None)
            return Installed(version_of(name), self._versions / name)

    def roll_back(self) -> Installed | None:
        """Make the version before the current one again; it runs from the next start on.

        The version that was current is offered to this app only on request (D-179).

        Returns:
            The version that is current now; None when there is none to go back to, and nothing has changed.

        Raises:
            OSError: The folder cannot be written, or another process holds it for two minutes.
        """
        if not self._folder.is_dir():  # none is made by going back
            return None
        with self._alone():
            before = self._pointer()
            if before is None or before.previous is None:
                return None
            found = self._installed(before.previous)
            if found is not None:
                self._note_rolled_back(version_of(before.current), is_rolled_back=True)
                # What was current is not kept as the previous one: the next `apply` removes it.
                self._write(POINTER, write_pointer(Pointer(before.previous)))
            return found

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
            OSError: There is no current version, or no such program in it.
        """
        installed = self.current
        if installed is None:
            raise FileNotFoundError(errno.ENOENT, "No version of the app is installed", str(self._folder))
        path = installed.folder / program
        if os.name == "nt":
            return _run(path, arguments)
        os.execve(path, [str(path), *arguments], _own_environment())  # noqa: S606 - ours, and no shell

    # --- the disk -----------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Generator[None]:
        from filelock import FileLock, Timeout  # noqa: PLC0415 - a launcher needs no lock

        self._versions.mkdir(parents=True, exist_ok=True)
        path = self._folder / _LOCK
        try:
            lock = FileLock(path, timeout=LOCK_SECONDS).acquire()
        except Timeout:
            raise OSError(errno.EBUSY, "Another process is changing this installation", str(path)) from None
        except NotImplementedError:
            raise OSError(errno.ENOLCK, "Files cannot be locked here", str(path)) from None
        with lock:
            yield

    def _pointer(self) -> Pointer | None:
        raw = read_private(self._folder / POINTER)
        return None if raw is None else read_pointer(raw)

    def _note_rolled_back(self, version: str, *, is_rolled_back: bool) -> None:
        """Add a version to those that are offered only on request, or remove it."""
        before = read_rolled_back(self._folder)
        after = [one for one in before if one != version] + [version] * is_rolled_back
        if after != before:
            self._write(ROLLED_BACK, "".join(f"{one}\n" for one in after).encode())

    def _write(self, name: str, content: bytes) -> None:
        """Replace a file of the folder atomically and durably."""
        from licclient.install._unpack import sync_folder  # noqa: PLC0415 - a launcher writes nothing

        draft = self._folder / f"{name}.draft"
        with draft.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        replace_file(draft, self._folder / name)
        sync_folder(self._folder)

    def _installed(self, name: str) -> Installed | None:
        folder = self._versions / name
        return Installed(version_of(name), folder) if folder.is_dir() else None

    def _unpack(self, downloaded: "Downloaded", name: str) -> None:
        from licclient.install._unpack import sync_folder, unpack  # noqa: PLC0415 - a launcher unpacks nothing

        draft = self._versions / f"{DRAFT}{name}"
        try:
            unpack(downloaded.path, downloaded.size, downloaded.sha256, draft)
            replace_file(draft, self._versions / name, FOLDER_PAUSES)
        except BaseException:
            _remove(draft)
            raise
        sync_folder(self._versions)

    def _clean_up(self, pointer: Pointer | None) -> None:
        """Remove what is not needed; a version that runs on Windows cannot be removed, and stays whole."""
        names = [path.name for path in self._versions.iterdir()]
        for name in leftovers(pointer, names, self._running()):
            # Rename it first: a folder under a version's name is always complete.
            discarded = self._versions / f"{DISCARDED}{name.removeprefix(DISCARDED)}"
            with suppress(OSError):
                (self._versions / name).rename(discarded)
                _remove(discarded)

    def _running(self) -> set[str]:
        """Name the version that this very process runs from: it may yet load more of its files."""
        versions = self._versions.resolve()
        paths = (Path(path).resolve() for path in (sys.executable, sys.argv[0]) if path)
        return {path.relative_to(versions).parts[0] for path in paths if versions in path.parents}


def _remove(folder: Path) -> None:
    from shutil import rmtree  # noqa: PLC0415 - as above

    rmtree(folder, ignore_errors=True)


def _run(path: Path, arguments: Sequence[str]) -> int:
    """Run a program and wait for it: what Windows calls exec keeps neither the console nor the status."""
    import subprocess  # noqa: PLC0415 - as above

    found = path if path.is_file() else path.with_name(f"{path.name}.exe")
    command = [str(found), *arguments]
    return subprocess.run(command, env=_own_environment(), check=False).returncode  # noqa: S603 - as above


def _own_environment() -> dict[str, str]:
    """Return the environment without what PyInstaller's loader put into it for the launcher alone."""
    environment = dict(os.environ)
    if getattr(sys, "frozen", False):
        environment["PYINSTALLER_RESET_ENVIRONMENT"] = "1"
        before = environment.pop("LD_LIBRARY_PATH_ORIG", None)
        environment.pop("LD_LIBRARY_PATH", None)
        if before is not None:
            environment["LD_LIBRARY_PATH"] = before
    return environment
