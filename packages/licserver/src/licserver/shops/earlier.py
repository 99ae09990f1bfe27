"""Facts from what was stored of sales before facts were; a report of the shop takes their place."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from licserver.shops.changes import DISPUTED, REFUNDED
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

LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""The instant of reports that were stored without theirs."""

_PREFIX: Final = "earlier:"
_REFUNDS: Final = (None, False, True)  # by what was stored: whether all was refunded
_DISPUTES: Final = (None, DisputeState.OPEN, DisputeState.WON, DisputeState.LOST)
_EVENT_DISPUTES: Final = {
    "disputed": DisputeState.OPEN,
    "dispute won": DisputeState.WON,
    "dispute lost": DisputeState.LOST,
}


def find_revocation(refund: int, dispute: int, *, is_any: bool) -> str | None:
    """Return why licenses of an order were revoked; `is_any`: by a refund of a part as well."""
    if refund == len(_REFUNDS) - 1 or (refund and is_any):
        return REFUNDED
    return DISPUTED if _DISPUTES[dispute] in {DisputeState.OPEN, DisputeState.LOST} else None


def is_earlier(fact: Fact) -> bool:
    """Return whether a fact is made of what was stored before, under an id that no shop has given."""
    return fact.id.startswith(_PREFIX)


def has_earlier_line(key: str) -> bool:
    """Return whether a license is for a line of which the shop's id was not stored then."""
    return f"/{_PREFIX}" in key


def read_order(order_id: str, refund: int, dispute: int, subscription_id: str | None) -> Iterator[Fact]:
    """Return what was known of an order."""
    subscriptions = (subscription_id,) if subscription_id else ()
    paid = OrderState.PAID
    yield Order(id=order_id, reported_at=LONG_AGO, state=paid, subscriptions=subscriptions)
    if refund:
        yield _make_refund(order_id, LONG_AGO, is_full=_REFUNDS[refund])
    if dispute:
        state = _DISPUTES[dispute] or DisputeState.OPEN
        yield Dispute(id=f"{_PREFIX}{order_id}", reported_at=LONG_AGO, state=state, orders=(order_id,))


def _make_refund(order_id: str, reported_at: datetime, *, is_full: bool | None) -> Refund:
    id_, state = f"{_PREFIX}{order_id}", RefundState.MADE
    return Refund(id=id_, reported_at=reported_at, state=state, orders=(order_id,), is_full=is_full)


def read_subscription(
    id_: str,
    *,
    paid_through: datetime | None = None,
    end_reported_at: datetime | None = None,
    ended_at: datetime | None = None,
    purchased_at: datetime | None = None,
    change_reported_at: datetime | None = None,
    cancels_at: datetime | None = None,
    period: str | None = None,
) -> Iterator[Fact]:
    """Return what was known of a subscription: how it goes on, and to when it was paid."""
    is_renewed = purchased_at is not None and end_reported_at is not None and purchased_at > end_reported_at
    is_over = ended_at is not None and not is_renewed
    reported = [instant for instant in (change_reported_at, end_reported_at) if instant is not None]
    yield Subscription(
        id=id_,
        reported_at=max(reported, default=LONG_AGO),
        state=SubscriptionState.ENDED if is_over else SubscriptionState.ACTIVE,
        cancels_at=cancels_at,
        ended_at=ended_at if is_over else None,
        period=period,
    )
    if paid := max(
        (instant for instant in (paid_through, purchased_at) if instant is not None), default=None
    ):
        yield Order(
            id=f"{_PREFIX}{id_}",
            reported_at=LONG_AGO,
            state=OrderState.PAID,
            reason=OrderReason.RENEWAL,
            subscriptions=(id_,),
            paid_at=LONG_AGO,
            ends_at=paid,
        )


def read_events(content: str) -> list[Fact]:
    """Return the facts in the content of a delivery that was stored before facts were stored."""
    return [fact for event in json.loads(content) for fact in _read_event(event)]


def _read_event(event: Mapping[str, Any]) -> Iterator[Fact]:
    kind, reported_at = event["kind"], datetime.fromisoformat(event["occurred_at"]).astimezone(UTC)
    order_id: str = event.get("order_id") or ""
    subscription_id: str = event.get("subscription_id") or ""
    paid_through, cancels_at, ended_at = (
        None if event.get(name) is None else datetime.fromisoformat(event[name]).astimezone(UTC)
        for name in ("paid_through", "cancels_at", "ended_at")
    )
    subscriptions = (subscription_id,) if subscription_id else ()
    orders = (order_id,) if order_id else ()
    if kind in {"purchased", "renewed"}:
        is_renewal = kind == "renewed"
        yield Order(  # the shop may have reported the order since
            id=order_id or f"{_PREFIX}{subscription_id}:{event.get('paid_through')}",
            reported_at=LONG_AGO,
            state=OrderState.PAID,
            reason=OrderReason.RENEWAL if is_renewal else OrderReason.PURCHASE,
            subscriptions=subscriptions,
            paid_at=reported_at,
            ends_at=paid_through,
        )
        if order_id and event.get("items"):
            lines = tuple(_read_item(*item) for item in event["items"])
            yield Lines(order_id=order_id, reported_at=LONG_AGO, lines=lines)
        if order_id and not is_renewal:
            yield Contact(
                id=f"order:{order_id}",
                reported_at=LONG_AGO,
                orders=orders,
                email=event.get("customer_email"),
                language=event.get("customer_language"),
                customer_id=event.get("customer_id"),
            )
    elif kind == "refunded":
        yield _make_refund(order_id, reported_at, is_full=not event.get("is_partial", False))
    elif kind in _EVENT_DISPUTES:
        state = _EVENT_DISPUTES[kind]
        yield Dispute(id=f"{_PREFIX}{order_id}", reported_at=reported_at, state=state, orders=orders)
    else:
        yield Subscription(
            id=subscription_id,
            reported_at=reported_at,
            state=SubscriptionState.ENDED if kind == "ended" else SubscriptionState.ACTIVE,
            orders=orders,
            ends_at=paid_through,
            cancels_at=cancels_at,
            ended_at=(ended_at or reported_at) if kind == "ended" else None,
            period=event.get("period"),
        )


def _read_item(
    external_ids: list[str], quantity: int = 1, line_id: str | None = None, _earlier: object = ()
) -> Line:
    sold = external_ids[0]
    return Line(line_id or f"{_PREFIX}{sold}", tuple(external_ids), sold, quantity)
