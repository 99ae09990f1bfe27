"""The files of releases, in a local folder or an S3-compatible bucket, each under its own digest."""

from licserver.artifacts.folder import ArtifactFolder
from licserver.artifacts.protocol import ArtifactRedirect, Artifacts, Pieces, Source
from licserver.settings import Settings

__all__ = [
    "ArtifactFolder",
    "ArtifactRedirect",
    "Artifacts",
    "Pieces",
    "Source",
    "open_artifacts",
]


def open_artifacts(settings: Settings) -> Artifacts:
    """Return the configured store, without accessing it.

    Raises:
        SettingsError: if the bucket's address is invalid, or the extra is not installed.
    """
    if settings.artifacts_url is None:
        return ArtifactFolder(settings.data_dir / "artifacts")
    # obstore comes with the extra `s3` only.
    from licserver.artifacts.bucket import open_bucket  # noqa: PLC0415

    return open_bucket(settings)
