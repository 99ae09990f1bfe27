"""The files of releases, in a local folder or an S3-compatible bucket, each under its own digest."""

from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, TypeAlias

from licserver.domain.records import Artifact
from licserver.settings import Settings


@dataclass(frozen=True, slots=True)
class ArtifactRedirect:
    """The client downloads from another address, which is a credential for some minutes."""

    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pieces:
    """A file that is read over a network: `read` takes offset and length, and yields pieces of a MiB."""

    read: Callable[[int, int], AsyncGenerator[memoryview, None]]


Source: TypeAlias = BinaryIO | Pieces | ArtifactRedirect  # how to send a file


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


def open_artifacts(settings: Settings) -> Artifacts:
    """Return the configured store, without accessing it."""
    if settings.artifacts_url is None:
        from licserver.artifacts.folder import ArtifactFolder  # noqa: PLC0415 - it imports this module

        return ArtifactFolder(settings.data_dir / "artifacts")
    # obstore comes with the extra `s3` only.
    from licserver.artifacts.bucket import open_bucket  # noqa: PLC0415

    return open_bucket(settings)
