"""Files that a vendor names, checked and digested; and ours: durable, and never read through a link."""

import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, BinaryIO, Final

from licserver.domain.environments import is_printable
from licserver.errors import WrongUse

MAX_NAME_BYTES: Final = 200
"""Bytes of a file's name: with what browsers put behind it, a file system takes it."""


def checked_file(file: Path) -> Path:
    """Return a path that can be published.

    Raises:
        WrongUse: when it is no file, or its name cannot be told to customers.
    """
    if not is_printable(file.name):
        raise WrongUse("the file's name must not contain control characters")
    # Not `is_file`, which newer Pythons let return False for a file that this user may not look at.
    try:
        is_file = stat.S_ISREG(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        is_file = False
    if not is_file:
        raise WrongUse(f"{file} is no file")
    return file


def checked_name(text: str) -> str:
    """Return the name of a file that came from elsewhere, without the folders before it.

    Args:
        text: As a browser or a program sent it; it names nothing on this machine.

    Raises:
        WrongUse: when nothing is left that can be told to customers.
    """
    name = text.replace("\\", "/").rpartition("/")[2].strip()
    if name.strip(".") == "" or not is_printable(name) or len(name.encode()) > MAX_NAME_BYTES:
        raise WrongUse(
            f"a file's name must be one line of at most {MAX_NAME_BYTES} bytes, and not of dots alone"
        )
    return name


def digest_of(file: Path) -> tuple[int, bytes]:
    """Read a file to its end; returns its size in bytes and its SHA-256.

    Raises:
        OSError: when it cannot be read.
    """
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
        return source.tell(), digest


def describe_link(path: Path) -> str | None:
    """Describe why a path is no plain file with a single name, and what to do; None if it is one, or missing.

    Raises:
        OSError: when the path cannot be looked at.
    """
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a symbolic link, which licserver does not follow; put the file itself in its place"
    if not stat.S_ISREG(status.st_mode):
        return f"{path} is not a regular file; move it away"
    if status.st_nlink > 1:
        return (
            f"{path} has another name (a hard link), under which it can be changed; remove that name, or put "
            "a copy of the file in its place"
        )
    return None


def open_unlinked(path: Path) -> BinaryIO:
    """Open a file for reading, but not through a symbolic link.

    Raises:
        OSError: when it cannot be opened; for a symbolic link with ``ELOOP``.
    """
    no_follow = getattr(os, "O_NOFOLLOW", 0)  # Windows has none
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | no_follow))


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    if os.name == "nt":  # Windows opens no folders, and keeps names durable by itself
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path, prefix: str, now: float, older_than: float) -> None:
    """Remove what killed processes left.

    Args:
        folder: Where.
        prefix: How the names of unfinished files begin.
        now: The file system's own clock, so that no clocks are compared.
        older_than: Seconds since it was last written to: others may be at work.
    """
    for left in folder.glob(f"{prefix}*"):
        with suppress(OSError):  # gone meanwhile, or not ours to remove: harmless either way
            if now - left.stat().st_mtime > older_than:
                left.unlink()


@contextmanager
def new_file(path: Path, *, replace: bool) -> Iterator[IO[bytes]]:
    """Write a file that is there whole or not at all, and that nobody else may read.

    Args:
        path: Where.
        replace: Whether one that is there already may go.

    Raises:
        WrongUse: when there is one and it may not, or no folder for it.
    """
    if path.exists() and not replace:
        raise WrongUse(f"there is a file {path} already")
    if not path.parent.is_dir():
        raise WrongUse(f"there is no folder {path.parent}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
