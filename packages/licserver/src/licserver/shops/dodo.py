"""Dodo Payments: payments, subscriptions, refunds and disputes, signed as Standard Webhooks."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasPath, Field

from licserver.shops import standard
from licserver.shops.contract import Fetch
from licserver.shops.facts import (
    Contact,
    Dispute,
    DisputeState,
    Fact,
    Line,
    Lines,
    Order,
    OrderReason,
    OrderState,
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
    format_period,
    parse,
    quote_id,
)

HEADER: Final = standard.HEADER


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    return standard.verify(headers, body, secrets, now, tolerance)


class _Envelope(ShopObject):
    type: str = Field(max_length=100)
    timestamp: Instant
    data: dict[str, Any] = Field(default_factory=dict)


class _CartItem(ShopObject):
    product_id: str
    quantity: Quantity = None


class _Payment(ShopObject):
    payment_id: str
    status: str | None = None
    created_at: Instant | None = None
    total_amount: Amount | None = None
    product_cart: list[_CartItem] | None = None
    subscription_id: str | None = None
    email: str | None = Field(None, validation_alias=AliasPath("customer", "email"))


class _Refund(ShopObject):
    refund_id: str
    payment_id: str
    status: str
    amount: Amount | None = None
    is_partial: bool | None = None


class _Dispute(ShopObject):
    dispute_id: str
    payment_id: str
    dispute_status: str
    dispute_stage: str = "dispute"


class _Addon(ShopObject):
    addon_id: str
    quantity: Quantity = None


class _Subscription(ShopObject):
    subscription_id: str
    product_id: str
    quantity: Quantity = None
    status: str
    previous_billing_date: Instant | None = None
    next_billing_date: Instant | None = None
    cancelled_at: Instant | None = None
    cancel_at_next_billing_date: bool = False
    expires_at: Instant | None = None
    addons: tuple[_Addon, ...] = ()
    interval: str = Field("", validation_alias="payment_frequency_interval")
    interval_count: int = Field(1, validation_alias="payment_frequency_count")
    email: str | None = Field(None, validation_alias=AliasPath("customer", "email"))


_PAYMENT_STATES: Final = {
    "succeeded": OrderState.PAID,
    "failed": OrderState.FAILED,
    "cancelled": OrderState.CANCELLED,
    "partially_captured": OrderState.UNKNOWN,
}
_REFUND_STATES: Final = {
    "succeeded": RefundState.MADE,
    "failed": RefundState.VOID,
    "pending": RefundState.PENDING,
    "review": RefundState.PENDING,
}
_DISPUTE_STATES: Final = {
    "dispute_opened": DisputeState.OPEN,
    "dispute_challenged": DisputeState.OPEN,
    "dispute_expired": DisputeState.LOST,
    "dispute_accepted": DisputeState.LOST,
    "dispute_lost": DisputeState.LOST,
    "dispute_cancelled": DisputeState.WON,
    "dispute_won": DisputeState.WON,
}
_SUBSCRIPTION_STATES: Final = {
    "pending": SubscriptionState.PENDING,
    "active": SubscriptionState.ACTIVE,
    "on_hold": SubscriptionState.UNPAID,
    "past_due": SubscriptionState.UNPAID,
    "paused": SubscriptionState.PAUSED,
    "cancelled": SubscriptionState.ENDED,
    "failed": SubscriptionState.ENDED,
    "expired": SubscriptionState.ENDED,
}


def _read_payment(reported_at: datetime, fields: dict[str, Any]) -> list[Fact]:
    payment = parse(_Payment, fields)
    state = _PAYMENT_STATES.get(payment.status or "", OrderState.PENDING)
    subscriptions = () if payment.subscription_id is None else (payment.subscription_id,)
    facts: list[Fact] = [
        Order(
            id=payment.payment_id,
            reported_at=reported_at,
            state=state,
            shop_state=payment.status or "",
            # The first payment of a subscription and a later one have the same form.
            reason=OrderReason.UNKNOWN if subscriptions else OrderReason.PURCHASE,
            subscriptions=subscriptions,
            paid_at=(payment.created_at or reported_at) if state is OrderState.PAID else None,
            total=payment.total_amount,
        ),
        Contact(
            id=payment.payment_id,
            reported_at=reported_at,
            orders=(payment.payment_id,),
            subscriptions=subscriptions,
            email=payment.email,
        ),
    ]
    if payment.product_cart and not subscriptions:  # the subscription reports its own items
        lines = [
            Line(None, (item.product_id,), item.product_id, item.quantity) for item in payment.product_cart
        ]
        facts.append(Lines(order_id=payment.payment_id, reported_at=reported_at, lines=tuple(lines)))
    return facts


def _read_subscription(reported_at: datetime, fields: dict[str, Any]) -> list[Fact]:
    subscription = parse(_Subscription, fields)
    state = _SUBSCRIPTION_STATES.get(subscription.status, SubscriptionState.UNKNOWN)
    next_at, is_over = subscription.next_billing_date, state is SubscriptionState.ENDED
    if is_over and subscription.cancel_at_next_billing_date and next_at is not None and next_at > reported_at:
        state, is_over = SubscriptionState.ACTIVE, False  # it was cancelled, and is paid until then
    ended_at = None
    if is_over:
        ended_at = (
            min(subscription.expires_at or reported_at, reported_at)
            if subscription.status == "expired"
            else subscription.cancelled_at or reported_at
        )
    items = [
        (subscription.product_id, subscription.quantity),
        *((addon.addon_id, addon.quantity) for addon in subscription.addons),
    ]
    return [
        Subscription(
            id=subscription.subscription_id,
            reported_at=reported_at,
            state=state,
            shop_state=subscription.status,
            starts_at=subscription.previous_billing_date,
            ends_at=next_at,
            period=format_period(subscription.interval, subscription.interval_count),
            cancels_at=next_at if subscription.cancel_at_next_billing_date and not is_over else None,
            ended_at=ended_at,
        ),
        Lines(
            subscription_id=subscription.subscription_id,
            reported_at=reported_at,
            lines=tuple(Line(None, (name,), name, quantity) for name, quantity in items),
        ),
        Contact(
            id=f"subscription:{subscription.subscription_id}",
            reported_at=reported_at,
            subscriptions=(subscription.subscription_id,),
            email=subscription.email,
        ),
    ]


def _read_refund(reported_at: datetime, fields: dict[str, Any]) -> list[Fact]:
    refund = parse(_Refund, fields)
    is_known = refund.amount is None and refund.is_partial is not None
    return [
        Refund(
            id=refund.refund_id,
            reported_at=reported_at,
            state=_REFUND_STATES.get(refund.status, RefundState.PENDING),
            orders=(refund.payment_id,),
            amount=refund.amount,
            is_full=True if refund.is_partial is False else (False if is_known else None),
        )
    ]


def _read_dispute(reported_at: datetime, fields: dict[str, Any]) -> list[Fact]:
    dispute = parse(_Dispute, fields)
    state = _DISPUTE_STATES.get(dispute.dispute_status, DisputeState.OPEN)
    if dispute.dispute_stage == "pre_dispute" and state is DisputeState.OPEN:
        state = DisputeState.INQUIRY
    return [
        Dispute(id=dispute.dispute_id, reported_at=reported_at, state=state, orders=(dispute.payment_id,))
    ]


_READERS: Final[Mapping[str, Callable[[datetime, dict[str, Any]], list[Fact]]]] = {
    "payment": _read_payment,
    "subscription": _read_subscription,
    "refund": _read_refund,
    "dispute": _read_dispute,
}


def read(headers: Mapping[str, str], body: bytes, _options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a verified body; Dodo's test mode has secrets of its own."""
    event = parse(_Envelope, body)
    delivery, reader = headers.get("webhook-id"), _READERS.get(event.type.partition(".")[0])
    reading: Reading = UNKNOWN_TYPE
    if reader is not None:
        reading = reader(event.timestamp, _with_status(event.type, event.data))
    return Delivery.of(delivery, event.type, reading)


def _with_status(type_: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a payment with the status of its type, which is right if the two differ."""
    name = type_.removeprefix("payment.")
    return {**data, "status": name} if name in _PAYMENT_STATES else data


def fetch_path(fetch: Fetch) -> str | None:
    """Return the path of a subscription."""
    return f"subscriptions/{quote_id(fetch.id)}" if fetch.kind == "subscription" else None


class _Object(ShopObject, extra="allow"):
    subscription_id: str


def read_fetched(_fetch: Fetch, body: bytes, reported_at: datetime) -> Sequence[Fact]:
    """Read a subscription."""
    return _read_subscription(reported_at, parse(_Object, body).model_dump())
