"""Stripe: Checkout, subscriptions by their invoices, refunds and disputes.

A payload follows the API version of the endpoint: what version 2025-03-31 moved is read at both places.
"""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from licserver.sources.records import (
    MAX_QUANTITY,
    UNKNOWN_TYPE,
    Delivery,
    Instant,
    Item,
    Reading,
    SaleEvent,
    SaleKind,
    merge_items,
    parse,
)
from licserver.sources.signatures import encode_keys, from_hex, has_signed, is_recent, split_fields

HEADER: Final = "stripe-signature"

ITEM_FIELD: Final = "licserver_item"
"""Names the mapping in the metadata of a Checkout Session, because an event does not contain its prices."""

QUANTITY_FIELD: Final = "licserver_quantity"


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    fields = split_fields(headers.get(HEADER, ""), ",")
    timestamp = fields.get("t", [""])[0]
    if not is_recent(timestamp, now, tolerance):
        return False
    signatures = [from_hex(one) for one in fields.get("v1", ())]
    return has_signed(f"{timestamp}.".encode() + body, signatures, encode_keys(secrets))


def _to_id(value: Any) -> Any:
    """Return the id of an object that is sent whole."""
    return value.get("id") if isinstance(value, dict) else value


_Id = Annotated[str | None, BeforeValidator(_to_id)]


class _Envelope(BaseModel):
    id: str
    type: str = Field(max_length=100)
    object: str = "event"


class _Event(_Envelope):
    created: Instant
    livemode: bool
    fields: dict[str, Any] = Field(validation_alias=AliasPath("data", "object"))


class _Price(BaseModel):
    id: str
    product: _Id = None


class _Line(BaseModel):
    """A line of a session or of an invoice; `plan` is the price in API versions before 2020."""

    price: _Price | None = None
    plan: _Price | None = None
    new_price: _Id = Field(None, validation_alias=AliasPath("pricing", "price_details", "price"))
    new_product: _Id = Field(None, validation_alias=AliasPath("pricing", "price_details", "product"))
    quantity: int | None = Field(None, ge=0, le=MAX_QUANTITY)
    end: Instant | None = Field(None, validation_alias=AliasPath("period", "end"))

    def to_item(self) -> Item | None:
        """Return what was bought, by price and product."""
        price = self.price or self.plan
        ids = (self.new_price, self.new_product) if price is None else (price.id, price.product)
        named = tuple(filter(None, ids))
        return Item(named, 1 if self.quantity is None else self.quantity) if named else None


class _Lines(BaseModel):
    data: list[_Line] = []

    def to_items(self) -> tuple[Item, ...]:
        """Return all that was bought."""
        items = [line.to_item() for line in self.data]
        return merge_items([item for item in items if item is not None and item.quantity])


class _Session(BaseModel):
    id: str
    mode: str
    payment_status: str
    payment_intent: _Id = None
    payment_link: _Id = None
    email: str | None = Field(None, validation_alias=AliasPath("customer_details", "email"))
    customer_email: str | None = None
    metadata: dict[str, str] | None = None
    line_items: _Lines | None = None

    def to_items(self) -> tuple[Item, ...]:
        """Return what was bought, as far as the session contains it."""
        metadata = self.metadata or {}
        if self.line_items is not None and (items := self.line_items.to_items()):
            return items
        if name := metadata.get(ITEM_FIELD):
            return (Item((name,), parse(_Quantity, {"quantity": metadata.get(QUANTITY_FIELD, 1)}).quantity),)
        return (Item((self.payment_link,)),) if self.payment_link else ()


class _Quantity(BaseModel):
    quantity: int = Field(ge=1, le=MAX_QUANTITY)


class _Invoice(BaseModel):
    id: str
    billing_reason: str | None = None
    customer_email: str | None = None
    subscription: _Id = None
    new_subscription: _Id = Field(
        None, validation_alias=AliasPath("parent", "subscription_details", "subscription")
    )
    payment_intent: _Id = None
    lines: _Lines


class _Charge(BaseModel):
    payment_intent: _Id = None
    refunded: bool


class _Dispute(BaseModel):
    payment_intent: _Id = None
    status: str


class _Subscription(BaseModel):
    id: str
    ended_at: Instant | None = None
    cancel_at: Instant | None = None  # the end of the period as well, if it was cancelled for that
    cancel_at_period_end: bool = False
    period_end: Instant | None = Field(None, validation_alias="current_period_end")  # of old API versions


