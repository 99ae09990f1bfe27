"""Versions by PEP 440 as semantic versions, which Tauri and Velopack read. Pure."""

import re
from typing import Final

from licserver.domain.decisions import parse_version

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_SEMANTIC: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-[0-9A-Za-z.-]+)?")
_KINDS: Final = {"a": "alpha", "b": "beta", "rc": "rc"}
_PARTS: Final = 3  # of a semantic version


def to_semantic(version: str) -> str | None:
    """Return a version as a semantic one; None if none is in the same order among others.

    `1.5` is `1.5.0`, and `1.5b2` is `1.5.0-beta.2`. Post-releases, development releases, local versions,
    epochs and a fourth number have no counterpart.
    """
    parsed = parse_version(version)
    if parsed is None or parsed.epoch or parsed.is_postrelease or parsed.is_devrelease or parsed.local:
        return None
    if len(parsed.release) > _PARTS:
        return None
    if _SEMANTIC.fullmatch(version):
        return version
    numbers = (*parsed.release, 0, 0)[:_PARTS]
    semantic = ".".join(map(str, numbers))
    return semantic if parsed.pre is None else f"{semantic}-{_KINDS[parsed.pre[0]]}.{parsed.pre[1]}"
