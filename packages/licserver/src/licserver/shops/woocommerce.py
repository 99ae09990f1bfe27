"""WooCommerce: an order as it is when it is delivered, each time it changes; nothing is delivered twice.

WooCommerce Subscriptions delivers subscriptions as well. A subscription names its first order, and each
renewal is an order that names its subscription in `meta_data`.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, Literal

from pydantic import AliasPath, BeforeValidator, Field

from licserver.domain.languages import find_language
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
    RefundedLine,
    RefundState,
    Subscription,
    SubscriptionState,
)
from licserver.shops.reading import (
    MOST,
    NO_OPTIONS,
    Amount,
    Delivery,
    Id,
    Instant,
    Quantity,
    ReadOptions,
    ShopObject,
    format_period,
    load,
    parse,
    to_name,
)
from licserver.shops.signatures import encode_keys, from_base64, has_signed

HEADER: Final = "x-wc-webhook-signature"

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


def _read_list(value: Any) -> Any:
    """Return a list, which PHP writes as an object once a plugin has removed some of its elements."""
    return [*value.values()] if isinstance(value, dict) else value


_List = BeforeValidator(_read_list)


class _Line(ShopObject):
    id: Id
    product_id: Id = "0"
    variation_id: str = "0"
    sku: str | None = None
    quantity: Quantity = None

    def to_line(self) -> Line:
        """Return the line: by variation, article number and product."""
        variation = "" if self.variation_id == "0" else self.variation_id
        product = "" if self.product_id == "0" else self.product_id  # it was deleted in the shop
        ids = tuple(id_ for id_ in (variation, to_name(self.sku or ""), product) if id_)
        return Line(self.id, ids, variation or product or None, self.quantity)


class _Meta(ShopObject):
    key: str
    value: Any = None


def _read_fields(value: Any) -> Any:
    """Return the fields that have a name; plugins leave empty lists and objects among them."""
    fields = _read_list(value)
    if not isinstance(fields, list):
        return fields
    return [field for field in fields if isinstance(field, dict) and isinstance(field.get("key"), str | int)]


_Fields = Annotated[tuple[_Meta, ...], BeforeValidator(_read_fields)]


class _RefundedLine(ShopObject):
    quantity: Any = None
    meta_data: _Fields = ()

    def find_line(self) -> RefundedLine | None:
        """Return what it takes back of a line; None if that is no whole number of copies, but an amount."""
        ids = (str(meta.value) for meta in self.meta_data if meta.key == _REFUNDED_LINE)
        id_ = next((value for value in ids if _ID.fullmatch(value)), None)
        count = self.quantity
        if id_ is None or not isinstance(count, int) or not count:
            return None
        return RefundedLine(id_, min(abs(count), MOST))


class _Refund(ShopObject):
    id: Id | None = None
    total: Amount


class _RefundObject(ShopObject):
    id: Id
    date_created_gmt: Instant
    amount: Amount
    line_items: Annotated[tuple[_RefundedLine, ...], _List] = ()


_REFUNDED_LINE: Final = "_refunded_item_id"
_RENEWAL: Final = "_subscription_renewal"
_SWITCH: Final = "_subscription_switch"
_RESUBSCRIPTION: Final = "_subscription_resubscribe"
_ID: Final = re.compile(r"[1-9][0-9]{0,18}")

_ORDER_STATES: Final = {
    **dict.fromkeys(("pending", "checkout-draft", "auto-draft"), OrderState.PENDING),
    **dict.fromkeys(("processing", "completed"), OrderState.PAID),
    "on-hold": OrderState.HELD,
    **dict.fromkeys(("cancelled", "trash"), OrderState.CANCELLED),
    "refunded": OrderState.REFUNDED,
    "failed": OrderState.FAILED,
}


class _Order(ShopObject):
    id: str
    status: str
    created_via: str = ""
    date_modified_gmt: Instant
    date_created_gmt: Instant | None = None
    date_paid_gmt: Instant | None = None
    total: Amount
    email: str | None = Field(None, validation_alias=AliasPath("billing", "email"))
    line_items: Annotated[list[_Line], _List]
    refunds: Annotated[tuple[_Refund, ...], _List] = ()
    meta_data: _Fields = ()

    @property
    def language(self) -> str | None:
        """The language in which it was bought, as WPML notes it."""
        noted = (meta.value for meta in self.meta_data if meta.key == "wpml_language")
        return find_language(next((value for value in noted if isinstance(value, str)), None))

    def find_named(self, *keys: str) -> tuple[str, ...]:
        """Return the subscriptions that fields of these names contain."""
        values = {str(meta.value) for meta in self.meta_data if meta.key in keys}
        return tuple(sorted(id_ for id_ in values if _ID.fullmatch(id_)))

    def find_reason(self, options: ReadOptions) -> tuple[OrderReason, tuple[str, ...]]:
        """Return why the order exists, and the subscriptions that it names."""
        fields = {meta.key for meta in self.meta_data}
        renewal = {_RENEWAL} | ({options.renewal_field} if options.renewal_field else set())
        if renewal & fields:
            return OrderReason.RENEWAL, self.find_named(*renewal)
        if _SWITCH in fields:  # what the subscription consists of then, its own report lists
            return OrderReason.CHANGE, self.find_named(_SWITCH)
        if self.created_via == "subscription" and _RESUBSCRIPTION not in fields:
            # Such orders are made of a subscription. It is named a moment later, or was deleted since.
            return OrderReason.RENEWAL, ()
        return OrderReason.PURCHASE, ()


class _Subscription(ShopObject):
    id: str
    parent_id: str  # the first order; 0 if it has none
    status: str
    date_modified_gmt: Instant
    billing_period: Literal["day", "week", "month", "year"]
    billing_interval: int = Field(ge=1, le=999)
    next_payment_date_gmt: Instant | None = None
    end_date_gmt: Instant | None = None
    email: str | None = Field(None, validation_alias=AliasPath("billing", "email"))
    line_items: Annotated[list[_Line], _List] | None = None

    @property
    def period(self) -> str | None:
        """The period that each payment pays."""
        return format_period(self.billing_period, self.billing_interval)


_ORDERS: Final = {f"order.{action}" for action in ("created", "updated", "restored")}
_SUBSCRIPTIONS: Final = {f"subscription.{action}" for action in ("created", "updated", "switched")}


class _Resource(ShopObject):
    billing_period: str | None = None  # of a subscription only; the shop's API names no topic


def read(headers: Mapping[str, str], body: bytes, options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a verified body."""
    topic = headers.get("x-wc-webhook-topic", "")[:100]
    if topic and topic not in _ORDERS | _SUBSCRIPTIONS:
        return Delivery(None, topic, reason="this topic changes no license")
    content = load(body)
    if parse(_Resource, content).billing_period is not None:
        subscription = parse(_Subscription, content)
        type_ = f"{topic or 'subscription.updated'} ({subscription.status})"[:100]
        return Delivery.of(None, type_, _read_subscription(subscription))
    order = parse(_Order, content)
    type_ = f"{topic or 'order.updated'} ({order.status})"[:100]
    return Delivery.of(None, type_, _read_order(order, options))


