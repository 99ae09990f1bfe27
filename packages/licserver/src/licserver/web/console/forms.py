"""Forms without a file, parsed, and the terms of a license as their fields. Pure."""

from collections.abc import Callable, Mapping
from datetime import date
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl

from licserver.domain.records import LicenseTerms
from licserver.errors import InvalidInputError

MAX_FORM: Final = 1 << 16
"""Bytes: enough for a note of the greatest length, percent-encoded."""


def parse_form(body: bytes) -> dict[str, str]:
    """Parse an urlencoded form; of a name that is given twice, the last counts."""
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError:  # UnicodeDecodeError is one
        raise InvalidInputError("this form cannot be read") from None
    return {name: value.replace("\r\n", "\n") for name, value in fields}  # browsers send both characters


def is_touched(form: Mapping[str, str], name: str) -> bool:
    """Return whether a field was sent with another value than the page had shown, which is in ``was-…``."""
    typed, was = form.get(name), form.get(f"was-{name}")
    return typed is not None and (was is None or _normalize(typed) != _normalize(was))


def _normalize(text: str) -> str:
    return text.strip().replace("\r\n", "\n")


def parse_day(text: str) -> date | None:
    """Parse a date; an empty one is None."""
    try:
        return date.fromisoformat(text) if text else None
    except ValueError:
        raise InvalidInputError(f"{text!r} is not a date; write it like 2027-01-31") from None


def _parse_slots(text: str) -> int | None:
    if text.casefold() in {"unlimited", "∞"}:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004 - fits 32 bits
        raise InvalidInputError("slots must be a whole number from 0, or “unlimited”")
    return int(text)


# --- the terms of a license -------------------------------------------------------------------


class Field(NamedTuple):
    """A field of the forms that issue and change a license.

    Args:
        name: Of the input.
        term: The field of `LicenseTerms`.
        kind: Of the input: a case of the macro `field` in `parts.html`, and a key of `_PARSERS`.
        in_issue: Whether the form that issues a license has it.
    """

    name: str
    term: str
    label: str
    kind: str
    in_issue: bool = True


FIELDS: Final = (
    Field("slots", "slots", "Slots", "slots"),
    Field("expires", "expires_on", "Last day", "date"),
    Field("support", "support_until", "Support until", "date", in_issue=False),
    Field("email", "customer_email", "Customer’s email address", "email"),
    Field("note", "note", "Note", "lines"),
)

_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {"slots": _parse_slots, "date": parse_day}
"""By kind; text stays as typed."""


def parse_terms(form: Mapping[str, str]) -> LicenseTerms:
    """Parse the form that issues a license; an empty field has the default."""
    typed = {field: form.get(field.name, "").strip() for field in FIELDS if field.in_issue}
    return LicenseTerms(**{field.term: _parse(field, text) for field, text in typed.items() if text})


def parse_changes(form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the form that changes a license: the new values of the edited fields, and what these showed."""
    edited = [field for field in FIELDS if is_touched(form, field.name)]
    changes = {field.term: _parse(field, form[field.name].strip()) for field in edited}
    shown = {field: form[f"was-{field.name}"] for field in edited if f"was-{field.name}" in form}
    return changes, {field.term: _parse(field, text.strip()) for field, text in shown.items()}


def format_terms(terms: LicenseTerms) -> dict[str, str]:
    """Return the text of each field of the form."""
    return {field.name: _format(field, getattr(terms, field.term)) for field in FIELDS}


def _parse(field: Field, text: str) -> Any:
    return _PARSERS.get(field.kind, str)(text)


def _format(field: Field, value: Any) -> str:
    if value is None:
        return "unlimited" if field.kind == "slots" else ""
    return value.isoformat() if isinstance(value, date) else str(value)
