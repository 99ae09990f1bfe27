"""What stands where in a backup."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from licserver.domain.records import Artifact

FORMAT: Final = 1
HEADER: Final = "licserver-backup.json"
CONTENTS: Final = "contents.json"
ARTIFACTS: Final = "artifacts/"
DATABASE: Final = "database/"

PIECE_BYTES: Final = 1 << 20


@dataclass(slots=True)
class Summary:
    """What a backup holds.

    Args:
        made_at: When it was begun: the instant whose state it holds.
        version: Of the licserver that wrote it.
        revision: The schema of its database.
        rows: Of each table.
        artifacts: How many files of releases.
        size: Bytes of all that it holds.
    """

    made_at: datetime
    version: str
    revision: str
    rows: dict[str, int] = field(default_factory=dict)
    artifacts: int = 0
    size: int = 0


def artifact_name(artifact: Artifact) -> str:
    """Name the member that holds an artifact."""
    # The name that customers see is part of where a bucket keeps it: one file may be published under two.
    return f"{ARTIFACTS}{artifact.sha256.hex()}/{artifact.file_name.encode().hex()}"


def read_artifact_name(name: str, size: int) -> Artifact:
    """Read what `artifact_name` wrote.

    Raises:
        ValueError: for any other name.
    """
    digest, _, file_name = name.removeprefix(ARTIFACTS).partition("/")
    return Artifact(bytes.fromhex(file_name).decode(), size, bytes.fromhex(digest))
