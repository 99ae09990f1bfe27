"""The fields of a version that WordPress shows, and the order of versions in PHP. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from packaging.version import Version

from licserver.domain.records import WordPressFields
from licserver.domain.text import MAX_URL, is_https
from licserver.domain.versions import parse_version
from licserver.errors import InvalidInputError

_VERSION: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_EXAMPLES: Final = {"requires": "6.4", "tested": "6.7.1", "requires_php": "7.4"}


def read_fields(fields: WordPressFields) -> WordPressFields:
    """Return fields as stored: stripped, None for an empty field.

    Raises:
        InvalidInputError: A field is malformed.
    """
    clean = WordPressFields(*((text or "").strip() or None for text in fields))
    for name, example in _EXAMPLES.items():
        text = getattr(clean, name)
        if text is not None and not _VERSION.fullmatch(text):
            raise InvalidInputError(
                f"{text[:40]!r} is not a valid version for {name}: "
                f"write up to four numbers with dots, such as {example}"
            )
    if clean.details_url is not None and not is_https(clean.details_url):
        raise InvalidInputError(
            "the details_url must be an address like https://example.com/photo-lab, "
            f"with at most {MAX_URL} characters"
        )
    return clean


# --- PHP's `version_compare`, by which WordPress decides --------------------------------------

# Ranks of PHP, by the start of a part; a number counts as "#". Other text ranks below all.
_FORMS: Final = (
    *(("dev", 0), ("alpha", 1), ("a", 1), ("beta", 2), ("b", 2), ("RC", 3), ("rc", 3)),
    *(("#", 4), ("pl", 5), ("p", 5)),
)
_NUMBER: Final = "#"


def explain_order(version: str, published: Iterable[str]) -> str | None:
    """Describe the first conflict of PHP's order with PEP 440, among published and neighbouring versions.

    WordPress then does not offer the higher version to sites with the lower version.
    """
    parsed = parse_version(version)
    if parsed is None:
        return None
    for published_version in (*published, *_neighbours(parsed)):
        parsed_other = parse_version(published_version)
        if parsed_other is None or parsed_other == parsed:
            continue
        lower, higher = (
            (version, published_version) if parsed < parsed_other else (published_version, version)
        )
        if compare(higher, lower) <= 0:
            return (
                f"WordPress does not take {higher} to be newer than {lower}, because PHP orders versions "
                "in another way: plugins and themes need plain versions such as 1.2.0."
            )
    return None


def _neighbours(version: Version) -> Iterator[str]:
    """Yield typical versions below and above a version."""
    numbers = [*version.release, 0, 0][: max(len(version.release), 3)]
    plain = ".".join(map(str, version.release))
    yield "0"
    yield from (plain, f"{plain}.dev0", f"{plain}a0", f"{plain}b0", f"{plain}rc0", version.public)
    yield ".".join(map(str, [*numbers[:-1], numbers[-1] + 1]))
    if version.epoch:
        yield str(version.epoch + 1)


def compare(version: str, installed: str) -> int:
    """Compare two texts, neither empty, as PHP's `version_compare`: return -1, 0 or 1."""
    parts, installed_parts = _split(version), _split(installed)
    for index, (our_part, their_part) in enumerate(zip(parts, installed_parts, strict=False)):
        if not their_part:  # after a separator at the end
            del installed_parts[index:]
            break
        if (order := _compare_parts(our_part, their_part)) != 0:
            return order
    if len(parts) == len(installed_parts):
        return 0
    is_longer = len(parts) > len(installed_parts)
    first = parts[len(installed_parts)] if is_longer else installed_parts[len(parts)]
    order = 1 if first.isdigit() else _compare_parts(first, _NUMBER)
    return order if is_longer else -order


def _split(version: str) -> list[str]:
    """Split at dots and their like, and where digits begin or end; see PHP's manual for `version_compare`."""
    written, before = version[0], version[0]
    for char in version[1:]:
        begins = char.isdigit() != before.isdigit() and before not in "-_+." and char not in "-_+."
        if begins or not char.isalnum():
            written += "" if written[-1] == "." else "."
        written += char if begins or char.isalnum() else ""
        before = char
    return written.split(".")


def _compare_parts(part: str, other_part: str) -> int:
    if part.isdigit() and other_part.isdigit():
        return (int(part) > int(other_part)) - (int(part) < int(other_part))
    parts = [_NUMBER if text.isdigit() else text for text in (part, other_part)]
    left, right = (next((rank for form, rank in _FORMS if part.startswith(form)), -1) for part in parts)
    return (left > right) - (left < right)
