"""What each shop reports, as facts: fields, states, and what changes no license."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib.resources import files
from typing import Any

import pytest

from harness import shops
from licserver.shops import ROWS, SHOPS, ShopKind, gumroad, paddle, standard, woocommerce
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
    Payment,
    Refund,
    RefundState,
    Subscription,
    SubscriptionState,
)
from licserver.shops.periods import add_period, add_period_to_instant, is_period, subtract_months
from licserver.shops.reading import (
    NO_OPTIONS,
    Delivery,
    ReadOptions,
    UnreadableDeliveryError,
    format_period,
)

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)
MONTH = datetime(2026, 7, 15, 12, tzinfo=UTC)
ANN = "ann@example.com"
NO_HEADERS: Mapping[str, str] = {}


def read(
    kind: str, body: bytes, headers: Mapping[str, str] = NO_HEADERS, options: ReadOptions = NO_OPTIONS
) -> Delivery:
    """Read a body as the server does."""
    return SHOPS[ShopKind(kind)].read({name.lower(): value for name, value in headers.items()}, body, options)


# Called with fields of any type.
ADJUSTED: Any = Refund
REPORTED: Any = Subscription
MAKE: Any = shops


def read_fact(kind: str, body: bytes, type_: type[Fact]) -> Any:
    """Read a body, and return its fact of a type."""
    (fact,) = [fact for fact in read(kind, body).facts if isinstance(fact, type_)]
    return fact


def fetch(kind: str, what: Fetch, body: Any) -> list[Fact]:
    """Read what the API responds to a fetch, which has a path."""
    shop = SHOPS[ShopKind(kind)]
    assert shop.fetch_path(what)
    return list(shop.read_fetched(what, json.dumps(body).encode(), NOON + DAY))


# --- Stripe -----------------------------------------------------------------------------------


def session(**fields: Any) -> bytes:
    """Make an event about a session."""
    return shops.stripe("checkout.session.completed", shops.stripe_session(**fields))


@pytest.mark.parametrize(
    ("fields", "id_", "names", "state"),
    [
        ({}, "pi_1", ("cs_1",), OrderState.PAID),
        ({"payment_intent": {"id": "pi_2"}}, "pi_2", ("cs_1",), OrderState.PAID),
        ({"payment_status": "no_payment_required", "payment_intent": None}, "cs_1", (), OrderState.PAID),
        ({"payment_status": "unpaid"}, "pi_1", ("cs_1",), OrderState.PENDING),
    ],
)
def test_stripe_sessions(fields: dict[str, Any], id_: str, names: tuple[str, ...], state: OrderState) -> None:
    """A session is an order under the id of its payment; paid if Stripe says so."""
    order = read_fact("stripe", session(amount_total=2_000, **fields), Order)
    expected = Order(id=id_, reported_at=NOON, state=state, shop_state=order.shop_state, names=names)
    is_paid = state is OrderState.PAID
    assert (order.id, order.names, order.state, order.total) == (id_, names, state, 2_000)
    assert (order.paid_at, order.reported_at) == (NOON if is_paid else None, expected.reported_at)


@pytest.mark.parametrize(
    ("fields", "lines"),
    [
        ({"metadata": {"licserver_item": "pro", "licserver_quantity": "3"}}, [(("pro", "plink_1"), 3)]),
        ({"metadata": {"licserver_item": "pro"}}, [(("pro", "plink_1"), None)]),
        ({"payment_link": {"id": "plink_2"}}, [(("plink_2",), None)]),
        ({"line_items": {"data": []}}, [(("plink_1",), None)]),
        (
            {"line_items": {"data": [{"price": {"id": "a", "product": "b"}, "quantity": 2}, {}]}},
            [(("a", "b", "plink_1"), 2)],
        ),
        (
            {"line_items": {"data": [{"price": {"id": "a"}, "quantity": 2}, {"price": {"id": "c"}}]}},
            [(("a",), 2), (("c",), None)],
        ),
        (
            {"line_items": {"data": [{"price": {"id": "a"}, "quantity": 2}], "has_more": True}},
            [(("a",), 2)],
        ),
        ({"metadata": {"licserver_quantity": "3"}, "payment_link": None}, None),
    ],
)
def test_stripe_lines(fields: dict[str, Any], lines: list[tuple[tuple[str, ...], int | None]] | None) -> None:
    """What was bought is in the lines, in the metadata, or behind the link; a missing quantity is unknown."""
    found = [fact for fact in read("stripe", session(**fields)).facts if isinstance(fact, Lines)]
    if lines is None:
        assert found == []
        return
    (listed,) = found
    assert [(line.external_ids, line.quantity) for line in listed.lines] == lines
    assert listed.is_complete is not fields.get("line_items", {}).get("has_more", False)


def test_a_stripe_session_with_a_wrong_quantity() -> None:
    """The vendor's own field is checked: it is not known how many were bought."""
    wrong = session(metadata={"licserver_item": "pro", "licserver_quantity": "many"})
    assert [line.quantity for line in read_fact("stripe", wrong, Lines).lines] == [None]


@pytest.mark.parametrize(("amount", "quantity"), [(4_900, None), (0, 0), (None, 0)])
def test_a_stripe_session_of_none_that_was_paid(amount: int | None, quantity: int | None) -> None:
    """A person is asked how many it is: the customer has paid, and nothing was issued in silence."""
    fields = {"metadata": {"licserver_item": "pro", "licserver_quantity": "0"}, "amount_total": amount}
    assert [line.quantity for line in read_fact("stripe", session(**fields), Lines).lines] == [quantity]


@pytest.mark.parametrize("customer", [{"customer_details": {"email": ANN}}, {"customer_email": ANN}])
def test_the_contact_of_a_stripe_session(customer: dict[str, Any]) -> None:
    """It has a language, unless the customer's browser chose it."""
    fields = {"customer_details": None, **customer}
    contact = read_fact("stripe", session(locale="de-AT", **fields), Contact)
    assert (contact.email, contact.language, contact.orders) == (ANN, "de", ("cs_1",))
    subscribed = session(mode="subscription", subscription={"id": "sub_1"}, invoice="in_1", **fields)
    contact = read_fact("stripe", subscribed, Contact)
    assert (contact.email, contact.orders, contact.subscriptions) == (ANN, ("in_1",), ("sub_1",))


@pytest.mark.parametrize("new", [True, False])
@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("subscription_create", OrderReason.PURCHASE),
        ("subscription_cycle", OrderReason.RENEWAL),
        ("subscription_update", OrderReason.RENEWAL),
        ("manual", OrderReason.CHANGE),
        (None, OrderReason.UNKNOWN),
        ("subscription", OrderReason.UNKNOWN),
    ],
)
def test_stripe_invoices(reason: str | None, expected: OrderReason, new: bool) -> None:
    """Both shapes are read; an old version does not tell the first invoice from later ones."""
    invoice = shops.stripe_invoice("", 5, new=new) | {"billing_reason": reason, "amount_paid": 900}
    body = shops.stripe("invoice.paid", invoice)
    order = read_fact("stripe", body, Order)
    assert (order.id, order.reason, order.subscriptions, order.total) == ("in_5", expected, ("sub_1",), 900)
    assert order.names == (() if new else ("pi_1",))
    assert order.ends_at == datetime.fromtimestamp(5, UTC)
    lines = [fact for fact in read("stripe", body).facts if isinstance(fact, Lines)]
    item = "sub_1/price_1" if expected is OrderReason.UNKNOWN else None
    listed = [Line("1", ("price_1", "prod_1"), "price_1", 1, item)]
    assert [list(line.lines) for line in lines] == ([] if expected is OrderReason.CHANGE else [listed])


def test_a_stripe_invoice_of_prorations_pays_no_period() -> None:
    """Its lines settle what was paid before."""
    invoice = shops.stripe_invoice("subscription_update", 5)
    invoice["lines"]["data"][0] |= {"parent": {"invoice_item_details": {"proration": True}}}
    order = read_fact("stripe", shops.stripe("invoice.paid", invoice), Order)
    assert (order.reason, order.ends_at) == (OrderReason.CHANGE, None)


def test_a_stripe_invoice_with_its_payments() -> None:
    """They link it to what refunds and disputes name, as the event about a payment of an invoice does."""
    paid = {"id": "inpay_1", "payment": {"type": "payment_intent", "payment_intent": "pi_9"}}
    invoice = shops.stripe_invoice("subscription_cycle", 5) | {"payments": {"data": [paid, {"id": "x"}]}}
    assert read_fact("stripe", shops.stripe("invoice.paid", invoice), Order).names == ("pi_9",)
    linked = read_fact("stripe", shops.stripe("invoice_payment.paid", {**paid, "invoice": "in_5"}), Payment)
    assert linked == Payment(id="inpay_1", reported_at=NOON, orders=("in_5", "pi_9"))
    found = fetch("stripe", Fetch("payment", "pi_9", "order:pi_9"), {"data": [{**paid, "invoice": "in_5"}]})
    assert found == [Payment(id="inpay_1", reported_at=NOON + DAY, orders=("in_5", "pi_9"))]


