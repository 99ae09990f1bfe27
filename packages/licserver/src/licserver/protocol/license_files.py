"""Licenses as lines of a file, out and in: CSV for spreadsheets, JSON lines for programs. Pure (D-103).

What is written can be read again, and comes to the same. A field that is missing or blank has the value that
a new license would have.
"""

import csv
import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final, NamedTuple

from licserver.protocol.csv_cells import to_cell, to_line, unguard

FORMATS: Final = ("csv", "jsonl")

MAX_LINE: Final = 16 << 20
"""Characters of a line: a license may have a hundred thousand activations."""


_MARK: Final = "\N{BYTE ORDER MARK}"
"""Spreadsheets write it where a file of UTF-8 begins."""

_NO_NAMES: Final = "the first line must name the fields, and 'product' among them"


class ActivationRow(NamedTuple):
    """An activation, as in `licserver.database.repositories.licenses.Activation`."""

    domain: str
    ip: str
    activated_at: datetime | None = None
    last_seen_at: datetime | None = None


class LicenseRow(NamedTuple):
    """A license as a line has it; None is not given, and what stands there was not judged yet.

    Args:
        license_key: None to have one drawn.
        product: Its slug.
        product_name: The name on the day of issue (D-12); None for the present one.
        issued_at: None for now.
        slots: None is unlimited (D-07).
        activations: The slots that are taken.

    The others are as in `licserver.domain.records.LicenseTerms`.
    """

    product: str
    license_key: str | None = None
    product_name: str | None = None
    issued_at: datetime | None = None
    expires_on: date | None = None
    lifetime: bool = False
    slots: int | None = 1
    allowed: tuple[str, ...] = ()
    subscription: str | None = None
    subscription_ended_at: datetime | None = None
    support_until: date | None = None
    revoked_at: datetime | None = None
    revoked_reason: str | None = None
    customer_email: str | None = None
    note: str | None = None
    activations: tuple[ActivationRow, ...] = ()


FIELDS: Final = (
    "license_key",
    "product",
    "product_name",
    "issued_at",
    "expires_on",
    "lifetime",
    "slots",
    "allowed",
    "subscription",
    "subscription_ended_at",
    "support_until",
    "revoked_at",
    "revoked_reason",
    "customer_email",
    "note",
    "activations",
)


class Problem(NamedTuple):
    """Why a line cannot be taken; `said` holds no license key.

    Args:
        line: Its number in the file, from 1.
        said: In words for the vendor.
    """

    line: int
    said: str


class BadField(ValueError):
    """A field cannot be read; the message says why, in words for the vendor."""


# --- out --------------------------------------------------------------------------------------


def write_head(form: str) -> str:
    """Write what stands before all rows."""
    return to_line(FIELDS) if form == "csv" else ""


def write_row(form: str, row: LicenseRow) -> str:
    """Write a license as a line, with its end."""
    if form == "csv":
        return to_line([_to_text(name, getattr(row, name)) for name in FIELDS])
    record = {name: _to_json(name, getattr(row, name)) for name in FIELDS}
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _to_json(name: str, value: Any) -> Any:
    match value:
        case None:
            return "unlimited" if name == "slots" else None
        case datetime():
            return value.astimezone(UTC).isoformat()
        case date():
            return value.isoformat()
        case tuple():
            return [
                {key: _to_json(key, held) for key, held in one._asdict().items()}
                if isinstance(one, ActivationRow)
                else one
                for one in value
            ]
        case _:
            return value


def _to_text(name: str, value: Any) -> str:
    if value is None or value == ():
        return "unlimited" if name == "slots" else ""
    if name == "allowed":
        return "\n".join(value)
    if name == "activations":
        return json.dumps(_to_json(name, value), ensure_ascii=False, separators=(",", ":"))
    return to_cell(_to_json(name, value)) if name == "lifetime" else str(_to_json(name, value))


# --- in ---------------------------------------------------------------------------------------


def read_rows(form: str, lines: Iterable[str]) -> Iterator[tuple[int, LicenseRow | Problem]]:
    """Read a file's lines, one after the other.

    Args:
        form: One of `FORMATS`.
        lines: With their ends.

    Returns:
        The number of the line on which each row begins, and the row or what is wrong with it.
    """
    return _read_csv(lines) if form == "csv" else _read_json_lines(lines)


def _read_csv(lines: Iterable[str]) -> Iterator[tuple[int, LicenseRow | Problem]]:
    csv.field_size_limit(MAX_LINE)
    lines = iter(lines)
    first = next(lines, "").removeprefix(_MARK)
    reader = csv.reader(itertools.chain([first], lines), delimiter=_delimiter(first), strict=True)
    names: list[str] | None = None
    begins = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:  # not before the first line: of an empty file that is an empty one
            return
        except csv.Error as problem:
            yield begins, Problem(begins, f"this is no CSV: {problem}")
            return  # what follows cannot be told apart any more
        line, begins = begins, reader.line_num + 1
        if names is None:
            names = [name.strip() for name in cells]
            if wrong := _wrong_names(names):
                yield line, Problem(line, wrong)
                return
        elif cells:
            yield line, _read_cells(line, names, cells)


