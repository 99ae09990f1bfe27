"""Convert lines of files of other systems to fields of a license (D-103, D-186). Pure."""

import enum
import re
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, TypeAlias

Record: TypeAlias = Mapping[str, Any]
NEVER: Final = "never"
"""The value of an option for a license without an end."""

QUANTITY: Final = "quantity"
"""The number of copies; a key of a converted line, but no field of a license."""

OPEN_END: Final = "open end"
"""As `QUANTITY`: describes a license whose end the line omits, such as a running subscription."""

MAX_COPIES: Final = 10_000
_DATES: Final = ("expires_on", "support_until")
_ENDS: Final = ("expires_on", "lifetime", "subscription")
_UNIX_TIME: Final = re.compile(r"\d{9,11}")


class SkippedLineError(ValueError):
    """Error of a line that is not a license, such as a payment; the message is the reason."""


class ForeignLineError(ValueError):
    """Error of an invalid line; the message contains no license key."""


class Quantity(enum.StrEnum):
    """The conversion of a line with several copies: more slots, or several licenses."""

    SLOTS = "slots"
    LICENSES = "licenses"


class Preset(NamedTuple):
    """The format of another system's export."""

    title: str  # the system's name
    form: str  # `csv`, or `json` for documents with a list `data`
    columns: tuple[str, ...]  # required, besides end and slots
    # Returns our fields; `product` lists its names in the other system. `OPEN_END` describes a
    # line without an end that is no lifetime license.
    read: Callable[[Record, datetime], dict[str, Any]]
    end: str  # the column with the last day of validity
    slots: str | None  # the column with the activation limit, if the export has one
    quantity: str | None = None  # the column with the number of copies, if the export has one


