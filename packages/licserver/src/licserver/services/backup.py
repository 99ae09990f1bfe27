"""Backups: an installation's database, secrets and release files in a single tar file.

Members in order: the header (`HEADER`), the secrets, the artifacts, the tables' rows, and the digests of all
these members (`CONTENTS`), by which truncated and damaged files are detected. Backups are written and read
sequentially, with constant memory, so that source and target may be pipes.
"""

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any, Final

from licserver import __version__
from licserver.database import schema
from licserver.database.dump import take_snapshot
from licserver.domain.records import Artifact
from licserver.errors import BackupError
from licserver.security.secrets_file import SECRETS_FILE, read_secrets
from licserver.services.installation import Services

FORMAT: Final = 1
HEADER: Final = "licserver-backup.json"
CONTENTS: Final = "contents.json"
ARTIFACTS: Final = "artifacts/"
DATABASE: Final = "database/"

PIECE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Summary:
    """The contents of a backup in numbers, as of `made_at`."""

    made_at: datetime
    version: str
    revision: str
    rows: dict[str, int] = field(default_factory=dict)
    artifacts: int = 0
    size: int = 0
    erased: int = 0  # addresses that were erased again


def artifact_name(artifact: Artifact) -> str:
    """Name the member that holds an artifact."""
    # With the public file name, which is part of a bucket's key: a file may be published under two names.
    return f"{ARTIFACTS}{artifact.sha256.hex()}/{artifact.file_name.encode().hex()}"


def read_artifact_name(name: str, size: int) -> Artifact:
    """Parse a name of `artifact_name`; raise a `ValueError` for any other name."""
    digest, _, file_name = name.removeprefix(ARTIFACTS).partition("/")
    return Artifact(bytes.fromhex(file_name).decode(), size, bytes.fromhex(digest))


# --- writing ----------------------------------------------------------------------------------


