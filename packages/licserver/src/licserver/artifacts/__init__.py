"""The files of releases, in a local folder or an S3-compatible bucket, each under its own digest."""

from licserver.artifacts.folder import (
    ArtifactFolder,
    ArtifactRedirect,
    Artifacts,
    Digests,
    Pieces,
    Source,
)
from licserver.settings import Settings

__all__ = ["ArtifactFolder", "ArtifactRedirect", "Artifacts", "Digests", "Pieces", "Source", "open_artifacts"]


def open_artifacts(settings: Settings) -> Artifacts:
    """Return the configured store, without accessing it."""
    if settings.artifacts_url is None:
        return ArtifactFolder(settings.data_dir / "artifacts")
    from licserver.artifacts.bucket import open_bucket  # noqa: PLC0415 - obstore is in the extra `s3`

    return open_bucket(settings)
