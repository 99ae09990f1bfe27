"""Standard Webhooks (standardwebhooks.com): own shops, Polar's signatures, and whatever else signs so."""

from collections.abc import Mapping
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from licserver.sources.records import (
    MAX_QUANTITY,
    Delivery,
    Instant,
    Item,
    SaleEvent,
    SaleKind,
    UnreadableDeliveryError,
    check_year,
    parse,
)
from licserver.sources.signatures import MAX_SIGNATURES, from_base64, has_signed, is_recent

HEADER: Final = "webhook-signature"

TYPES: Final = {
    "purchase.completed": SaleKind.PURCHASED,
    "purchase.refunded": SaleKind.REFUNDED,
    "subscription.renewed": SaleKind.RENEWED,
    "subscription.cancelled": SaleKind.CHANGED,
    "subscription.resumed": SaleKind.CHANGED,
    "subscription.ended": SaleKind.ENDED,
}
_NEEDED: Final = {
    "purchase.completed": ("order_id", "external_id"),
    "purchase.refunded": ("order_id",),
    "subscription.renewed": ("subscription_id", "paid_through"),
    "subscription.cancelled": ("subscription_id", "paid_through"),
    "subscription.resumed": ("subscription_id",),
    "subscription.ended": ("subscription_id",),
}
_PREFIX: Final = "whsec_"

_Id = Annotated[str, Field(min_length=1, max_length=255)]
_Date = Annotated[date, AfterValidator(check_year)]


class Data(BaseModel):
    """The data of a delivery; which fields are needed depends on its type."""

    model_config = ConfigDict(title="SaleData", coerce_numbers_to_str=True)

    order_id: _Id | None = Field(None, description="The order's id in the shop.")
    external_id: _Id | None = Field(None, description="The product's or price's id in the shop.")
    quantity: int = Field(1, ge=1, le=MAX_QUANTITY, description="How many license keys.")
    customer_email: str | None = Field(None, max_length=254)
    subscription_id: _Id | None = Field(None, description="The subscription's id in the shop.")
    paid_through: Instant | _Date | None = Field(
        None, description="To when the subscription is paid; a date includes that day, in UTC."
    )
    partial: bool = Field(default=False, description="Whether a refund is of a part of the order.")
    test: bool | None = Field(None, description="Whether this is a test; a live source ignores those.")


class Event(BaseModel):
    """The body of a delivery."""

    type: str = Field(max_length=100)
    timestamp: Instant = Field(description="When it happened.")
    data: Data


class _Envelope(BaseModel):
    type: str = Field("no type", max_length=100)  # others who sign so have bodies of their own


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    timestamp, delivery = headers.get("webhook-timestamp", ""), headers.get("webhook-id", "")
    if not is_recent(timestamp, now, tolerance, both_ways=True):
        return False
    signed = [part.partition(",") for part in headers.get(HEADER, "").split()[:MAX_SIGNATURES]]
    signatures = [from_base64(value) for version, _, value in signed if version == "v1"]
    message = f"{delivery}.{timestamp}.".encode("utf-8", "surrogateescape") + body
    return has_signed(message, signatures, [key for key in map(read_key, secrets) if key])


def read_key(secret: str) -> bytes:
    """Return the key of a secret: base64 after ``whsec_``, otherwise its text, as Polar has it."""
    return from_base64(secret.removeprefix(_PREFIX)) if secret.startswith(_PREFIX) else secret.encode()


def read(headers: Mapping[str, str], body: bytes) -> Delivery:
    """Read a verified body."""
    delivery, type_ = headers.get("webhook-id"), parse(_Envelope, body).type
    kind = TYPES.get(type_)
    if kind is None:
        return Delivery.of(delivery, type_, f"the type is none of {', '.join(TYPES)}")
    event = parse(Event, body)
    data = event.data
    for name in _NEEDED[type_]:
        if getattr(data, name) is None:
            raise UnreadableDeliveryError(f"data.{name}: Field required")
    ends, is_purchase = data.paid_through, kind is SaleKind.PURCHASED
    if ends is not None and not isinstance(ends, datetime):
        ends = datetime.combine(ends, time(), UTC) + timedelta(days=1)
    sale = SaleEvent(
        kind=kind,
        occurred_at=event.timestamp,
        order_id=data.order_id,
        items=(Item((data.external_id,), data.quantity),) if is_purchase and data.external_id else (),
        customer_email=data.customer_email,
        subscription_id=data.subscription_id,
        paid_through=ends,
        cancels_at=ends if type_ == "subscription.cancelled" else None,
        ended_at=event.timestamp if kind is SaleKind.ENDED else None,
        is_partial=data.partial,
    )
    return Delivery.of(delivery, type_, sale, is_test=data.test)
