"""Shared by the modules of shops: types of fields, and the content of a delivery."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, NamedTuple, Protocol, Self, TypeVar
from urllib.parse import quote

from pydantic import AfterValidator, BaseModel, Field, ValidationError, WrapValidator
from pydantic_core import from_json

from licserver.domain.environments import is_printable
from licserver.shops.contract import Fetch
from licserver.shops.facts import Fact, Lines, Subscription

_MAX_NAME: Final = 255  # characters; more cannot be mapped

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9990

_Day = TypeVar("_Day", bound=date)


def check_year(day: _Day) -> _Day:
    """Refuse what is no date of a sale: with a grace or another time zone it could become no date at all."""
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise ValueError(f"the year must be from {FIRST_YEAR} to {LAST_YEAR}")
    return day


def to_utc(at: datetime) -> datetime:
    """Return an instant in UTC; all shops mean UTC where they write no time zone."""
    return check_year(at).astimezone(UTC) if at.tzinfo is not None else check_year(at).replace(tzinfo=UTC)


Instant = Annotated[datetime, AfterValidator(to_utc)]
"""An instant of any time zone, in UTC."""


class ShopObject(BaseModel, coerce_numbers_to_str=True):
    """An object as a shop sends it: some write ids as numbers, and some numbers as texts."""


Id = Annotated[str, Field(min_length=1)]

MOST: Final = 10**9
"""A quantity; whatever is more is as much."""


def _read_quantity(value: Any, read: Callable[[Any], int | None]) -> int | None:
    """Read a quantity; a number that is not whole is not known.

    Shops sell fabric by the metre and count uses: such a line must not make the whole order unreadable.
    """
    try:
        quantity = read(value)
    except ValidationError:
        return None
    return None if quantity is None or quantity < 0 else min(quantity, MOST)


Quantity = Annotated[int | None, WrapValidator(_read_quantity)]

Amount = Annotated[Decimal, Field(max_digits=20)]
"""An amount of money; amounts of any size could not be added up."""

UNKNOWN_TYPE: Final = "this type changes no license"


Reading = Sequence[Fact] | str
"""The result of a reader: facts, or why there are none."""


class UnreadableDeliveryError(Exception):
    """A signed delivery does not have the fields that are needed; the message names the first of them."""


class Delivery(NamedTuple):
    """A delivery, read.

    Args:
        id: The same when it is delivered again; None if the shop gives none (the digest is used).
        type: The shop's name of what happened.
        is_test: Whether it is of the shop's test mode; None if that is not known.
        facts: One for each object that it describes; empty if it describes none that matters here.
        reason: Why there are none.
        note: What of it was not read, in a sentence, though the sender may have meant something by it.
    """

    id: str | None
    type: str
    is_test: bool | None = None
    facts: tuple[Fact, ...] = ()
    reason: str = ""
    note: str = ""

    @classmethod
    def of(cls, id_: str | None, type_: str, reading: Reading, *, is_test: bool | None = None) -> Self:
        """Make a delivery of what was read: facts, or why there are none."""
        if isinstance(reading, str):
            return cls(id_, type_, is_test, reason=reading)
        return cls(id_, type_, is_test, tuple(reading))


def as_first(reading: Reading) -> Reading:
    """Return a reading of the event that has made an object: any other report of its second is later."""
    if isinstance(reading, str):
        return reading
    return [
        replace(fact, is_first=True) if isinstance(fact, Lines | Subscription) else fact for fact in reading
    ]


def read_if_possible(read: Callable[[], Reading]) -> Reading:
    """Read an object of a type of event that is not known; it may be another kind of object."""
    try:
        return read()
    except UnreadableDeliveryError:
        return UNKNOWN_TYPE


class ReadOptions(NamedTuple):
    """The vendor's choices for the reading of a source.

    Args:
        renewal_field: The meta field by which an order names the subscription that it renews, for shops
            whose own field is not known here.
    """

    renewal_field: str | None = None


class Shop(Protocol):
    """The interface of a shop's module."""

    @property
    def HEADER(self) -> str:  # noqa: N802 - a constant
        """The name of the header with the signature, in lower case; empty if the shop signs nothing."""
        ...

    def verify(
        self,
        headers: Mapping[str, str],
        body: bytes,
        secrets: list[str],
        now: datetime,
        tolerance: timedelta,
        /,
    ) -> bool:
        """Return whether one of the secrets has signed the body; header names are in lower case."""
        ...

    def read(self, headers: Mapping[str, str], body: bytes, options: ReadOptions = ..., /) -> Delivery:
        """Read a verified body, or raise `UnreadableDeliveryError`."""
        ...

    def fetch_path(self, fetch: Fetch, /) -> str | None:
        """Return the path in the shop's API that has what a contract lacks; None if no path has it."""
        ...

    def read_fetched(self, fetch: Fetch, body: bytes, reported_at: datetime, /) -> Sequence[Fact]:
        """Read the response of the API to `fetch_path`, which was queried at `reported_at`."""
        ...


