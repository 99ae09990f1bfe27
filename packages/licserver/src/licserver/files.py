"""Files that a vendor names, checked and digested; and ours: durable, and owned by who has to read them."""

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from licserver.environment import is_printable
from licserver.errors import WrongUse


def checked_file(file: Path) -> Path:
    """Return a path that can be published.

    Raises:
        WrongUse: when it is no file, or its name cannot be told to customers.
    """
    if not is_printable(file.name):
        raise WrongUse("the file's name must not contain control characters")
    if not file.is_file():
        raise WrongUse(f"{file} is no file")
    return file


def digest_of(file: Path) -> tuple[int, bytes]:
    """Read a file to its end; returns its size in bytes and its SHA-256.

    Raises:
        OSError: when it cannot be read.
    """
    with file.open("rb") as source:
        digest = hashlib.file_digest(source, "sha256").digest()
        return source.tell(), digest


def hand_over(path: Path | int, like: Path) -> None:
    """Give what root has made to whom the things around it belong; for everybody else it does nothing.

    A command of root's, beside a server that runs as another user, must leave nothing that this user cannot
    read (D-126).

    Args:
        path: A file, a folder, or a file's handle.
        like: Whose owner and group it gets.

    Raises:
        OSError: when the file system does not let root do it; the file is then not to be given its name.
    """
    if os.name == "nt" or os.geteuid() != 0:
        return
    owner = like.stat()
    os.chown(path, owner.st_uid, owner.st_gid)


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
