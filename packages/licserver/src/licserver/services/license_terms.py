"""Validation of license terms, wherever they come from."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from licserver.domain.entitlements import InvalidEntitlementError, validate
from licserver.domain.environments import (
    InvalidDomainError,
    InvalidEntryError,
    is_printable,
    normalise_domain,
    normalise_ip,
    parse_entry,
    parse_ip,
)
from licserver.domain.offers import MAX_CHANNELS, is_channel
from licserver.domain.records import TERMS, LicenseTerms
from licserver.errors import InvalidInputError
from licserver.security.key_vault import ID_BYTES
from licserver.security.redaction import mask

MAX_INDEXED: Final = 255
"""Characters of a version or of a subscription's id: an index of PostgreSQL takes no text of any length."""

MAX_LINE: Final = 500  # characters of text without a rule of its own
MAX_SLOTS: Final = 2**31 - 1
MAX_SEATS: Final = 10_000
"""Floating seats of a license: each request for one counts those that are in use."""

MAX_NOTE: Final = 2_000
MAX_ENTRIES: Final = 1_000
MAX_EMAIL: Final = 254  # characters of an address (RFC 5321, 4.5.3.1.3, without the brackets)
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_LINE_BREAKS: Final = {ord(char): None for char in "\t\r\n"}


def has_id_shape(text: str) -> bool:
    """Return whether `text` can be a license's id, as it is shown."""
    return len(text) == 2 * ID_BYTES and all(char in "0123456789abcdef" for char in text)


def is_text(text: str) -> bool:
    """Return whether `text` has no control characters other than tabs and line breaks."""
    return is_printable(text.translate(_LINE_BREAKS))


def check_line(what: str, text: str, most: int) -> str:
    """Return a line of text without surrounding blanks, which must not be empty."""
    text = text.strip()
    if not text or not is_printable(text) or len(text) > most:
        raise InvalidInputError(f"{what} must be one line of text of at most {most} characters")
    return text


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


def check_subscription(subscription_id: str) -> None:
    """Validate a subscription's id."""
    if not (subscription_id.strip() and is_printable(subscription_id)) or len(subscription_id) > MAX_INDEXED:
        raise InvalidInputError(f"a subscription's id must be one line of at most {MAX_INDEXED} characters")


def read_domain(text: str, what: str = "a domain") -> str:
    """Return a domain as it is stored; `what` begins the message about what is none."""
    try:
        return normalise_domain(text)
    except InvalidDomainError as problem:
        raise InvalidInputError(f"{what} {problem}") from None


def find_ip(text: str, ipv6_prefix: int) -> str | None:
    """Return an address as it is stored; None for any other text."""
    address = parse_ip(text)
    return None if address is None else normalise_ip(address, ipv6_prefix)


def read_email(text: str | None) -> str | None:
    """Validate a customer's e-mail address; None for a blank one."""
    text = (text or "").strip()
    if not text:
        return None
    if len(text) > MAX_EMAIL or not is_printable(text) or _EMAIL.fullmatch(text) is None:
        raise InvalidInputError("a customer's e-mail must look like name@example.com")
    return text


def find_email(text: str | None) -> str | None:
    """Return an e-mail address; None for any other text."""
    try:
        return read_email(text)
    except InvalidInputError:
        return None


def read_note(text: str | None) -> str | None:
    """Validate a note; None for a blank one."""
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
    """Validate entitlements; of a license they are `removable` from those of its plan."""
    try:
        valid = validate(values, removable=removable)
    except InvalidEntitlementError as problem:
        raise InvalidInputError(mask(str(problem))) from None
    return {name: mask(value) if isinstance(value, str) else value for name, value in valid.items()}


def read_channels(names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of channels in their order, each once."""
    for name in names:
        check_channel(name)
    names = tuple(dict.fromkeys(names))
    if len(names) > MAX_CHANNELS:
        raise InvalidInputError(f"a license has at most {MAX_CHANNELS} channels")
    return names


def check_channel(name: str) -> None:
    """Validate the name of a channel."""
    if not is_channel(name):
        raise InvalidInputError(
            f"{name!r} is no channel: use up to 40 lower-case letters, digits and . _ -, like beta"
        )


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "channels": read_channels,
    "customer_email": read_email,
    "note": read_note,
}
_Terms = TypeVar("_Terms", bound=LicenseTerms)


def validate_terms(terms: _Terms, ipv6_prefix: int) -> _Terms:
    """Return terms as they are stored."""
    check_lifetime(lifetime=terms.lifetime, has_expiry=terms.expires_on is not None)
    values = {name: getattr(terms, name) for name in TERMS}
    return replace(terms, **validate_fields(values, ipv6_prefix))


def validate_fields(values: Mapping[str, Any], ipv6_prefix: int) -> dict[str, Any]:
    """Return some terms, by name, as they are stored.

    Text without a rule of its own is one line.
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
            case "channels" | "customer_email" | "note":
                valid[name] = _READERS[name](value)
            case "overrides":
                valid[name] = read_entitlements(value, removable=True) if value else None
            case _:
                if isinstance(value, str):
                    valid[name] = mask(check_line(name, value, MAX_LINE)) if value.strip() else None
    return valid
