"""The interface of an artifact store."""

from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, TypeAlias

from licserver.domain.records import Artifact


@dataclass(frozen=True, slots=True)
class ArtifactRedirect:
    """The client downloads from another address, which is a credential for some minutes."""

    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pieces:
    """A file that is read over a network.

    Args:
        read: Reads a span, given offset and length in bytes, in pieces of a MiB; raises `ArtifactsError`
            if it cannot read all of it.
    """

    read: Callable[[int, int], AsyncGenerator[memoryview, None]]


Source: TypeAlias = BinaryIO | Pieces | ArtifactRedirect
"""How to send a file."""


class Artifacts(Protocol):
    """Stores the files of releases; every method raises `ArtifactsError` if the store cannot do it."""

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Store a file, complete and durable, or not at all.

        Args:
            source: Seekable; read to its end, perhaps twice.
            file_name: For customers.

        Raises:
            OSError: if the file cannot be read or written.
        """
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
