"""Versions as in PEP 440: parsed and compared. Pure."""

from functools import lru_cache

from packaging.utils import canonicalize_version
from packaging.version import Version

from licserver.domain.records import Release


def parse_version(text: str) -> Version | None:
    """Parse a version by PEP 440; return None for invalid text."""
    try:
        return Version(text)
    except ValueError:  # InvalidVersion, or Python's limit of digits in a number
        return None


_parse = lru_cache(maxsize=256)(parse_version)  # customers have the same few versions
parse_published = lru_cache(maxsize=4096)(parse_version)
"""`parse_version` for versions of releases; its cache is apart, as customers can send any other text."""


def version_of(release: Release) -> Version:
    """Return the parsed version of a release that is offered.

    Raises:
        ValueError: It cannot be parsed; such a release is never offered.
    """
    version = parse_published(release.version)
    if version is None:
        raise ValueError(f"{release.version!r} is not a version")
    return version


def is_below(version: str, limit: str | None) -> bool:
    """Return whether a version is lower than `limit`; False if either cannot be parsed."""
    if limit is None:
        return False
    parsed, parsed_limit = _parse(version), _parse(limit)
    return parsed is not None and parsed_limit is not None and parsed < parsed_limit


def version_key(version: Version) -> str:
    """Return the canonical text of a version: 1.0 and 1.0.0 have the same."""
    return canonicalize_version(version)
