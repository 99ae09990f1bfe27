"""What is read from deliveries of Stripe."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from harness import shops
from licserver.sources.records import UNKNOWN_TYPE, Delivery, Item, SaleEvent, SaleKind

NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
ANN = "ann@example.com"


def at(seconds: int) -> datetime:
    """Return an instant as Stripe writes it."""
    return datetime.fromtimestamp(seconds, UTC)


@pytest.mark.parametrize("live", [True, False])
@pytest.mark.parametrize(
    ("fields", "order_id", "email"),
    [
        ({}, "pi_1", ANN),
        ({"payment_intent": {"id": "pi_2"}}, "pi_2", ANN),
        ({"customer_details": {}, "customer_email": "bob@example.com"}, "pi_1", "bob@example.com"),
        (
            {"payment_status": "no_payment_required", "payment_intent": None, "customer_details": None},
            "cs_1",
            None,
        ),
    ],
)
def test_stripe_checkout(fields: dict[str, Any], order_id: str, email: str | None, live: bool) -> None:
    """A paid session is a purchase of its payment link, under the id that refunds name."""
    type_ = "checkout.session.completed"
    delivery = shops.read("stripe", shops.stripe(type_, shops.stripe_session(**fields), live=live))
    sold = {"order_id": order_id, "items": (Item(("plink_1",)),), "customer_email": email}
    event = SaleEvent(kind=SaleKind.PURCHASED, occurred_at=NOW, **sold)
    assert delivery == Delivery("evt_1", type_, not live, (event,))


@pytest.mark.parametrize(
    ("fields", "items"),
    [
        ({"metadata": {"licserver_item": "pro", "licserver_quantity": "3"}}, (Item(("pro",), 3),)),
        ({"metadata": {"licserver_item": "pro"}}, (Item(("pro",)),)),
        ({"payment_link": None}, ()),
        ({"payment_link": {"id": "plink_2"}}, (Item(("plink_2",)),)),
        ({"line_items": {"data": [{"price": {"id": "a"}, "quantity": 0}]}}, (Item(("plink_1",)),)),
        ({"line_items": {"data": []}}, (Item(("plink_1",)),)),
        (
            {"line_items": {"data": [{"price": {"id": "a", "product": "b"}}] * 2 + [{}, {"quantity": 0}]}},
            (Item(("a", "b"), 2),),
        ),
    ],
)
def test_stripe_items(fields: dict[str, Any], items: tuple[Item, ...]) -> None:
    """What was bought is in the lines, in the metadata, or is the payment link."""
    event = shops.read_one(
        "stripe", shops.stripe("checkout.session.completed", shops.stripe_session(**fields))
    )
    assert event.items == items


@pytest.mark.parametrize("new", [True, False])
def test_stripe_subscription(new: bool) -> None:
    """The first invoice of a subscription is its purchase, later ones renew it; both shapes are read."""
    about = {"occurred_at": NOW, "subscription_id": "sub_1"}
    invoice = shops.stripe_invoice("subscription_create", 5, new=new)
    invoice["lines"]["data"].append({**invoice["lines"]["data"][0], "period": {"end": 4}})
    assert shops.read_one("stripe", shops.stripe("invoice.paid", invoice)) == SaleEvent(
        kind=SaleKind.PURCHASED,
        order_id="in_5" if new else "pi_1",
        items=(Item(("price_1", "prod_1"), 2),),
        customer_email=ANN,
        paid_through=at(5),
        **about,
    )
    cycle = shops.stripe_invoice("subscription_cycle", 9, new=new)
    later = shops.read_one("stripe", shops.stripe("invoice.payment_succeeded", cycle))
    renewed = {"customer_email": ANN, "paid_through": at(9)}
    assert later == SaleEvent(kind=SaleKind.RENEWED, **renewed, **about)
    for fields, ended_at in (({"ended_at": 7}, at(7)), ({}, NOW)):
        body = shops.stripe("customer.subscription.deleted", {"id": "sub_1", **fields})
        ended = SaleEvent(kind=SaleKind.ENDED, ended_at=ended_at, **about)
        assert shops.read_one("stripe", body) == ended
    for is_cancelled, cancel_at, cancels_at in ((True, 8, at(8)), (True, None, at(9)), (False, None, None)):
        period = {"cancel_at_period_end": is_cancelled, "current_period_end": 9}
        body = shops.stripe(
            "customer.subscription.updated", {"id": "sub_1", "cancel_at": cancel_at, **period}
        )
        assert shops.read_one("stripe", body) == SaleEvent(
            kind=SaleKind.CHANGED, cancels_at=cancels_at, **about
        )


def test_stripe_subscription_without_a_period() -> None:
    """A purchase counts all the same; its end is not known."""
    invoice = shops.stripe_invoice("subscription_create", 5) | {"lines": {"data": [{"quantity": 1}]}}
    event = shops.read_one("stripe", shops.stripe("invoice.paid", invoice))
    assert (event.kind, event.items, event.paid_through) == (SaleKind.PURCHASED, (), None)


@pytest.mark.parametrize("reason", [None, "subscription"])
def test_stripe_invoices_of_old_api_versions(reason: str | None) -> None:
    """They do not tell the first invoice from later ones, and call a price a plan: one order for all."""
    invoice = shops.stripe_invoice("", 5) | {"billing_reason": reason}
    invoice["lines"]["data"] = [{"plan": {"id": "gold", "product": "prod_1"}, "period": {"end": 5}}]
    assert shops.read_one("stripe", shops.stripe("invoice.payment_succeeded", invoice)) == SaleEvent(
        kind=SaleKind.RENEWED,
        occurred_at=NOW,
        order_id="sub_1",
        items=(Item(("gold", "prod_1")),),
        customer_email=ANN,
        subscription_id="sub_1",
        paid_through=at(5),
    )


@pytest.mark.parametrize(
    ("type_", "fields", "kind", "is_partial"),
    [
        ("charge.refunded", {"refunded": True}, SaleKind.REFUNDED, False),
        ("charge.refunded", {"refunded": False}, SaleKind.REFUNDED, True),
        ("charge.dispute.created", {"status": "needs_response"}, SaleKind.DISPUTED, False),
        ("charge.dispute.created", {"status": "warning"}, SaleKind.DISPUTED, False),
        ("charge.dispute.closed", {"status": "won"}, SaleKind.DISPUTE_WON, False),
        ("charge.dispute.closed", {"status": "warning_closed"}, SaleKind.DISPUTE_WON, False),
        ("charge.dispute.closed", {"status": "lost"}, SaleKind.DISPUTE_LOST, False),
    ],
)
def test_stripe_money_back(type_: str, fields: dict[str, Any], kind: SaleKind, is_partial: bool) -> None:
    """Refunds and disputes name the payment; a refund is full only if Stripe says so."""
    event = shops.read_one("stripe", shops.stripe(type_, {"payment_intent": {"id": "pi_1"}, **fields}))
    assert event == SaleEvent(kind=kind, occurred_at=NOW, order_id="pi_1", is_partial=is_partial)


@pytest.mark.parametrize(
    ("type_", "fields", "reason"),
    [
        (
            "checkout.session.completed",
            shops.stripe_session(mode="subscription"),
            "a session for a subscription: the event invoice.paid issues its licenses",
        ),
        (
            "checkout.session.completed",
            shops.stripe_session(mode="setup", payment_status="no_payment_required"),
            "a session that takes no payment",
        ),
        (
            "checkout.session.completed",
            shops.stripe_session(payment_status="unpaid"),
            "not paid yet: the event checkout.session.async_payment_succeeded follows",
        ),
        ("invoice.paid", {"id": "in_1", "lines": {}}, "an invoice without a subscription"),
        ("invoice.paid", {"id": "in_1", "parent": {}, "lines": {}}, "an invoice without a subscription"),
        (
            "invoice.paid",
            {"id": "in_1", "subscription": "sub_1", "lines": {}},
            "an invoice without a period",
        ),
        ("charge.refunded", {"refunded": True}, "a charge without a payment intent"),
        ("charge.dispute.created", {"status": "needs_response"}, "a dispute without a payment intent"),
        (
            "charge.dispute.created",
            {"status": "warning_needs_response", "payment_intent": "pi_1"},
            "an inquiry, which takes no money yet",
        ),
    ],
)
def test_stripe_ignored(type_: str, fields: dict[str, Any], reason: str) -> None:
    """What changes no license is ignored, with a reason."""
    body = shops.stripe(type_, fields)
    assert shops.read("stripe", body) == Delivery("evt_1", type_, is_test=False, reason=reason)


def test_stripe_other_types() -> None:
    """They are not read any further; a thin event is one without its object."""
    event = {"id": "evt_1", "type": "customer.created"}
    assert shops.read("stripe", json.dumps(event).encode()) == Delivery(
        "evt_1", "customer.created", reason=UNKNOWN_TYPE
    )
    thin = {"id": "evt_1", "object": "v2.core.event", "type": "checkout.session.completed"}
    reason = "a thin event: choose snapshot events in Stripe"
    assert shops.read("stripe", json.dumps(thin).encode()) == Delivery("evt_1", thin["type"], reason=reason)