@pytest.mark.parametrize(
    ("fields", "state", "cancels_at"),
    [
        ({"status": "active"}, SubscriptionState.ACTIVE, None),
        ({"status": "trialing", "cancel_at": 7}, SubscriptionState.ACTIVE, 7),
        ({"status": "active", "cancel_at_period_end": True}, SubscriptionState.ACTIVE, 9),
        ({"status": "past_due"}, SubscriptionState.UNPAID, None),
        ({"status": "incomplete"}, SubscriptionState.PENDING, None),
        ({"status": "active", "pause_collection": {"behavior": "void"}}, SubscriptionState.PAUSED, None),
        (
            {"status": "active", "pause_collection": {"behavior": "keep_as_draft"}},
            SubscriptionState.ACTIVE,
            None,
        ),
        ({"status": "incomplete_expired"}, SubscriptionState.ENDED, None),
        ({"status": "new"}, SubscriptionState.UNKNOWN, None),
    ],
)
@pytest.mark.parametrize("new", [True, False])
def test_stripe_subscriptions(
    fields: dict[str, Any], state: SubscriptionState, cancels_at: int | None, new: bool
) -> None:
    """The period is of the subscription, or since 2025-03-31 of its items."""
    period = {"current_period_start": 4, "current_period_end": 9}
    item = {"id": "si_1", "price": {"id": "price_1", "product": "prod_1"}, "quantity": 2}
    items = {"data": [{**item, **(period if new else {})}, {"id": "si_2", "deleted": True}]}
    body = {"id": "sub_1", "items": items, **({} if new else period), **fields}
    report = read_fact("stripe", shops.stripe("customer.subscription.updated", body), Subscription)
    at = None if cancels_at is None else datetime.fromtimestamp(cancels_at, UTC)
    assert (report.state, report.cancels_at) == (state, at)
    assert report.starts_at == datetime.fromtimestamp(4, UTC)
    is_void = state is SubscriptionState.PAUSED
    assert report.ends_at == (None if is_void else datetime.fromtimestamp(9, UTC))
    lines = read_fact("stripe", shops.stripe("customer.subscription.updated", body), Lines)
    assert lines.lines == (Line("si_1", ("price_1", "prod_1"), "price_1", 2),)


def test_the_end_of_a_stripe_subscription() -> None:
    """It has an instant of its own, or that of the event."""
    for fields, at in (({"ended_at": 7}, datetime.fromtimestamp(7, UTC)), ({}, NOON)):
        body = shops.stripe("customer.subscription.deleted", {"id": "sub_1", **fields})
        report = read_fact("stripe", body, Subscription)
        assert (report.state, report.ended_at) == (SubscriptionState.ENDED, at)


@pytest.mark.parametrize(
    ("type_", "fields", "expected"),
    [
        (
            "charge.refunded",
            {
                "id": "ch_1",
                "payment_intent": {"id": "pi_1"},
                "refunded": False,
                "amount": 9,
                "amount_refunded": 4,
            },
            Payment(id="ch_1", reported_at=NOON, orders=("pi_1",), total=Decimal(9), refunded=Decimal(4)),
        ),
        (
            "charge.refunded",
            {"payment_intent": "pi_1", "refunded": True},
            Refund(
                id="refund of pi_1", reported_at=NOON, state=RefundState.MADE, orders=("pi_1",), is_full=True
            ),
        ),
        (
            "refund.failed",
            {"id": "re_1", "charge": "ch_1", "amount": 9, "status": "failed"},
            Refund(id="re_1", reported_at=NOON, state=RefundState.VOID, orders=("ch_1",), amount=Decimal(9)),
        ),
        (
            "refund.created",
            {"id": "re_1", "charge": "ch_1", "status": "pending"},
            Refund(id="re_1", reported_at=NOON, state=RefundState.PENDING, orders=("ch_1",)),
        ),
        *(
            (
                "charge.dispute.closed",
                {"id": "dp_1", "payment_intent": "pi_1", "charge": "ch_1", "status": status},
                Dispute(id="dp_1", reported_at=NOON, state=state, orders=("pi_1", "ch_1")),
            )
            for status, state in (
                ("won", DisputeState.WON),
                ("lost", DisputeState.LOST),
                ("warning_closed", DisputeState.WON),
                ("warning_under_review", DisputeState.INQUIRY),
                ("under_review", DisputeState.OPEN),
            )
        ),
    ],
)
def test_stripe_money_back(type_: str, fields: dict[str, Any], expected: Fact) -> None:
    """Each object under its own id, with the names of the payment."""
    assert read("stripe", shops.stripe(type_, fields)).facts == (expected,)


@pytest.mark.parametrize(
    ("type_", "fields", "reason"),
    [
        ("customer.created", {}, "this type changes no license"),
        ("checkout.session.completed", shops.stripe_session(mode="setup"), "a session that takes no payment"),
        ("invoice.paid", {"id": "in_1", "lines": {}}, "an invoice without a subscription"),
        ("charge.refunded", {"refunded": True}, "a charge without a payment intent"),
        ("refund.created", {"id": "re_1"}, "a refund without a payment"),
        ("charge.dispute.created", {"status": "lost"}, "a dispute without a payment"),
    ],
)
def test_stripe_ignored(type_: str, fields: dict[str, Any], reason: str) -> None:
    """What changes no license is ignored, with a reason."""
    found = read("stripe", shops.stripe(type_, fields))
    assert (found.facts, found.reason) == ((), reason)


def test_a_thin_event_of_stripe() -> None:
    """It is without its object."""
    thin = {"id": "evt_1", "object": "v2.core.event", "type": "checkout.session.completed"}
    assert (
        read("stripe", json.dumps(thin).encode()).reason == "a thin event: choose snapshot events in Stripe"
    )


def test_what_stripes_api_knows() -> None:
    """Lines of an invoice, and a subscription."""
    line = {
        "price": {"id": "a"},
        "quantity": 2,
        "subscription_item": "si_1",
        "period": {"start": 4, "end": 9},
    }
    credit = {**line, "amount": -3}
    (lines,) = fetch(
        "stripe", Fetch("lines", "in_1", "order:in_1"), {"data": [credit, line], "has_more": True}
    )
    assert isinstance(lines, Lines)
    assert lines.lines == (Line("2", ("a",), "a", 2, "si_1"),)
    assert (lines.as_of, lines.is_complete) == (datetime.fromtimestamp(4, UTC), False)
    assert fetch("stripe", Fetch("lines", "cs_1", "order:cs_1"), {"id": "cs_1", "mode": "payment"}) == []
    body = {"id": "sub_1", "status": "canceled"}
    (report,) = fetch("stripe", Fetch("subscription", "sub_1", "subscription:sub_1"), body)
    assert isinstance(report, Subscription)
    assert report.ended_at == NOON + DAY
    assert SHOPS[ShopKind.STRIPE].fetch_path(Fetch("lines", "pi_1", "order:pi_1")) is None


# --- Paddle -----------------------------------------------------------------------------------

PERIOD = {"billing_period": {"starts_at": "2026-06-15T12:00:00Z", "ends_at": "2026-07-15T12:00:00Z"}}
SUBSCRIBED = {**PERIOD, "subscription_id": "sub_1"}


@pytest.mark.parametrize(
    ("fields", "reason", "has_lines"),
    [
        ({}, OrderReason.PURCHASE, True),
        (SUBSCRIBED, OrderReason.PURCHASE, True),
        ({**SUBSCRIBED, "origin": "subscription_recurring"}, OrderReason.RENEWAL, True),
        ({**SUBSCRIBED, "origin": "subscription_update"}, OrderReason.RENEWAL, False),
        ({"subscription_id": "sub_1", "origin": "subscription_charge"}, OrderReason.CHANGE, False),
        ({"subscription_id": "sub_1", "origin": "subscription_update"}, OrderReason.CHANGE, False),
    ],
)
def test_paddle_transactions(fields: dict[str, Any], reason: OrderReason, has_lines: bool) -> None:
    """One of a running subscription sells nothing."""
    billed = {"billed_at": "2026-06-14T12:00:00Z", "details": {"totals": {"total": "10", "grand_total": "9"}}}
    found = read(
        "paddle", shops.paddle("transaction.completed", shops.paddle_transaction(**billed, **fields))
    )
    (order,) = [fact for fact in found.facts if isinstance(fact, Order)]
    assert (order.reason, order.paid_at, order.total) == (reason, NOON - DAY, Decimal(9))
    lines = [fact.lines for fact in found.facts if isinstance(fact, Lines)]
    assert lines == ([(Line(None, ("pri_1", "pro_1"), "pri_1", 2),)] if has_lines else [])


@pytest.mark.parametrize(
    ("fields", "email", "customer"),
    [
        ({}, ANN, None),
        ({"custom_data": None}, None, None),
        ({"custom_data": {"email": 5}, "customer_id": "ctm_01"}, None, "ctm_01"),
        ({"custom_data": {}, "customer_id": "ctm_1/x"}, None, None),
    ],
)
def test_the_contact_of_a_paddle_transaction(
    fields: dict[str, Any], email: str | None, customer: str | None
) -> None:
    """An address in the vendor's own field, or a customer whom the API knows."""
    body = shops.paddle("transaction.completed", shops.paddle_transaction(**fields))
    contact = read_fact("paddle", body, Contact)
    assert (contact.email, contact.customer_id) == (email, customer)


@pytest.mark.parametrize(
    ("fields", "state", "is_full"),
    [
        ({"type": "full"}, RefundState.MADE, True),
        ({"type": "partial"}, RefundState.MADE, False),
        ({"type": "partial", "totals": {"total": "5"}}, RefundState.MADE, None),
        ({"items": [{"type": "full"}, {"type": "partial"}]}, RefundState.MADE, False),
        ({"items": [{"type": "full"}]}, RefundState.MADE, True),
        ({"items": [{"type": "full"}], "totals": {"total": "5"}}, RefundState.MADE, None),
        ({"type": "full", "status": "rejected"}, RefundState.VOID, True),
        ({"type": "full", "status": "pending_approval"}, RefundState.PENDING, True),
        ({"type": "full", "status": "new"}, RefundState.PENDING, True),
    ],
)
def test_paddle_refunds(fields: dict[str, Any], state: RefundState, is_full: bool | None) -> None:
    """An approved adjustment takes money back, whole, in part, or by its amount."""
    data = {"id": "adj_1", "action": "refund", "status": "approved", "transaction_id": "txn_1", **fields}
    refund = read_fact("paddle", shops.paddle("adjustment.updated", data), Refund)
    assert (refund.state, refund.is_full, refund.orders) == (state, is_full, ("txn_1",))


