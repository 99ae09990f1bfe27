"""Lemon Squeezy: orders, subscriptions and their invoices. Neither a timestamp nor an id is signed."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasChoices, AliasPath, Field

from licserver.shops.contract import Fetch
from licserver.shops.facts import (
    Contact,
    Fact,
    Line,
    Lines,
    Order,
    OrderReason,
    OrderState,
    Payment,
    Refund,
    RefundState,
    Subscription,
    SubscriptionState,
)
from licserver.shops.reading import (
    NO_OPTIONS,
    UNKNOWN_TYPE,
    Amount,
    Delivery,
    Instant,
    Quantity,
    Reading,
    ReadOptions,
    ShopObject,
    as_first,
    parse,
    quote_id,
    read_if_possible,
)
from licserver.shops.signatures import encode_keys, from_hex, has_signed

HEADER: Final = "x-signature"
MAX_SECRET: Final = 40  # characters


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: list[str],
    _now: datetime,
    _tolerance: timedelta,
) -> bool:
    """Return whether one of the secrets has signed the body."""
    return has_signed(body, [from_hex(headers.get(HEADER, ""))], encode_keys(secrets))


class _Event(ShopObject):
    name: str = Field(max_length=100, validation_alias=AliasPath("meta", "event_name"))
    # Deliveries of 2023 have it in the order or subscription alone.
    is_test: bool | None = Field(
        None,
        validation_alias=AliasChoices(
            AliasPath("meta", "test_mode"), AliasPath("data", "attributes", "test_mode")
        ),
    )
    id: str = Field("", validation_alias=AliasPath("data", "id"))
    type: str = Field("", validation_alias=AliasPath("data", "type"))
    attributes: dict[str, Any] = Field(default_factory=dict, validation_alias=AliasPath("data", "attributes"))


class _OrderItem(ShopObject):
    variant_id: str
    product_id: str
    quantity: Quantity = None  # missing in deliveries of 2023

    def to_line(self, number: int = 1) -> Line:
        """Return the line; an order has a single line."""
        return Line(str(number), _ids(self.variant_id, self.product_id), self.variant_id, self.quantity)


class _Order(ShopObject):
    status: str
    created_at: Instant
    updated_at: Instant
    refunded_at: Instant | None = None
    total: Amount | None = None
    refunded_amount: Amount | None = None
    user_email: str | None = None
    first_order_item: _OrderItem | None = None  # None if it was deleted


class _SubscriptionItem(ShopObject):
    quantity: Quantity = None


class _Subscription(ShopObject):
    status: str
    order_id: str
    product_id: str | None = None
    variant_id: str | None = None
    updated_at: Instant
    renews_at: Instant | None = None
    ends_at: Instant | None = None
    pause_mode: str | None = Field(None, validation_alias=AliasPath("pause", "mode"))
    resumes_at: Instant | None = Field(None, validation_alias=AliasPath("pause", "resumes_at"))
    first_subscription_item: _SubscriptionItem | None = None


class _Invoice(ShopObject):
    subscription_id: str
    billing_reason: str
    status: str
    created_at: Instant
    updated_at: Instant
    total: Amount | None = None
    refunded_amount: Amount | None = None


def _ids(variant_id: str, product_id: str | None) -> tuple[str, ...]:
    return (variant_id,) if product_id is None else (variant_id, f"product:{product_id}")


_ORDER_STATES: Final = {
    "pending": OrderState.PENDING,
    "failed": OrderState.FAILED,
    "paid": OrderState.PAID,
    "partial_refund": OrderState.PAID,
    "refunded": OrderState.REFUNDED,
    "fraudulent": OrderState.CANCELLED,
}


def _read_order(order_id: str, fields: dict[str, Any]) -> Reading:
    order = parse(_Order, fields)
    state, reported_at = _ORDER_STATES.get(order.status, OrderState.UNKNOWN), order.updated_at
    is_paid = state in {OrderState.PAID, OrderState.REFUNDED, OrderState.CANCELLED}
    facts: list[Fact] = [
        Order(
            id=order_id,
            reported_at=reported_at,
            state=state,
            shop_state=order.status,
            paid_at=order.created_at if is_paid else None,
            total=order.total,
            refunded=order.refunded_amount,
        ),
        Contact(id=order_id, reported_at=reported_at, orders=(order_id,), email=order.user_email),
    ]
    if order.first_order_item is not None:
        facts.append(
            Lines(order_id=order_id, reported_at=reported_at, lines=(order.first_order_item.to_line(),))
        )
    if order.status == "partial_refund" and order.refunded_amount is None:
        facts.append(
            Refund(
                id=f"refund of {order_id}",
                reported_at=reported_at,
                state=RefundState.MADE,
                orders=(order_id,),
                is_full=False,
            )
        )
    return facts


def _read_subscription(subscription_id: str, fields: dict[str, Any]) -> Reading:
    """Read the state of a subscription; it also names the order that it belongs to."""
    subscription = parse(_Subscription, fields)
    reported_at, starts_at, ends_at = subscription.updated_at, None, subscription.renews_at
    cancels_at = ended_at = None
    match subscription.status:
        case "active" | "on_trial":
            state = SubscriptionState.ACTIVE
        case "cancelled":  # but paid until then
            state, ends_at, cancels_at = SubscriptionState.ACTIVE, subscription.ends_at, subscription.ends_at
        case "expired":
            state, ended_at = SubscriptionState.ENDED, subscription.ends_at or reported_at
        case "past_due":
            # The payment that is missing was for a time that began at the latest now.
            state, starts_at = (
                SubscriptionState.UNPAID,
                min(subscription.renews_at or reported_at, reported_at),
            )
        case "unpaid":  # and no further payment is tried
            state, ends_at = SubscriptionState.PAUSED, min(subscription.renews_at or reported_at, reported_at)
        case "paused":
            is_free = subscription.pause_mode == "free"
            state = SubscriptionState.ACTIVE if is_free else SubscriptionState.PAUSED
            # A free pause takes nothing of what is paid, even if it is over before.
            dates = [date for date in (subscription.resumes_at, subscription.renews_at) if date is not None]
            ends_at = (
                max(dates, default=None)
                if is_free
                else min(subscription.renews_at or reported_at, reported_at)
            )
        case _:
            state = SubscriptionState.UNKNOWN
    facts: list[Fact] = [
        Subscription(
            id=subscription_id,
            reported_at=reported_at,
            state=state,
            shop_state=subscription.status,
            orders=(subscription.order_id,),
            starts_at=starts_at,
            ends_at=ends_at,
            cancels_at=cancels_at,
            ended_at=ended_at,
        ),
        # Refunds of its first payment name the subscription, and not the order.
        Payment(id=_name_first(subscription_id), reported_at=reported_at, orders=(subscription.order_id,)),
    ]
    if subscription.variant_id is not None:
        item = subscription.first_subscription_item
        quantity = None if item is None else item.quantity
        ids = _ids(subscription.variant_id, subscription.product_id)
        line = Line(None, ids, subscription.variant_id, quantity)
        facts.append(Lines(subscription_id=subscription_id, reported_at=reported_at, lines=(line,)))
    return facts


def _name_first(subscription_id: str) -> str:
    """Return the name of the first payment of a subscription, which is its order."""
    return f"first of {subscription_id}"


def _read_invoice(invoice_id: str, fields: dict[str, Any]) -> Reading:
    """Read a payment within a subscription; its first payment is the order."""
    invoice = parse(_Invoice, fields)
    states = {"paid": OrderState.PAID, "partial_refund": OrderState.PAID, "refunded": OrderState.REFUNDED}
    state = states.get(invoice.status, OrderState.PENDING)
    if invoice.billing_reason == "initial":
        if invoice.status not in {"partial_refund", "refunded"}:
            return "the first payment of a subscription: the event order_created issues its licenses"
        is_known = invoice.status == "refunded" or invoice.refunded_amount is None
        refund = Refund(
            id=f"refund of invoice:{invoice_id}",
            reported_at=invoice.updated_at,
            state=RefundState.MADE,
            orders=(_name_first(invoice.subscription_id),),
            amount=invoice.refunded_amount,
            is_full=state is OrderState.REFUNDED if is_known else None,
        )
        return [refund]
    order = Order(
        id=f"invoice:{invoice_id}",
        reported_at=invoice.updated_at,
        state=state,
        shop_state=invoice.status,
        reason=OrderReason.RENEWAL if invoice.billing_reason == "renewal" else OrderReason.CHANGE,
        subscriptions=(invoice.subscription_id,),
        paid_at=None if state is OrderState.PENDING else invoice.created_at,
        total=invoice.total,
        refunded=invoice.refunded_amount,
    )
    return [order]


_READERS: Final[Mapping[str, Callable[[str, dict[str, Any]], Reading]]] = {
    "orders": _read_order,
    "subscriptions": _read_subscription,
    "subscription-invoices": _read_invoice,
}


def _find_type(event: _Event) -> str:
    """Return the kind of object that an event is about."""
    if event.type:
        return event.type
    if event.name.startswith("subscription_payment_"):
        return "subscription-invoices"
    return {"order": "orders", "subscription": "subscriptions"}.get(event.name.partition("_")[0], "")


_FIRST: Final = "subscription_created"
_KNOWN: Final = {
    *(f"order_{action}" for action in ("created", "refunded")),
    *(
        f"subscription_{action}"
        for action in (
            *("created", "updated", "cancelled", "resumed", "expired", "paused", "unpaused"),
            *("payment_success", "payment_failed", "payment_recovered", "payment_refunded"),
        )
    ),
}


def read(_headers: Mapping[str, str], body: bytes, _options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a verified body; its documentation does not list all types of events."""
    event = parse(_Event, body)
    reader = _READERS.get(_find_type(event))
    reading: Reading = UNKNOWN_TYPE
    if reader is not None and event.name in _KNOWN:
        reading = reader(event.id, event.attributes)
        reading = as_first(reading) if event.name == _FIRST else reading
    elif reader is not None:
        reading = read_if_possible(lambda: reader(event.id, event.attributes))
    return Delivery.of(None, event.name, reading, is_test=event.is_test)


class _Items(ShopObject):
    data: list[dict[str, Any]]


class _FetchedObject(ShopObject):
    id: str = Field(validation_alias=AliasPath("data", "id"))
    attributes: dict[str, Any] = Field(validation_alias=AliasPath("data", "attributes"))


def fetch_path(fetch: Fetch) -> str | None:
    """Return the path of the items of an order, or of a subscription."""
    id_ = quote_id(fetch.id)
    match fetch.kind:
        case "lines":
            return f"v1/order-items?filter[order_id]={id_}"
        case "subscription":
            return f"v1/subscriptions/{id_}"
        case _:
            return None


def read_fetched(fetch: Fetch, body: bytes, reported_at: datetime) -> Sequence[Fact]:
    """Read the items of an order, or a subscription."""
    if fetch.kind == "subscription":
        document = parse(_FetchedObject, body)
        reading = _read_subscription(document.id, document.attributes)
        return () if isinstance(reading, str) else reading
    items = [parse(_OrderItem, document.get("attributes", {})) for document in parse(_Items, body).data]
    lines = tuple(item.to_line(number) for number, item in enumerate(items, 1))
    return (Lines(order_id=fetch.id, reported_at=reported_at, lines=lines),) if lines else ()
