"""Reading a backup, member by member."""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from licserver.backup.layout import CONTENTS, PIECE_BYTES
from licserver.errors import BackupError

_DAMAGED: Final = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
)

_SMALL: Final = 64 << 20
"""Bytes of what is read as a whole: a piece of the database has a fraction of it."""


class Reader:
    """Takes members out of a tar, one after the other, and digests them."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._member: tarfile.TarInfo | None = None
        self._digests: dict[str, tuple[int, str]] = {}

    @property
    def member_size(self) -> int:
        """Bytes of the member that has come."""
        return 0 if self._member is None else self._member.size

    @property
    def size(self) -> int:
        """Bytes of all that has come."""
        return sum(size for size, _ in self._digests.values())

    def next(self) -> str:
        """Go on to the next member; returns its name.

        Raises:
            BackupError: when there is none.
        """
        self._member = self._tar.next()
        if self._member is None or not self._member.isreg():
            raise BackupError("the backup was cut off: its end is missing")
        return self._member.name

    def expect(self, name: str) -> bytes:
        """Take the next member, which must have this name."""
        if self.next() != name:
            raise BackupError("this is no backup of licserver")
        return self.content()

    def content(self) -> bytes:
        """Take the member, which is small."""
        if self.member_size > _SMALL:
            raise BackupError("the backup is damaged: a part is too large")
        held = io.BytesIO()
        self.copy_to(held)
        return held.getvalue()

    def copy_to(self, target: IO[bytes]) -> str:
        """Copy the member; returns its SHA-256, in hexadecimal digits."""
        member = self._member
        source = None if member is None else self._tar.extractfile(member)
        if member is None or source is None:
            raise BackupError("this is no backup of licserver")
        digest, size = hashlib.sha256(), 0
        while chunk := source.read(PIECE_BYTES):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
        self._digests[member.name] = (size, digest.hexdigest())
        return digest.hexdigest()

    def check(self, contents: Mapping[str, Any]) -> None:
        """Compare what has come with what was written."""
        del self._digests[CONTENTS]
        if {name: list(one) for name, one in self._digests.items()} != dict(contents):
            raise BackupError("the backup is damaged: it does not hold what was written")


@contextmanager
def reading(source: IO[bytes]) -> Iterator[Reader]:
    """Read a backup for a block; what is no backup, or a damaged one, ends it with one kind of error.

    Raises:
        BackupError: for whatever the bytes do to who reads them.
    """
    try:
        with tarfile.open(fileobj=source, mode="r|") as tar:
            yield Reader(tar)
    except _DAMAGED as problem:
        raise BackupError(f"this is no whole backup of licserver ({type(problem).__name__})") from None
