"""Files that a vendor names: checked and digested before anything is done with them."""

import hashlib
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
