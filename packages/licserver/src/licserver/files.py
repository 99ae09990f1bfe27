"""Files that a vendor names: checked and digested before anything is done with them."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from licserver.environment import is_printable
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
    if not file.is_file():
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