@pytest.mark.parametrize(
    ("action", "status", "state"),
    [
        ("chargeback", "approved", DisputeState.OPEN),
        ("chargeback", "reversed", DisputeState.WON),
        ("chargeback", "pending_approval", DisputeState.INQUIRY),
        ("chargeback_reverse", "approved", DisputeState.REVERSAL),
        ("chargeback_reverse", "rejected", DisputeState.INQUIRY),
        ("chargeback_warning", "approved", DisputeState.INQUIRY),
    ],
)
def test_paddle_chargebacks(action: str, status: str, state: DisputeState) -> None:
    """A reversal is an adjustment of its own, and may change the state of the first one."""
    data = {"action": action, "status": status, "transaction_id": "txn_1"}
    dispute = read_fact("paddle", shops.paddle("adjustment.created", data), Dispute)
    assert (dispute.state, dispute.id) == (state, f"{action} of txn_1")


def test_other_paddle_events() -> None:
    """They change no license."""
    assert read("paddle", shops.paddle("customer.created", {})).reason == "this type changes no license"
    credit = {"action": "credit", "status": "approved", "transaction_id": "txn_1"}
    assert (
        read("paddle", shops.paddle("adjustment.created", credit)).reason == "an adjustment that is a credit"
    )


@pytest.mark.parametrize(
    ("fields", "state", "cancels_at", "period"),
    [
        ({"status": "active"}, SubscriptionState.ACTIVE, None, None),
        ({"billing_cycle": {"interval": "week", "frequency": 2}}, SubscriptionState.ACTIVE, None, "14d"),
        ({"billing_cycle": {"interval": "era", "frequency": 2}}, SubscriptionState.ACTIVE, None, None),
        ({"status": "trialing"}, SubscriptionState.ACTIVE, None, None),
        ({"status": "past_due"}, SubscriptionState.UNPAID, None, None),
        ({"status": "paused"}, SubscriptionState.PAUSED, None, None),
        ({"status": "new"}, SubscriptionState.UNKNOWN, None, None),
        *(
            ({"scheduled_change": {"action": action, "effective_at": "2026-07-15T12:00:00Z"}}, *rest)
            for action, *rest in (
                ("cancel", SubscriptionState.ACTIVE, MONTH, None),
                ("pause", SubscriptionState.ACTIVE, MONTH, None),
                ("resume", SubscriptionState.ACTIVE, None, None),
            )
        ),
    ],
)
def test_paddle_subscriptions(
    fields: dict[str, Any], state: SubscriptionState, cancels_at: datetime | None, period: str | None
) -> None:
    """The next payment is the end of what is paid; items that are switched off do not count."""
    items = [
        {"price": {"id": "pri_1"}, "quantity": 2, "status": "active", "recurring": True},
        {"price": {"id": "pri_2"}, "quantity": 1, "status": "inactive"},
        {"price": {"id": "pri_3"}, "quantity": 1, "recurring": False},
    ]
    dates = {"next_billed_at": "2026-07-20T12:00:00Z", "current_billing_period": PERIOD["billing_period"]}
    data = {
        "id": "sub_1",
        "customer_id": "ctm_1",
        "transaction_id": "txn_1",
        "items": items,
        **dates,
        **fields,
    }
    body = shops.paddle("subscription.updated", data)
    report = read_fact("paddle", body, Subscription)
    assert (report.state, report.cancels_at, report.period) == (state, cancels_at, period)
    assert (report.starts_at, report.ends_at, report.orders) == (NOON, MONTH + 5 * DAY, ("txn_1",))
    assert read_fact("paddle", body, Lines).lines == (Line(None, ("pri_1",), "pri_1", 2),)
    assert read_fact("paddle", body, Contact).customer_id == "ctm_1"


@pytest.mark.parametrize(
    ("fields", "at"),
    [({"canceled_at": "2026-06-14T12:00:00Z"}, NOON - DAY), ({}, NOON + timedelta(seconds=0.5))],
)
def test_the_end_of_a_paddle_subscription(fields: dict[str, str], at: datetime) -> None:
    """It ends when it was cancelled."""
    report = read_fact(
        "paddle", shops.paddle("subscription.canceled", {"id": "sub_1", **fields}), Subscription
    )
    assert (report.state, report.ended_at) == (SubscriptionState.ENDED, at)


def test_what_paddles_api_knows() -> None:
    """The address and the language of a customer, and a subscription."""
    customer = {"data": {"id": "ctm_1", "email": ANN, "locale": "de"}}
    (contact,) = fetch("paddle", Fetch("customer", "ctm_1", "order:txn_1"), customer)
    assert contact == Contact(
        id="order:txn_1/ctm_1", reported_at=NOON + DAY, orders=("txn_1",), email=ANN, language="de"
    )
    (contact,) = fetch("paddle", Fetch("customer", "ctm_1", "subscription:sub_1"), customer)
    assert isinstance(contact, Contact)
    assert contact.subscriptions == ("sub_1",)
    found = fetch("paddle", Fetch("subscription", "sub_1", "subscription:sub_1"), {"data": {"id": "sub_1"}})
    assert [type(fact) for fact in found] == [Subscription]
    for what in (Fetch("customer", "ctm_/x", "order:1"), Fetch("lines", "txn_1", "order:txn_1")):
        assert paddle.fetch_path(what) is None
    assert paddle.is_sandbox("pdl_sdbx_1")
    assert not paddle.is_sandbox("pdl_live_1")


# --- Lemon Squeezy ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("paid", OrderState.PAID),
        ("pending", OrderState.PENDING),
        ("failed", OrderState.FAILED),
        ("refunded", OrderState.REFUNDED),
        ("partial_refund", OrderState.PAID),
        ("fraudulent", OrderState.CANCELLED),
        ("new", OrderState.UNKNOWN),
    ],
)
def test_lemon_orders(status: str, state: OrderState) -> None:
    """An order has one line; of a part that was refunded the amount is known, or that it is a part."""
    body = shops.lemon("order_created", "5", shops.lemon_order(status=status, total=2_000))
    found = read("lemonsqueezy", body)
    assert (found.type, found.is_test) == ("order_created", False)
    order = read_fact("lemonsqueezy", body, Order)
    assert (order.state, order.total, order.shop_state) == (state, 2_000, status)
    assert read_fact("lemonsqueezy", body, Lines).lines == (Line("1", ("11", "product:7"), "11", 1),)
    assert read_fact("lemonsqueezy", body, Contact).email == ANN
    refunds = [fact.is_full for fact in found.facts if isinstance(fact, Refund)]
    assert refunds == ([False] if status == "partial_refund" else [])
    known = shops.lemon("order_refunded", "5", shops.lemon_order(status=status, refunded_amount=500))
    assert read_fact("lemonsqueezy", known, Order).refunded == 500
    assert not [fact for fact in read("lemonsqueezy", known).facts if isinstance(fact, Refund)]


RENEWS = datetime(2026, 7, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("fields", "state", "starts_at", "ends_at", "cancels_at"),
    [
        ({"status": "active"}, SubscriptionState.ACTIVE, None, RENEWS, None),
        ({"status": "on_trial"}, SubscriptionState.ACTIVE, None, RENEWS, None),
        (
            {"status": "cancelled", "ends_at": "2026-07-01T02:00:00+02:00"},
            SubscriptionState.ACTIVE,
            None,
            datetime(2026, 7, 1, tzinfo=UTC),
            datetime(2026, 7, 1, tzinfo=UTC),
        ),
        ({"status": "past_due"}, SubscriptionState.UNPAID, NOON, RENEWS, None),
        ({"status": "past_due", "renews_at": None}, SubscriptionState.UNPAID, NOON, None, None),
        ({"status": "unpaid"}, SubscriptionState.PAUSED, None, NOON, None),
        ({"status": "paused", "pause": {"mode": "void"}}, SubscriptionState.PAUSED, None, NOON, None),
        (
            {"status": "paused", "pause": {"mode": "free", "resumes_at": "2026-08-15T12:00:00Z"}},
            SubscriptionState.ACTIVE,
            None,
            datetime(2026, 8, 15, 12, tzinfo=UTC),
            None,
        ),
        (
            {"status": "paused", "pause": {"mode": "free", "resumes_at": "2026-06-25T12:00:00Z"}},
            SubscriptionState.ACTIVE,
            None,
            RENEWS,
            None,
        ),
        ({"status": "expired"}, SubscriptionState.ENDED, None, RENEWS, None),
        ({"status": "new"}, SubscriptionState.UNKNOWN, None, RENEWS, None),
    ],
)
def test_lemon_subscriptions(
    fields: dict[str, Any],
    state: SubscriptionState,
    starts_at: datetime | None,
    ends_at: datetime | None,
    cancels_at: datetime | None,
) -> None:
    """A subscription names its order, and its one item."""
    status = fields["status"]
    item = {"variant_id": 12, "product_id": 7, "first_subscription_item": {"quantity": 4}}
    attributes = {**shops.lemon_subscription(status, **item), **fields}
    body = shops.lemon("subscription_updated", "77", attributes)
    report = read_fact("lemonsqueezy", body, Subscription)
    assert (report.state, report.orders, report.shop_state) == (state, ("5",), status)
    assert (report.starts_at, report.ends_at, report.cancels_at) == (starts_at, ends_at, cancels_at)
    assert report.ended_at == (NOON if state is SubscriptionState.ENDED else None)
    assert read_fact("lemonsqueezy", body, Lines).lines == (Line(None, ("12", "product:7"), "12", 4),)
    old = shops.lemon("subscription_updated", "77", shops.lemon_subscription(status, variant_id=12))
    assert read_fact("lemonsqueezy", old, Lines).lines == (Line(None, ("12",), "12", None),)


