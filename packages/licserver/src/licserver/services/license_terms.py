"""Validation of license terms, for all interfaces."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from licserver.domain.entitlements import InvalidEntitlementError, validate
from licserver.domain.environments import (
    InvalidEntryError,
    parse_entry,
)
from licserver.domain.languages import find_language
from licserver.domain.offers import MAX_CHANNELS
from licserver.domain.records import TERMS, LicenseTerms
from licserver.errors import InvalidInputError
from licserver.security.redaction import mask
from licserver.services.validation import (
    MAX_LINE_CHARS,
    check_channel,
    check_line,
    check_subscription,
    is_text,
    read_email,
)

MAX_SLOTS: Final = 2**31 - 1


MAX_SEATS: Final = 10_000
"""Floating seats of a license; each request for a seat counts all seats in use."""


MAX_NOTE: Final = 2_000


MAX_ENTRIES: Final = 1_000


def check_slots(slots: int | None) -> None:
    """Validate a number of slots."""
    if slots is not None and not 0 <= slots <= MAX_SLOTS:
        raise InvalidInputError("slots must be a whole number from 0, or unlimited")


def check_seats(seats: int | None) -> None:
    """Validate a number of floating seats."""
    if seats is not None and not 1 <= seats <= MAX_SEATS:
        raise InvalidInputError(f"floating seats must be a whole number from 1 to {MAX_SEATS}, or none")


def check_lifetime(*, lifetime: bool, has_expiry: bool) -> None:
    """Refuse a lifetime license with an expiry date."""
    if lifetime and has_expiry:
        raise InvalidInputError("a key is either for a lifetime or expires on a date, not both")


def read_language(text: str | None) -> str | None:
    """Validate a customer's language; return None for blank text."""
    text = (text or "").strip()
    if text and find_language(text) is None:
        raise InvalidInputError("a customer's language must be a code such as en, de or pt-BR")
    return find_language(text)


def read_note(text: str | None) -> str | None:
    """Validate a note; return None for blank text."""
    text = (text or "").strip()
    if not text:
        return None
    if len(text) > MAX_NOTE or not is_text(text):
        raise InvalidInputError(f"a note must be text of at most {MAX_NOTE} characters")
    return mask(text)  # a key is stored encrypted, or not at all


def read_entries(entries: tuple[str, ...], ipv6_prefix: int) -> tuple[str, ...]:
    """Return an allow-list in canonical form, each entry once."""
    if len(entries) > MAX_ENTRIES:
        raise InvalidInputError(f"an allow-list has at most {MAX_ENTRIES} entries")
    try:
        return tuple(dict.fromkeys(parse_entry(entry, ipv6_prefix) for entry in entries))
    except InvalidEntryError as problem:
        raise InvalidInputError(str(problem)) from None


def read_entitlements(values: Mapping[str, Any], *, removable: bool = False) -> dict[str, Any]:
    """Validate entitlements; with `removable`, for a license, None removes an entitlement of its plan."""
    try:
        valid = validate(values, removable=removable)
    except InvalidEntitlementError as problem:
        raise InvalidInputError(mask(str(problem))) from None
    return {name: mask(value) if isinstance(value, str) else value for name, value in valid.items()}


def read_channels(names: tuple[str, ...]) -> tuple[str, ...]:
    """Validate names of channels; return each once, in order."""
    for name in names:
        check_channel(name)
    names = tuple(dict.fromkeys(names))
    if len(names) > MAX_CHANNELS:
        raise InvalidInputError(f"a license has at most {MAX_CHANNELS} channels")
    return names


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "channels": read_channels,
    "customer_email": read_email,
    "customer_language": read_language,
    "note": read_note,
}


_Terms = TypeVar("_Terms", bound=LicenseTerms)


def validate_terms(terms: _Terms, ipv6_prefix: int) -> _Terms:
    """Validate terms; return them in their stored form."""
    check_lifetime(lifetime=terms.lifetime, has_expiry=terms.expires_on is not None)
    values = {name: getattr(terms, name) for name in TERMS}
    return replace(terms, **validate_fields(values, ipv6_prefix))


def validate_fields(values: Mapping[str, Any], ipv6_prefix: int) -> dict[str, Any]:
    """Validate some terms by name; return them in their stored form.

    Text without a special rule is a single line.
    """
    valid = dict(values)
    for name, value in values.items():
        match name:
            case "slots" | "floating_seats":
                check_slots(value) if name == "slots" else check_seats(value)
            case "subscription_id":
                if value is not None:
                    check_subscription(value)
            case "allowed":
                valid[name] = read_entries(value, ipv6_prefix)
            case "channels" | "customer_email" | "customer_language" | "note":
                valid[name] = _READERS[name](value)
            case "overrides":
                valid[name] = read_entitlements(value, removable=True) if value else None
            case _:
                if isinstance(value, str):
                    valid[name] = mask(check_line(name, value, MAX_LINE_CHARS)) if value.strip() else None
    return valid
