"""Lemon Squeezy: orders, refunds and subscriptions. Neither a timestamp nor an id is signed."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasChoices, AliasPath, BaseModel, Field

from licserver.sources.records import (
    MAX_QUANTITY,
    UNKNOWN_TYPE,
    Delivery,
    Instant,
    Item,
    Reading,
    SaleEvent,
    SaleKind,
    parse,
)
from licserver.sources.signatures import encode_keys, from_hex, has_signed

HEADER: Final = "x-signature"
MAX_SECRET: Final = 40  # characters

_SUBSCRIPTIONS: Final = {
    f"subscription_{what}"
    for what in ("created", "updated", "cancelled", "resumed", "expired", "paused", "unpaused")
}


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: list[str],
    _now: datetime,
    _tolerance: timedelta,
) -> bool:
    """Return whether one of the secrets has signed the body."""
    return has_signed(body, [from_hex(headers.get(HEADER, ""))], encode_keys(secrets))


class _Event(BaseModel, coerce_numbers_to_str=True):
    name: str = Field(max_length=100, validation_alias=AliasPath("meta", "event_name"))
    # Deliveries of 2023 have it in the order or subscription alone.
    is_test: bool | None = Field(
        None,
        validation_alias=AliasChoices(
            AliasPath("meta", "test_mode"), AliasPath("data", "attributes", "test_mode")
        ),
    )
    id: str = Field(validation_alias=AliasPath("data", "id"))
    attributes: dict[str, Any] = Field(validation_alias=AliasPath("data", "attributes"))


class _OrderItem(BaseModel, coerce_numbers_to_str=True):
    variant_id: str
    product_id: str
    quantity: int = Field(1, ge=1, le=MAX_QUANTITY)


class _Order(BaseModel, coerce_numbers_to_str=True):
    status: str
    created_at: Instant
    updated_at: Instant
    refunded_at: Instant | None = None
    user_email: str | None = None
    first_order_item: _OrderItem


class _Subscription(BaseModel, coerce_numbers_to_str=True):
    status: str
    order_id: str
    updated_at: Instant
    renews_at: Instant | None = None
    ends_at: Instant | None = None


def _read_order(order_id: str, fields: dict[str, Any]) -> Reading:
    order = parse(_Order, fields)
    if order.status not in {"paid", "partial_refund"}:  # the latter in `source sync`
        return f"the order is {order.status}"
    item = order.first_order_item
    return SaleEvent(
        kind=SaleKind.PURCHASED,
        occurred_at=order.created_at,
        order_id=order_id,
        items=(Item((item.variant_id, f"product:{item.product_id}"), item.quantity),),
        customer_email=order.user_email,
    )


def _read_refund(order_id: str, fields: dict[str, Any]) -> Reading:
    order = parse(_Order, fields)
    return SaleEvent(
        kind=SaleKind.REFUNDED,
        occurred_at=order.refunded_at or order.updated_at,
        order_id=order_id,
        is_partial=order.status != "refunded",
    )


def _read_subscription(subscription_id: str, fields: dict[str, Any]) -> Reading:
    """Read the state of a subscription; it also names the order that it belongs to."""
    subscription = parse(_Subscription, fields)
    paid_through = cancels_at = ended_at = None
    match subscription.status:
        case "active" | "on_trial":
            kind, paid_through = SaleKind.CHANGED, subscription.renews_at
        case "cancelled":  # but paid until then
            kind, paid_through = SaleKind.CHANGED, subscription.ends_at
            cancels_at = paid_through
        case "expired":
            kind, ended_at = SaleKind.ENDED, subscription.ends_at or subscription.updated_at
        case other:
            return f"the subscription is {other}; its end follows if it is not paid"
    return SaleEvent(
        kind=kind,
        occurred_at=subscription.updated_at,
        order_id=subscription.order_id,
        subscription_id=subscription_id,
        paid_through=paid_through,
        cancels_at=cancels_at,
        ended_at=ended_at,
    )


def read(_headers: Mapping[str, str], body: bytes) -> Delivery:
    """Read a verified body."""
    event = parse(_Event, body)
    if event.name == "order_created":
        result = _read_order(event.id, event.attributes)
    elif event.name == "order_refunded":
        result = _read_refund(event.id, event.attributes)
    elif event.name in _SUBSCRIPTIONS:
        result = _read_subscription(event.id, event.attributes)
    else:
        result = UNKNOWN_TYPE
    return Delivery.of(None, event.name, result, is_test=event.is_test)
