"""Artifacts in a local folder, in which each file lies under its own digest."""

import asyncio
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

from licserver.domain.records import Artifact
from licserver.errors import ArtifactsError
from licserver.security.private_files import describe_link, open_unlinked, sweep, sync_folder

_CHUNK_BYTES: Final = 1 << 20

_INCOMING: Final = ".incoming-"

_MODE: Final = 0o640
"""Who publishes may be another user than who serves, of one group; the data folder lets nobody else in."""

_ABANDONED_SECONDS: Final = 24 * 3600
"""Who has not written for a day will not go on: a process that was killed left this behind."""


class ArtifactFolder:
    """Keeps artifacts in a folder; content-addressed, so that a file never changes under a reader.

    Args:
        folder: Made when the first artifact is stored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Copy a file in (`face.Artifacts.store`): under its name it is whole and on the disk.

        Raises:
            OSError: when the disk is full or cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=_INCOMING)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as target:
                sweep(self._folder, _INCOMING, os.fstat(handle).st_mtime, _ABANDONED_SECONDS)
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
                target.flush()
                if os.name != "nt":
                    os.fchmod(target.fileno(), _MODE)
                os.fsync(target.fileno())
            artifact = Artifact(file_name, size, digest.digest())
            path = self.path(artifact)
            path.parent.mkdir(exist_ok=True)
            temporary.replace(path)
            # The name must be as durable as the bytes before the books may mention it.
            for folder in (path.parent, self._folder, self._folder.parent):
                sync_folder(folder)
        finally:
            temporary.unlink(missing_ok=True)
        return artifact

    def path(self, artifact: Artifact) -> Path:
        """Where an artifact lies; two levels, so that no folder grows without bound."""
        name = artifact.sha256.hex()
        return self._folder / name[:2] / name

    async def find(self, artifact: Artifact, method: str) -> BinaryIO:  # noqa: ARG002 - the face's shape
        """Open an artifact without holding up the loop; as `open`."""
        return await asyncio.to_thread(self.open, artifact)

    def holds(self, artifact: Artifact) -> bool:
        """Tell whether an artifact is there (`face.Artifacts.holds`)."""
        try:
            status = self.path(artifact).lstat()  # a link is replaced by the file when it is published again
            return stat.S_ISREG(status.st_mode) and status.st_size == artifact.size
        except FileNotFoundError:
            return False
        except OSError as problem:
            raise ArtifactsError(f"the artifacts folder cannot be read: {problem.strerror}") from None

    def probe(self) -> None:
        """Do nothing (`face.Artifacts.probe`): the folder is made when the first file comes."""

    def read(self, artifact: Artifact) -> Iterator[bytes]:
        """Read an artifact (`face.Artifacts.read`)."""
        digest = hashlib.sha256()
        with self.open(artifact) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                yield chunk
        if digest.digest() != artifact.sha256:
            raise ArtifactsError(f"the artifacts folder has {artifact.sha256.hex()} with other bytes")

    def open(self, artifact: Artifact) -> BinaryIO:
        """Open an artifact for reading.

        Raises:
            ArtifactsError: when the folder does not hold it as it was stored, or cannot be read.
        """
        try:
            file = open_unlinked(self.path(artifact))
        except FileNotFoundError:
            raise ArtifactsError(f"the artifacts folder has no {artifact.sha256.hex()}") from None
        except OSError as problem:
            if problem.errno == errno.ELOOP and (linked := describe_link(self.path(artifact))):
                raise ArtifactsError(linked) from None
            raise ArtifactsError(
                f"the artifacts folder cannot give {artifact.sha256.hex()}: {problem.strerror}"
            ) from None
        if os.fstat(file.fileno()).st_size != artifact.size:
            file.close()
            raise ArtifactsError(
                f"the artifacts folder has {artifact.sha256.hex()} with another size than was published"
            )
        return file
