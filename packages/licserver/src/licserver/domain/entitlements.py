"""Entitlements: what a plan grants, what a license overrides, and how people write it. Pure.

A value is as in JSON: a flag, a number, a text, or a quota ``{"limit": 100, "per": "month"}``. An override of
None takes away what the plan grants.
"""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from licserver.domain.environments import is_printable
from licserver.errors import InvalidInputError

MAX_NAMES: Final = 50
MAX_TEXT: Final = 200  # characters
MAX_NUMBER: Final = 2**53 - 1  # the largest whole number that every reader of JSON reads exactly
MAX_BYTES: Final = 8_192
"""Of all entitlements of a plan or of a license as JSON: every answer to a verify carries them."""

PERIODS: Final = ("day", "month", "year")

_NAME: Final = re.compile(r"[a-z0-9_.-]{1,40}")
_QUOTA: Final = re.compile(rf"([0-9]+)/({'|'.join(PERIODS)})")
_OTHER_QUOTA: Final = re.compile(r"[0-9]+/[a-z]+")
_WORDS: Final[Mapping[str, bool | None]] = {"": True, "true": True, "false": False, "none": None}
_UNCLEAR: Final = {"true", "false", "none", "yes", "no", "on", "off"}
"""Such a text is quoted: apps take every text for granted, so `export=no` would grant it."""


class InvalidEntitlementError(InvalidInputError, ValueError):
    """An entitlement that cannot be; the message names it."""


class Plan(NamedTuple):
    """A named set of entitlements of a product; its name never changes."""

    product_id: int
    name: str
    entitlements: Mapping[str, Any]


class Period(NamedTuple):
    """A day, month or year in UTC: its name, as ``2026-11``, and the instant when the next one begins."""

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
    """Return whether a plan or an entitlement can have this name."""
    return _NAME.fullmatch(text) is not None


def resolve(plan: Mapping[str, Any] | None, overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the entitlements of a license, by name."""
    merged = {**(plan or {}), **(overrides or {})}
    return {name: merged[name] for name in sorted(merged) if merged[name] is not None}


def resolve_stored(plan: str | None, overrides: str | None) -> dict[str, Any] | None:
    """Resolve what `dump` has written; None if the license has neither plan nor overrides."""
    if plan is None and overrides is None:
        return None
    return resolve(load(plan), load(overrides))


def validate(values: Mapping[str, object], *, removable: bool) -> dict[str, Any]:
    """Return entitlements by name, as they are stored; None is a value only if it is `removable`.

    Raises:
        InvalidEntitlementError: A name or a value that cannot be, or too much of them.
    """
    if len(values) > MAX_NAMES:
        raise InvalidEntitlementError(f"there are at most {MAX_NAMES} entitlements")
    for name, value in values.items():
        if not is_name(name):
            raise InvalidEntitlementError(
                f"{name!r} is no name of an entitlement: use up to 40 lower-case letters, digits and _ . -"
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
    """Read what `dump` has written."""
    return None if stored is None else json.loads(stored)


# --- as people write them ---------------------------------------------------------------------


def parse_grants(grants: Iterable[str]) -> dict[str, Any]:
    """Parse lines like ``export``, ``projects=50``, ``exports=100/month``, ``region=eu`` and ``sync=none``.

    Values are not validated. In double quotes, a value is text whatever it looks like.

    Raises:
        InvalidEntitlementError: A text like ``no`` or ``100/week``, which may be meant as a flag or a quota.
            The name is not in the message, because nobody knows yet that it is no license key.
    """
    found: dict[str, Any] = {}
    for grant in grants:
        name, text = (part.strip() for part in grant.partition("=")[::2])
        if _is_unclear(text):
            quota = "a number per day, month or year, like 100/month"
            valid = quota if "/" in text else "true, false or none"
            raise InvalidEntitlementError(
                f'an entitlement is {valid}; for the text {text}, write "{text}" in double quotes'
            )
        found[name] = _parse_value(text)
    return found


def _is_unclear(text: str) -> bool:
    is_other_quota = _OTHER_QUOTA.fullmatch(text) and not _QUOTA.fullmatch(text)
    return bool(is_other_quota) or (text not in _WORDS and text.lower() in _UNCLEAR)


def _parse_value(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if quota := _QUOTA.fullmatch(text):
        return {"limit": int(quota[1][:20]), "per": quota[2]}
    if text.isascii() and text.isdecimal():
        return int(text[:20])  # longer ones are too large as well
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
        case str() if _parse_value(value) != value or value != value.strip() or _is_unclear(value):
            return f'{name}="{value}"'
        case _:
            return f"{name}={value}"
