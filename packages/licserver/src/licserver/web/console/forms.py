"""Small forms and their fields, parsed. Pure; forms with a file are read by `web.uploads`."""

from collections.abc import Mapping
from datetime import date
from typing import Final
from urllib.parse import parse_qsl

from licserver.errors import WrongUse

MAX_FORM: Final = 1 << 16
"""Bytes: a note of the greatest length, written in percent signs, and room beside it."""

_MAX_FIELDS: Final = 50


class FormError(Exception):
    """What was posted cannot be read; the message is for the user."""


def parse_form(body: bytes) -> dict[str, str]:
    """Read an urlencoded form; of a name that comes twice, the last.

    Raises:
        FormError: when it cannot be read.
    """
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict"
        )
    except ValueError:  # UnicodeDecodeError is one
        raise FormError("this form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}  # browsers send two characters


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
