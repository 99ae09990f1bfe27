"""Writing a backup."""

import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

from licserver import __version__
from licserver.database import schema
from licserver.database.dump import take_snapshot
from licserver.errors import BackupError
from licserver.security.secrets_file import SECRETS_FILE, read_secrets
from licserver.services import Services
from licserver.services.backup.layout import CONTENTS, DATABASE, FORMAT, HEADER, Summary, artifact_name


def write_backup(services: Services, target: IO[bytes], now: datetime, *, artifacts: bool = True) -> Summary:
    """Write a backup while the server goes on serving.

    Args:
        services: Of the installation; the database's state is that of this moment.
        target: Need not seek.
        now: The instant.
        artifacts: Whether the files of releases go along.

    Returns:
        What it holds.

    Raises:
        ArtifactsError: when a release's file is not there, or is not what was published.
        StoreUnavailableError: when the database fails.
        OSError: when the target cannot be written.
    """
    summary = Summary(now, __version__, schema.HEAD)
    with (
        take_snapshot(services.database) as snapshot,
        tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        writer = _Writer(tar, now)
        tables = [{"name": layout.name, "columns": layout.columns} for layout in snapshot.layouts]
        writer.add(
            HEADER,
            _to_json(
                {
                    "format": FORMAT,
                    "licserver": __version__,
                    "made_at": now.isoformat(),
                    "revision": schema.HEAD,
                    "tables": tables,
                }
            ),
        )
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
    """Puts members into a tar, and remembers their digests."""

    def __init__(self, tar: tarfile.TarFile, now: datetime) -> None:
        self._tar, self._mtime = tar, int(now.timestamp())
        self.contents: dict[str, tuple[int, str]] = {}

    def add(self, name: str, content: bytes) -> None:
        """Put a small one in."""
        self.stream(name, len(content), iter([content]))

    def stream(self, name: str, size: int, pieces: Iterator[bytes]) -> None:
        """Put a large one in, as it comes."""
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = size, 0o600, self._mtime
        source = _Pieces(pieces)
        self._tar.addfile(info, source)
        source.finish()
        self.contents[name] = (size, source.digest.hexdigest())


class _Pieces(io.RawIOBase):
    """A file made of pieces, that digests what is read from it."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._left = pieces, b""
        self.digest = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while len(self._left) < size and (piece := next(self._pieces, None)) is not None:
            self._left += piece
        found, self._left = self._left[:size], self._left[size:]
        self.digest.update(found)
        return found

    def finish(self) -> None:
        """Let the source say what it has to say after its last piece."""
        for _ in self._pieces:
            raise BackupError("a file became longer while it was read; try again")


def _to_json(held: Any) -> bytes:
    return json.dumps(held, indent=1).encode()
