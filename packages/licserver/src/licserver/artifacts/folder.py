"""The interface of stores of files, and the local folder."""

import asyncio
import errno
import hashlib
import os
import stat
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeAlias

from licserver.domain.records import Artifact
from licserver.errors import ArtifactsError
from licserver.security.private_files import describe_link, open_unlinked, remove_leftovers, sync_folder

_CHUNK_BYTES: Final = 1 << 20
_TEMPORARY: Final = ".incoming-"

_MODE: Final = 0o640
"""Server and publisher may be different users of a group; the data folder admits no other user."""

_LEFTOVER_SECONDS: Final = 24 * 3600
"""A temporary file without a write for a day was left by a killed process."""


@dataclass(frozen=True, slots=True)
class ArtifactRedirect:
    """The client downloads from another address, which is a credential for some minutes."""

    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pieces:
    """A file that is read over a network: `read` takes offset and length, and yields pieces of a MiB."""

    read: Callable[[int, int], AsyncGenerator[memoryview, None]]


Source: TypeAlias = BinaryIO | Pieces | ArtifactRedirect  # how to send a file


class Digests:
    """Size and digests of a file that is read in pieces."""

    def __init__(self) -> None:
        self._size, self._sha256 = 0, hashlib.sha256()
        # For WordPress, against broken transfers (D-206); 1.7 s a GiB.
        self._md5 = hashlib.md5(usedforsecurity=False)

    def update(self, piece: bytes) -> None:
        """Add a piece."""
        self._size += len(piece)
        self._sha256.update(piece)
        self._md5.update(piece)

    def describe(self, file_name: str) -> Artifact:
        """Return the artifact that the pieces are."""
        return Artifact(file_name, self._size, self._sha256.digest(), self._md5.digest())


class Artifacts(Protocol):
    """Stores the files of releases; every method raises `ArtifactsError` if the store cannot do it."""

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Store a file, complete and durable, or not at all; it is read to its end, perhaps twice."""
        ...

    def holds(self, artifact: Artifact) -> bool:
        """Return whether an artifact is stored, with its size."""
        ...

    def probe(self) -> None:
        """Check that the store exists and can be accessed."""
        ...

    def read(self, artifact: Artifact) -> Iterator[bytes]:
        """Yield an artifact in pieces of at most a MiB; raise after the last piece if the digest is wrong."""
        ...

    async def find(self, artifact: Artifact, method: str) -> Source:
        """Return how to send an artifact; `method` is GET or HEAD, for which alone a redirect is valid."""
        ...


class ArtifactFolder:
    """Implements `Artifacts`; the folder is created with the first artifact."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Copy a file to a temporary one, and rename that to its digest."""
        self._folder.mkdir(parents=True, exist_ok=True)
        digests = Digests()
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=_TEMPORARY)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as target:
                remove_leftovers(self._folder, _TEMPORARY, os.fstat(handle).st_mtime, _LEFTOVER_SECONDS)
                while chunk := source.read(_CHUNK_BYTES):
                    digests.update(chunk)
                    target.write(chunk)
                target.flush()
                if os.name != "nt":
                    os.fchmod(target.fileno(), _MODE)
                os.fsync(target.fileno())
            artifact = digests.describe(file_name)
            path = self.path(artifact)
            path.parent.mkdir(exist_ok=True)
            temporary.replace(path)
            # The name must be durable before the database refers to it.
            for folder in (path.parent, self._folder, self._folder.parent):
                sync_folder(folder)
        finally:
            temporary.unlink(missing_ok=True)
        return artifact

    def path(self, artifact: Artifact) -> Path:
        """Return an artifact's path; two levels keep the folders small."""
        name = artifact.sha256.hex()
        return self._folder / name[:2] / name

    async def find(self, artifact: Artifact, method: str) -> BinaryIO:  # noqa: ARG002 - the interface's signature
        """Open an artifact on a thread."""
        return await asyncio.to_thread(self.open, artifact)

    def holds(self, artifact: Artifact) -> bool:
        """Return whether the artifact is a regular file of its size; a link does not count."""
        try:
            status = self.path(artifact).lstat()
            return stat.S_ISREG(status.st_mode) and status.st_size == artifact.size
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ArtifactsError(f"the artifacts folder cannot be read: {error.strerror}") from None

    def probe(self) -> None:
        """Do nothing: the folder is created with the first artifact."""

    def read(self, artifact: Artifact) -> Iterator[bytes]:
        """Yield an artifact, and check its digest."""
        digest = hashlib.sha256()
        with self.open(artifact) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
                yield chunk
        if digest.digest() != artifact.sha256:
            raise ArtifactsError(f"the artifacts folder has {artifact.sha256.hex()} with other bytes")

    def open(self, artifact: Artifact) -> BinaryIO:
        """Open an artifact of the right size for reading."""
        try:
            file = open_unlinked(self.path(artifact))
        except FileNotFoundError:
            raise ArtifactsError(f"the artifacts folder has no {artifact.sha256.hex()}") from None
        except OSError as error:
            if error.errno == errno.ELOOP and (problem := describe_link(self.path(artifact))):
                raise ArtifactsError(problem) from None
            raise ArtifactsError(
                f"cannot read {artifact.sha256.hex()} in the artifacts folder: {error.strerror}"
            ) from None
        if os.fstat(file.fileno()).st_size != artifact.size:
            file.close()
            raise ArtifactsError(
                f"the artifacts folder has {artifact.sha256.hex()} with another size than was published"
            )
        return file
