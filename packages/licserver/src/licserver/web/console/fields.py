"""What is typed into fields, read. Pure."""

from collections.abc import Mapping
from datetime import date

from licserver.errors import WrongUse


def is_touched(form: Mapping[str, str], name: str) -> bool:
    """Tell whether a field was sent with something else than what it had held, which ``was-…`` tells."""
    typed, was = (_in_one_form(form.get(one)) for one in (name, f"was-{name}"))
    return typed is not None and typed != was


def _in_one_form(text: str | None) -> str | None:
    return None if text is None else text.strip().replace("\r\n", "\n")


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
