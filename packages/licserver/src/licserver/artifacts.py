"""The bytes of releases: a local folder in which each file lies under its own digest."""

import hashlib
import os
import tempfile
from pathlib import Path
from typing import BinaryIO, Final

from licserver.model import Artifact

_CHUNK_BYTES: Final = 1 << 20


class ArtifactMissing(FileNotFoundError):
    """The database names a file that the folder does not hold."""


class ArtifactFolder:
    """Keeps artifacts in a folder; content-addressed, so that a file never changes under a reader.

    Args:
        folder: Made when the first artifact is stored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Copy a file in: whole and on the disk, or not at all.

        Args:
            source: Read to its end, in pieces.
            file_name: What customers will see the file called.

        Returns:
            The artifact, ready to be published.

        Raises:
            OSError: when the disk is full or cannot be written.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        digest, size = hashlib.sha256(), 0
        handle, name = tempfile.mkstemp(dir=self._folder, prefix=".incoming-")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as target:
                while chunk := source.read(_CHUNK_BYTES):
                    digest.update(chunk)
                    size += len(chunk)
                    target.write(chunk)
                target.flush()
                os.fsync(target.fileno())
            artifact = Artifact(file_name, size, digest.digest())
            path = self.path(artifact)
            path.parent.mkdir(exist_ok=True)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        return artifact

    def path(self, artifact: Artifact) -> Path:
        """Where an artifact lies; two levels, so that no folder grows without bound."""
        name = artifact.sha256.hex()
        return self._folder / name[:2] / name

    def open(self, artifact: Artifact) -> BinaryIO:
        """Open an artifact for reading.

        Raises:
            ArtifactMissing: when the folder does not hold it, or holds it with another size.
        """
        try:
            file = self.path(artifact).open("rb")
        except FileNotFoundError:
            raise ArtifactMissing(f"no artifact {artifact.sha256.hex()}") from None
        if os.fstat(file.fileno()).st_size != artifact.size:
            file.close()
            raise ArtifactMissing(
                f"artifact {artifact.sha256.hex()} has another size than when it was published"
            )
        return file
