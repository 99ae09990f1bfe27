"""Reading a backup, member by member."""

import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, Any, Final

from licserver.errors import BackupError
from licserver.services.backup.layout import CONTENTS, PIECE_BYTES

_DAMAGED: Final = (
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    LookupError,
    ValueError,
    TypeError,
    RecursionError,
)

_LARGEST_PIECE: Final = 64 << 20
"""Bytes of a packed piece of the database, the largest of what is read as a whole; most have a fraction."""

_SMALL: Final = 1 << 20
"""Bytes of what is read as JSON as a whole, which takes up to 25 times as much memory."""

_PER_MEMBER: Final = 1 << 10
"""Bytes of a member's line in the table of contents: the longest has 650."""


class _Member(tarfile.TarInfo):
    """A tar's member, if it is of a kind that a backup has: tarfile reads those of other kinds at once."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        """Read a header of 512 bytes."""
        member = super().frombuf(buf, encoding, errors)
        is_name = member.type == tarfile.XHDTYPE and member.size <= _SMALL  # of a name that is a long one
        if member.size < 0 or not (is_name or member.type in {tarfile.REGTYPE, tarfile.AREGTYPE}):
            raise tarfile.ReadError("no member of a backup")
        return member


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
        self._tar.members.clear()  # type: ignore[attr-defined] # tarfile keeps them all
        if self._member is None or not self._member.isreg() or self._member.issparse():
            raise BackupError("the backup was cut off: its end is missing")
        return self._member.name

    def expect(self, name: str) -> bytes:
        """Take the next member, which must have this name."""
        if self.next() != name:
            raise BackupError("this is no backup of licserver")
        return self.content(_SMALL)

    def contents(self) -> bytes:
        """Take the member, which is the table of contents; it grows with what has come."""
        return self.content(_SMALL + _PER_MEMBER * len(self._digests))

    def content(self, most: int = _LARGEST_PIECE) -> bytes:
        """Take the member, which has no more bytes than this."""
        if self.member_size > most:
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
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_Member) as tar:
            yield Reader(tar)
    except _DAMAGED as problem:
        raise BackupError(f"this is no whole backup of licserver ({type(problem).__name__})") from None
