"""Paddle Billing: transactions, adjustments and subscriptions."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from pydantic import AliasPath, Field

from licserver.domain.languages import find_language
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
    RefundedLine,
    RefundState,
    Subscription,
    SubscriptionState,
)
from licserver.shops.reading import (
    NO_OPTIONS,
    UNKNOWN_TYPE,
    Amount,
    Delivery,
    Id,
    Instant,
    Quantity,
    Reading,
    ReadOptions,
    ShopObject,
    format_period,
    parse,
    read_if_possible,
)
from licserver.shops.signatures import encode_keys, from_hex, has_signed, is_recent, split_fields

HEADER: Final = "paddle-signature"


def verify(
    headers: Mapping[str, str], body: bytes, secrets: list[str], now: datetime, tolerance: timedelta
) -> bool:
    """Return whether one of the secrets has signed the body lately."""
    fields = split_fields(headers.get(HEADER, ""), ";")
    timestamp = fields.get("ts", [""])[0]
    if not is_recent(timestamp, now, tolerance):
        return False
    signatures = [from_hex(signature) for signature in fields.get("h1", ())]
    return has_signed(f"{timestamp}:".encode() + body, signatures, encode_keys(secrets))


def is_sandbox(key: str) -> bool:
    """Return whether an API key belongs to the sandbox."""
    return key.startswith("pdl_sdbx_")


class _Envelope(ShopObject):
    event_id: str
    event_type: str = Field(max_length=100)
    occurred_at: Instant
    data: dict[str, Any]


class _Item(ShopObject):
    price_id: Id = Field(validation_alias=AliasPath("price", "id"))
    product_id: str | None = Field(None, validation_alias=AliasPath("price", "product_id"))
    quantity: Quantity = None
    status: str = "active"
    recurring: bool = True
    cycle: dict[str, Any] | None = Field(None, validation_alias=AliasPath("price", "billing_cycle"))

    def to_line(self, names: tuple[str, ...] = (), *, is_one_time: bool = False) -> Line:
        """Return the line; neither transactions nor subscriptions have ids of their items that stay.

        Args:
            names: The ids by which an adjustment names it.
            is_one_time: Whether it is sold once, beside a subscription.
        """
        ids = tuple(id_ for id_ in (self.price_id, self.product_id) if id_)
        return Line(None, ids, self.price_id, self.quantity, names=names, is_one_time=is_one_time)


class _Totals(ShopObject):
    total: Amount | None = None
    grand_total: Amount | None = None


class _DetailedLine(ShopObject):
    id: str | None = None
    price_id: str | None = None


class _Details(ShopObject):
    totals: _Totals = _Totals()
    line_items: tuple[_DetailedLine, ...] = ()

    def find_names(self, price_id: str) -> tuple[str, ...]:
        """Return the ids by which adjustments name what was bought at a price."""
        return tuple(line.id for line in self.line_items if line.id and line.price_id == price_id)


class _Transaction(ShopObject):
    id: str
    origin: str
    billed_at: Instant | None = None
    customer_id: str | None = None
    items: list[_Item]
    subscription_id: str | None = None
    starts_at: Instant | None = Field(None, validation_alias=AliasPath("billing_period", "starts_at"))
    ends_at: Instant | None = Field(None, validation_alias=AliasPath("billing_period", "ends_at"))
    details: _Details = _Details()
    email: Any = Field(None, validation_alias=AliasPath("custom_data", "email"))  # the vendor's own field


class _Adjustment(ShopObject):
    id: str = ""
    action: str
    status: str
    transaction_id: str
    type: str | None = None
    items: tuple[dict[str, Any], ...] = ()
    total: Amount | None = Field(None, validation_alias=AliasPath("totals", "total"))


class _ScheduledChange(ShopObject):
    action: str
    effective_at: Instant


class _Cycle(ShopObject):
    interval: str
    frequency: int = Field(ge=1, le=999)


class _Subscription(ShopObject):
    id: str
    status: str | None = None
    transaction_id: str | None = None
    customer_id: str | None = None
    starts_at: Instant | None = Field(None, validation_alias=AliasPath("current_billing_period", "starts_at"))
    ends_at: Instant | None = Field(None, validation_alias=AliasPath("current_billing_period", "ends_at"))
    next_billed_at: Instant | None = None
    canceled_at: Instant | None = None
    scheduled_change: _ScheduledChange | None = None
    billing_cycle: _Cycle | None = None
    items: tuple[_Item, ...] = ()


_CUSTOMER: Final = re.compile(r"ctm_[0-9a-z]{1,60}")
_SUBSCRIPTION_STATES: Final = {
    "active": SubscriptionState.ACTIVE,
    "trialing": SubscriptionState.ACTIVE,
    "past_due": SubscriptionState.UNPAID,
    "paused": SubscriptionState.PAUSED,
    "canceled": SubscriptionState.ENDED,
}
_REFUND_STATES: Final = {
    "pending_approval": RefundState.PENDING,
    "approved": RefundState.MADE,
    "rejected": RefundState.VOID,
    "reversed": RefundState.VOID,
}
_CHARGEBACKS: Final = {
    "chargeback": DisputeState.OPEN,
    "chargeback_warning": DisputeState.INQUIRY,
    "chargeback_reverse": DisputeState.REVERSAL,
}


def _find_reason(transaction: _Transaction) -> OrderReason:
    if not transaction.origin.startswith("subscription_"):
        return OrderReason.PURCHASE
    is_period = transaction.ends_at is not None and transaction.subscription_id is not None
    is_regular = transaction.origin in {"subscription_recurring", "subscription_update"}
    return OrderReason.RENEWAL if is_period and is_regular else OrderReason.CHANGE


def _read_transaction(reported_at: datetime, fields: dict[str, Any]) -> Reading:
    transaction = parse(_Transaction, fields)
    reason, totals = _find_reason(transaction), transaction.details.totals
    order = Order(
        id=transaction.id,
        reported_at=reported_at,
        state=OrderState.PAID,
        shop_state="completed",
        reason=reason,
        subscriptions=(transaction.subscription_id,) if transaction.subscription_id else (),
        paid_at=transaction.billed_at or reported_at,
        starts_at=transaction.starts_at,
        ends_at=transaction.ends_at,
        total=totals.total if totals.grand_total is None else totals.grand_total,
    )
    email, customer = transaction.email, transaction.customer_id or ""
    contact = Contact(
        id=transaction.id,
        reported_at=reported_at,
        orders=(transaction.id,),
        email=email if isinstance(email, str) else None,
        customer_id=customer if _CUSTOMER.fullmatch(customer) else None,
    )
    facts: list[Fact] = [order, contact]
    if reason is OrderReason.PURCHASE or transaction.origin == "subscription_recurring":
        find_names = transaction.details.find_names
        has_cycles = any(item.cycle is not None for item in transaction.items)
        lines = [
            item.to_line(find_names(item.price_id), is_one_time=has_cycles and item.cycle is None)
            for item in transaction.items
        ]
        as_of = transaction.billed_at or reported_at
        facts.append(Lines(order_id=transaction.id, reported_at=reported_at, as_of=as_of, lines=tuple(lines)))
    return facts


def _read_adjustment(reported_at: datetime, fields: dict[str, Any]) -> Reading:
    adjustment = parse(_Adjustment, fields)
    action, transaction_id = adjustment.action, adjustment.transaction_id
    id_ = adjustment.id or f"{action} of {transaction_id}"
    state = _REFUND_STATES.get(adjustment.status, RefundState.PENDING)
    if action == "refund":
        types = [adjustment.type] if adjustment.type else [item.get("type") for item in adjustment.items]
        is_whole = bool(types) and all(type_ == "full" for type_ in types)
        if adjustment.type is None and adjustment.total is not None:
            is_whole = False  # the lines that it is about, of an order that may have more of them
        amount, is_full = adjustment.total, True if is_whole else None
        if amount is None and not is_whole:
            is_full = False
        whole = [item.get("item_id") for item in adjustment.items if item.get("type") == "full"]
        refund = Refund(
            id=id_,
            reported_at=reported_at,
            state=state,
            orders=(transaction_id,),
            amount=amount,
            is_full=is_full,
            lines=tuple(RefundedLine(name) for name in whole if isinstance(name, str)),
        )
        return [refund]
    if action not in _CHARGEBACKS:
        return f"an adjustment that is a {action}"
    dispute = _CHARGEBACKS[action]
    if state is RefundState.VOID:
        dispute = DisputeState.WON if dispute is DisputeState.OPEN else DisputeState.INQUIRY
    elif state is RefundState.PENDING:
        dispute = DisputeState.INQUIRY
    return [Dispute(id=id_, reported_at=reported_at, state=dispute, orders=(transaction_id,))]


def _read_subscription(reported_at: datetime, fields: dict[str, Any]) -> Reading:
    subscription = parse(_Subscription, fields)
    change, cycle = subscription.scheduled_change, subscription.billing_cycle
    state = _SUBSCRIPTION_STATES.get(subscription.status or "active", SubscriptionState.UNKNOWN)
    period = None if cycle is None else format_period(cycle.interval, cycle.frequency)
    is_going = state is not SubscriptionState.ENDED
    facts: list[Fact] = [
        Subscription(
            id=subscription.id,
            reported_at=reported_at,
            state=state,
            shop_state=subscription.status or "",
            orders=(subscription.transaction_id,) if subscription.transaction_id else (),
            starts_at=subscription.starts_at,
            ends_at=subscription.next_billed_at or subscription.ends_at,
            # A pause is an end until the subscription is resumed.
            cancels_at=change.effective_at
            if is_going and change is not None and change.action in {"cancel", "pause"}
            else None,
            ended_at=None if is_going else subscription.canceled_at or reported_at,
            period=period,
        )
    ]
    if subscription.items:
        lines = [
            item.to_line() for item in subscription.items if item.recurring and item.status != "inactive"
        ]
        facts.append(Lines(subscription_id=subscription.id, reported_at=reported_at, lines=tuple(lines)))
    if subscription.customer_id is not None and _CUSTOMER.fullmatch(subscription.customer_id):
        facts.append(
            Contact(
                id=subscription.id,
                reported_at=reported_at,
                subscriptions=(subscription.id,),
                customer_id=subscription.customer_id,
            )
        )
    return facts


def _read_end(reported_at: datetime, fields: dict[str, Any]) -> Reading:
    return _read_subscription(reported_at, {"status": "canceled", **fields})


TYPES: Final[Mapping[str, Callable[[datetime, dict[str, Any]], Reading]]] = {
    "transaction.completed": _read_transaction,
    "adjustment.created": _read_adjustment,
    "adjustment.updated": _read_adjustment,
    **{
        f"subscription.{action}": _read_subscription
        for action in ("created", "activated", "trialing", "updated", "past_due", "paused", "resumed")
    },
    "subscription.canceled": _read_end,
}


def read(_headers: Mapping[str, str], body: bytes, _options: ReadOptions = NO_OPTIONS) -> Delivery:
    """Read a verified body; Paddle's sandbox has secrets of its own, and its events do not name it."""
    event = parse(_Envelope, body)
    reader = TYPES.get(event.event_type)
    result: Reading = UNKNOWN_TYPE
    if reader is not None:
        result = reader(event.occurred_at, event.data)
    elif event.event_type.startswith("subscription."):  # whatever has happened, it has its state
        result = read_if_possible(lambda: _read_subscription(event.occurred_at, event.data))
    return Delivery.of(event.event_id, event.event_type, result)


