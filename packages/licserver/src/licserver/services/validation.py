"""Validation of values of several subjects: text, ids, domains, addresses."""

import re
import unicodedata
from typing import Final

from licserver.domain.environments import (
    InvalidDomainError,
    is_printable,
    normalise_domain,
    normalise_ip,
    parse_ip,
)
from licserver.domain.mail_addresses import MAX_EMAIL
from licserver.domain.offers import is_channel
from licserver.errors import InvalidInputError
from licserver.security.key_vault import ID_BYTES
from licserver.security.redaction import mask

MAX_INDEXED: Final = 255
"""Characters of a version or of a subscription's id: an index of PostgreSQL takes no text of any length."""


MAX_LINE_CHARS: Final = 500  # characters of text without a special rule


_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")


_MAX_INVISIBLE: Final = 8  # characters around an address
_JOINERS: Final = "\u200c\u200d"


_LINE_BREAKS: Final = {ord(char): None for char in "\t\r\n"}


def has_id_shape(text: str) -> bool:
    """Return whether `text` has the format of a license's id."""
    return len(text) == 2 * ID_BYTES and all(char in "0123456789abcdef" for char in text)


def is_text(text: str) -> bool:
    """Return whether `text` has no control characters other than tabs and line breaks."""
    return is_printable(text.translate(_LINE_BREAKS))


def check_line(subject: str, text: str, max_chars: int) -> str:
    """Validate a line of text that must not be empty; return it stripped."""
    text = text.strip()
    if not text or not is_printable(text) or len(text) > max_chars:
        raise InvalidInputError(f"{subject} must be one line of text of at most {max_chars} characters")
    return text


def to_line(text: str) -> str:
    """Return a text, which may quote a shop's report, as a line that is safe to store, log and send."""
    shown = (char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:MAX_LINE_CHARS])
    return mask("".join(shown))


def check_subscription(subscription_id: str) -> None:
    """Validate a subscription's id."""
    if not (subscription_id.strip() and is_printable(subscription_id)) or len(subscription_id) > MAX_INDEXED:
        raise InvalidInputError(f"a subscription's id must be one line of at most {MAX_INDEXED} characters")


def read_domain(text: str, subject: str = "a domain") -> str:
    """Validate a domain; return its stored form. `subject` is the subject of the error's message."""
    try:
        return normalise_domain(text)
    except InvalidDomainError as problem:
        raise InvalidInputError(f"{subject} {problem}") from None


def find_ip(text: str, ipv6_prefix: int) -> str | None:
    """Return an IP address in its stored form; None for any other text."""
    address = parse_ip(text)
    return None if address is None else normalise_ip(address, ipv6_prefix)


def read_email(text: str | None) -> str | None:
    """Validate a customer's e-mail address; return None for blank text.

    Invisible characters around it are left out: programs copy them with an address. Within it they are
    refused: what is shown would be another address.
    """
    given = (text or "").strip()
    if len(given) <= MAX_EMAIL + _MAX_INVISIBLE:
        shown = [index for index, char in enumerate(given) if not (char.isspace() or _is_invisible(char))]
        if not shown:
            return None
        given = given[shown[0] : shown[-1] + 1]
    is_plain = len(given) <= MAX_EMAIL and is_printable(given) and not any(map(_is_invisible, given))
    if not is_plain or _EMAIL.fullmatch(given) is None:
        raise InvalidInputError("a customer's e-mail must look like name@example.com")
    return given


def _is_invisible(char: str) -> bool:
    """Return whether a character has no shape, such as a mark of direction; joiners shape letters."""
    return unicodedata.category(char) == "Cf" and char not in _JOINERS


def find_email(text: str | None) -> str | None:
    """Return an e-mail address; None for any other text."""
    try:
        return read_email(text)
    except InvalidInputError:
        return None


def check_channel(name: str) -> None:
    """Validate the name of a channel."""
    if not is_channel(name):
        raise InvalidInputError(
            f"{name!r} is not a valid channel name: use up to 40 lower-case letters, digits and . _ -, "
            "like beta"
        )