NO_OPTIONS: Final = ReadOptions()


def no_path(_fetch: Fetch) -> str | None:
    """Return no path: this shop's API has nothing that a contract could lack."""
    return None


def read_nothing(_fetch: Fetch, _body: bytes, _reported_at: datetime) -> tuple[Fact, ...]:
    """Return no facts; see `no_path`."""
    return ()


_MAX_COUNT: Final = 999
_UNITS: Final = {"day": (1, "d"), "week": (7, "d"), "month": (1, "m"), "year": (1, "y")}


def format_period(unit: str, count: int) -> str | None:
    """Return a number of days, weeks, months or years as ``1y``; None of anything else."""
    if unit.lower() not in _UNITS or not 1 <= count <= _MAX_COUNT:
        return None
    factor, letter = _UNITS[unit.lower()]
    return f"{count * factor}{letter}"


def to_name(text: str) -> str:
    """Return a name that a vendor has chosen as it can be mapped: a line of bounded length."""
    line = "".join(character if is_printable(character) else " " for character in text[: 4 * _MAX_NAME])
    return " ".join(line.split())[:_MAX_NAME].rstrip()


def quote_id(id_: str) -> str:
    """Return an id as a segment of a path."""
    return quote(id_, safe="")


_Model = TypeVar("_Model", bound=BaseModel)


def load(body: bytes) -> Any:
    """Return the JSON of a body; what is null or empty is taken for absent."""
    try:
        return _drop_empty(from_json(body))
    except ValueError as invalid:
        raise UnreadableDeliveryError(f"the body: Invalid JSON: {invalid}") from None


def parse(model: type[_Model], content: bytes | Mapping[str, Any]) -> _Model:
    """Read a body, or an object in it."""
    sent = load(content) if isinstance(content, bytes) else content
    try:
        return model.model_validate(sent)
    except ValidationError as invalid:
        first = invalid.errors()[0]  # place and message: the value may be personal data
        place = _name_place(first["loc"], sent, is_missing=first["type"] == "missing") or "the body"
        is_instant = first["type"].startswith("datetime_")
        message = _INSTANT if is_instant else first["msg"].removeprefix("Value error, ")
        raise UnreadableDeliveryError(f"{place}: {message}") from None


def _name_place(place: Sequence[int | str], sent: Any, *, is_missing: bool) -> str:
    """Return a place as it was sent, without the types of a union that pydantic has tried."""
    names = list[str]()
    for number, part in enumerate(place, 1):
        is_member = isinstance(sent, Mapping) and part in sent
        if is_member or (isinstance(sent, list) and isinstance(part, int)):
            names.append(str(part))
            sent = sent[part]
        elif is_missing and number == len(place):
            names.append(str(part))
    return ".".join(names)


_INSTANT: Final = "write a date and time like 2026-06-15T12:00:00Z"
_NO_DATE: Final = "0000-00-00"  # as databases of shops write that there is no date


def _drop_empty(value: Any) -> Any:
    """Return JSON without members that are null, empty, or not a date."""
    if isinstance(value, dict):
        return {name: _drop_empty(element) for name, element in value.items() if not _is_empty(element)}
    if isinstance(value, list):
        return [_drop_empty(element) for element in value if not _is_empty(element)]
    return value


def _is_empty(value: Any) -> bool:
    return value is None or value == "" or (isinstance(value, str) and value.startswith(_NO_DATE))
