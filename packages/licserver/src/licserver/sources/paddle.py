"""Paddle Billing: completed transactions, adjustments, and subscriptions that end or ended."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasPath, BaseModel, Field

from licserver.sources.records import (
    MAX_QUANTITY,
    UNKNOWN_TYPE,
    Delivery,
    Id,
    Instant,
    Item,
    Reading,
    SaleEvent,
    SaleKind,
    merge_items,
    parse,
)
from licserver.sources.signatures import encode_keys, from_hex, has_signed, is_recent, split_fields

HEADER: Final = "paddle-signature"


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    fields = split_fields(headers.get(HEADER, ""), ";")
    timestamp = fields.get("ts", [""])[0]
    if not is_recent(timestamp, now, tolerance):
        return False
    signatures = [from_hex(one) for one in fields.get("h1", ())]
    return has_signed(f"{timestamp}:".encode() + body, signatures, encode_keys(secrets))


class _Envelope(BaseModel):
    event_id: str
    event_type: str = Field(max_length=100)
    occurred_at: Instant
    data: dict[str, Any]


class _Item(BaseModel):
    price_id: Id = Field(validation_alias=AliasPath("price", "id"))
    product_id: str | None = Field(None, validation_alias=AliasPath("price", "product_id"))
    quantity: int = Field(1, ge=1, le=MAX_QUANTITY)


class _Transaction(BaseModel):
    id: str
    origin: str
    customer_id: str | None = None
    items: list[_Item]
    subscription_id: str | None = None
    paid_through: Instant | None = Field(None, validation_alias=AliasPath("billing_period", "ends_at"))
    email: Any = Field(None, validation_alias=AliasPath("custom_data", "email"))  # the vendor's own field


class _Adjustment(BaseModel):
    action: str
    status: str
    transaction_id: str
    type: str | None = None
    items: list[dict[str, Any]] = []


class _ScheduledChange(BaseModel):
    action: str
    effective_at: Instant


class _Subscription(BaseModel):
    id: str
    canceled_at: Instant | None = None
    scheduled_change: _ScheduledChange | None = None


_CUSTOMER: Final = re.compile(r"ctm_[0-9a-z]{1,60}")


def _read_transaction(at: datetime, fields: dict[str, Any]) -> Reading:
    transaction = parse(_Transaction, fields)
    if transaction.origin.startswith("subscription_"):
        if transaction.subscription_id is None or transaction.paid_through is None:
            return "a charge within a subscription"
        return SaleEvent(
            kind=SaleKind.RENEWED,
            occurred_at=at,
            subscription_id=transaction.subscription_id,
            paid_through=transaction.paid_through,
        )
    items = [
        Item(tuple(filter(None, (one.price_id, one.product_id))), one.quantity) for one in transaction.items
    ]
    email, customer = transaction.email, transaction.customer_id or ""
    return SaleEvent(
        kind=SaleKind.PURCHASED,
        occurred_at=at,
        order_id=transaction.id,
        items=merge_items(items),
        customer_email=email if isinstance(email, str) else None,
        customer_id=customer if _CUSTOMER.fullmatch(customer) else None,
        subscription_id=transaction.subscription_id,
        paid_through=transaction.paid_through,
    )


def _read_adjustment(at: datetime, fields: dict[str, Any]) -> Reading:
    adjustment = parse(_Adjustment, fields)
    kinds = {
        "refund": SaleKind.REFUNDED,
        "chargeback": SaleKind.DISPUTED,
        "chargeback_reverse": SaleKind.DISPUTE_WON,
    }
    kind = kinds.get(adjustment.action)
    if kind is None:
        return f"an adjustment that is a {adjustment.action}"
    if adjustment.status != "approved":
        return f"the adjustment is {adjustment.status}"
    types = [adjustment.type] if adjustment.type else [item.get("type") for item in adjustment.items]
    is_partial = kind is SaleKind.REFUNDED and any(one != "full" for one in types)
    return SaleEvent(kind=kind, occurred_at=at, order_id=adjustment.transaction_id, is_partial=is_partial)


def _read_end(at: datetime, fields: dict[str, Any]) -> Reading:
    subscription = parse(_Subscription, fields)
    return SaleEvent(
        kind=SaleKind.ENDED,
        occurred_at=at,
        subscription_id=subscription.id,
        ended_at=subscription.canceled_at or at,
    )


def _read_change(at: datetime, fields: dict[str, Any]) -> Reading:
    subscription = parse(_Subscription, fields)
    change = subscription.scheduled_change
    return SaleEvent(
        kind=SaleKind.CHANGED,
        occurred_at=at,
        subscription_id=subscription.id,
        cancels_at=change.effective_at if change is not None and change.action == "cancel" else None,
    )


TYPES: Final[Mapping[str, Callable[[datetime, dict[str, Any]], Reading]]] = {
    "transaction.completed": _read_transaction,
    "adjustment.created": _read_adjustment,
    "adjustment.updated": _read_adjustment,
    "subscription.updated": _read_change,
    "subscription.canceled": _read_end,
}


def read(_headers: Mapping[str, str], body: bytes) -> Delivery:
    """Read a verified body; Paddle's sandbox has secrets of its own, and its events do not name it."""
    event = parse(_Envelope, body)
    reader = TYPES.get(event.event_type)
    result = UNKNOWN_TYPE if reader is None else reader(event.occurred_at, event.data)
    return Delivery.of(event.event_id, event.event_type, result)
