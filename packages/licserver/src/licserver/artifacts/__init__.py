"""The bytes of releases: in a local folder, or in an S3-compatible bucket, behind one small face.

Everything is kept under its own digest, so that a file never changes under a reader and storing the
same file again changes nothing.
"""

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
    """Choose where artifacts are kept; nothing is asked of a bucket yet.

    Args:
        settings: `artifacts_url` names a bucket; without it the folder in the data folder is taken.

    Raises:
        SettingsError: when the bucket cannot be used as it is named, or the extra is not installed.
    """
    if settings.artifacts_url is None:
        return ArtifactFolder(settings.data_dir / "artifacts")
    # Here, not at the top: obstore comes with the extra `s3` only.
    from licserver.artifacts.bucket import open_bucket  # noqa: PLC0415

    return open_bucket(settings)