@pytest.mark.parametrize(
    ("reason", "status", "expected"),
    [
        ("renewal", "paid", (OrderReason.RENEWAL, OrderState.PAID)),
        ("renewal", "refunded", (OrderReason.RENEWAL, OrderState.REFUNDED)),
        ("updated", "pending", (OrderReason.CHANGE, OrderState.PENDING)),
        ("initial", "paid", None),
    ],
)
def test_lemon_invoices(reason: str, status: str, expected: tuple[OrderReason, OrderState] | None) -> None:
    """Payments within a subscription; the first one is the order."""
    dates = {"created_at": "2026-06-15T12:00:00Z", "updated_at": "2026-06-15T12:00:00Z"}
    fields = {"subscription_id": 77, "billing_reason": reason, "status": status, "total": 900, **dates}
    found = read("lemonsqueezy", shops.lemon("subscription_payment_success", "9", fields))
    assert [(fact.id, fact.reason, fact.state) for fact in found.facts if isinstance(fact, Order)] == (
        [] if expected is None else [("invoice:9", *expected)]
    )


def test_other_lemon_events() -> None:
    """They change no license; deliveries of 2023 have the mode in the object."""
    other = shops.lemon("license_key_created", "1", {"test_mode": True})
    assert read("lemonsqueezy", other).reason == "this type changes no license"
    body = json.loads(shops.lemon("order_created", "5", shops.lemon_order(test_mode=True)))
    del body["meta"]["test_mode"]
    assert read("lemonsqueezy", json.dumps(body).encode()).is_test is True


def test_what_lemon_squeezys_api_knows() -> None:
    """The quantity of an order, and a subscription."""
    item = {"id": "1", "attributes": {"variant_id": 11, "product_id": 7, "quantity": 3}}
    (lines,) = fetch("lemonsqueezy", Fetch("lines", "5", "order:5"), {"data": [item]})
    assert lines == Lines(
        order_id="5", reported_at=NOON + DAY, lines=(Line("1", ("11", "product:7"), "11", 3),)
    )
    assert fetch("lemonsqueezy", Fetch("lines", "5", "order:5"), {"data": []}) == []
    body = {"data": {"id": "77", "attributes": shops.lemon_subscription("active")}}
    report, first = fetch("lemonsqueezy", Fetch("subscription", "77", "subscription:77"), body)
    assert isinstance(report, Subscription)
    assert isinstance(first, Payment)
    assert SHOPS[ShopKind.LEMONSQUEEZY].fetch_path(Fetch("customer", "1", "order:5")) is None


# --- WooCommerce ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("processing", OrderState.PAID),
        ("completed", OrderState.PAID),
        ("pending", OrderState.PENDING),
        ("checkout-draft", OrderState.PENDING),
        ("on-hold", OrderState.HELD),
        ("cancelled", OrderState.CANCELLED),
        ("trash", OrderState.CANCELLED),
        ("failed", OrderState.FAILED),
        ("refunded", OrderState.REFUNDED),
        ("shipped", OrderState.UNKNOWN),
    ],
)
def test_woo_orders(status: str, state: OrderState) -> None:
    """Refunds are listed in the order; without a day of payment that of its creation counts."""
    body = shops.woo(
        status, date_created_gmt="2026-06-14T12:00:00", refunds=[{"total": "-9.35"}, {"total": "-1"}]
    )
    order = read_fact("woocommerce", body, Order)
    assert (order.state, order.total, order.refunded) == (state, Decimal("29.35"), Decimal("10.35"))
    is_paid = state in {OrderState.PAID, OrderState.REFUNDED}
    assert order.paid_at == (NOON - DAY if is_paid else None)
    paid = shops.woo(status, date_paid_gmt="2026-06-13T12:00:00", date_created_gmt="")
    assert read_fact("woocommerce", paid, Order).paid_at == NOON - 2 * DAY


def test_woo_lines() -> None:
    """By variation, article number and product; a product that was deleted is unknown."""
    lines = [
        shops.woo_line(1, variation_id=24),
        shops.woo_line(2, sku=None, quantity=0),
        shops.woo_line(3, product_id=0, sku=""),
    ]
    body = shops.woo(
        line_items=lines, meta_data=[{"key": "wpml_language", "value": "de"}, {"key": "a", "value": 5}]
    )
    assert read_fact("woocommerce", body, Lines).lines == (
        Line("1", ("24", "APP", "93"), "24", 1),
        Line("2", ("93",), "93", 0),
        Line("3", (), None, 1),
    )
    contact = read_fact("woocommerce", body, Contact)
    assert (contact.email, contact.language) == (ANN, "de")


@pytest.mark.parametrize(
    ("meta", "created_via", "expected"),
    [
        ([], "checkout", (OrderReason.PURCHASE, ())),
        ([("_subscription_renewal", 900)], "", (OrderReason.RENEWAL, ("900",))),
        (
            [("_subscription_renewal", 900), ("_subscription_renewal", "901")],
            "subscription",
            (OrderReason.RENEWAL, ("900", "901")),
        ),
        ([("_subscription_renewal", "gone")], "subscription", (OrderReason.RENEWAL, ())),
        ([], "subscription", (OrderReason.RENEWAL, ())),
        ([("_subscription_resubscribe", 900)], "subscription", (OrderReason.PURCHASE, ())),
        ([("_subscription_switch", 900)], "checkout", (OrderReason.CHANGE, ("900",))),
        ([("my_field", 900)], "checkout", (OrderReason.RENEWAL, ("900",))),
    ],
)
def test_woo_reasons(
    meta: list[tuple[str, Any]], created_via: str, expected: tuple[OrderReason, tuple[str, ...]]
) -> None:
    """The fields of WooCommerce Subscriptions, and one that the vendor names."""
    fields = [{"id": 1, "key": key, "value": value} for key, value in meta]
    body = shops.woo(meta_data=fields, created_via=created_via)
    found = read("woocommerce", body, options=ReadOptions(renewal_field="my_field"))
    assert [(fact.reason, fact.subscriptions) for fact in found.facts if isinstance(fact, Order)] == [
        expected
    ]


@pytest.mark.parametrize(
    ("status", "dates", "expected"),
    [
        ("active", {}, (SubscriptionState.ACTIVE, None, "next", None, None)),
        ("active", {"next_payment_date_gmt": ""}, (SubscriptionState.ACTIVE, None, "end", "end", None)),
        ("pending-cancel", {}, (SubscriptionState.ACTIVE, None, "end", "end", None)),
        ("cancelled", {}, (SubscriptionState.ENDED, None, "next", None, "end")),
        ("expired", {"end_date_gmt": ""}, (SubscriptionState.ENDED, None, "next", None, "now")),
        ("on-hold", {}, (SubscriptionState.UNPAID, None, None, None, None)),
        (
            "on-hold",
            {"next_payment_date_gmt": "2026-06-15T12:00:01"},
            (SubscriptionState.UNPAID, "now", None, None, None),
        ),
        ("pending", {}, (SubscriptionState.PENDING, None, "next", None, None)),
        ("paused", {}, (SubscriptionState.UNKNOWN, None, "next", None, None)),
    ],
)
def test_woo_subscriptions(status: str, dates: dict[str, str], expected: tuple[Any, ...]) -> None:
    """A subscription says to when it is paid, and what was its first order."""
    end = "2026-12-31T00:00:00"
    instants = {
        "next": datetime(2027, 6, 15, 12, tzinfo=UTC),
        "end": datetime(2026, 12, 31, tzinfo=UTC),
        "now": NOON + timedelta(seconds=1),
        None: None,
    }
    fields = {"end_date_gmt": end, "billing": {"email": ANN}, **dates}
    body = shops.woo_subscription(status, **fields)
    report = read_fact("woocommerce", body, Subscription)
    state, *rest = expected
    found = [report.starts_at, report.ends_at, report.cancels_at, report.ended_at]
    assert (report.state, found) == (state, [instants[name] for name in rest])
    assert (report.orders, report.period) == (("727",), "1y")
    assert read_fact("woocommerce", body, Contact).email == ANN
    assert read_fact("woocommerce", body, Lines).lines == (Line("316", ("APP", "93"), "93", 1),)
    alone = shops.woo_subscription(status, parent_id=0, line_items=None, billing_period="week")
    assert read_fact("woocommerce", alone, Subscription).period == "7d"
    assert len(read("woocommerce", alone).facts) == 1


def test_woo_topics() -> None:
    """Others change no license; without a header, as in the shop's API, an order is an update of it."""
    other = read("woocommerce", b"{}", {"X-WC-Webhook-Topic": "product.updated" + "x" * 100})
    assert other == Delivery(None, "product.updated" + "x" * 85, reason="this topic changes no license")
    assert read("woocommerce", shops.woo("a" * 100)).type == f"order.updated ({'a' * 85}"
    switched = read("woocommerce", shops.woo_subscription(), {"X-WC-Webhook-Topic": "subscription.switched"})
    assert switched.type == "subscription.switched (active)"
    assert woocommerce.is_ping(b"webhook_id=12")
    assert not woocommerce.is_ping(b"webhook_id=12&order=1")


def test_what_woocommerces_api_knows() -> None:
    """A subscription by its number."""
    body = json.loads(shops.woo_subscription())
    found = fetch("woocommerce", Fetch("subscription", "900", "subscription:900"), body)
    assert [type(fact) for fact in found] == [Subscription, Lines]
    assert woocommerce.fetch_path(Fetch("subscription", "../900", "subscription:900")) is None


