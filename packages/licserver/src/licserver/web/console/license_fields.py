"""The terms of a license as fields of a form, and a license as a line of a CSV file. Pure."""

from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final, NamedTuple

from licserver.domain.records import IssuedLicense, LicenseTerms
from licserver.web.console.forms import is_touched, parse_day, parse_slots
from licserver.web.console.messages import describe


class Field(NamedTuple):
    """A field of the forms that issue and change a license.

    Args:
        name: Of the input.
        term: The field of `LicenseTerms`.
        label: Shown beside the input.
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

_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {"slots": parse_slots, "date": parse_day}
"""By kind; text stays as typed."""

_COLUMNS: Final[tuple[tuple[str, Callable[[IssuedLicense, datetime], Any]], ...]] = (
    ("id", lambda one, _: one.id.hex()),
    ("product", lambda one, _: one.product_slug),
    ("product name", lambda one, _: one.product_name),
    ("state", lambda one, now: describe(one, now).label),
    ("customer e-mail", lambda one, _: one.customer_email),
    ("note", lambda one, _: one.note),
    ("issued at", lambda one, _: one.issued_at),
    ("last day", lambda one, _: one.expires_on),
    ("lifetime", lambda one, _: one.lifetime),
    ("slots", lambda one, _: "unlimited" if one.slots is None else one.slots),
    ("slots used", lambda one, _: one.slots_used),
    ("subscription", lambda one, _: one.subscription_id),
    ("support until", lambda one, _: one.support_until),
    ("revoked at", lambda one, _: one.revoked_at),
    ("revoked reason", lambda one, _: one.revoked_reason),
)
CSV_HEADER: Final = tuple(name for name, _ in _COLUMNS)


def parse_terms(form: Mapping[str, str]) -> LicenseTerms:
    """Parse the form that issues a license; an empty field has the default.

    Raises:
        InvalidInputError: for a field that cannot be parsed.
    """
    typed = {field: form.get(field.name, "").strip() for field in FIELDS if field.in_issue}
    return LicenseTerms(**{field.term: _parse(field, text) for field, text in typed.items() if text})


def parse_changes(form: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Parse the form that changes a license: the new values of the edited fields, and what these showed.

    Raises:
        InvalidInputError: for a field that cannot be parsed.
    """
    edited = [field for field in FIELDS if is_touched(form, field.name)]
    changes = {field.term: _parse(field, form[field.name].strip()) for field in edited}
    shown = {field.term: form.get(f"was-{field.name}") for field in edited}
    was = {
        field.term: _parse(field, text.strip()) for field in edited if (text := shown[field.term]) is not None
    }
    return changes, was


def format_terms(terms: LicenseTerms) -> dict[str, str]:
    """Return the text of each field of the form."""
    return {field.name: _format(field, getattr(terms, field.term)) for field in FIELDS}


def csv_row(license_: IssuedLicense, now: datetime) -> tuple[Any, ...]:
    """Return the cells of a license, in the order of `CSV_HEADER`."""
    return tuple(get(license_, now) for _, get in _COLUMNS)


def _parse(field: Field, text: str) -> Any:
    return _PARSERS.get(field.kind, str)(text)


def _format(field: Field, value: Any) -> str:
    if value is None:
        return "unlimited" if field.kind == "slots" else ""
    return value.isoformat() if isinstance(value, date) else str(value)
