"""What a delivery of a shop contains, in our own few words, and what vendors write of it."""

import calendar
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import MAXYEAR, UTC, date, datetime, timedelta
from typing import Annotated, Any, Final, NamedTuple, Protocol, Self, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, Field, TypeAdapter, ValidationError

MAX_QUANTITY: Final = 1_000
"""License keys that one position of an order may ask for; more is a mistake that a person should see."""

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9990


class SaleKind(enum.StrEnum):
    """What happened."""

    PURCHASED = "purchased"
    REFUNDED = "refunded"
    DISPUTED = "disputed"
    DISPUTE_WON = "dispute won"
    DISPUTE_LOST = "dispute lost"
    RENEWED = "renewed"
    CHANGED = "changed"  # whether a subscription was cancelled, and when it ends then
    ENDED = "ended"


class Item(NamedTuple):
    """A position of an order: its ids in the shop, the most specific first, and how many."""

    external_ids: tuple[str, ...]
    quantity: int = 1

    @property
    def id(self) -> str:
        """What is unique in the order."""
        return self.external_ids[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class SaleEvent:
    """One thing that happened to an order or a subscription."""

    kind: SaleKind
    occurred_at: datetime
    order_id: str | None = None
    items: tuple[Item, ...] = ()  # what was bought; of a purchase only
    customer_email: str | None = field(default=None, repr=False)
    customer_id: str | None = None  # the shop's, where its API has the e-mail address and the event has none
    subscription_id: str | None = None
    paid_through: datetime | None = None  # the instant to which a subscription is paid
    cancels_at: datetime | None = None  # when a subscription that was cancelled ends; of a change only
    ended_at: datetime | None = None  # when the subscription ended; of an end only
    is_partial: bool = False  # whether a refund is of a part of the order


Reading = SaleEvent | str
"""What a reader makes of a delivery: an event, or why nothing follows."""

UNKNOWN_TYPE: Final = "this type changes no license"


class Delivery(NamedTuple):
    """A delivery, read."""

    id: str | None  # the same when it is delivered again; None if the shop gives none (the digest is used)
    type: str  # the shop's name of what happened
    is_test: bool | None = None  # whether it is of the shop's test mode; None if that is not known
    events: tuple[SaleEvent, ...] = ()  # empty if the delivery changes nothing
    reason: str = ""  # why it changes nothing

    @classmethod
    def of(cls, id_: str | None, type_: str, reading: Reading, *, is_test: bool | None = None) -> Self:
        """Make a delivery of what was read."""
        if isinstance(reading, str):
            return cls(id_, type_, is_test, reason=reading)
        return cls(id_, type_, is_test, (reading,))


class UnreadableDeliveryError(Exception):
    """A signed delivery does not have the fields that are needed; the message names the first of them."""


class Shop(Protocol):
    """What the module of each kind has."""

    @property
    def HEADER(self) -> str:  # noqa: N802 - a constant
        """The name of the header with the signature, in lower case."""
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

    def read(self, headers: Mapping[str, str], body: bytes, /) -> Delivery:
        """Read a verified body, or raise `UnreadableDeliveryError`."""
        ...


_Day = TypeVar("_Day", bound=date)


def check_year(day: _Day) -> _Day:
    """Refuse what is no date of a sale: with a grace or another time zone it could become no date at all."""
    if not FIRST_YEAR <= day.year <= LAST_YEAR:
        raise ValueError(f"the year must be from {FIRST_YEAR} to {LAST_YEAR}")
    return day


Instant = Annotated[AwareDatetime, AfterValidator(lambda at: check_year(at).astimezone(UTC))]
"""An instant of any time zone, in UTC."""

Id = Annotated[str, Field(min_length=1)]

_Model = TypeVar("_Model", bound=BaseModel)


def parse(model: type[_Model], body: bytes | Mapping[str, Any]) -> _Model:
    """Read a body, or an object in it."""
    try:
        return model.model_validate_json(body) if isinstance(body, bytes) else model.model_validate(body)
    except ValidationError as invalid:
        first = invalid.errors()[0]  # place and message: the value may be personal data
        place = ".".join(map(str, first["loc"])) or "the body"
        message = first["msg"].removeprefix("Value error, ")
        raise UnreadableDeliveryError(f"{place}: {message}") from None


def merge_items(items: list[Item]) -> tuple[Item, ...]:
    """Make one position of those with the same id."""
    merged: dict[str, Item] = {}
    for item in items:
        known = merged.get(item.id)
        merged[item.id] = item if known is None else known._replace(quantity=known.quantity + item.quantity)
    return tuple(merged.values())


_EVENTS: Final = TypeAdapter(tuple[SaleEvent, ...])


def dump_events(events: tuple[SaleEvent, ...]) -> str:
    """Return events as they are stored."""
    return _EVENTS.dump_json(events, exclude_defaults=True).decode()


def load_events(stored: str) -> tuple[SaleEvent, ...]:
    """Return stored events."""
    return _EVENTS.validate_json(stored)


# --- periods as vendors write them: `30d`, `6m`, `1y` -----------------------------------------

_PERIOD: Final = re.compile(r"([1-9][0-9]{0,3})([dmy])")
_MONTHS: Final = 12


def is_period(text: str) -> bool:
    """Return whether a text is a period."""
    return _PERIOD.fullmatch(text) is not None


def add_period(day: date, period: str) -> date:
    """Return the day so much later; in a month that is too short, the last one."""
    found = _PERIOD.fullmatch(period)
    if found is None:
        raise ValueError(period)
    number, unit = int(found[1]), found[2]
    if unit == "d":
        return day + timedelta(days=min(number, (date.max - day).days))
    months = day.month - 1 + number * (_MONTHS if unit == "y" else 1)
    year, month = day.year + months // _MONTHS, months % _MONTHS + 1
    if year > MAXYEAR:
        return date.max
    return day.replace(year=year, month=month, day=min(day.day, calendar.monthrange(year, month)[1]))
