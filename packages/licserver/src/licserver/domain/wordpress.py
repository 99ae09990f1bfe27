"""What WordPress shows of a version, and whether PHP orders versions as we do. Pure."""

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from packaging.version import Version

from licserver.domain.decisions import parse_version
from licserver.domain.records import WordPressFields
from licserver.errors import InvalidInputError

MAX_URL: Final = 500  # characters
_VERSION: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}")
_EXAMPLES: Final = {"requires": "6.4", "tested": "6.7.1", "requires_php": "7.4"}
_NOT_IN_URLS: Final = set(' "#<>@[\\]^`{|}')


def read_fields(fields: WordPressFields) -> WordPressFields:
    """Return fields as they are stored: without white space around them, None for an empty one.

    Raises:
        InvalidInputError: One of them has not its form.
    """
    clean = WordPressFields(*((text or "").strip() or None for text in fields))
    for name, example in _EXAMPLES.items():
        text = getattr(clean, name)
        if text is not None and not _VERSION.fullmatch(text):
            raise InvalidInputError(
                f"{text[:40]!r} is no version for {name}: "
                f"write up to four numbers with dots, such as {example}"
            )
    if clean.details_url is not None and not _is_https(clean.details_url):
        raise InvalidInputError(
            "the details_url must be an address like https://example.com/photo-lab, "
            f"with at most {MAX_URL} characters"
        )
    return clean


def _is_https(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme == "https" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    printable = url.isascii() and url.isprintable() and not _NOT_IN_URLS & {*url}
    return is_complete and printable and len(url) <= MAX_URL


# --- PHP's `version_compare`, by which WordPress decides --------------------------------------

# What PHP knows, by the beginning of a part; a number counts as "#". Other text is below all of it.
_FORMS: Final = (
    *(("dev", 0), ("alpha", 1), ("a", 1), ("beta", 2), ("b", 2), ("RC", 3), ("rc", 3)),
    *(("#", 4), ("pl", 5), ("p", 5)),
)
_NUMBER: Final = "#"


def explain_order(version: str, published: Iterable[str]) -> str | None:
    """Return a sentence if PHP orders a version otherwise than PEP 440: beside those published, or others.

    WordPress then does not offer the higher one of the two to sites that have the lower one.
    """
    parsed = parse_version(version)
    if parsed is None:
        return None
    for other in (*published, *_neighbours(parsed)):
        found = parse_version(other)
        if found is None or found == parsed:
            continue
        lower, higher = (version, other) if parsed < found else (other, version)
        if compare(higher, lower) <= 0:
            return (
                f"WordPress does not take {higher} to be newer than {lower}, because PHP orders versions "
                "in another way: plugins and themes need plain versions such as 1.2.0."
            )
    return None


def _neighbours(version: Version) -> Iterator[str]:
    """Yield versions that are typical before and after one."""
    numbers = [*version.release, 0, 0][: max(len(version.release), 3)]
    plain = ".".join(map(str, version.release))
    yield "0"
    yield from (plain, f"{plain}.dev0", f"{plain}a0", f"{plain}b0", f"{plain}rc0", version.public)
    yield ".".join(map(str, [*numbers[:-1], numbers[-1] + 1]))
    if version.epoch:
        yield str(version.epoch + 1)


def compare(version: str, other: str) -> int:
    """Do what PHP's `version_compare` does with two texts that are not empty: return -1, 0 or 1."""
    ours, theirs = _split(version), _split(other)
    for at, (one, two) in enumerate(zip(ours, theirs, strict=False)):
        if not two:  # after a separator at the end
            del theirs[at:]
            break
        if (order := _compare_parts(one, two)) != 0:
            return order
    if len(ours) == len(theirs):
        return 0
    is_longer = len(ours) > len(theirs)
    first = ours[len(theirs)] if is_longer else theirs[len(ours)]
    order = 1 if first.isdigit() else _compare_parts(first, _NUMBER)
    return order if is_longer else -order


def _split(version: str) -> list[str]:
    """Split at dots and their like, and where digits begin or end; see PHP's manual for `version_compare`."""
    written, before = version[0], version[0]
    for one in version[1:]:
        begins = one.isdigit() != before.isdigit() and before not in "-_+." and one not in "-_+."
        if begins or not one.isalnum():
            written += "" if written[-1] == "." else "."
        written += one if begins or one.isalnum() else ""
        before = one
    return written.split(".")


def _compare_parts(one: str, two: str) -> int:
    if one.isdigit() and two.isdigit():
        return (int(one) > int(two)) - (int(one) < int(two))
    parts = [_NUMBER if part.isdigit() else part for part in (one, two)]
    left, right = (next((rank for form, rank in _FORMS if part.startswith(form)), -1) for part in parts)
    return (left > right) - (left < right)