def _read_order(order: _Order, options: ReadOptions) -> list[Fact]:
    reported_at, state = order.date_modified_gmt, _ORDER_STATES.get(order.status, OrderState.UNKNOWN)
    paid_at = order.date_paid_gmt
    if paid_at is None and state in {OrderState.PAID, OrderState.REFUNDED}:
        # By hand, or for nothing. The date of the last change would move what is counted from it.
        paid_at = order.date_created_gmt or reported_at
    reason, subscriptions = order.find_reason(options)
    refunded = sum((abs(refund.total) for refund in order.refunds), Decimal(0))
    refund_ids = tuple(refund.id for refund in order.refunds if refund.id is not None)
    return [
        Order(
            id=order.id,
            reported_at=reported_at,
            state=state,
            shop_state=order.status,
            reason=reason,
            refund_ids=refund_ids,
            subscriptions=subscriptions,
            paid_at=paid_at,
            total=order.total,
            refunded=refunded,
        ),
        Lines(
            order_id=order.id,
            reported_at=reported_at,
            as_of=order.date_created_gmt or paid_at or reported_at,
            lines=tuple(item.to_line() for item in order.line_items),
        ),
        Contact(
            id=order.id,
            reported_at=reported_at,
            orders=(order.id,),
            email=order.email,
            language=order.language,
        ),
    ]