class Converted(NamedTuple):
    """A converted line."""

    values: dict[str, Any]
    given: frozenset[str]  # the fields that the file has
    copies: int = 1  # licenses that the line creates


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """The conversion of a file's lines, with the options of an import.

    The workflow of `license_files.read_rows`:

    1. `check_columns` and `check_terms` validate the header; a message describes all problems.
    2. `convert` turns each line into our fields.

    >>> conversion = Conversion(now=now, preset=PRESETS["edd"], products={"Photo Lab": "photo-lab"})
    >>> conversion.convert(record, FIELDS).values["slots"]
    'unlimited'

    `convert` raises `SkippedLineError` for a line that is no license, `ForeignLineError` with all problems of
    an invalid line.
    """

    now: datetime  # when licenses that another system has blocked are revoked
    preset: Preset | None = None  # the system that wrote the file
    # A column of the file → our field, or an empty text to ignore the column.
    columns: Mapping[str, str] = field(default_factory=dict)
    # Another system's name or id of a product → our slug; an empty text means all others.
    products: Mapping[str, str] = field(default_factory=dict)
    slots: str | None = None  # the activation limit of lines without one
    expires: str | None = None  # the last day of lines without an end, or `never`
    support_until: str | None = None  # the last day of support of lines without one, or `never`
    supported: Container[str] = ()  # slugs of the products with a support policy
    quantity: Quantity | None = None  # the conversion of several copies in a line

    @property
    def is_foreign(self) -> bool:
        """Whether the file is of another system; most of its columns are ignored."""
        return self.preset is not None or bool(self.columns)

    def check_columns(self, names: Sequence[str]) -> str | None:
        """Describe the missing columns of a file of another system; None if it has all of them."""
        missing = [name for name in self.columns if name not in names]
        if missing:
            return f"{describe_missing('column', missing)}; the file has: {', '.join(names)[:1000]}"
        if self.preset is not None:
            missing = [name for name in self.preset.columns if name not in names]
            if missing:
                lost = describe_missing("column", missing)
                return f"this is not a complete export of {self.preset.title}: {lost}"
        return None

    def check_terms(self, names: Collection[str]) -> str | None:
        """Describe the decisive terms that the columns of a file or a record lack; or None.

        A missing column is no blank cell: its value is not assumed without an option.
        """
        known_fields, missing = self._fields(names), []
        if self.slots is None and "slots" not in known_fields:
            column = (self.preset and self.preset.slots) or "slots"
            missing.append(f"slots: there is no column {column!r}; add --slots N, or --slots unlimited")
        if self.expires is None and not known_fields.intersection(_ENDS):
            columns = [self.preset.end] if self.preset is not None else _ENDS
            listed = " or ".join(map(repr, columns))
            missing.append(
                f"expires_on: there is no column {listed}; add --expires YYYY-MM-DD, or --expires never"
            )
        return join_problems(missing)

    def _fields(self, names: Collection[str]) -> set[str]:
        """Return the decisive fields that the columns of a file contain."""
        mapped = {name for column, name in self.columns.items() if column in names}
        if self.preset is None:
            return mapped | ({*names} - self.columns.keys())
        columns = {self.preset.end: "expires_on", self.preset.slots: "slots"}
        return mapped | {field for column, field in columns.items() if column in names}

    def convert(self, record: Record, fields: tuple[str, ...]) -> "Converted":
        """Convert a line to our fields.

        Raises:
            SkippedLineError: The line is no license.
            ForeignLineError: The line is invalid; the message has all problems.
        """
        problems: list[str] = []
        if self.preset is not None:
            values = self.preset.read(record, self.now)
        else:
            values = {name: record[name] for name in fields if name in record and name not in self.columns}
        for column, name in self.columns.items():
            if name:
                values[name] = record.get(column)
        for name in _DATES:  # dates of other systems may have times
            if isinstance(values.get(name), str) and values[name].strip():
                with _collecting(problems if self.is_foreign else []):  # our own fields are validated later
                    values[name] = day_of(values, name)
        if self.preset is not None and not text_of(values.get("license_key")):
            problems.append("license_key: is required")
        quantity, copies = values.pop(QUANTITY, None), 1
        open_end = values.pop(OPEN_END, None)
        if open_end is not None and self.expires is None:
            problems.append(
                f"expires_on: {open_end} has no end here; add --expires YYYY-MM-DD, or --expires never"
            )
        given = self._given(record, values)
        with _collecting(problems):
            values["product"] = self._find_product(values.get("product"))
            self._assume(values)
        with _collecting(problems):
            copies = self._apply_quantity(values, _read_quantity(quantity))
        if message := join_problems(problems):
            raise ForeignLineError(message)
        return Converted(values, given - {"expires_on"} if open_end is not None else given, copies)

    def _apply_quantity(self, values: dict[str, Any], quantity: int) -> int:
        """Multiply the slots of a line, or return the number of its licenses."""
        match self.quantity:
            case _ if quantity == 1:
                return 1
            case None:
                raise ForeignLineError(
                    f"quantity: {quantity} were bought; add --quantity slots for one license with {quantity} "
                    "times the slots, or --quantity licenses for as many licenses"
                )
            case Quantity.SLOTS:
                slots = text_of(values.get("slots")) or "1"
                values["slots"] = str(int(slots) * quantity) if slots.isdecimal() else slots
                return 1
            case Quantity.LICENSES:
                return 1 if text_of(values.get("revoked_at")) else quantity

    def _given(self, record: Record, values: Mapping[str, Any]) -> frozenset[str]:
        """Return the fields that the line contains; fields that the other system lacks are omitted."""
        if self.preset is None:
            return frozenset(values.keys() | self._multiplied(record))
        brought = {name for name, value in values.items() if value is not None and name != "lifetime"}
        given = {*brought, *self._fields(names_of(record)), *self._multiplied(record), "revoked_at"}
        return frozenset(given | ({"lifetime"} & values.keys() if "expires_on" in given else set()))

    def _multiplied(self, record: Record) -> set[str]:
        """Return `slots` if the number of copies decides it."""
        columns = {column for column, name in self.columns.items() if name == QUANTITY}
        columns |= {self.preset.quantity} if self.preset is not None and self.preset.quantity else set()
        return {"slots"} if self.quantity is Quantity.SLOTS and columns & record.keys() else set()

    def _assume(self, values: dict[str, Any]) -> None:
        """Add the terms of the options to a line without them."""
        if self.slots is not None and text_of(values.get("slots")) is None:
            values["slots"] = self.slots
        if self.expires not in (None, NEVER) and not any(_has_end(name, values.get(name)) for name in _ENDS):
            values["expires_on"] = self.expires
        is_open = self.support_until is None and "support_until" not in values
        product = values["product"]  # of any type: it is validated later
        if is_open and isinstance(product, str) and product in self.supported:
            raise ForeignLineError(
                f"support_until: {product} has a support policy, and there is no column "
                "'support_until'; add --support-until YYYY-MM-DD, or --support-until never"
            )
        if self.support_until not in (None, NEVER) and text_of(values.get("support_until")) is None:
            values["support_until"] = self.support_until

    def _find_product(self, names: Any) -> Any:
        listed = names if isinstance(names, list) else [names]
        candidates = [text for name in listed if (text := text_of(name))]
        for name in candidates:
            if name in self.products:
                return self.products[name]
        if "" in self.products:
            return self.products[""]
        if self.preset is not None:
            of_name = f" for {candidates[0]!r}" if candidates else ""
            option = f"--product {candidates[0]!r}=SLUG" if candidates else "--product SLUG"
            raise ForeignLineError(f"product: no product is mapped{of_name}; add {option}")
        return names.strip() if isinstance(names, str) else names


