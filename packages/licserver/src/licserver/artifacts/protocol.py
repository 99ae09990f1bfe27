"""What a place for artifacts can do, whichever it is."""

from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol, TypeAlias

from licserver.domain.records import Artifact


@dataclass(frozen=True, slots=True)
class ArtifactRedirect:
    """The caller is to fetch the file from another address.

    Args:
        address: A credential for some minutes: not for logs.
    """

    address: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pieces:
    """A file that comes in pieces, over a network.

    Args:
        read: Fetches a span, given the offset of its first byte and its length in bytes, in pieces
            small enough to hold one in memory for each caller. All of it comes, or `ArtifactsError`.
    """

    read: Callable[[int, int], AsyncGenerator[memoryview, None]]


Source: TypeAlias = BinaryIO | Pieces | ArtifactRedirect
"""How a file can be sent on: a file of this machine, pieces, or not by us."""


class Artifacts(Protocol):
    """A place for artifacts."""

    def store(self, source: BinaryIO, file_name: str) -> Artifact:
        """Copy a file in: whole and durable, or not at all.

        Args:
            source: Read from its beginning to its end, in pieces, perhaps twice; can seek.
            file_name: What customers will see the file called.

        Returns:
            The artifact, ready to be published.

        Raises:
            OSError: when the file cannot be read, or the disk cannot be written.
            ArtifactsError: when the bucket does not take it.
        """
        ...

    def holds(self, artifact: Artifact) -> bool:
        """Tell whether an artifact is there, with the size that it should have.

        Raises:
            ArtifactsError: when nobody can tell.
        """
        ...

    def probe(self) -> None:
        """Find out whether the place is there and lets us in, whatever it holds.

        Raises:
            ArtifactsError: saying what is wrong.
        """
        ...

    def read(self, artifact: Artifact) -> Iterator[bytes]:
        """Read an artifact from its beginning to its end, in pieces of a MiB at most.

        Raises:
            ArtifactsError: when it is not there as it was stored, or its bytes are not those of its digest:
                said after the last piece.
        """
        ...

    async def find(self, artifact: Artifact, method: str) -> Source:
        """Find out how an artifact is to be sent.

        Args:
            artifact: As stored.
            method: ``GET`` or ``HEAD``: an address elsewhere is good for that one only.

        Raises:
            ArtifactsError: when it is not there as it was stored, or nobody can tell.
        """
        ...