def _delimiter(first: str) -> str:
    """What stands between cells: spreadsheets write what their country is used to (D-148)."""
    return next((one for one in ";\t" if one in first and "," not in first), ",")


def _wrong_names(names: list[str]) -> str | None:
    if unknown := [name for name in names if name not in FIELDS]:
        return f"there is no field {unknown[0]!r}; there are: {', '.join(FIELDS)}"
    if len(set(names)) < len(names):
        return "a field is named twice"
    return None if "product" in names else _NO_NAMES


def _read_cells(line: int, names: list[str], cells: list[str]) -> LicenseRow | Problem:
    if len(cells) != len(names):
        return Problem(line, f"there are {len(cells)} cells, and {len(names)} fields")
    record: dict[str, Any] = {}
    for name, cell in zip(names, cells, strict=True):
        text = unguard(cell)
        if not text.strip():
            continue
        if name == "allowed":
            record[name] = [entry for entry in text.splitlines() if entry.strip()]
        elif name == "activations":
            try:
                record[name] = json.loads(text)
            except (ValueError, RecursionError):
                return Problem(line, "activations: must be JSON, as `licserver export` writes it")
        else:
            record[name] = text
    return _read_record(line, record)


def _read_json_lines(lines: Iterable[str]) -> Iterator[tuple[int, LicenseRow | Problem]]:
    for line, read in enumerate(lines, 1):
        text = read.removeprefix(_MARK) if line == 1 else read
        if not text.strip():
            continue
        try:
            record = json.loads(text) if len(text) <= MAX_LINE else None
        except (ValueError, RecursionError):
            record = None
        if not isinstance(record, dict):
            yield line, Problem(line, "this is no JSON object")
        elif unknown := [name for name in record if name not in FIELDS]:
            yield line, Problem(line, f"there is no field {unknown[0]!r}; there are: {', '.join(FIELDS)}")
        else:
            yield line, _read_record(line, {name: held for name, held in record.items() if held is not None})


def _read_record(line: int, record: Mapping[str, Any]) -> LicenseRow | Problem:
    read: dict[str, Any] = {}
    for name, held in record.items():
        try:
            value = _READERS[name](held)
        except BadField as problem:
            return Problem(line, f"{name}: {problem}")
        if value is not None or name == "slots":
            read[name] = value
    if "product" not in read:
        return Problem(line, "product: is required")
    return LicenseRow(**read)


def _text(held: Any) -> str | None:
    if not isinstance(held, str):
        raise BadField("must be text")
    return held if held.strip() else None


def _key(held: Any) -> str | None:
    text = _text(held)
    return None if text is None else text.strip().upper()


def _slug(held: Any) -> str | None:
    text = _text(held)
    return None if text is None else text.strip()


def _day(held: Any) -> date | None:
    text = _text(held)
    try:
        return (
            None if text is None else datetime.strptime(text.strip(), "%Y-%m-%d").replace(tzinfo=UTC).date()
        )
    except ValueError:
        raise BadField("must be a date like 2027-01-31") from None


def _instant(held: Any) -> datetime | None:
    text = _text(held)
    if text is None:
        return None
    try:
        instant = datetime.fromisoformat(text.strip())
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadField("must be an instant like 2027-01-31T12:00Z") from None


_YES: Final = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}


def _flag(held: Any) -> bool:
    if isinstance(held, bool):
        return held
    found = _YES.get(held.strip().lower()) if isinstance(held, str) else None
    if found is None:
        raise BadField("must be yes or no")
    return found


def _slots(held: Any) -> int | None:
    text = held.strip() if isinstance(held, str) else held
    if text == "unlimited":
        return None
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 10:  # noqa: PLR2004 - of 32 bits
        return int(text)
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    raise BadField("must be a whole number from 0, or 'unlimited'")


def _entries(held: Any) -> tuple[str, ...]:
    if not isinstance(held, list) or not all(isinstance(one, str) for one in held):
        raise BadField("must be a list of entries")
    return tuple(held)


def _activations(held: Any) -> tuple[ActivationRow, ...]:
    if not isinstance(held, list):
        raise BadField("must be a list")
    return tuple(map(_activation, held))


def _activation(held: Any) -> ActivationRow:
    if not isinstance(held, dict) or not {"domain", "ip"} <= held.keys() <= {*ActivationRow._fields}:
        raise BadField("each must have domain and ip, and may have activated_at and last_seen_at")
    if not isinstance(held["domain"], str) or not isinstance(held["ip"], str):
        raise BadField("domain and ip must be text")
    instants = {
        name: None if held.get(name) is None else _instant(held[name])
        for name in ("activated_at", "last_seen_at")
    }
    return ActivationRow(held["domain"], held["ip"], **instants)


_READERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "license_key": _key,
    "product": _slug,
    "product_name": _text,
    "issued_at": _instant,
    "expires_on": _day,
    "lifetime": _flag,
    "slots": _slots,
    "allowed": _entries,
    "subscription": _text,
    "subscription_ended_at": _instant,
    "support_until": _day,
    "revoked_at": _instant,
    "revoked_reason": _text,
    "customer_email": _text,
    "note": _text,
    "activations": _activations,
}
