"""What can be agreed about a license: checked here, however it is said."""

import re
from typing import Final

from licserver.domain.environments import BadEntry, is_printable, parse_entry
from licserver.errors import WrongUse
from licserver.security.redaction import mask

MAX_INDEXED: Final = 255
"""Characters of a version or of a subscription's id: an index of PostgreSQL takes no text of any length."""

MAX_SLOTS: Final = 2**31 - 1
MAX_NOTE: Final = 2_000
MAX_ENTRIES: Final = 1_000
MAX_EMAIL: Final = 254
"""Characters of an address (RFC 5321, 4.5.3.1.3, without the brackets)."""

_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_LINE_BREAKS: Final = {ord(char): None for char in "\t\r\n"}


def is_text(text: str) -> bool:
    """Tell whether `text` may be several lines of text: free of control characters but for line breaks."""
    return is_printable(text.translate(_LINE_BREAKS))


def check_slots(slots: int | None) -> None:
    """Refuse a number of slots that cannot be (D-07).

    Raises:
        WrongUse: saying what can.
    """
    if slots is not None and not 0 <= slots <= MAX_SLOTS:
        raise WrongUse("slots must be a whole number from 0, or unlimited")


def check_lifetime(*, lifetime: bool, has_expiry: bool) -> None:
    """Refuse a key that never expires on a day (D-10).

    Raises:
        WrongUse: when it would.
    """
    if lifetime and has_expiry:
        raise WrongUse("a key is either for a lifetime or expires on a date, not both")


def check_subscription(subscription_id: str) -> None:
    """Refuse what cannot be a subscription's id.

    Raises:
        WrongUse: saying what can.
    """
    if not (subscription_id.strip() and is_printable(subscription_id)) or len(subscription_id) > MAX_INDEXED:
        raise WrongUse(f"a subscription's id must be one line of at most {MAX_INDEXED} characters")


def read_email(text: str | None) -> str | None:
    """Read a customer's address; a blank one is none.

    Raises:
        WrongUse: when it is no address.
    """
    text = (text or "").strip()
    if not text:
        return None
    if len(text) > MAX_EMAIL or not is_printable(text) or _EMAIL.fullmatch(text) is None:
        raise WrongUse("a customer's e-mail must look like name@example.com")
    return text


def read_note(text: str | None) -> str | None:
    """Read a note; a blank one is none.

    Raises:
        WrongUse: when it is too long, or no text.
    """
    text = (text or "").strip()
    if not text:
        return None
    if len(text) > MAX_NOTE or not is_text(text):
        raise WrongUse(f"a note must be text of at most {MAX_NOTE} characters")
    return mask(text)  # a whole key stands sealed in the books, or not at all


def read_entries(entries: tuple[str, ...], ipv6_prefix: int) -> tuple[str, ...]:
    """Read an owner's allow-list into its canonical form, each entry once (D-04).

    Raises:
        WrongUse: when one of them cannot be read, or there are too many.
    """
    if len(entries) > MAX_ENTRIES:
        raise WrongUse(f"an allow-list has at most {MAX_ENTRIES} entries")
    try:
        return tuple(dict.fromkeys(parse_entry(entry, ipv6_prefix) for entry in entries))
    except BadEntry as problem:
        raise WrongUse(str(problem)) from None
