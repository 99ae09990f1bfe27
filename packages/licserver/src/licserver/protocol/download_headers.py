"""Headers of downloads: of a file, whole or in part, and of a redirect to it. Pure."""

import re
from base64 import b64encode
from urllib.parse import quote

from licserver.domain.records import Artifact, Release
from licserver.protocol.public_api import NOT_A_PAGE


def download_headers(release: Release) -> dict[str, str]:
    """Return the headers of a release's file, whole or in part."""
    artifact = release.artifact
    return {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private",  # a link belongs to one customer
        "Content-Disposition": attachment(artifact.file_name),
        "Content-Type": "application/octet-stream",
        "ETag": etag(release),
        "Repr-Digest": _repr_digest(artifact),
        **NOT_A_PAGE,
    }


def content_md5(release: Release) -> dict[str, str]:
    """Return the header with a whole file's MD5 (RFC 1864), which WordPress compares (D-206).

    It is for the body of one response: not for a part or a redirect; of patches none is stored.
    """
    md5 = release.artifact.md5
    return {} if md5 is None else {"Content-MD5": b64encode(md5).decode()}


def redirect_headers(release: Release, address: str) -> dict[str, str]:
    """Return the headers of a redirect to a release's file; name and digest are the service's (D-34)."""
    return {
        "Location": address,
        "Cache-Control": "no-store",
        "Content-Disposition": attachment(release.artifact.file_name),
        "Repr-Digest": _repr_digest(release.artifact),
        **NOT_A_PAGE,
    }


def _repr_digest(artifact: Artifact) -> str:
    """Format the digest of the whole file (RFC 9530)."""
    return f"sha-256=:{b64encode(artifact.sha256).decode()}:"


def etag(release: Release) -> str:
    """Return the strong ETag of a release's file: its digest, equal on all servers."""
    return f'"{release.artifact.sha256.hex()}"'


def attachment(file_name: str) -> str:
    """Format a Content-Disposition (RFC 6266): an ASCII name for old clients, and the real one."""
    plain = re.sub(r"[^ !#-\[\]-~]", "_", file_name)
    if plain == file_name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file_name, safe='')}"
