"""What the admin API takes and gives, as JSON; the OpenAPI document is made of it."""

import re
from datetime import UTC, date, datetime
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field

from licserver.domain.records import ActorKind, EnvironmentPolicy, LicenseState
from licserver.services import MAX_PAGE

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT: Final = re.compile(
    _DAY.pattern + r"T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,9})?)?(Z|[+-][0-9]{2}:[0-9]{2})"
)


def _read_day(value: object) -> date:
    # pydantic alone takes a bare number for seconds since 1970, and 2026 for a day of that year
    if not isinstance(value, str) or not _DAY.fullmatch(value):
        raise ValueError("write a day as 2027-01-31")
    return date.fromisoformat(value)


def _read_instant(value: object) -> datetime:
    if not isinstance(value, str) or not _INSTANT.fullmatch(value):
        raise ValueError("write an instant as 2027-01-31T12:00:00Z, with its zone")
    try:
        return datetime.fromisoformat(value).astimezone(UTC)
    except OverflowError:  # on the calendar's first or last day, and beyond it in UTC
        raise ValueError("in UTC it is before the year 1 or after the year 9999") from None


Day = Annotated[date, BeforeValidator(_read_day)]
"""A day of the calendar, written in full."""

Instant = Annotated[AwareDatetime, BeforeValidator(_read_instant)]
"""An instant with its zone, written in full (RFC 3339); it comes in as UTC, which is what is kept."""

_Slots = Annotated[int, Field(ge=0, le=2**31 - 1)]
Item = TypeVar("Item")


class RequestModel(BaseModel):
    """What a caller sends: an unknown field is a slip, and says so."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ResponseModel(BaseModel):
    """What a caller gets."""

    model_config = ConfigDict(frozen=True)


# --- taken ------------------------------------------------------------------------------------


def _hide_defaults(schema: dict[str, Any]) -> None:
    for described in schema["properties"].values():
        described.pop("default", None)


class Change(RequestModel):
    """What is to change: what was sent, which `model_fields_set` tells, and nothing else (D-149).

    The document tells no defaults: a program that is made of it would send them, and `slots: null` is a
    license without a limit.
    """

    model_config = ConfigDict(json_schema_extra=_hide_defaults)


class Nothing(RequestModel):
    """No field is taken."""


class Paging(RequestModel):
    """Which page of a list."""

    cursor: Annotated[str | None, Field(description="`next` of the page before.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="How many at most.")] = 50


class LicenseQuery(Paging):
    """Which licenses; what is given must all hold."""

    q: Annotated[
        str | None,
        Field(
            max_length=200,
            description="Beginnings of words of the e-mail and the note, or of a domain; or a license's id. "
            "Whole keys go to `lookup`: addresses are logged on their way.",
        ),
    ] = None
    product: Annotated[str | None, Field(description="A slug.")] = None
    subscription: Annotated[str | None, Field(description="An id.")] = None
    state: Annotated[LicenseState | None, Field(description="As of now.")] = None
    expires_from: Annotated[Day | None, Field(description="First day of expiry, included.")] = None
    expires_until: Annotated[Day | None, Field(description="Last day of expiry, included.")] = None


class AuditQuery(Paging):
    """Which lines of the audit log; what is given must all hold."""

    object_kind: Annotated[str | None, Field(description="With `object_id`.")] = None
    object_id: Annotated[str | None, Field(description="With `object_kind`.")] = None
    actor_kind: Annotated[ActorKind | None, Field(description="With `actor_name`.")] = None
    actor_name: Annotated[str | None, Field(description="With `actor_kind`.")] = None
    since: Annotated[Instant | None, Field(description="Not older than this.")] = None
    until: Annotated[Instant | None, Field(description="Older than this.")] = None


class NewProduct(RequestModel):
    """A product to be added."""

    slug: str
    name: str
    environment: EnvironmentPolicy = EnvironmentPolicy.STRICT
    support_policy: bool = False


class ProductChange(Change):
    """What is to change; what is left out stays."""

    name: str = ""
    environment: EnvironmentPolicy = EnvironmentPolicy.STRICT
    support_policy: bool = False


class NewLicense(RequestModel):
    """A license to be issued; `slots: null` is without a limit."""

    product: Annotated[str, Field(description="A slug.")]
    slots: _Slots | None = 1
    expires_on: Day | None = None
    lifetime: bool = False
    support_until: Day | None = None
    subscription: str | None = None
    allowed: tuple[str, ...] = ()
    customer_email: str | None = None
    note: str | None = None


class LicenseChange(Change):
    """What is to change; what is left out stays, and null takes a date, an e-mail or a note away."""

    slots: _Slots | None = None
    expires_on: Day | None = None
    lifetime: bool = False
    support_until: Day | None = None
    allowed: tuple[str, ...] = ()
    customer_email: str | None = None
    note: str | None = None


class LicenseKey(RequestModel):
    """A whole license key."""

    license_key: str


class Reason(RequestModel):
    """Why, for the vendor's own records."""

    reason: str | None = None


class EnvironmentRequest(RequestModel):
    """A domain or an address that is activated."""

    environment: str


class InstantRequest(RequestModel):
    """When; now, unless given."""

    at: Instant | None = None


# --- given ------------------------------------------------------------------------------------


class Page(ResponseModel, Generic[Item]):
    """A page of a list; the next one begins at `next`, null at the end."""

    items: list[Item]
    next: str | None


class Product(ResponseModel):
    """A product."""

    slug: str
    name: str
    environment: EnvironmentPolicy
    support_policy: bool
    latest: Annotated[str | None, Field(description="The version that update checks offer.")]


class Release(ResponseModel):
    """A published version."""

    version: str
    published_at: datetime
    withdrawn_at: datetime | None
    file_name: str
    size: int
    sha256: str
    signed: bool
    changelog: str


class License(ResponseModel):
    """A license, without its key."""

    id: str
    masked_key: str
    product: str
    product_name: str
    state: LicenseState
    issued_at: datetime
    expires_on: date | None
    lifetime: bool
    revoked_at: datetime | None
    revoked_reason: str | None
    slots: int | None
    slots_used: int
    allowed: tuple[str, ...]
    subscription: str | None
    subscription_ended_at: datetime | None
    support_until: date | None
    customer_email: str | None
    note: str | None


class IssuedLicense(License):
    """A license that was issued just now, with its key."""

    license_key: str


class RevealedKey(ResponseModel):
    """The whole key of a license."""

    license_key: str


class Activation(ResponseModel):
    """A slot that is taken."""

    domain: str
    ip: str
    activated_at: datetime
    last_seen_at: datetime | None


class FreedSlots(ResponseModel):
    """How many slots were freed."""

    freed: int


class Subscription(ResponseModel):
    """What licenses hang on."""

    id: str
    licenses: int
    ended_at: Annotated[datetime | None, Field(description="May lie ahead.")]


class AuditLine(ResponseModel):
    """Who changed what."""

    id: int
    at: datetime
    actor_kind: ActorKind
    actor_name: str
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]