def write_backup(services: Services, target: IO[bytes], now: datetime, *, artifacts: bool = True) -> Summary:
    """Write a backup while the server is running; `target` need not seek."""
    summary = Summary(now, __version__, schema.HEAD)
    with (
        take_snapshot(services.database) as snapshot,
        tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        writer = _Writer(tar, now)
        header = {"format": FORMAT, "licserver": __version__, "made_at": now.isoformat()}
        tables = [{"name": layout.name, "columns": layout.columns} for layout in snapshot.layouts]
        writer.add(HEADER, _to_json({**header, "revision": schema.HEAD, "tables": tables}))
        writer.add(SECRETS_FILE, read_secrets(services.settings).encode())
        seen: set[bytes] = set()
        for artifact in snapshot.artifacts() if artifacts else ():
            writer.stream(artifact_name(artifact), artifact.size, services.artifacts.read(artifact))
            seen.add(artifact.sha256)
        summary.artifacts = len(seen)
        for layout in snapshot.layouts:
            summary.rows[layout.name] = 0
            for number, (count, piece) in enumerate(snapshot.pieces(layout)):
                writer.add(f"{DATABASE}{layout.name}/{number:06}", piece)
                summary.rows[layout.name] += count
        summary.size = sum(size for size, _ in writer.contents.values())
        writer.add(CONTENTS, _to_json(writer.contents))
    return summary


class _Writer:
    """A tar that is being written, with the digests of its members."""

    def __init__(self, tar: tarfile.TarFile, now: datetime) -> None:
        self._tar, self._mtime = tar, int(now.timestamp())
        self.contents: dict[str, tuple[int, str]] = {}

    def add(self, name: str, content: bytes) -> None:
        """Add a member from bytes."""
        self.stream(name, len(content), iter([content]))

    def stream(self, name: str, size: int, pieces: Iterator[bytes]) -> None:
        """Add a member from an iterator of pieces."""
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, self._mtime
        source = _Pieces(pieces)
        self._tar.addfile(info, source)
        source.finish()
        self.contents[name] = (size, source.digest.hexdigest())


class _Pieces(io.RawIOBase):
    """A file over an iterator of pieces, with the digest of all bytes that were read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, None)) is not None:
            self._left += piece
        content, self._left = self._left[:size], self._left[size:]
        self.digest.update(content)
        return content

    def finish(self) -> None:
        """Raise a `BackupError` unless the source is at its end."""
        for _ in self._pieces:
            raise BackupError("a file became longer while it was read; try again")


def _to_json(value: Any) -> bytes:
    return json.dumps(value, indent=1).encode()


# --- reading ----------------------------------------------------------------------------------

_NOT_READ: Final = (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError)
_DAMAGED: Final = (*_NOT_READ, LookupError, ValueError, TypeError, OverflowError, RecursionError)

_LARGEST_PIECE: Final = 64 << 20
"""Bytes of a compressed piece of the database, the largest member that is read into memory."""

_SMALL: Final = 1 << 20  # bytes of JSON, whose parsed form takes up to 25 times as much memory
_PER_MEMBER: Final = 1 << 10  # bytes of a member's line in the table of contents; the longest line has 650


class _Member(tarfile.TarInfo):
    """A tar member of a kind that backups have: tarfile itself would read members of other kinds."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        """Read a header of 512 bytes."""
        member = super().frombuf(buf, encoding, errors)
        is_name = member.type == tarfile.XHDTYPE and member.size <= _SMALL  # the header of a long name
        if member.size < 0 or not (is_name or member.type in {tarfile.REGTYPE, tarfile.AREGTYPE}):
            raise tarfile.ReadError("not a member of a backup")
        return member


class Reader:
    """The members of a backup in sequence, with their digests.

    1. `next` reads the next member's name; `expect` also requires a name, and returns the content.
    2. `content` returns the member's bytes; `copy_to` copies them to a file.
    3. `check` reads the last member, `CONTENTS`, and compares all sizes and digests.

    Example::

        with reading(source) as reader:
            header = json.loads(reader.expect(HEADER))
            while (name := reader.next()) != CONTENTS:
                digest = reader.copy_to(target)
            reader.check()

    Each method raises a `BackupError` for a file that is truncated, damaged or no backup.
    """

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        self._member: tarfile.TarInfo | None = None
        self._digests: dict[str, tuple[int, str]] = {}

    @property
    def member_size(self) -> int:
        """The size of the current member in bytes."""
        return 0 if self._member is None else self._member.size

    @property
    def size(self) -> int:
        """The size of all members that were read, in bytes."""
        return sum(size for size, _ in self._digests.values())

    def next(self) -> str:
        """Advance to the next member; return its name."""
        self._member = self._tar.next()
        self._tar.members.clear()  # type: ignore[attr-defined] # tarfile keeps them all
        if self._member is None or not self._member.isreg() or self._member.issparse():
            raise BackupError("the backup was cut off: its end is missing")
        return self._member.name

    def expect(self, name: str) -> bytes:
        """Read the next member, which must have this name."""
        if self.next() != name:
            raise BackupError("this is not a licserver backup")
        return self.content(_SMALL)

    def content(self, limit: int = _LARGEST_PIECE) -> bytes:
        """Read the current member, of at most so many bytes."""
        if self.member_size > limit:
            raise BackupError("the backup is damaged: a part is too large")
        content = io.BytesIO()
        self.copy_to(content)
        return content.getvalue()

    def copy_to(self, target: IO[bytes]) -> str:
        """Copy the current member; return its SHA-256 as hex digits."""
        member = self._member
        source = None if member is None else self._tar.extractfile(member)
        if member is None or source is None:
            raise BackupError("this is not a licserver backup")
        digest, size = hashlib.sha256(), 0
        while chunk := source.read(PIECE_BYTES):
            digest.update(chunk)
            size += len(chunk)
            target.write(chunk)
        self._digests[member.name] = (size, digest.hexdigest())
        return digest.hexdigest()

    def check(self) -> None:
        """Compare all members with the current member, the table of contents."""
        contents: dict[str, Any] = json.loads(self.content(_SMALL + _PER_MEMBER * len(self._digests)))
        del self._digests[CONTENTS]
        if {name: list(entry) for name, entry in self._digests.items()} != contents:
            raise BackupError("the backup is damaged: it does not hold what was written")


@contextmanager
def reading(source: IO[bytes]) -> Iterator[Reader]:
    """Read a backup for a block; raise `BackupError` for any damage."""
    try:
        with tarfile.open(fileobj=source, mode="r|", tarinfo=_Member) as tar:
            yield Reader(tar)
    except _DAMAGED:
        message = "this is not a licserver backup, or it is damaged or cut off; use another one"
        raise BackupError(message) from None
