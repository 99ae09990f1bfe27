"""Entitlements: grants of plans, overrides of licenses, and their text format. Pure.

A value is a JSON value: a flag, a number, a text, or a quota ``{"limit": 100, "per": "month"}``. An
override of None removes the plan's entitlement.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from licserver.domain.environments import is_printable
from licserver.errors import InvalidInputError

MAX_NAMES: Final = 50
MAX_TEXT: Final = 200  # characters
MAX_NUMBER: Final = 2**53 - 1  # the largest whole number that every reader of JSON reads exactly
MAX_BYTES: Final = 8_192
"""All entitlements of a plan or of a license as JSON: every response to a verify carries them."""

PERIODS: Final = ("day", "month", "year")

_NAME: Final = re.compile(r"[a-z0-9_.-]{1,40}")
_QUOTA: Final = re.compile(rf"([0-9]+)/({'|'.join(PERIODS)})")
_NUMBER: Final = r"""
    [+\-\u2010-\u2015\u2212~]* \s*
    (?: 0[xob][0-9a-f]+ | inf(?:inity)? | nan | \u221e
      | (?: \d{1,3}(?:[.,'\u2019_\s]\d{3})+ | \d+(?:_\d+)* )? (?:[.,]\d*)? (?:\s*e\s*[+\-]?\d*)? )
    \s* [kmgt%]?
"""
_UNIT: Final = "s|sec|seconds?|m|min|minutes?|h|hours?|d|days?|w|weeks?|mo|months?|q|quarters?|y|yr|years?"
_ALMOST_NUMBER: Final = re.compile(
    rf"""(?= .* (?: \d | inf | nan | \u221e | / \s* \w ) ) {_NUMBER}
        (?: \s* (?: / | \bper\b ) \s* (?: [^\W\d_]* | \d+ \s* (?:{_UNIT}) ) )? /?""",
    re.VERBOSE | re.IGNORECASE,
)
"""A number of any script, or a number per something, in any spelling."""
_ALMOST_QUOTA: Final = re.compile(r"\d+\s*/.*\b(?:day|month|year)s?\b.*", re.IGNORECASE)
_NO_LIMIT: Final = re.compile(r"un-?limited|infinit[ey]|null|nil|n/a", re.IGNORECASE)
"""How other programs write that there is no limit or no value: an app would compare a text with a number."""
_WORDS: Final[Mapping[str, bool | None]] = {"": True, "true": True, "false": False, "none": None}
_UNCLEAR: Final = {"true", "false", "none", "yes", "no", "on", "off"}
"""Such a text is quoted: apps treat every text as granted, so `export=no` would grant it."""


class InvalidEntitlementError(InvalidInputError, ValueError):
    """Error of an invalid entitlement; the message names it."""


class Plan(NamedTuple):
    """A named set of entitlements of a product; its name never changes."""

    product_id: int
    name: str
    entitlements: Mapping[str, Any]


class Period(NamedTuple):
    """A day, month or year in UTC: its name, such as ``2026-11``, and the start of the next period."""

    name: str
    ends_at: datetime


def current_period(per: str, now: datetime) -> Period:
    """Return the calendar period of an instant; `per` is one of `PERIODS`."""
    start = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if per == "day":
        return Period(start.date().isoformat(), start + timedelta(days=1))
    start = start.replace(day=1)
    if per == "month":
        return Period(f"{start:%Y-%m}", (start + timedelta(days=31)).replace(day=1))
    start = start.replace(month=1)
    return Period(f"{start:%Y}", start.replace(year=start.year + 1))


def is_name(text: str) -> bool:
    """Return whether `text` can name a plan or an entitlement."""
    return _NAME.fullmatch(text) is not None


def resolve(plan: Mapping[str, Any] | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entitlements of a license, by name."""
    merged = {**(plan or {}), **(overrides or {})}
    return {name: merged[name] for name in sorted(merged) if merged[name] is not None}


def resolve_stored(plan: str | None, overrides: str | None) -> dict[str, Any] | None:
    """Resolve the output of `dump`; None for a license without plan and overrides."""
    if plan is None and overrides is None:
        return None
    return resolve(load(plan), load(overrides))


def validate(values: Mapping[str, object], *, removable: bool) -> dict[str, Any]:
    """Return entitlements by name, as they are stored; None is a value only if it is `removable`.

    Raises:
        InvalidEntitlementError: A name or a value is invalid, or there are too many.
    """
    if len(values) > MAX_NAMES:
        raise InvalidEntitlementError(f"there are at most {MAX_NAMES} entitlements")
    for name, value in values.items():
        if not is_name(name):
            raise InvalidEntitlementError(
                f"{name!r} is not a valid entitlement name: use up to 40 lower-case letters, digits and _ . -"
            )
        if not ((removable and value is None) or _is_value(value)):
            raise InvalidEntitlementError(
                f"{name}: must be a flag, a whole number from 0, a line of at most {MAX_TEXT} characters, "
                "or a number per day, month or year, like 100/month"
            )
    valid = {name: values[name] for name in sorted(values)}
    if len((dump(valid) or "").encode()) > MAX_BYTES:
        raise InvalidEntitlementError(f"all entitlements together are at most {MAX_BYTES} bytes")
    return valid


def _is_value(value: object) -> bool:
    match value:
        case bool():
            return True
        case int():
            return 0 <= value <= MAX_NUMBER
        case str():
            return 0 < len(value.strip()) <= len(value) <= MAX_TEXT and is_printable(value)
        case {"limit": int(limit), "per": str(per), **more}:
            return not more and not isinstance(limit, bool) and _is_value(limit) and per in PERIODS
        case _:
            return False


def dump(values: Mapping[str, Any] | None) -> str | None:
    """Return entitlements as they are stored: one line of JSON, by name."""
    if values is None:
        return None
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def load(stored: str | None) -> dict[str, Any] | None:
    """Parse the output of `dump`."""
    return None if stored is None else json.loads(stored)


# --- text format ------------------------------------------------------------------------------


def parse_grants(grants: Iterable[str]) -> dict[str, Any]:
    """Parse lines like ``export``, ``projects=50``, ``exports=100/month``, ``region=eu`` and ``sync=none``.

    Values are not validated. In double quotes, a value is always text.

    Raises:
        InvalidEntitlementError: A text like ``no``, ``1.5`` or ``100/week`` may be meant as a flag, a
            number or a quota: as a text it would grant without a limit. The message omits the name, which may
            be a license key.
    """
    values: dict[str, Any] = {}
    for grant in grants:
        name, text = (part.strip() for part in grant.partition("=")[::2])
        if "=" in grant and not text:  # an unset variable of a shell would grant without a limit (D-415)
            raise InvalidEntitlementError(
                "an entitlement has a value after its =; leave the = out for a flag that is granted"
            )
        if valid := _choices(text):
            shown = text if is_printable(text) and text == _remove_invisible(text) else ascii(text)
            raise InvalidEntitlementError(
                f'an entitlement is {valid}; for the text {shown}, write "{shown}" in double quotes'
            )
        values[name] = _parse_value(text)
    return values


def _choices(text: str) -> str:
    """Describe the values that an ambiguous text may mean; empty for other text."""
    if text in _WORDS or _QUOTA.fullmatch(text) or (text.isascii() and text.isdecimal()):
        return ""
    normal = unicodedata.normalize("NFKC", _remove_invisible(text[: MAX_TEXT + 1])).strip()
    if normal.lower() in _UNCLEAR:
        return "true, false or none"
    if _NO_LIMIT.fullmatch(normal):
        return "a flag, written as its name alone, if it has no limit"
    if not (_ALMOST_NUMBER.fullmatch(normal) or _ALMOST_QUOTA.fullmatch(normal)):
        return ""
    if "/" in normal or "per" in normal.lower():
        return "a number per day, month or year, like 100/month"
    return "a whole number from 0, written with the digits 0 to 9 alone"


def _remove_invisible(text: str) -> str:
    """Remove direction marks and other signs that nobody sees, which come with what is copied."""
    return "".join(character for character in text if unicodedata.category(character) != "Cf")


def _parse_value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if quota := _QUOTA.fullmatch(text):
        return {"limit": int(quota[1][:20]), "per": quota[2]}
    if text.isascii() and text.isdecimal():
        return int(text[:20])  # a longer number is too large as well
    if len(text) > 1 and text[0] == text[-1] == '"':
        return text[1:-1]
    return text


def format_grants(values: Mapping[str, Any] | None) -> list[str]:
    """Format entitlements, as `parse_grants` reads them."""
    return [_format(name, value) for name, value in (values or {}).items()]


def _format(name: str, value: Any) -> str:
    match value:
        case True:
            return name
        case False | None:
            return f"{name}={str(value).lower()}"
        case {"limit": limit, "per": per}:
            return f"{name}={limit}/{per}"
        case str() if _parse_value(value) != value or value != value.strip() or _choices(value):
            return f'{name}="{value}"'
        case _:
            return f"{name}={value}"
