"""WooCommerce: an order as it is when it is delivered, each time it changes; nothing is delivered twice."""

import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Final

from pydantic import AliasPath, BaseModel, BeforeValidator, Field

from licserver.sources.records import (
    MAX_QUANTITY,
    Delivery,
    Id,
    Instant,
    Item,
    SaleEvent,
    SaleKind,
    merge_items,
    parse,
)
from licserver.sources.signatures import encode_keys, from_base64, has_signed

HEADER: Final = "x-wc-webhook-signature"

_PAID: Final = {"processing", "completed"}
_PING: Final = re.compile(rb"webhook_id=[0-9]{1,12}")


def is_ping(body: bytes) -> bool:
    """Return whether a body is the unsigned test that WooCommerce sends when a webhook is saved."""
    return _PING.fullmatch(body) is not None


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: list[str],
    _now: datetime,
    _tolerance: timedelta,
) -> bool:
    """Return whether one of the secrets has signed the body."""
    return has_signed(body, [from_base64(headers.get(HEADER, ""))], encode_keys(secrets))


class _Line(BaseModel, coerce_numbers_to_str=True):
    product_id: Id
    variation_id: str = "0"
    sku: str | None = None
    quantity: int = Field(ge=0, le=MAX_QUANTITY)

    def to_item(self) -> Item:
        """Return the position: by variation, article number and product."""
        variation = "" if self.variation_id == "0" else self.variation_id
        return Item(tuple(filter(None, (variation, self.sku, self.product_id))), self.quantity)


_Amount = Annotated[Decimal, Field(max_digits=20)]  # amounts of any size could not be added up


class _Refund(BaseModel, coerce_numbers_to_str=True):
    total: _Amount


def _in_utc(value: object) -> object:
    return f"{value}Z" if isinstance(value, str) and not value.endswith("Z") else value


class _Order(BaseModel, coerce_numbers_to_str=True):
    id: str
    status: str
    date_modified_gmt: Annotated[Instant, BeforeValidator(_in_utc)]
    total: _Amount
    email: str | None = Field(None, validation_alias=AliasPath("billing", "email"))
    line_items: list[_Line]
    refunds: list[_Refund] = []


def read(headers: Mapping[str, str], body: bytes) -> Delivery:
    """Read a verified body; an order that is paid and refunded is two events."""
    topic = headers.get("x-wc-webhook-topic", "order.updated")[:100]
    if topic not in {"order.created", "order.updated", "order.restored"}:
        return Delivery(None, topic, reason="this topic changes no license")
    order = parse(_Order, body)
    at, events = order.date_modified_gmt, []
    if order.status in _PAID:
        bought = [line.to_item() for line in order.line_items if line.quantity]
        events.append(
            SaleEvent(
                kind=SaleKind.PURCHASED,
                occurred_at=at,
                order_id=order.id,
                items=merge_items(bought),
                customer_email=order.email,
            )
        )
    if order.status == "refunded" or order.refunds:
        refunded = sum(abs(refund.total) for refund in order.refunds)
        is_partial = order.status != "refunded" and refunded < order.total
        events.append(
            SaleEvent(kind=SaleKind.REFUNDED, occurred_at=at, order_id=order.id, is_partial=is_partial)
        )
    reason = "" if events else f"the order is {order.status}"
    return Delivery(None, f"{topic} ({order.status})"[:100], None, tuple(events), reason)