# --- own shops --------------------------------------------------------------------------------

OF_ORDER = {"order_id": "1042"}
OF_SUBSCRIPTION = {"subscription_id": "s1"}
ENDS = {"paid_through": "2026-07-14"}


@pytest.mark.parametrize(
    ("type_", "data", "expected"),
    [
        (
            "purchase.completed",
            {**OF_ORDER, **OF_SUBSCRIPTION, **ENDS, "external_id": "app", "quantity": 2, "total": 9},
            [
                Order(
                    id="1042",
                    reported_at=NOON,
                    state=OrderState.PAID,
                    subscriptions=("s1",),
                    paid_at=NOON,
                    ends_at=datetime(2026, 7, 15, tzinfo=UTC),
                    total=Decimal(9),
                    part="app",
                ),
                Lines(order_id="1042", reported_at=NOON, lines=(Line(None, ("app",), "app", 2),), part="app"),
                Contact(id="1042", reported_at=NOON, orders=("1042",), subscriptions=("s1",)),
            ],
        ),
        (
            "subscription.renewed",
            {**OF_SUBSCRIPTION, "paid_through": "2026-07-15T14:00:00+02:00"},
            [
                Order(
                    id="s1/2026-07-15T12:00:00Z",
                    reported_at=NOON,
                    state=OrderState.PAID,
                    reason=OrderReason.RENEWAL,
                    subscriptions=("s1",),
                    paid_at=NOON,
                    ends_at=MONTH,
                    resumes=True,
                )
            ],
        ),
        *(
            (
                f"purchase.{name}",
                {**OF_ORDER, **data},
                [ADJUSTED(reported_at=NOON, orders=("1042",), **{"state": RefundState.MADE, **expected})],
            )
            for name, data, expected in (
                ("refunded", {}, {"id": "1042//all", "is_full": True}),
                ("refunded", {"refund_id": "r1", "partial": True}, {"id": "1042/r1", "is_full": False}),
                ("refunded", {"refund_id": "r1", "amount": "5"}, {"id": "1042/r1", "amount": Decimal(5)}),
                (
                    "refund_failed",
                    {"refund_id": "r1"},
                    {"id": "1042/r1", "is_full": True, "state": RefundState.VOID},
                ),
            )
        ),
        *(
            (
                f"purchase.{name}",
                {**OF_ORDER, **data},
                [
                    Dispute(
                        id=f"1042/{data.get('dispute_id', '')}",
                        reported_at=NOON,
                        state=state,
                        orders=("1042",),
                    )
                ],
            )
            for name, data, state in (
                ("disputed", {}, DisputeState.OPEN),
                ("dispute_won", {"dispute_id": "d1"}, DisputeState.WON),
                ("dispute_lost", {}, DisputeState.LOST),
            )
        ),
        *(
            (
                f"subscription.{name}",
                {**OF_SUBSCRIPTION, **data},
                [REPORTED(id="s1", reported_at=NOON, **{"state": SubscriptionState.ACTIVE, **expected})],
            )
            for name, data, expected in (
                (
                    "cancelled",
                    ENDS,
                    dict.fromkeys(("ends_at", "cancels_at"), datetime(2026, 7, 15, tzinfo=UTC)),
                ),
                ("resumed", {}, {}),
                ("ended", {}, {"state": SubscriptionState.ENDED, "ended_at": NOON}),
            )
        ),
        (
            "subscription.changed",
            {**OF_SUBSCRIPTION, "external_id": "pro", "quantity": 5},
            [Lines(subscription_id="s1", reported_at=NOON, lines=(Line(None, ("pro",), "pro", 5),))],
        ),
    ],
)
@pytest.mark.parametrize("test", [{}, {"test": True}, {"test": False}])
def test_standard_events(
    type_: str, data: dict[str, Any], expected: list[Fact], test: dict[str, bool]
) -> None:
    """All fields are read; a date includes its day."""
    found = read("standard", MAKE.standard(type_, **data, **test), {"webhook-id": "m1"})
    assert found == Delivery("m1", type_, test.get("test"), tuple(expected))


@pytest.mark.parametrize(
    ("type_", "data", "field"),
    [
        ("purchase.completed", {"order_id": "1"}, "^data.external_id: Field required$"),
        ("purchase.refunded", {"external_id": "1"}, "^data.order_id: Field required$"),
        ("subscription.renewed", {"paid_through": "2026-07-15"}, "^data.subscription_id: Field required$"),
        ("subscription.changed", {"subscription_id": "1"}, "^data.external_id: Field required$"),
        ("purchase.completed", {"order_id": "1", "external_id": "a", "quantity": 0}, "data.quantity"),
        ("subscription.ended", {"subscription_id": "1", "paid_through": "9999-12-31"}, "data.paid_through"),
        ("purchase.refunded", {"order_id": "1", "amount": 5}, "^data.refund_id: Field required with amount"),
        ("purchase.refunded", {"order_id": "1", "partial": True}, "^data.refund_id: Field required with"),
        ("purchase.refund_failed", {"order_id": "1", "amount": 5}, "^data.refund_id: Field required with"),
    ],
)
def test_standard_missing_fields(type_: str, data: dict[str, Any], field: str) -> None:
    """The error names the field."""
    with pytest.raises(UnreadableDeliveryError, match=field):
        read("standard", shops.standard(type_, **data))


def test_fields_that_the_format_does_not_have() -> None:
    """They change nothing, and are named."""
    delivery = read(
        "standard", shops.standard("purchase.completed", order_id="1", external_id="a", customer_id=5)
    )
    assert delivery.note == "not read, because this format has no such fields: customer_id"
    many = {f"{number}{'x' * 100}": 1 for number in range(10)}
    note = read("standard", shops.standard("subscription.ended", subscription_id="1", **many)).note
    assert note.endswith(", ".join(f"{number}{'x' * 49}" for number in range(5)))


def test_other_bodies_that_are_signed_so() -> None:
    """They are ignored, and the reason names what is read; one that is no JSON is unreadable."""
    assert read("standard", b'{"test": 1}').reason.startswith("the type must be one of purchase.completed, ")
    with pytest.raises(UnreadableDeliveryError, match=r"^the body: Invalid JSON"):
        read("standard", b"{")
    nothing = Fetch("lines", "1042", "order:1042")
    assert SHOPS[ShopKind.STANDARD].fetch_path(nothing) is None
    assert SHOPS[ShopKind.STANDARD].read_fetched(nothing, b"", NOON) == ()


# --- Polar ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "state", "reason"),
    [
        ({}, OrderState.PAID, OrderReason.PURCHASE),
        ({"status": "pending"}, OrderState.PENDING, OrderReason.PURCHASE),
        ({"status": "refunded"}, OrderState.REFUNDED, OrderReason.PURCHASE),
        ({"billing_reason": "subscription_create"}, OrderState.PAID, OrderReason.PURCHASE),
        ({"billing_reason": "subscription_cycle"}, OrderState.PAID, OrderReason.RENEWAL),
        ({"billing_reason": "subscription_update"}, OrderState.PAID, OrderReason.CHANGE),
        ({"status": "new"}, OrderState.UNKNOWN, OrderReason.PURCHASE),
    ],
)
def test_polar_orders(fields: dict[str, Any], state: OrderState, reason: OrderReason) -> None:
    """A product that is not sold by seats is sold one at a time; refunds include their tax."""
    more = {"subscription_id": "sub_1", "seats": 3, "refunded_amount": 400, "refunded_tax_amount": 100}
    body = shops.polar("order.updated", **shops.polar_order(**more, **fields))
    order = read_fact("polar", body, Order)
    assert (order.state, order.reason, order.subscriptions, order.refunded) == (
        state,
        reason,
        ("sub_1",),
        500,
    )
    assert read_fact("polar", body, Lines).lines == (Line(None, ("prod_1",), "prod_1", 3),)
    assert read_fact("polar", body, Contact).email == ANN
    plain = shops.polar("order.paid", **shops.polar_order(refunded_tax_amount=None))
    assert read_fact("polar", plain, Lines).lines[0].quantity == 1
    bare = shops.polar("order.paid", **shops.polar_order(product_id=None, refunded_amount=None))
    assert [type(fact) for fact in read("polar", bare).facts] == [Order, Contact]


@pytest.mark.parametrize(
    ("fields", "state", "cancels_at", "ended_at"),
    [
        ({}, SubscriptionState.ACTIVE, None, None),
        ({"cancel_at_period_end": True}, SubscriptionState.ACTIVE, MONTH, None),
        ({"status": "canceled", "ends_at": "2026-07-15T12:00:00Z"}, SubscriptionState.ACTIVE, MONTH, None),
        (
            {"status": "canceled", "ended_at": "2026-07-15T12:00:00Z"},
            SubscriptionState.ENDED,
            None,
            MONTH,
        ),
        ({"status": "canceled"}, SubscriptionState.ENDED, None, NOON + DAY),
        ({"status": "past_due"}, SubscriptionState.UNPAID, None, None),
        ({"status": "new"}, SubscriptionState.UNKNOWN, None, None),
    ],
)
def test_polar_subscriptions(
    fields: dict[str, Any], state: SubscriptionState, cancels_at: datetime | None, ended_at: datetime | None
) -> None:
    """One that is cancelled for later is paid until then."""
    found = shops.polar_subscription(modified_at="2026-06-16T12:00:00Z", **fields)
    body = shops.polar("subscription.updated", **found)
    report = read_fact("polar", body, Subscription)
    assert (report.state, report.cancels_at, report.ended_at) == (state, cancels_at, ended_at)
    assert (report.reported_at, report.starts_at, report.ends_at) == (NOON + DAY, NOON, MONTH)
    assert read_fact("polar", body, Lines).lines == (Line(None, ("prod_1",), "prod_1", 1),)
    again = fetch("polar", Fetch("subscription", "sub_1", "subscription:sub_1"), found)
    assert [type(fact) for fact in again] == [Subscription, Lines]


