"""What is typed into fields, read. Pure."""

from datetime import date

from licserver.errors import WrongUse


def read_slots(text: str) -> int | None:
    """Read a number of slots; None is unlimited (D-07).

    Raises:
        WrongUse: when it is neither.
    """
    if text.casefold() in {"unlimited", "∞"}:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004 - fits 32 bits
        raise WrongUse("slots are a whole number from 0, or “unlimited”")
    return int(text)


def read_day(text: str) -> date | None:
    """Read a date field; an empty one is none.

    Raises:
        WrongUse: when it is no date.
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise WrongUse(f"{text!r} is no date; write it like 2027-01-31") from None
