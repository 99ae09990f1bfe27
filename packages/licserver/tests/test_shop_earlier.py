"""What versions before facts were stored have stored of sales, as facts."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from licserver.shops.changes import DISPUTED, REFUNDED
from licserver.shops.earlier import (
    LONG_AGO,
    find_revocation,
    has_earlier_line,
    is_earlier,
    read_events,
    read_order,
    read_subscription,
)
from licserver.shops.facts import (
    Contact,
    Dispute,
    DisputeState,
    Line,
    Lines,
    Order,
    OrderReason,
    OrderState,
    Refund,
    RefundState,
    Subscription,
    SubscriptionState,
    dump_fact,
    load_fact,
)

AT = datetime(2026, 6, 15, 12, tzinfo=UTC)
LATER = AT + timedelta(days=30)


def kinds(facts):
    """The kinds of facts, in their order."""
    return [type(fact).__name__ for fact in facts]


@pytest.mark.parametrize(("refund", "is_full"), [(0, None), (1, False), (2, True)])
@pytest.mark.parametrize(
    ("dispute", "state"),
    [(0, None), (1, DisputeState.OPEN), (2, DisputeState.WON), (3, DisputeState.LOST)],
)
def test_an_order(refund, is_full, dispute, state):
    """It was paid; refund and dispute have ids that no shop gives, and anything that is reported is newer."""
    order, *rest = read_order("5", refund, dispute, "77")
    assert order == Order(id="5", reported_at=LONG_AGO, state=OrderState.PAID, subscriptions=("77",))
    assert not is_earlier(order)
    refunds = [fact for fact in rest if isinstance(fact, Refund)]
    assert [(refund_.is_full, refund_.state) for refund_ in refunds] == (
        [(is_full, RefundState.MADE)] if refund else []
    )
    assert [fact.state for fact in rest if isinstance(fact, Dispute)] == ([state] if dispute else [])
    assert all(is_earlier(fact) and fact.orders == ("5",) and fact.reported_at == LONG_AGO for fact in rest)
    for is_any in (False, True):
        revokes = is_full or (refund and is_any)
        disputed = DISPUTED if state in {DisputeState.OPEN, DisputeState.LOST} else None
        assert find_revocation(refund, dispute, is_any=is_any) == (REFUNDED if revokes else disputed)


def test_an_order_without_a_subscription():
    """Names none."""
    assert [fact.subscriptions for fact in read_order("5", 0, 0, None)] == [()]


def test_a_subscription():
    """How it goes on, and to when it was paid."""
    state, paid = read_subscription(
        "77", paid_through=LATER, change_reported_at=AT, cancels_at=LATER, period="1m"
    )
    assert state == Subscription(
        id="77", reported_at=AT, state=SubscriptionState.ACTIVE, cancels_at=LATER, period="1m"
    )
    assert (paid.ends_at, paid.subscriptions, paid.reason) == (LATER, ("77",), OrderReason.RENEWAL)
    assert is_earlier(paid)
    assert kinds(read_subscription("77")) == ["Subscription"]


@pytest.mark.parametrize("is_bought_again", [False, True])
def test_a_subscription_that_has_ended(is_bought_again):
    """Unless it was bought again since."""
    bought = AT + timedelta(days=1) if is_bought_again else AT - timedelta(days=1)
    state, _ = read_subscription("77", end_reported_at=AT, ended_at=AT, purchased_at=bought)
    expected = (SubscriptionState.ACTIVE, None) if is_bought_again else (SubscriptionState.ENDED, AT)
    assert (state.state, state.ended_at, state.reported_at) == (*expected, AT)


def stored(kind: str, **fields: Any) -> str:
    """A delivery as it was stored."""
    return json.dumps([{"kind": kind, "occurred_at": "2026-06-15T12:00:00Z", **fields}])


def test_a_purchase():
    """The order, its lines, and the customer."""
    items = [[["APP", "93"], 2, "315", ["93", "APP"]], [["OTHER"]]]
    content = stored(
        "purchased",
        order_id="5",
        items=items,
        customer_email="ann@example.com",
        paid_through="2026-07-15T12:00:00Z",
    )
    order, lines, contact = read_events(content)
    assert order == Order(id="5", reported_at=LONG_AGO, state=OrderState.PAID, paid_at=AT, ends_at=LATER)
    expected = (Line("315", ("APP", "93"), "APP", 2), Line("earlier:OTHER", ("OTHER",), "OTHER", 1))
    assert lines == Lines(order_id="5", reported_at=LONG_AGO, lines=expected)
    assert [has_earlier_line(f"line:5/{line.id}") for line in lines.lines] == [False, True]
    assert isinstance(contact, Contact)
    assert (contact.email, contact.orders) == ("ann@example.com", ("5",))


def test_a_renewal():
    """Of an order, or of nothing but the subscription."""
    order, _ = read_events(stored("renewed", order_id="801", subscription_id="77", items=[[["APP"]]]))
    assert (order.reason, order.subscriptions) == (OrderReason.RENEWAL, ("77",))
    (order,) = read_events(stored("renewed", subscription_id="77", paid_through="2026-07-15T12:00:00Z"))
    assert (order.ends_at, is_earlier(order)) == (LATER, True)


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        ("refunded", {}, {"is_full": True}),
        ("refunded", {"is_partial": True}, {"is_full": False}),
        ("disputed", {}, {"state": DisputeState.OPEN}),
        ("dispute won", {}, {"state": DisputeState.WON}),
        ("dispute lost", {}, {"state": DisputeState.LOST}),
        ("changed", {"subscription_id": "77", "cancels_at": "2026-07-15T12:00:00Z"}, {"cancels_at": LATER}),
        ("changed", {"subscription_id": "77", "period": "1m"}, {"period": "1m", "orders": ("5",)}),
        ("ended", {"subscription_id": "77"}, {"state": SubscriptionState.ENDED, "ended_at": AT}),
    ],
)
def test_what_else_was_stored(kind, fields, expected):
    """One fact each, which is stored as it is read."""
    (fact,) = read_events(stored(kind, order_id="5", **fields))
    assert {name: getattr(fact, name) for name in expected} == expected
    assert load_fact(dump_fact(fact)) == fact
