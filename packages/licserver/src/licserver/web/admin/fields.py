"""Types of fields and base classes for the models of the admin API."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WrapValidator,
)
from typing_extensions import TypedDict

from licserver.domain.entitlements import MAX_NUMBER
from licserver.domain.text import describe_short_year
from licserver.services.license_terms import MAX_SEATS
from licserver.services.products import MAX_IDLE_DAYS, MAX_MOVES, MAX_TRIAL_DAYS

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT: Final = re.compile(
    _DAY.pattern + r"T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def parse_day(value: object) -> date:
    """Parse a date; raise `ValueError` for anything else."""
    # pydantic alone would read a bare number as seconds since 1970
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise ValueError("must be a date like 2027-01-31")
    day = date.fromisoformat(value)
    if problem := describe_short_year(day):
        raise ValueError(problem)
    return day


def _parse_instant(value: object) -> datetime:
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        raise ValueError("must be an instant with a time zone, like 2027-01-31T12:00:00Z")
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except OverflowError:  # on the calendar's first or last day, and beyond it in UTC
        raise ValueError("must be between the years 1 and 9999 in UTC") from None


Day = Annotated[date, BeforeValidator(parse_day)]
"""A date in full."""

Instant = Annotated[AwareDatetime, BeforeValidator(_parse_instant)]
"""An instant in full with its time zone (RFC 3339), converted to UTC."""


class Quota(TypedDict):
    """A number per calendar day, month or year, in UTC."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]

    limit: Annotated[int, Field(ge=0, le=MAX_NUMBER)]
    per: Literal["day", "month", "year"]


def _read_entitlement(value: Any, read: Callable[[Any], Any]) -> Any:
    """Read an entitlement; one sentence names what it may be, not one for each type."""
    try:
        return read(value)
    except ValidationError:
        raise ValueError(
            'must be true or false, a whole number from 0, a text, or like {"limit": 100, "per": "month"}'
        ) from None


Entitlement = Annotated[
    bool | Annotated[int, Field(ge=0, le=MAX_NUMBER)] | str | Quota, WrapValidator(_read_entitlement)
]
IsThere = Annotated[bool, BeforeValidator(lambda value: value is not None)]
Hex = Annotated[str, BeforeValidator(bytes.hex)]
Moves = Annotated[int, Field(ge=0, le=MAX_MOVES)]
TrialDays = Annotated[int, Field(ge=0, le=MAX_TRIAL_DAYS)]
IdleDays = Annotated[int, Field(ge=0, le=MAX_IDLE_DAYS)]
Slots = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seats = Annotated[int, Field(ge=1, le=MAX_SEATS)]


class RequestModel(BaseModel):
    """Base of requests: an unknown field is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ResponseModel(BaseModel):
    """Base of responses, read from the attributes of a record."""

    model_config = ConfigDict(frozen=True, from_attributes=True)


def _hide_defaults(schema: dict[str, Any]) -> None:
    for described in schema["properties"].values():
        described.pop("default", None)


class PatchModel(RequestModel):
    """Base of changes: only the fields that were sent (`model_fields_set`) are changed (D-149).

    The OpenAPI document has no defaults for them: generated clients would send them, and `slots: null` means
    no limit.
    """

    model_config = ConfigDict(json_schema_extra=_hide_defaults)