def test_polar_refunds_and_others() -> None:
    """A refund has a state of its own; benefits change no license."""
    fields = {"id": "re_1", "created_at": "2026-06-15T12:00:00Z", "order_id": "ord_1", "amount": 400}
    for status, tax, state, amount in (
        ("succeeded", 100, RefundState.MADE, 500),
        ("failed", None, RefundState.VOID, 400),
        ("new", None, RefundState.PENDING, 400),
    ):
        body = MAKE.polar("refund.updated", status=status, tax_amount=tax, **fields)
        refund = read_fact("polar", body, Refund)
        assert (refund.state, refund.amount, refund.orders) == (state, amount, ("ord_1",))
    assert read("polar", shops.polar("benefit_grant.created")).reason == "this type changes no license"
    untimed = json.dumps({"type": "order.paid", "data": shops.polar_order()}).encode()
    assert read_fact("polar", untimed, Order).reported_at == NOON
    assert SHOPS[ShopKind.POLAR].fetch_path(Fetch("lines", "1", "order:1")) is None


# --- Dodo Payments ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "fields", "state", "reason"),
    [
        ("payment.succeeded", {}, OrderState.PAID, OrderReason.PURCHASE),
        ("payment.succeeded", {"created_at": None}, OrderState.PAID, OrderReason.PURCHASE),
        ("payment.failed", {}, OrderState.FAILED, OrderReason.PURCHASE),  # as its command line sends it
        ("payment.processing", {"status": "processing"}, OrderState.PENDING, OrderReason.PURCHASE),
        ("payment.succeeded", {"subscription_id": "sub_1"}, OrderState.PAID, OrderReason.UNKNOWN),
    ],
)
def test_dodo_payments(type_: str, fields: dict[str, Any], state: OrderState, reason: OrderReason) -> None:
    """What a payment of a subscription pays for, the subscription reports."""
    body = shops.dodo(type_, **shops.dodo_payment(**fields))
    order = read_fact("dodo", body, Order)
    assert (order.state, order.reason, order.total) == (state, reason, 2_000)
    assert order.paid_at == (NOON if state is OrderState.PAID else None)
    lines = [fact.lines for fact in read("dodo", body).facts if isinstance(fact, Lines)]
    assert lines == ([] if "subscription_id" in fields else [(Line(None, ("pdt_1",), "pdt_1", 1),)])


@pytest.mark.parametrize(
    ("fields", "state", "cancels_at", "ended_at"),
    [
        ({}, SubscriptionState.ACTIVE, None, None),
        ({"cancel_at_next_billing_date": True}, SubscriptionState.ACTIVE, MONTH, None),
        (
            {"status": "cancelled", "cancel_at_next_billing_date": True},
            SubscriptionState.ACTIVE,
            MONTH,
            None,
        ),
        (
            {"status": "cancelled", "cancelled_at": "2026-06-14T12:00:00Z"},
            SubscriptionState.ENDED,
            None,
            NOON - DAY,
        ),
        ({"status": "expired"}, SubscriptionState.ENDED, None, NOON),
        (
            {"status": "expired", "expires_at": "2026-06-14T12:00:00Z"},
            SubscriptionState.ENDED,
            None,
            NOON - DAY,
        ),
        ({"status": "on_hold"}, SubscriptionState.UNPAID, None, None),
        ({"status": "new"}, SubscriptionState.UNKNOWN, None, None),
    ],
)
def test_dodo_subscriptions(
    fields: dict[str, Any], state: SubscriptionState, cancels_at: datetime | None, ended_at: datetime | None
) -> None:
    """A subscription has a product and add-ons."""
    found = shops.dodo_subscription(addons=[{"addon_id": "adn_1", "quantity": 2}], **fields)
    body = shops.dodo("subscription.updated", **found)
    report = read_fact("dodo", body, Subscription)
    assert (report.state, report.cancels_at, report.ended_at) == (state, cancels_at, ended_at)
    assert read_fact("dodo", body, Lines).lines == (
        Line(None, ("pdt_1",), "pdt_1", 1),
        Line(None, ("adn_1",), "adn_1", 2),
    )
    again = fetch("dodo", Fetch("subscription", "sub_1", "subscription:sub_1"), found)
    assert [type(fact) for fact in again] == [Subscription, Lines, Contact]


def test_dodo_money_back_and_others() -> None:
    """Refunds and disputes have states of their own; license keys of Dodo change none of ours."""
    for status, partial, amount, expected in (
        ("succeeded", False, 2_000, (RefundState.MADE, True)),
        ("succeeded", True, 500, (RefundState.MADE, None)),
        ("succeeded", True, None, (RefundState.MADE, False)),
        ("failed", None, None, (RefundState.VOID, None)),
    ):
        fields = {"refund_id": "ref_1", "payment_id": "pay_1", "status": status, "amount": amount}
        refund = read_fact("dodo", MAKE.dodo("refund.succeeded", is_partial=partial, **fields), Refund)
        assert (refund.state, refund.is_full) == expected
    for status, stage, state in (
        ("dispute_opened", "dispute", DisputeState.OPEN),
        ("dispute_opened", "pre_dispute", DisputeState.INQUIRY),
        ("dispute_won", "dispute", DisputeState.WON),
        ("dispute_accepted", "dispute", DisputeState.LOST),
    ):
        fields = {
            "dispute_id": "dp_1",
            "payment_id": "pay_1",
            "dispute_status": status,
            "dispute_stage": stage,
        }
        assert read_fact("dodo", MAKE.dodo("dispute.updated", **fields), Dispute).state is state
    assert read("dodo", shops.dodo("license_key.created")).reason == "this type changes no license"
    assert SHOPS[ShopKind.DODO].fetch_path(Fetch("lines", "1", "order:1")) is None


# --- Gumroad ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({}, ("app", "product_1==")),
        ({"variants[Tier]": "Pro"}, ("app:Pro", "product_1==:Pro", "app", "product_1==")),
        ({"variants": "(Pro)"}, ("app:Pro", "product_1==:Pro", "app", "product_1==")),
    ],
)
def test_gumroad_sales(fields: dict[str, str], ids: tuple[str, ...]) -> None:
    """A product, and the version or tier of it."""
    body = shops.gumroad(**fields)
    order = read_fact("gumroad", body, Order)
    assert (order.state, order.reason, order.paid_at, order.total) == (
        *(OrderState.PAID, OrderReason.PURCHASE, NOON, 2_000),
    )
    sold = "product_1==:Pro" if fields else "product_1=="
    assert read_fact("gumroad", body, Lines).lines == (Line("1", ids, sold, 1),)
    assert read("gumroad", body).is_test is False
    assert read("gumroad", shops.gumroad(test="true")).is_test is True


@pytest.mark.parametrize(
    ("recurrence", "ends_at"),
    [("monthly", MONTH), ("yearly", datetime(2027, 6, 15, 12, tzinfo=UTC)), ("each_moon", None)],
)
def test_gumroad_memberships(recurrence: str, ends_at: datetime | None) -> None:
    """Each charge pays a period."""
    fields = {"subscription_id": "sub_1==", "recurrence": recurrence, "is_recurring_charge": "true"}
    order = read_fact("gumroad", shops.gumroad(**fields), Order)
    assert (order.reason, order.subscriptions, order.ends_at) == (OrderReason.RENEWAL, ("sub_1==",), ends_at)
    preorder = read_fact("gumroad", shops.gumroad(is_preorder_authorization="true"), Order)
    assert (preorder.state, preorder.paid_at) == (OrderState.PENDING, None)


def test_gumroad_money_back() -> None:
    """Refunds and disputes are reported with the sale; a dispute that was won is not reported."""
    for resource, fields, is_full in (
        ("refund", {"refunded": "true"}, True),
        ("refund", {}, False),
        ("sale", {"partially_refunded": "true"}, False),
    ):
        assert read_fact("gumroad", shops.gumroad(resource, **fields), Refund).is_full is is_full
    disputed = read_fact("gumroad", shops.gumroad("dispute", disputed="true"), Dispute)
    won = read_fact("gumroad", shops.gumroad("dispute_won", disputed="true", dispute_won="true"), Dispute)
    assert (disputed.state, won.state) == (DisputeState.OPEN, DisputeState.WON)
    assert disputed.id == won.id


