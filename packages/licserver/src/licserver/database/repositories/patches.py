"""Patches between the files of releases."""

from typing import Any

from sqlalchemy import select

from licserver.database.repositories.base import Repository
from licserver.database.tables.licenses import patches
from licserver.domain.records import Artifact, Release


class PatchRepository(Repository):
    """The patches that lead to a release, each stored as an artifact with the name of the release's file."""

    def add(self, release: Release, base_sha256: bytes, patch: Artifact) -> None:
        """Add a stored patch, unless another process has just done so."""
        row: dict[str, Any] = {"release_id": release.id, "base_sha256": base_sha256}
        row |= {"size": patch.size, "sha256": patch.sha256}
        self._insert_unless_taken(patches.insert().values(row))

    def list_all(self, release: Release) -> dict[bytes, Artifact]:
        """Load a release's patches, by the digests of the files that they start from."""
        name = release.artifact.file_name
        rows = self._all(select(patches).where(patches.c.release_id == release.id))
        return {row.base_sha256: Artifact(name, row.size, row.sha256) for row in rows}
