"""Reading small forms. Pure; those with a file are `web.uploads`'s."""

from typing import Final
from urllib.parse import parse_qsl

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