@pytest.mark.parametrize(
    ("resource", "fields", "state", "ended_at"),
    [
        ("cancellation", {"cancelled_at": "2026-06-16T12:00:00Z"}, SubscriptionState.PAUSED, None),
        ("subscription_ended", {"ended_at": "2026-06-16T12:00:00Z"}, SubscriptionState.ENDED, NOON + DAY),
        ("subscription_restarted", {"restarted_at": "2026-06-16T12:00:00Z"}, SubscriptionState.ACTIVE, None),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_gumroad_subscriptions(
    resource: str, fields: dict[str, str], state: SubscriptionState, ended_at: datetime | None, named: bool
) -> None:
    """Each ping has a time of its own, and some do not name what they are about."""
    body = shops.gumroad_subscription(resource if named else "", **fields)
    report = read_fact("gumroad", body, Subscription)
    assert (report.id, report.state, report.ended_at) == ("sub_1==", state, ended_at)
    # It can have been cancelled at any time of the period that ends then.
    assert report.reported_at == (NOON if resource == "cancellation" else NOON + DAY)


def test_all_facts_of_a_sale_of_gumroad() -> None:
    """A membership, refunded and disputed: each fact names the sale, and what it pays."""
    id_, orders = "sale_1==", ("sale_1==",)
    body = shops.gumroad("refund", subscription_id="sub_1==", recurrence="monthly", disputed="true")
    assert read("gumroad", body) == (
        None,
        "refund",
        False,
        (
            Order(
                id=id_,
                reported_at=NOON,
                state=OrderState.PAID,
                subscriptions=("sub_1==",),
                paid_at=NOON,
                starts_at=NOON,
                ends_at=MONTH,
                total=Decimal(2_000),
            ),
            Lines(
                order_id=id_, reported_at=NOON, lines=(Line("1", ("app", "product_1=="), "product_1==", 1),)
            ),
            Contact(id=id_, reported_at=NOON, orders=orders, email="ann@example.com"),
            Refund(
                id="refund of sale_1==",
                reported_at=NOON,
                state=RefundState.MADE,
                orders=orders,
                is_full=False,
            ),
            Dispute(id="dispute of sale_1==", reported_at=NOON, state=DisputeState.OPEN, orders=orders),
        ),
        "",
        "",
    )
    (plain, *_) = read("gumroad", shops.gumroad(recurrence="monthly")).facts
    assert plain == Order(id=id_, reported_at=NOON, state=OrderState.PAID, paid_at=NOON, total=Decimal(2_000))
    (once, *_) = read("gumroad", shops.gumroad(subscription_id="sub_1==")).facts
    assert once == Order(
        id=id_,
        reported_at=NOON,
        state=OrderState.PAID,
        subscriptions=("sub_1==",),
        paid_at=NOON,
        total=Decimal(2_000),
    )


def test_a_cancellation_of_gumroad_as_a_fact() -> None:
    """With the shop's own word, also if the ping does not name what it is about."""
    for resource in ("cancellation", ""):
        body = shops.gumroad_subscription(resource, cancelled_at="2026-06-16T12:00:00Z")
        assert read("gumroad", body)[1:4] == (
            "cancellation",
            None,
            (
                Subscription(
                    id="sub_1==",
                    reported_at=NOON,
                    state=SubscriptionState.PAUSED,
                    shop_state="cancellation",
                ),
            ),
        )
    change = shops.gumroad_subscription("", type="upgrade", effective_as_of="2026-06-16T12:00:00Z")
    assert read("gumroad", change).type == "subscription_updated"
    assert read("gumroad", shops.gumroad("")).type == "sale"
    assert read("gumroad", b"a=b").type == ""
    assert read("gumroad", b"resource_name=" + b"x" * 101).type == "x" * 100


def test_secrets_in_an_address_of_gumroad() -> None:
    """Any of those configured, of twenty characters or more; whatever is sent, it is compared."""

    def verifies(sent: str | None, *secrets: str) -> bool:
        headers = {} if sent is None else {gumroad.SECRET: sent}
        return gumroad.verify(headers, b"", [*secrets], NOON, DAY)

    twenty = "a" * 20
    assert verifies(twenty, twenty)
    assert verifies(twenty, "b" * 20, twenty)
    assert not verifies("a" * 19, "a" * 19)
    assert not verifies(None, twenty)
    assert not verifies(None, "XXXX" * 5, "")
    assert not verifies("a\udcff" * 20, twenty)
    assert not verifies(twenty)


def test_what_gumroad_writes_among_its_own_fields() -> None:
    """Answers of buyers with names of fields, empty values, spaces before JSON, and versions."""
    body = shops.gumroad(**{"custom_fields[note]": "", "note": "", "quantity": "2"})
    assert read_fact("gumroad", body, Lines).lines[0].quantity == 2
    answers = "custom_fields[quantity]=7&custom_fields[product_id]=other"
    twice = f"product_id=other&quantity=7&{body.decode()}&{answers}"
    assert read_fact("gumroad", twice.encode(), Lines).lines[0] == Line(
        "1", ("app", "product_1=="), "product_1==", 2
    )
    sale = {"id": "s", "created_at": "2026-06-15T12:00:00Z", "product_id": "p"}
    assert read_fact("gumroad", b" " + json.dumps(sale).encode() + b" ", Order).id == "s"
    both = {**sale, "variants": {"Tier": "Pro", "Version": "2"}}
    assert read_fact("gumroad", json.dumps(both).encode(), Lines).lines[0].sold == "p:Pro, 2"
    assert read_fact("gumroad", shops.gumroad(variants="(X)"), Lines).lines[0].sold == "product_1==:X"
    payment = gumroad.fetch_path(Fetch("payment", "a/b", "order:a"))
    assert payment == gumroad.fetch_path(Fetch("lines", "a/b", "order:a")) == "v2/sales/a%2Fb"


def test_gumroad_plans() -> None:
    """A higher plan applies at once, and a lower one with the next charge."""
    fields = {"type": "upgrade", "effective_as_of": "2026-06-16T12:00:00Z", "new_plan[tier][name]": "Pro"}
    body = shops.gumroad_subscription("subscription_updated", **fields, **{"new_plan[quantity]": "5"})
    line = Line(None, ("product_1==:Pro", "product_1=="), "product_1==:Pro", 5)
    assert read_fact("gumroad", body, Lines) == Lines(
        subscription_id="sub_1==", reported_at=NOON + DAY, lines=(line,)
    )
    bare = shops.gumroad_subscription("subscription_updated", type="upgrade")
    assert read_fact("gumroad", bare, Lines).lines == (Line(None, ("product_1==",), "product_1==", None),)
    lower = shops.gumroad_subscription("subscription_updated", type="downgrade")
    assert read("gumroad", lower).reason == "a lower plan: it applies from the next payment, which reports it"


def test_other_bodies_of_gumroad() -> None:
    """JSON, as some vendors choose it; what is no form; and other pings."""
    sale = {
        "id": "sale_1==",
        "created_at": "2026-06-15T12:00:00Z",
        "product_id": "product_1==",
        "quantity": 3,
    }
    body = json.dumps({"success": True, "sale": {**sale, "variants": {"Tier": "Pro"}}}).encode()
    assert read_fact("gumroad", body, Lines).lines[0].external_ids == ("product_1==:Pro", "product_1==")
    assert read_fact("gumroad", json.dumps(sale).encode(), Order).id == "sale_1=="
    found = fetch("gumroad", Fetch("lines", "sale_1==", "order:sale_1=="), {"sale": sale})
    assert [type(fact) for fact in found] == [Order, Lines, Contact]
    assert gumroad.fetch_path(Fetch("customer", "1", "order:1")) is None
    assert read("gumroad", b"a=b").reason == "this type changes no license"
    assert read("gumroad", b"a=b&a[c]=d&resource_name=x").type == "x"
    for wrong in (b"\xff=1", b"&".join([b"a=1"] * 501)):
        with pytest.raises(UnreadableDeliveryError, match=r"^the body: not a form of Gumroad$"):
            read("gumroad", wrong)


def test_the_names_of_a_product_of_gumroad() -> None:
    """Its own, the one in its address, and its id; of a version too, as a line that can be mapped."""
    address = {"product_permalink": "https://ann.gumroad.com/l/lab/?layout=profile"}
    names = {"short_product_id": "abc", "permalink": "photo-lab", **address}
    assert read_fact("gumroad", shops.gumroad(**names), Lines).lines == (
        Line("1", ("abc", "photo-lab", "lab", "product_1=="), "product_1==", 1),
    )
    tier = shops.gumroad(**{"variants[Tier]": "Pro\r\n" + "x" * 300, "variants[Seats]": "a b"})
    line = read_fact("gumroad", tier, Lines).lines[0]
    assert line.external_ids[0] == "app:Pro " + "x" * 247
    assert line.sold == line.external_ids[1] == "product_1==:Pro " + "x" * 239
    upgrade = {"type": "upgrade", "new_plan[tier][name]": "y" * 300}
    changed = read_fact(
        "gumroad", shops.gumroad_subscription("subscription_updated", **upgrade), Lines
    ).lines[0]
    assert changed.sold == "product_1==:" + "y" * 243


def test_the_other_side_of_a_gift() -> None:
    """Its ping issues nothing; it may be a test as well. The API has it too."""
    gift = read("gumroad", shops.gumroad(is_gift_receiver_purchase="true", test="true"))
    assert (gift.facts, gift.is_test, "gift" in gift.reason) == ((), True, True)
    sale = {
        "id": "s",
        "created_at": "2026-06-15T12:00:00Z",
        "product_id": "p",
        "is_gift_receiver_purchase": True,
    }
    assert fetch("gumroad", Fetch("lines", "s", "order:s"), {"sale": sale}) == []


def test_answers_of_buyers_are_told_apart() -> None:
    """A question may be named like a field; the field itself stays, also if it has the same value."""
    body = shops.gumroad(quantity="2").decode()
    for answer, expected in (("900", 2), ("2", 2)):
        both = f"quantity={answer}&{body}&custom_fields[quantity]={answer}"
        assert read_fact("gumroad", both.encode(), Lines).lines[0].quantity == expected
    alone = body.replace("quantity=2", "x=1") + "&quantity=3"
    assert read_fact("gumroad", f"{alone}&custom_fields[quantity]=3".encode(), Lines).lines[0].quantity == 3


@pytest.mark.parametrize(
    ("fields", "days"),
    [
        ({"recurrence": "monthly"}, 100 - 31),
        ({"recurrence": "quarterly"}, 100 - 92),
        ({"recurrence": "yearly"}, 0),  # not before it began
        ({"recurrence": "each_moon"}, 100),
        ({"recurrence": ""}, 100),
        ({"recurrence": "monthly", "cancelled_due_to_payment_failures": "true"}, 100),
    ],
)
def test_when_a_membership_was_cancelled(fields: dict[str, str], days: int) -> None:
    """At the earliest at the beginning of the period whose end is reported; at once if it was not paid."""
    end = (NOON + 100 * DAY).isoformat()
    body = shops.gumroad_subscription("cancellation", cancelled_at=end, **fields)
    assert read_fact("gumroad", body, Subscription).reported_at == NOON + days * DAY


def test_a_cancellation_in_a_short_month_is_no_older_than_that() -> None:
    """A restart in the month before is older."""
    body = shops.gumroad_subscription("cancellation", cancelled_at="2027-03-01T12:00:00Z")
    assert read_fact("gumroad", body, Subscription).reported_at == datetime(2027, 2, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "amount", "is_full"),
    [
        ("refunded", 2_000, True),
        ("refunded", None, True),
        ("partial_refund", 500, None),
        ("partial_refund", None, False),
    ],
)
def test_a_refund_of_the_first_payment(status: str, amount: int | None, is_full: bool | None) -> None:
    """Lemon Squeezy names its subscription only, whose report names the order."""
    fields = {"subscription_id": 77, "billing_reason": "initial", "status": status, "total": 2_000}
    dates = {"created_at": "2026-06-15T12:00:00Z", "updated_at": "2026-06-16T12:00:00Z"}
    body = shops.lemon("subscription_payment_refunded", "9", {**fields, **dates, "refunded_amount": amount})
    assert read_fact("lemonsqueezy", body, Refund) == Refund(
        id="refund of invoice:9",
        reported_at=NOON + DAY,
        state=RefundState.MADE,
        orders=("first of 77",),
        amount=None if amount is None else Decimal(amount),
        is_full=is_full,
    )
    begun = shops.lemon("subscription_created", "77", shops.lemon_subscription("active"))
    assert read_fact("lemonsqueezy", begun, Payment) == Payment(
        id="first of 77", reported_at=NOON, orders=("5",)
    )


def typed(kind: str, name: str, fields: dict[str, Any]) -> bytes:
    """Make an event of Lemon Squeezy that names the type of its object."""
    event = json.loads(shops.lemon(name, "5", fields))
    return json.dumps({**event, "data": {**event["data"], "type": kind}}).encode()


@pytest.mark.parametrize(
    ("kind", "body", "expected"),
    [
        ("lemonsqueezy", shops.lemon("order_invented", "5", shops.lemon_order()), Order),
        (
            "lemonsqueezy",
            shops.lemon("subscription_invented", "7", shops.lemon_subscription("active")),
            Subscription,
        ),
        ("lemonsqueezy", typed("orders", "invented", shops.lemon_order()), Order),
        ("lemonsqueezy", typed("license-keys", "order_created", {"a": 1}), None),
        ("lemonsqueezy", shops.lemon("subscription_invented", "7", {"a": 1}), None),
        ("lemonsqueezy", b'{"meta": {"event_name": "customer_updated"}}', None),
        ("paddle", shops.paddle("subscription.invented", {"id": "sub_1"}), Subscription),
        ("paddle", shops.paddle("subscription.invented", {"a": 1}), None),
        ("paddle", shops.paddle("customer.invented", {"id": "sub_1"}), None),
        ("polar", shops.polar("subscription.invented", **shops.polar_subscription()), Subscription),
        ("polar", shops.polar("order.invented", a=1), None),
        ("polar", shops.polar("benefit.invented", **shops.polar_order()), None),
    ],
)
def test_events_that_no_list_has(kind: str, body: bytes, expected: type[Fact] | None) -> None:
    """They are read by their object, if it is one of those that matter."""
    found = read(kind, body)
    if expected is None:
        assert (found.facts, found.reason) == ((), "this type changes no license")
    else:
        assert isinstance(found.facts[0], expected)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("lemonsqueezy", shops.lemon("order_created", "5", {"a": 1})),
        ("lemonsqueezy", shops.lemon("subscription_payment_success", "5", {"a": 1})),
        ("polar", shops.polar("order.paid", a=1)),
        ("polar", shops.polar("subscription.revoked", a=1)),
        ("paddle", shops.paddle("subscription.created", {"a": 1})),
    ],
)
def test_known_events_have_their_fields(kind: str, body: bytes) -> None:
    """What has to be read and cannot is for a person."""
    with pytest.raises(UnreadableDeliveryError):
        read(kind, body)


