"""The file format of license import and export: CSV for spreadsheets, JSON lines for programs. Pure.

Written rows are read back unchanged. A missing or blank field has the value of a new license (D-103).
"""

import csv
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final, NamedTuple, TextIO, TypeAlias

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from licserver.domain.decisions import KEY_PREFIX
from licserver.domain.entitlements import format_grants, parse_grants
from licserver.domain.records import LISTS, LicenseTerms
from licserver.protocol.conversion import (
    Conversion,
    ForeignLineError,
    SkippedLineError,
    describe_missing,
    join_problems,
    names_of,
    parse_iso,
)

FORMATS: Final = ("csv", "jsonl")
MAX_DOCUMENTS: Final = 64 << 20  # characters of a file of JSON documents, which is read as a whole
MAX_COLUMNS: Final = 1_000  # of a CSV file; other systems export some hundreds at most
MAX_LINE: Final = 16 << 20  # characters of a line: a license may have a hundred thousand activations
_BYTE_ORDER_MARK: Final = "\N{BYTE ORDER MARK}"  # spreadsheets write it at the start of a UTF-8 file


# pydantic alone would parse 20261231 as seconds since 1970, and 1_0, 1.0 and True as numbers of slots.
def _read_day(value: Any) -> date:
    try:
        return datetime.strptime(_read_text(value).strip(), "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise ValueError("must be a date like 2027-01-31") from None


def _read_instant(value: Any) -> datetime:
    try:
        instant = parse_iso(_read_text(value).strip())
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("must be a date and time like 2027-01-31T12:00Z") from None


def _read_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")  # noqa: TRY004 - pydantic reports a ValueError
    return value


def _read_slots(value: Any) -> int | None:
    text = value.strip() if isinstance(value, str) else value
    if text == "unlimited":
        return None
    if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) <= 10:  # noqa: PLR2004 - 32 bits
        return int(text)
    if isinstance(text, int) and not isinstance(text, bool):
        return text
    raise ValueError("must be a whole number from 0, or 'unlimited'")


def _read_overrides(value: Any) -> Mapping[str, Any]:
    return parse_grants(line for line in _read_text(value).splitlines() if line.strip())


def _read_seats(value: Any) -> int | None:
    seats = None if value == "unlimited" else _read_slots(value)
    if seats is None:
        raise ValueError("must be a whole number from 1")
    return seats


def _read_key(value: Any) -> str:
    key = _read_text(value).strip()
    return key.upper() if key.upper().startswith(KEY_PREFIX) else key  # D-02, D-185


def _strip(value: Any) -> Any:
    return value.strip() if isinstance(value, str) else value


_Day = Annotated[date, BeforeValidator(_read_day)]
_Instant = Annotated[
    datetime,
    BeforeValidator(_read_instant),
    PlainSerializer(lambda instant: instant.astimezone(UTC).isoformat()),
]
_Slots = Annotated[
    int | None,
    BeforeValidator(_read_slots),
    PlainSerializer(lambda slots: "unlimited" if slots is None else slots),
]
_Overrides = Annotated[
    Mapping[str, Any] | None,
    BeforeValidator(_read_overrides),
    PlainSerializer(lambda values: values and "\n".join(format_grants(values))),
]
_Key = Annotated[str, BeforeValidator(_read_key)]
_Slug = Annotated[str, StringConstraints(strip_whitespace=True)]