@contextmanager
def _collecting(problems: list[str]) -> Iterator[None]:
    try:
        yield
    except ForeignLineError as problem:
        problems.append(str(problem))


MAX_JOINED: Final = 20  # problems in a message


def join_problems(problems: Iterable[str]) -> str | None:
    """Join the problems of a line into a message; None if there are none."""
    listed = list(dict.fromkeys(problems))
    hidden = len(listed) - MAX_JOINED
    return "; ".join(listed[:MAX_JOINED]) + (f"; and {hidden} more" if hidden > 0 else "") or None


def describe_missing(kind: str, names: Sequence[str]) -> str:
    """Describe the missing columns or fields."""
    listed = ", ".join(repr(name[:80]) for name in names[:MAX_JOINED])
    listed += " …" if len(names) > MAX_JOINED else ""
    return f"there is no {kind} {listed}" if len(names) == 1 else f"there are no {kind}s {listed}"


# --- values -----------------------------------------------------------------------------------


def text_of(value: Any) -> str | None:
    """Return stripped text; None for blank or missing text."""
    text = "" if value is None else str(value).strip()
    return text or None


def _read_quantity(value: Any) -> int:
    """Parse a number of copies; the default is 1."""
    text = text_of(value) or "1"
    if not (text.isascii() and text.isdecimal() and len(text) < 9 and 1 <= int(text) <= MAX_COPIES):  # noqa: PLR2004
        raise ForeignLineError(f"quantity: must be a whole number from 1 to {MAX_COPIES:,}")
    return int(text)


def _has_end(name: str, value: Any) -> bool:
    """Return whether a field determines the end of a license, or that it has none."""
    text = (text_of(value) or "").lower()
    return text not in ("", *_FALSE) if name == "lifetime" else bool(text)


_FALSE: Final = ("0", "off", "f", "false", "n", "no")
"""Texts that pydantic parses as false."""


def parse_iso(text: str) -> datetime:
    """Parse a date, or a date with `T` or a blank before its time; naive without an offset.

    `datetime.fromisoformat` takes any character there: the period 2027-01-31/12 would be its first day.
    """
    if _OTHER_SEPARATOR.match(text):
        raise ValueError
    return datetime.fromisoformat(text)


_OTHER_SEPARATOR: Final = re.compile(r"\d{4}-\d\d-\d\d[^T ]", re.DOTALL)


def _read_instant(name: str, value: Any) -> datetime:
    text = (text_of(value) or "").removesuffix(" UTC")
    text = re.sub(r" ([+-]\d\d:?\d\d)$", r"\1", text)  # as Ruby writes it
    try:
        if _UNIX_TIME.fullmatch(text):
            return datetime.fromtimestamp(int(text), UTC)
        instant = parse_iso(text)
        return instant.replace(tzinfo=UTC) if instant.tzinfo is None else instant.astimezone(UTC)
    except (ValueError, OverflowError):
        raise ForeignLineError(f"{name}: must be a date like 2027-01-31, with or without a time") from None


def instant_of(row: Record, name: str) -> str | None:
    """Return a column's instant as ISO 8601; None for a blank one."""
    text = text_of(row.get(name))
    return text and _read_instant(name, text).isoformat()


def day_of(row: Record, name: str) -> str | None:
    """Return the day of a column's date or instant in UTC as ISO 8601; None for a blank one."""
    text = text_of(row.get(name))
    return text and _read_instant(name, text).date().isoformat()


def names_of(item: Record) -> Collection[str]:
    """Return the names of a JSON object's values, or of its attributes in JSON:API."""
    attributes = item.get("attributes")
    return attributes.keys() if isinstance(attributes, dict) else item.keys()