# --- all of them ------------------------------------------------------------------------------


def lower(headers: Mapping[str, str]) -> dict[str, str]:
    """Return headers as the server hands them on."""
    return {name.lower(): value for name, value in headers.items()}


@pytest.mark.parametrize("kind", ShopKind)
def test_a_secret_verifies(kind: ShopKind) -> None:
    """Any of several does, and no other one, nor an empty one."""
    body, secret, tolerance = b'{"a": 1}', shops.SECRETS[kind], timedelta(minutes=5)
    verify, headers = SHOPS[kind].verify, lower(shops.sign(kind, body, NOON))
    other = (
        "whsec_b3RoZXItc2VjcmV0LW9mLW91ci1zaG9wLWFnYWlu" if secret.startswith("whsec_c") else f"{secret}AAAA"
    )
    assert verify(headers, body, [other, secret], NOON, tolerance)
    assert not verify(headers, body, [other], NOON, tolerance)
    assert not verify(headers, body, [""], NOON, tolerance)
    assert not verify({}, body, [secret], NOON, tolerance)
    if kind is not ShopKind.GUMROAD:  # which signs nothing
        assert not verify(headers, body + b" ", [secret], NOON, tolerance)
    is_dated = kind not in {ShopKind.LEMONSQUEEZY, ShopKind.WOOCOMMERCE, ShopKind.GUMROAD}
    assert verify(headers, body, [secret], NOON + DAY, tolerance) is not is_dated


@pytest.mark.parametrize("kind", ShopKind)
def test_the_form_of_secrets(kind: ShopKind) -> None:
    """The row of a shop knows its secrets from others, such as an API key."""
    row = ROWS[kind]
    assert row.is_secret(shops.SECRETS[kind])
    assert not row.is_secret(
        {"woocommerce": "a&b", "lemonsqueezy": "x" * 41, "standard": "whsec_%"}.get(kind, "sk")
    )
    assert row.secret_form
    assert row.name


def test_periods() -> None:
    """As vendors and shops write them; a month that is too short ends on its last day."""
    units = [("Month", 1), ("week", 2), ("era", 1), ("day", 0), ("day", 1_000)]
    assert [format_period(*unit) for unit in units] == ["1m", "14d", None, None, None]
    start = datetime(2026, 1, 31, tzinfo=UTC).date()
    assert [is_period(text) for text in ("30d", "0d", "1w")] == [True, False, False]
    for period, expected in (
        ("30d", "2026-03-02"),
        ("1m", "2026-02-28"),
        ("1y", "2027-01-31"),
        ("9999y", "9999-12-31"),
    ):
        assert str(add_period(start, period)) == expected
    assert add_period_to_instant(NOON, "1m") == MONTH
    assert subtract_months(MONTH, 1) == NOON
    assert subtract_months(datetime(2028, 3, 31, tzinfo=UTC), 13) == datetime(2027, 2, 28, tzinfo=UTC)
    with pytest.raises(ValueError, match="month"):
        add_period(start, "month")


def test_an_error_of_a_field_does_not_quote_it() -> None:
    """The value may be personal data."""
    with pytest.raises(UnreadableDeliveryError, match=r"^data.order_id: Input should be a valid string$"):
        read("standard", shops.standard("purchase.refunded", order_id=["ann@example.com"]))


def test_the_published_schema_has_the_fields_that_are_read() -> None:
    """`SaleEvent` of the OpenAPI document, with the limits of the numbers and texts, and all types."""
    text = (files("licserver.protocol") / "openapi.json").read_text(encoding="utf-8")
    published = json.loads(text)["components"]["schemas"]["SaleEvent"]
    schema = standard.Event.model_json_schema()
    assert published["required"] == schema["required"]
    assert published["properties"].keys() == schema["properties"].keys()
    assert re.findall(r"`([a-z_.]+)`", published["properties"]["type"]["description"]) == list(standard.TYPES)
    fields, limits = schema["$defs"]["Data"]["properties"], ("minLength", "maxLength", "minimum", "maximum")
    for name, field in published["properties"]["data"]["properties"].items():
        own = fields.pop(name)
        own |= own.get("anyOf", [{}])[0]
        assert [field.get(limit) for limit in limits] == [own.get(limit) for limit in limits], name
    assert fields == {}


def test_lines_of_old_invoices_keep_the_item_that_they_name() -> None:
    """Only a line without one is found by its subscription and price."""
    invoice = shops.stripe_invoice("", 5, new=False) | {"billing_reason": None}
    invoice["lines"]["data"][0]["subscription_item"] = "si_1"
    lines = read_fact("stripe", shops.stripe("invoice.paid", invoice), Lines)
    assert [line.item_id for line in lines.lines] == ["si_1"]


def test_credits_of_an_invoice_sell_nothing() -> None:
    """They take back what an earlier invoice sold."""
    invoice = shops.stripe_invoice("subscription_create", 5)
    invoice["lines"]["data"].append(invoice["lines"]["data"][0] | {"amount": -5})
    lines = read_fact("stripe", shops.stripe("invoice.paid", invoice), Lines)
    assert len(lines.lines) == 1


def test_an_order_of_lemon_squeezy_without_an_item_has_no_lines() -> None:
    """Its lines are known from another report."""
    body = shops.lemon("order_created", "5", shops.lemon_order(first_order_item=None))
    assert not [fact for fact in read("lemonsqueezy", body).facts if isinstance(fact, Lines)]