@dataclass(frozen=True, slots=True)
class ActivationRow:
    """A slot in use."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    domain: str
    ip: str
    activated_at: _Instant | None = None
    last_seen_at: _Instant | None = None
    label: str | None = None
    app_version: str | None = None
    offline_until: _Instant | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenseRow(LicenseTerms):
    """A line of the file; only its types are validated.

    None means: a generated key, the product's present name, issued now, unlimited slots.
    """

    license_key: _Key | None = None
    product: _Slug
    product_name: str | None = None
    issued_at: _Instant | None = None
    subscription_ended_at: _Instant | None = None
    revoked_at: _Instant | None = None
    revoked_reason: str | None = None
    activations: tuple[ActivationRow, ...] = ()
    # Terms whose type alone would accept too much.
    expires_on: _Day | None = None
    lifetime: Annotated[bool, BeforeValidator(_strip)] = False
    slots: _Slots = 1
    subscription_id: Annotated[str | None, Field(alias="subscription")] = None
    support_until: _Day | None = None
    overrides: _Overrides = None
    floating_seats: Annotated[int, BeforeValidator(_read_seats)] | None = None
    # The fields in the file; an existing license keeps all other fields. None for all.
    given: Annotated[frozenset[str] | None, Field(exclude=True)] = field(default=None, compare=False)
    copies: Annotated[int, Field(exclude=True)] = (
        1  # licenses that the line creates; all but the first get new keys
    )


_FIRST: Final = (
    *("license_key", "product", "product_name", "issued_at", "expires_on", "lifetime", "slots", "allowed"),
    *("subscription", "subscription_ended_at", "support_until", "revoked_at", "revoked_reason"),
)
_ALIASES: Final = {"subscription_id": "subscription"}
_NAMES: Final = [_ALIASES.get(field_.name, field_.name) for field_ in fields(LicenseRow)]
_NOT_LISTED: Final = {*_FIRST, "activations", "given", "copies"}
FIELDS: Final = (*_FIRST, *(name for name in _NAMES if name not in _NOT_LISTED), "activations")
_ROW: Final = TypeAdapter(LicenseRow)


class InvalidLine(NamedTuple):
    """An error in the file, by line from 1; the message contains no license key."""

    line: int
    message: str


class SkippedLine(NamedTuple):
    """A line of an export that is no license, such as a payment."""

    line: int
    reason: str


# --- cells of CSV files, with formulas disarmed (D-98) ----------------------------------------

_BLANKS: Final = r"""(?:[^\S\t\r\n]|["'])*"""
_FORMULA: Final = rf"{_BLANKS}[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]"  # the last four are full-width forms

# With another delimiter, a spreadsheet starts cells inside ours: quotes protect only the first cell of a
# line (D-171). Delimiters are not among the blanks, so that `unescape_formulas` finds each apostrophe.
_DELIMITER: Final = r"(?<=[,;|\t\r\n])"
_FORMULA_START: Final = re.compile(rf"\A(?={_FORMULA}|{_BLANKS}[\t\r\n])|{_DELIMITER}(?={_FORMULA})")
_ESCAPED_FORMULA: Final = re.compile(rf"\A'(?={_FORMULA}|{_BLANKS}[\t\r\n])|{_DELIMITER}'(?={_FORMULA})")


def to_line(values: Sequence[Any]) -> str:
    """Format a line including its end (RFC 4180)."""
    line = io.StringIO()
    csv.writer(line, quoting=csv.QUOTE_ALL).writerow([_format_cell(value) for value in values])
    return line.getvalue()


def _format_cell(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case int():
            return str(value)
        case datetime():
            return value.strftime("%Y-%m-%d %H:%M:%S")
        case date():
            return value.isoformat()
        case _:
            return escape_formulas(str(value))


def escape_formulas(text: str) -> str:
    """Insert an apostrophe before each formula: at the start, and wherever a cell may start."""
    return _FORMULA_START.sub("'", text)


def unescape_formulas(cell: str) -> str:
    """Undo `escape_formulas`."""
    return _ESCAPED_FORMULA.sub("", cell)


# --- writing ----------------------------------------------------------------------------------


def write_head(form: str) -> str:
    """Format the header line; empty for JSON lines."""
    return to_line(FIELDS) if form == "csv" else ""


def write_row(form: str, row: LicenseRow) -> str:
    """Format a license as one line of CSV (with line breaks in cells) or JSON, including its end."""
    values = _ROW.dump_python(row, mode="json", by_alias=True)
    if form == "csv":
        return to_line([_to_cell(values[name]) for name in FIELDS])
    return _compact({name: values[name] for name in FIELDS}) + "\n"


def _to_cell(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    if not value or isinstance(value[0], str):
        return "\n".join(value)
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


# --- reading ----------------------------------------------------------------------------------

Line: TypeAlias = tuple[int, LicenseRow | InvalidLine | SkippedLine]

_AS_IT_IS: Final = Conversion(now=datetime.min.replace(tzinfo=UTC))


def read_rows(form: str, lines: Iterable[str], conversion: Conversion = _AS_IT_IS) -> Iterator[Line]:
    """Parse a file lazily; yield each row's first line number, and the row, its error, or why it is skipped.

    In documents of the form `json`, licenses are counted instead of lines.
    """
    if form == "json":
        yield from _read_documents(lines, conversion)
        return
    reader = {"csv": _read_csv, "jsonl": _read_json_lines}[form]
    try:
        yield from reader(_check_lengths(lines), conversion)
    except _LongLineError as error:
        yield error.line, InvalidLine(error.line, f"longer than {MAX_LINE} characters")


def read_lines(file: TextIO) -> Iterator[str]:
    """Read a file's lines with bounded memory: a line above `MAX_LINE` characters arrives in pieces."""
    return iter(lambda: file.readline(MAX_LINE + 1), "")


class _LongLineError(Exception):
    """A line is longer than `MAX_LINE`; what follows it cannot be separated."""

    def __init__(self, line: int) -> None:
        super().__init__()
        self.line = line


def _check_lengths(lines: Iterable[str]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        if len(line) > MAX_LINE:
            raise _LongLineError(number)
        yield line


def _read_csv(lines: Iterable[str], conversion: Conversion) -> Iterator[Line]:
    csv.field_size_limit(MAX_LINE)
    lines = iter(lines)
    first = next(lines, "").removeprefix(_BYTE_ORDER_MARK)
    # Spreadsheets use the delimiter of their country (D-148).
    delimiter = next((character for character in ";\t" if character in first and "," not in first), ",")
    reader = csv.reader(itertools.chain([first], lines), delimiter=delimiter, strict=True)
    names: list[str] | None = None
    start = 1
    while True:
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield start, InvalidLine(start, f"invalid CSV: {error}")
            return  # the following rows cannot be separated
        line, start = start, reader.line_num + 1
        if names is None:
            if len(cells) > MAX_COLUMNS:
                yield line, InvalidLine(line, f"more than {MAX_COLUMNS} columns")
                return
            names = [name.strip() for name in cells]
            if message := _check_header(names, conversion):
                yield line, InvalidLine(line, message)
                return
        elif not any(map(str.strip, cells)):  # spreadsheets write deleted rows as separators alone (D-415)
            continue
        elif len(cells) != len(names):
            yield line, InvalidLine(line, f"expected {len(names)} cells, found {len(cells)}")
        else:
            # Of columns with the same name, the first counts: other systems append columns of their users.
            pairs = zip(reversed(names), reversed(cells), strict=True)
            record = {name: unescape_formulas(cell) for name, cell in pairs}
            yield line, _read_record(line, record, conversion, are_texts=True)


def _check_header(names: list[str], conversion: Conversion) -> str | None:
    if conversion.is_foreign:
        checked = (conversion.check_columns(names), conversion.check_terms(names))
        return join_problems(filter(None, checked))
    if not {*names} & {*FIELDS}:  # no header: the cells may be a license, with its key
        return _describe_unknown_header(names, conversion)
    problems = [_check_names(names)]
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        problems.append(f"occurs twice: {', '.join(twice)}")
    if "product" in names or conversion.products:
        problems.append(conversion.check_terms(names))
    else:
        problems.append(f"{NO_HEADER}; or add --product SLUG")
    return join_problems(filter(None, problems))


def _describe_unknown_header(names: list[str], conversion: Conversion) -> str:
    """Describe a first line without any field; name its columns unless it may be a license with its key."""
    needed = "the first line must name the fields" if conversion.products else NO_HEADER
    columns = list(filter(None, names))
    if all(map(_COLUMN.fullmatch, columns)) and any(map(_KNOWN_WORD.search, columns)):
        needed += f"; this one names {', '.join(map(repr, columns))[:1000]}"
    return f"{needed}; {_MAP}; valid fields: {', '.join(FIELDS)}"


_MAP: Final = "map other names with --map COLUMN=FIELD, as --map key=license_key"
_COLUMN: Final = re.compile(r"(?=.*[a-zß-ÿ])[^\W\d_]{1,20}(?:[ _][^\W\d_]{1,20}){0,3}")
"""The name of a column: words of letters, of which some are small."""

_KNOWN_WORD: Final = re.compile(
    r"\b(key|serial|licen[cs]e|product|name|e?mail|customer|date|expir\w*|valid|seats|activations|status|order"
    r"|schlüssel|lizenz|produkt|kunde|datum|ablauf)\b",
    re.IGNORECASE,
)
"""In the names of columns. A line without any of these words may be a license."""

NO_HEADER: Final = "the first line must name the fields, 'product' among them"


def _check_names(names: Iterable[str]) -> str | None:
    unknown = list(dict.fromkeys(name for name in names if name not in FIELDS))
    if not unknown:
        return None
    return f"{describe_missing('field', unknown)}; {_MAP}; valid fields: {', '.join(FIELDS)}"


def _read_record(
    line: int, record: dict[str, Any], conversion: Conversion, *, are_texts: bool
) -> LicenseRow | InvalidLine | SkippedLine:
    """Convert a record, in which lists may be texts, and validate the types of its values."""
    try:
        values, given, copies = conversion.convert(record, FIELDS)
    except SkippedLineError as reason:
        return SkippedLine(line, str(reason))
    except ForeignLineError as problem:
        return InvalidLine(line, str(problem))
    if are_texts and (message := _split_texts(values)):
        return InvalidLine(line, message)
    values = {name: value for name, value in values.items() if value is not None and _strip(value) != ""}
    try:
        return replace(_ROW.validate_python(values), given=given, copies=copies)
    except ValidationError as invalid:
        errors = invalid.errors(include_input=False, include_url=False)
    return InvalidLine(line, join_problems(map(_describe_error, errors)) or "")


def _describe_error(error: Any) -> str:
    message = _MESSAGES.get(error["type"], error["msg"].removeprefix("Value error, "))
    return f"{'.'.join(map(str, error['loc']))}: {message}"


def _split_texts(values: dict[str, Any]) -> str | None:
    """Parse lists that are texts, in place; return a message for an invalid list, or None."""
    for name in LISTS:
        if isinstance(text := values.get(name), str):
            values[name] = [entry for entry in text.splitlines() if entry.strip()]
    if isinstance(text := values.get("activations"), str) and text.strip():
        try:
            values["activations"] = json.loads(text, object_pairs_hook=_unique)
        except (ValueError, RecursionError):
            return "activations: must be JSON, as `licserver export` writes it"
    return None


def _read_documents(lines: Iterable[str], conversion: Conversion) -> Iterator[Line]:
    """Read JSON documents in a row, such as the pages of an API: a license, a list, or a list `data`."""
    pieces, size = [], 0
    for line in lines:
        pieces.append(line)
        size += len(line)
        if size > MAX_DOCUMENTS:
            yield 1, InvalidLine(1, f"longer than {MAX_DOCUMENTS >> 20} MiB; split it")
            return
    text, decoder = "".join(pieces), json.JSONDecoder(object_pairs_hook=_unique)
    place, number = _start_of_document(text, 0), 0
    while place < len(text):
        try:
            document, end = decoder.raw_decode(text, place)
        except _RepeatedNameError as repeated:
            yield number + 1, InvalidLine(number + 1, str(repeated))
            return
        except (ValueError, RecursionError):
            yield number + 1, InvalidLine(number + 1, "from here on not a JSON document")
            return
        place = _start_of_document(text, end)
        items = document.get("data", document) if isinstance(document, dict) else document
        for item in items if isinstance(items, list) else [items]:
            number += 1
            yield number, _read_item(number, item, conversion)


class _RepeatedNameError(ValueError):
    """A name occurs twice in an object, and each reader would choose another value of it."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the members of a JSON object; the message names only fields: other names may be keys."""
    counts = Counter(name for name, _ in pairs)
    if twice := [name for name, count in counts.items() if count > 1]:
        named = ", ".join(name for name in twice if name in FIELDS)
        raise _RepeatedNameError(f"occurs twice: {named or 'a name in an object'}")
    return dict(pairs)


def _read_item(line: int, item: Any, conversion: Conversion) -> LicenseRow | InvalidLine | SkippedLine:
    """Parse a JSON object; its names correspond to columns of a CSV file."""
    if not isinstance(item, dict):
        return InvalidLine(line, "not a JSON object")
    if not conversion.is_foreign and (message := _check_names(item)):
        return InvalidLine(line, message)
    result = _read_record(line, item, conversion, are_texts=conversion.is_foreign)
    if isinstance(result, LicenseRow) and (message := conversion.check_terms(names_of(item))):
        return InvalidLine(line, message)
    return result


def _start_of_document(text: str, place: int) -> int:
    while place < len(text) and text[place] in f" \t\r\n,{_BYTE_ORDER_MARK}":
        place += 1
    return place


def _read_json_lines(lines: Iterable[str], conversion: Conversion) -> Iterator[Line]:
    for line, text in enumerate(lines, 1):
        if line == 1:
            text = text.removeprefix(_BYTE_ORDER_MARK)  # noqa: PLW2901
        if not text.strip():
            continue
        try:
            record = json.loads(text, object_pairs_hook=_unique)
        except _RepeatedNameError as repeated:
            yield line, InvalidLine(line, str(repeated))
            continue
        except (ValueError, RecursionError):
            record = None
        yield line, _read_item(line, record, conversion)


_MESSAGES: Final = {
    "bool_parsing": "must be yes or no",
    "bool_type": "must be yes or no",
    "dataclass_type": "must be an object",
    "missing": "is required",
    "string_type": "must be text",
    "tuple_type": "must be a list",
    "unexpected_keyword_argument": "is not a field of an activation",
}
