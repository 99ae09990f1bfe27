"""Polar: orders, subscriptions and refunds, signed as Standard Webhooks by the text of the secret."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasPath, Field

from licserver.domain.languages import find_language
from licserver.shops import standard
from licserver.shops.contract import Fetch
from licserver.shops.facts import (
    Contact,
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
    read_if_possible,
)
from licserver.shops.signatures import encode_keys

HEADER: Final = standard.HEADER
PREFIXES: Final = ("polar_whs_", "whsec_")
"""Prefixes of secrets that Polar makes; before 2025 the vendor chose the text."""


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    return standard.verify_by_keys(headers, body, encode_keys(secrets), now, tolerance)


class _Envelope(ShopObject):
    type: str = Field(max_length=100)
    timestamp: Instant | None = None  # missing in deliveries of before 2025
    data: dict[str, Any] = Field(default_factory=dict)


class _Sold(ShopObject):
    seats: Quantity = None

    def find_quantity(self) -> int | None:
        """Return how many seats were sold; what is not sold by seats is sold one at a time."""
        return self.seats if "seats" in self.model_fields_set else 1


class _Order(_Sold):
    id: str
    created_at: Instant
    modified_at: Instant | None = None
    status: str
    billing_reason: str = "purchase"
    total_amount: Amount | None = None
    refunded_amount: Amount | None = None
    refunded_tax_amount: Amount | None = None
    product_id: str | None = None
    subscription_id: str | None = None
    email: str | None = Field(None, validation_alias=AliasPath("customer", "email"))
    locale: str | None = Field(None, validation_alias=AliasPath("customer", "locale"))


class _Subscription(_Sold):
    id: str
    created_at: Instant
    modified_at: Instant | None = None
    status: str
    current_period_start: Instant | None = None
    current_period_end: Instant | None = None
    cancel_at_period_end: bool = False
    ends_at: Instant | None = None
    ended_at: Instant | None = None
    product_id: str
    interval: str = Field("", validation_alias="recurring_interval")
    interval_count: int = Field(1, validation_alias="recurring_interval_count")

    @property
    def period(self) -> str | None:
        """The period that each payment pays."""
        return format_period(self.interval, self.interval_count)


class _Refund(ShopObject):
    id: str
    created_at: Instant
    modified_at: Instant | None = None
    status: str
    amount: Amount
    tax_amount: Amount | None = None
    order_id: str


_ORDER_STATES: Final = {
    "draft": OrderState.PENDING,
    "pending": OrderState.PENDING,
    "paid": OrderState.PAID,
    "refunded": OrderState.REFUNDED,
    "partially_refunded": OrderState.PAID,
    "void": OrderState.CANCELLED,
}
_REASONS: Final = {
    "purchase": OrderReason.PURCHASE,
    "subscription_create": OrderReason.PURCHASE,
    "subscription_cycle": OrderReason.RENEWAL,
    "subscription_cycle_after_trial": OrderReason.RENEWAL,
}
_SUBSCRIPTION_STATES: Final = {
    "incomplete": SubscriptionState.PENDING,
    "incomplete_expired": SubscriptionState.ENDED,
    "trialing": SubscriptionState.ACTIVE,
    "active": SubscriptionState.ACTIVE,
    "past_due": SubscriptionState.UNPAID,
    "unpaid": SubscriptionState.UNPAID,
    "paused": SubscriptionState.PAUSED,
    "canceled": SubscriptionState.ENDED,
}
_REFUND_STATES: Final = {
    "pending": RefundState.PENDING,
    "succeeded": RefundState.MADE,
    "failed": RefundState.VOID,
    "canceled": RefundState.VOID,
}


def _read_order(reported_at: datetime, fields: dict[str, Any]) -> list[Fact]:
    order = parse(_Order, fields)
    state = _ORDER_STATES.get(order.status, OrderState.UNKNOWN)
    is_paid = state in {OrderState.PAID, OrderState.REFUNDED}
    refunded = order.refunded_amount
    if refunded is not None and order.refunded_tax_amount is not None:
        refunded += order.refunded_tax_amount
    facts: list[Fact] = [
        Order(
            id=order.id,
            reported_at=reported_at,
            state=state,
            shop_state=order.status,
            reason=_REASONS.get(order.billing_reason, OrderReason.CHANGE),
            subscriptions=() if order.subscription_id is None else (order.subscription_id,),
            paid_at=order.created_at if is_paid else None,
            total=order.total_amount,
            refunded=refunded,
        ),
        Contact(
            id=order.id,
            reported_at=reported_at,
            orders=(order.id,),
            email=order.email,
            language=find_language(order.locale),
        ),
    ]
    if order.product_id is not None:
        line = Line(None, (order.product_id,), order.product_id, order.find_quantity())
        as_of = order.created_at
        facts.append(Lines(order_id=order.id, reported_at=reported_at, as_of=as_of, lines=(line,)))
    return facts


def _read_subscription(reported_at: datetime, fields: dict[str, Any]) -> list[Fact]:
    subscription = parse(_Subscription, fields)
    state = _SUBSCRIPTION_STATES.get(subscription.status, SubscriptionState.UNKNOWN)
    is_over = state is SubscriptionState.ENDED
    if is_over and subscription.ended_at is None and subscription.ends_at is not None:
        state, is_over = SubscriptionState.ACTIVE, False  # it was cancelled, and is paid until then
    cancels_at = subscription.ends_at or (
        subscription.current_period_end if subscription.cancel_at_period_end else None
    )
    line = Line(None, (subscription.product_id,), subscription.product_id, subscription.find_quantity())
    return [
        Subscription(
            id=subscription.id,
            reported_at=reported_at,
            state=state,
            shop_state=subscription.status,
            starts_at=subscription.current_period_start,
            ends_at=subscription.current_period_end,
            period=subscription.period,
            cancels_at=None if is_over else cancels_at,
            ended_at=(subscription.ended_at or reported_at) if is_over else None,
        ),
        Lines(subscription_id=subscription.id, reported_at=reported_at, lines=(line,)),
    ]


def _read_refund(reported_at: datetime, fields: dict[str, Any]) -> list[Fact]:
    refund = parse(_Refund, fields)
    return [
        Refund(
            id=refund.id,
            reported_at=reported_at,
            state=_REFUND_STATES.get(refund.status, RefundState.PENDING),
            orders=(refund.order_id,),
            amount=refund.amount if refund.tax_amount is None else refund.amount + refund.tax_amount,
        )
    ]


_READERS: Final[Mapping[str, Callable[[datetime, dict[str, Any]], list[Fact]]]] = {
    "order": _read_order,
    "subscription": _read_subscription,
    "refund": _read_refund,
}
_KNOWN: Final = {
    *(f"order.{action}" for action in ("created", "updated", "paid", "refunded")),
    *(
        f"subscription.{action}"
        for action in (
            *("created", "active", "updated", "canceled", "uncanceled", "past_due", "revoked", "cycled"),
        )
    ),
    *("refund.created", "refund.updated"),
}


class _Dates(ShopObject):
    created_at: Instant
    modified_at: Instant | None = None


def read(headers: Mapping[str, str], body: bytes, _options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a verified body; Polar's sandbox has secrets of its own."""
    event = parse(_Envelope, body)
    delivery, reader = headers.get("webhook-id"), _READERS.get(event.type.partition(".")[0])
    if reader is None:
        return Delivery.of(delivery, event.type, UNKNOWN_TYPE)

    def read_object() -> Reading:
        dates = parse(_Dates, event.data)
        # An object without changes has no second date: it is as it was made.
        reported_at = max(event.timestamp or dates.created_at, dates.modified_at or dates.created_at)
        return reader(reported_at, event.data)

    is_known = event.type in _KNOWN
    return Delivery.of(delivery, event.type, read_object() if is_known else read_if_possible(read_object))


def fetch_path(fetch: Fetch) -> str | None:
    """Return the path of a subscription."""
    return f"v1/subscriptions/{quote_id(fetch.id)}" if fetch.kind == "subscription" else None


class _Object(ShopObject, extra="allow"):
    id: str


def read_fetched(_fetch: Fetch, body: bytes, reported_at: datetime) -> Sequence[Fact]:
    """Read a subscription."""
    return _read_subscription(reported_at, parse(_Object, body).model_dump())
