"""Makes patches, by which updates become smaller downloads."""

import io
import logging
import sys
from hashlib import sha256
from typing import Final

from licserver.domain.records import Artifact, Release
from licserver.protocol.downloads import PATCH_MAGIC
from licserver.services.context import Service
from licserver.services.releases import ReleaseService

BASES: Final = 3
"""From how many older files: most customers have one of these, and each patch takes room and time."""

_LEVEL: Final = 9  # twice the time of level 3 for a tenth less; level 15 takes ten times as long
_MIN_WINDOW_LOG: Final = 17
_MIN_BASE: Final = 8  # bytes; zstd takes no shorter dictionary

_log = logging.getLogger("licserver.patches")


class PatchService(Service):
    """Makes and lists the patches that lead to a release."""

    def make(self, slug: str, version: str, platform: str = "") -> list[tuple[Release, Artifact]]:
        """Make the patches that are missing, from the files that were published last before this one.

        A withdrawn version is a base, too: those who have it are to leave it. Both files are held in memory.

        Returns:
            The patches that are worth it, each with the release that it starts from.
        """
        releases, stored = ReleaseService(self._context), self._context.repositories.releases
        release = releases.get(slug, version, platform)
        made = stored.list_patches(release)
        bases = find_bases(release, releases.list_all(slug), self._context.settings.patch_limit)
        new = b""
        for base in bases:
            if release.withdrawn_at is not None or base.artifact.sha256 in made:
                continue
            new = new or self._read(release)
            content = make_patch(self._read(base), new)
            if content is not None:
                patch = self._context.artifacts.store(io.BytesIO(content), release.artifact.file_name)
                stored.add_patch(release, base.artifact.sha256, patch)
            size = "none, it would save less than half" if content is None else f"{len(content):,} bytes"
            _log.info("patch of %s from %s to %s: %s", slug, base.version, release.version, size)
        made = stored.list_patches(release)
        return [(base, made[base.artifact.sha256]) for base in bases if base.artifact.sha256 in made]

    def _read(self, release: Release) -> bytes:
        content = io.BytesIO()  # not joined pieces, which are in memory twice for a moment
        for piece in self._context.artifacts.read(release.artifact):
            content.write(piece)
        return content.getvalue()


def find_bases(release: Release, releases: list[Release], limit: int) -> list[Release]:
    """Return those of a product's releases to start patches from, the latest first."""
    before = {  # by content: a file may have been published twice
        one.artifact.sha256: one
        for one in releases
        if one.id < release.id and one.platform in ("", release.platform) and one.artifact.size <= limit
    }
    before.pop(release.artifact.sha256, None)
    if not before or release.artifact.size > limit:
        return []
    return sorted(before.values(), key=lambda one: one.id, reverse=True)[:BASES]


def make_patch(old: bytes, new: bytes) -> bytes | None:
    """Return the patch from one file to another; None if it does not save half of the download."""
    if len(old) < _MIN_BASE:
        return None
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415 - 20 ms that other commands need not wait
    else:
        from backports import zstd  # noqa: PLC0415 - as above
    parameters = zstd.CompressionParameter
    options: dict[int, int] = {
        parameters.compression_level: _LEVEL,
        parameters.enable_long_distance_matching: 1,
        # The old file can be referred to as long as the new one is within the window.
        parameters.window_log: max(_MIN_WINDOW_LOG, (len(new) - 1).bit_length()),
    }
    prefix = zstd.ZstdDict(old, is_raw=True).as_prefix
    patch = PATCH_MAGIC + sha256(old).digest() + zstd.compress(new, options=options, zstd_dict=prefix)
    return patch if 2 * len(patch) <= len(new) else None