def _read_session(created: datetime, fields: dict[str, Any]) -> Reading:
    session = parse(_Session, fields)
    if session.mode == "setup":
        return "a session that takes no payment"
    if session.mode != "payment":
        return "a session for a subscription: the event invoice.paid issues its licenses"
    if session.payment_status not in {"paid", "no_payment_required"}:
        return "not paid yet: the event checkout.session.async_payment_succeeded follows"
    return SaleEvent(
        kind=SaleKind.PURCHASED,
        occurred_at=created,
        order_id=session.payment_intent or session.id,  # refunds name the payment only
        items=session.to_items(),
        customer_email=session.email or session.customer_email,
    )


def _read_invoice(created: datetime, fields: dict[str, Any]) -> Reading:
    invoice = parse(_Invoice, fields)
    subscription_id = invoice.subscription or invoice.new_subscription
    if subscription_id is None:
        return "an invoice without a subscription"
    ends = [line.end for line in invoice.lines.data if line.end is not None]
    is_first = invoice.billing_reason == "subscription_create"
    if not (is_first or ends):
        return "an invoice without a period"
    order_id = (invoice.payment_intent or invoice.id) if is_first else None
    if invoice.billing_reason in {None, "subscription"}:
        # Old API versions do not distinguish the first invoice from later ones: so all are of one order.
        order_id = subscription_id
    return SaleEvent(
        kind=SaleKind.PURCHASED if is_first else SaleKind.RENEWED,
        occurred_at=created,
        order_id=order_id,
        items=invoice.lines.to_items() if order_id else (),
        customer_email=invoice.customer_email,
        subscription_id=subscription_id,
        paid_through=max(ends, default=None),
    )


def _read_refund(created: datetime, fields: dict[str, Any]) -> Reading:
    charge = parse(_Charge, fields)
    if charge.payment_intent is None:
        return "a charge without a payment intent"
    return SaleEvent(
        kind=SaleKind.REFUNDED,
        occurred_at=created,
        order_id=charge.payment_intent,
        is_partial=not charge.refunded,
    )


def _read_dispute(created: datetime, fields: dict[str, Any]) -> Reading:
    dispute = parse(_Dispute, fields)
    if dispute.payment_intent is None:
        return "a dispute without a payment intent"
    if dispute.status.startswith("warning_") and dispute.status != "warning_closed":
        return "an inquiry, which takes no money yet"
    won, lost = SaleKind.DISPUTE_WON, SaleKind.DISPUTE_LOST
    kinds = {"won": won, "warning_closed": won, "lost": lost}
    kind = kinds.get(dispute.status, SaleKind.DISPUTED)
    return SaleEvent(kind=kind, occurred_at=created, order_id=dispute.payment_intent)


def _read_end(created: datetime, fields: dict[str, Any]) -> Reading:
    subscription = parse(_Subscription, fields)
    return SaleEvent(
        kind=SaleKind.ENDED,
        occurred_at=created,
        subscription_id=subscription.id,
        ended_at=subscription.ended_at or created,
    )


def _read_change(created: datetime, fields: dict[str, Any]) -> Reading:
    subscription = parse(_Subscription, fields)
    period_end = subscription.period_end if subscription.cancel_at_period_end else None
    return SaleEvent(
        kind=SaleKind.CHANGED,
        occurred_at=created,
        subscription_id=subscription.id,
        cancels_at=subscription.cancel_at or period_end,
    )


_READERS: Final[Mapping[str, Callable[[datetime, dict[str, Any]], Reading]]] = {
    "checkout.session.completed": _read_session,
    "checkout.session.async_payment_succeeded": _read_session,
    "invoice.paid": _read_invoice,
    "invoice.payment_succeeded": _read_invoice,
    "charge.refunded": _read_refund,
    "charge.dispute.created": _read_dispute,
    "charge.dispute.closed": _read_dispute,
    "customer.subscription.updated": _read_change,
    "customer.subscription.deleted": _read_end,
}


def read(_headers: Mapping[str, str], body: bytes) -> Delivery:
    """Read a verified body."""
    envelope = parse(_Envelope, body)
    reader = _READERS.get(envelope.type)
    if envelope.object != "event":
        return Delivery.of(envelope.id, envelope.type, "a thin event: choose snapshot events in Stripe")
    if reader is None:
        return Delivery.of(envelope.id, envelope.type, UNKNOWN_TYPE)
    event = parse(_Event, body)
    reading = reader(event.created, event.fields)
    return Delivery.of(event.id, event.type, reading, is_test=not event.livemode)
