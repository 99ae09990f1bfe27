"""Binary patches, which make the downloads of updates smaller."""

import io
import logging
from hashlib import sha256
from typing import Final

from licserver import libraries
from licserver.domain.records import Artifact, Release
from licserver.protocol.downloads import PATCH_MAGIC
from licserver.services.context import Service
from licserver.services.releases import ReleaseService

BASES: Final = 3
"""Number of older files to patch from: most customers have one of these; each patch costs time and space."""

_LEVEL: Final = 9  # twice the time of level 3, a tenth smaller; level 15 takes ten times as long
_MIN_WINDOW_LOG: Final = 17
_MIN_BASE: Final = 8  # bytes; zstd takes no shorter dictionary

_log = logging.getLogger("licserver.patches")


class PatchService(Service):
    """Makes and lists the patches to a release."""

    def make(
        self, slug: str, version: str, platform: str = "", kind: str = ""
    ) -> list[tuple[Release, Artifact]]:
        """Make the missing patches to a release, from the files that were published before it.

        A withdrawn version is a base as well: its users must update. Both files are held in memory.

        Returns:
            The patches that save enough, each with its base.
        """
        stored = self._context.repositories.releases
        release = ReleaseService(self._context).get(slug, version, platform, kind)
        new = b""
        for base in self.list_missing(slug, version, platform, kind):
            new = new or self._read(release)
            content = make_patch(self._read(base), new)
            if content is not None:
                patch = self._context.artifacts.store(io.BytesIO(content), release.artifact.file_name)
                stored.add_patch(release, base.artifact.sha256, patch)
            size = "none, it would save less than half" if content is None else f"{len(content):,} bytes"
            _log.info("patch of %s from %s to %s: %s", slug, base.version, release.version, size)
        patches = stored.list_patches(release)
        bases = self._find_bases(release)
        return [(base, patches[base.artifact.sha256]) for base in bases if base.artifact.sha256 in patches]

    def list_missing(self, slug: str, version: str, platform: str = "", kind: str = "") -> list[Release]:
        """Return the bases from which a release has no patch yet; an empty list for a withdrawn release."""
        release = ReleaseService(self._context).get(slug, version, platform, kind)
        if release.withdrawn_at is not None:
            return []
        patches = self._context.repositories.releases.list_patches(release)
        return [base for base in self._find_bases(release) if base.artifact.sha256 not in patches]

    def _find_bases(self, release: Release) -> list[Release]:
        releases = self._context.repositories.releases.list_all(release.product_id)
        return find_bases(release, releases, self._context.settings.patch_limit)

    def _read(self, release: Release) -> bytes:
        content = io.BytesIO()  # joining pieces would need twice the memory
        for piece in self._context.artifacts.read(release.artifact):
            content.write(piece)
        return content.getvalue()


def find_bases(release: Release, releases: list[Release], limit: int) -> list[Release]:
    """Return the releases of a product from which patches start, the latest first."""
    before = {  # by content: a file may have been published twice
        candidate.artifact.sha256: candidate
        for candidate in releases
        if candidate.id < release.id
        and candidate.platform in ("", release.platform)
        and candidate.kind is release.kind
        and candidate.artifact.size <= limit
    }
    before.pop(release.artifact.sha256, None)
    if not before or release.artifact.size > limit:
        return []
    return sorted(before.values(), key=lambda candidate: candidate.id, reverse=True)[:BASES]


def make_patch(old: bytes, new: bytes) -> bytes | None:
    """Return the patch from an old file to a new file; None unless it saves half of the download."""
    if len(old) < _MIN_BASE:
        return None
    zstd = libraries.zstd
    parameters = zstd.CompressionParameter
    options: dict[int, int] = {
        parameters.compression_level: _LEVEL,
        parameters.enable_long_distance_matching: 1,
        # The whole old file can be referred to only if the new file fits into the window.
        parameters.window_log: max(_MIN_WINDOW_LOG, (len(new) - 1).bit_length()),
    }
    prefix = zstd.ZstdDict(old, is_raw=True).as_prefix
    patch = PATCH_MAGIC + sha256(old).digest() + zstd.compress(new, options=options, zstd_dict=prefix)
    return patch if 2 * len(patch) <= len(new) else None
