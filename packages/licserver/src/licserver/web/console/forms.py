"""Small forms and their fields, parsed. Pure; forms with a file are read by `web.uploads`."""

from collections.abc import Mapping
from datetime import date
from typing import Final
from urllib.parse import parse_qsl

from licserver.errors import InvalidInputError

MAX_FORM: Final = 1 << 16
"""Bytes: enough for a note of the greatest length, percent-encoded."""

_MAX_FIELDS: Final = 50


class FormError(Exception):
    """A form cannot be parsed; the message is for the user."""


def parse_form(body: bytes) -> dict[str, str]:
    """Parse an urlencoded form; of a name that is given twice, the last counts.

    Raises:
        FormError: when it cannot be parsed.
    """
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError:  # UnicodeDecodeError is one
        raise FormError("this form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}  # browsers send both characters


def is_touched(form: Mapping[str, str], name: str) -> bool:
    """Return whether a field was sent with another value than the page had shown, which is in ``was-…``."""
    typed, was = (_normalize(form.get(one)) for one in (name, f"was-{name}"))
    return typed is not None and typed != was


def _normalize(text: str | None) -> str | None:
    return None if text is None else text.strip().replace("\r\n", "\n")


def parse_slots(text: str) -> int | None:
    """Parse a number of slots; None is unlimited (D-07).

    Raises:
        InvalidInputError: when it is neither.
    """
    if text.casefold() in {"unlimited", "∞"}:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004 - fits 32 bits
        raise InvalidInputError("slots must be a whole number from 0, or “unlimited”")
    return int(text)


def parse_day(text: str) -> date | None:
    """Parse a date; an empty one is None.

    Raises:
        InvalidInputError: when it is no date.
    """
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise InvalidInputError(f"{text!r} is not a date; write it like 2027-01-31") from None