class _Customer(ShopObject):
    email: str = Field(validation_alias=AliasPath("data", "email"))
    locale: str | None = Field(None, validation_alias=AliasPath("data", "locale"))


class _FetchedObject(ShopObject):
    data: dict[str, Any]


def fetch_path(fetch: Fetch) -> str | None:
    """Return the path of a customer, or of a subscription."""
    if fetch.kind == "customer" and _CUSTOMER.fullmatch(fetch.id):
        return f"customers/{fetch.id}"
    if fetch.kind == "subscription" and re.fullmatch(r"sub_[0-9a-z]{1,60}", fetch.id):
        return f"subscriptions/{fetch.id}"
    return None


def read_fetched(fetch: Fetch, body: bytes, reported_at: datetime) -> Sequence[Fact]:
    """Read a customer, or a subscription."""
    if fetch.kind == "subscription":
        reading = _read_subscription(reported_at, parse(_FetchedObject, body).data)
        return () if isinstance(reading, str) else reading
    customer = parse(_Customer, body)
    kind, _, id_ = fetch.about.partition(":")
    contact = Contact(
        id=f"{fetch.about}/{fetch.id}",
        reported_at=reported_at,
        orders=(id_,) if kind == "order" else (),
        subscriptions=(id_,) if kind == "subscription" else (),
        email=customer.email,
        language=find_language(customer.locale),
    )
    return (contact,)