def _read_subscription(subscription: _Subscription) -> list[Fact]:
    """Read the state of a subscription; it also names its first order."""
    reported_at, ends_at, end = (
        subscription.date_modified_gmt,
        subscription.next_payment_date_gmt,
        subscription.end_date_gmt,
    )
    starts_at = cancels_at = ended_at = None
    match subscription.status:
        case "active":
            state = SubscriptionState.ACTIVE
            if ends_at is None:  # the last payment was made
                ends_at = cancels_at = end
        case "pending-cancel":  # but paid until then
            state, ends_at, cancels_at = SubscriptionState.ACTIVE, end, end
        case "cancelled" | "expired" | "switched" | "trash":
            state, ended_at = SubscriptionState.ENDED, end or reported_at
        case "on-hold":
            # A payment that was due is missing. Without a payment due, a person has suspended it.
            state, starts_at = (
                SubscriptionState.UNPAID,
                ends_at if ends_at and ends_at <= reported_at else None,
            )
            ends_at = None
        case "pending":
            state = SubscriptionState.PENDING
        case _:
            state = SubscriptionState.UNKNOWN
    facts: list[Fact] = [
        Subscription(
            id=subscription.id,
            reported_at=reported_at,
            state=state,
            shop_state=subscription.status,
            orders=() if subscription.parent_id == "0" else (subscription.parent_id,),
            starts_at=starts_at,
            ends_at=ends_at,
            cancels_at=cancels_at,
            ended_at=ended_at,
            period=subscription.period,
        )
    ]
    if subscription.line_items is not None:
        lines = tuple(item.to_line() for item in subscription.line_items)
        facts.append(Lines(subscription_id=subscription.id, reported_at=reported_at, lines=lines))
    if subscription.email:
        id_ = f"subscription:{subscription.id}"
        facts.append(
            Contact(
                id=id_, reported_at=reported_at, subscriptions=(subscription.id,), email=subscription.email
            )
        )
    return facts


class _Refunds(ShopObject):
    all: list[_RefundObject]


def _read_refund(refund: _RefundObject, order_id: str) -> Refund:
    """Read a refund, which never changes; by amount alone it is of no line."""
    return Refund(
        id=refund.id,
        reported_at=refund.date_created_gmt,
        state=RefundState.MADE,
        orders=(order_id,),
        amount=abs(refund.amount),
        lines=tuple(line for item in refund.line_items if (line := item.find_line()) is not None),
    )


def fetch_path(fetch: Fetch) -> str | None:
    """Return the path of a subscription, or of the refunds of an order."""
    if fetch.kind == "refunds" and _ID.fullmatch(fetch.id):
        return f"wp-json/wc/v3/orders/{fetch.id}/refunds?per_page=100"
    if fetch.kind == "subscription" and _ID.fullmatch(fetch.id):
        return f"wp-json/wc/v3/subscriptions/{fetch.id}"
    return None


def read_fetched(fetch: Fetch, body: bytes, _at: datetime) -> Sequence[Fact]:
    """Read a subscription, or the refunds of an order, whose own report lists only their amounts."""
    if fetch.kind == "refunds":
        return [_read_refund(refund, fetch.id) for refund in parse(_Refunds, {"all": load(body)}).all]
    return _read_subscription(parse(_Subscription, body))
