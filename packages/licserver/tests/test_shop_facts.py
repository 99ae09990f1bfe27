"""Facts: which report counts, what belongs together, and what is stored."""

import itertools
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

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
    dump_fact,
    is_newer,
    key_of,
    links_of,
    load_fact,
    newest,
)

AT = datetime(2026, 6, 15, 12, tzinfo=UTC)
LATER = AT + timedelta(days=1)
FACTS: list[tuple[Fact, str, tuple[str, ...]]] = [
    (
        Order(
            id="cs_1",
            reported_at=AT,
            state=OrderState.PAID,
            shop_state="paid",
            reason=OrderReason.RENEWAL,
            names=("pi_1",),
            subscriptions=("sub_1",),
            paid_at=AT,
            starts_at=AT,
            ends_at=LATER,
            total=Decimal("29.35"),
            refunded=Decimal(0),
        ),
        "order",
        ("order:cs_1", "order:pi_1", "subscription:sub_1"),
    ),
    (
        Payment(id="ch_1", reported_at=AT, orders=("pi_1",), total=Decimal(2), refunded=Decimal(1)),
        "payment",
        ("order:ch_1", "order:pi_1"),
    ),
    (
        Lines(order_id="5", reported_at=AT, lines=(Line("1", ("a", "b"), "a", None, "si_1"),)),
        "lines",
        ("order:5",),
    ),
    (
        Lines(subscription_id="5", reported_at=AT, lines=(), is_complete=False),
        "lines",
        ("subscription:5",),
    ),
    (
        Refund(id="re_1", reported_at=AT, state=RefundState.MADE, orders=("pi_1", "ch_1"), amount=Decimal(1)),
        "refund",
        ("order:pi_1", "order:ch_1"),
    ),
    (
        Dispute(id="dp_1", reported_at=AT, state=DisputeState.OPEN, orders=("pi_1",)),
        "dispute",
        ("order:pi_1",),
    ),
    (
        Subscription(
            id="77",
            reported_at=AT,
            state=SubscriptionState.ACTIVE,
            orders=("5",),
            ends_at=LATER,
            period="1m",
        ),
        "subscription",
        ("order:5", "subscription:77"),
    ),
    (
        Contact(
            id="5",
            reported_at=AT,
            orders=("5",),
            subscriptions=("77",),
            email="ann@example.com",
            language="de",
        ),
        "contact",
        ("order:5", "subscription:77"),
    ),
]


@pytest.mark.parametrize(("fact", "kind", "links"), FACTS, ids=lambda value: str(value)[:20])
def test_a_fact_is_stored_and_loaded(fact: Fact, kind: str, links: tuple[str, ...]) -> None:
    """With all that it has, except for the address, which is stored apart."""
    stored = dump_fact(fact)
    email = fact.email if isinstance(fact, Contact) else None
    assert (load_fact(stored, email), links_of(fact)) == (fact, links)
    assert key_of(fact) == (kind, fact.id)
    assert "example.com" not in stored
    assert "example.com" not in repr(fact)


def test_lines_of_an_order_and_of_a_subscription_with_the_same_id_are_two() -> None:
    """Shops count orders and subscriptions apart."""
    of_order = Lines(order_id="5", reported_at=AT, lines=())
    assert key_of(of_order) != key_of(Lines(subscription_id="5", reported_at=AT, lines=()))


REPORTS = [
    Subscription(id="1", reported_at=AT, state=SubscriptionState.PENDING),
    Subscription(id="1", reported_at=AT, state=SubscriptionState.ACTIVE, period="1m"),
    Subscription(id="1", reported_at=AT, state=SubscriptionState.ACTIVE, period="1y"),
    Subscription(id="1", reported_at=AT, state=SubscriptionState.ENDED),
    Subscription(id="1", reported_at=LATER, state=SubscriptionState.ACTIVE),
]


def test_the_newest_report_counts_in_any_order() -> None:
    """By its instant; of the same instant the later state, and otherwise always the same."""
    for known, new in itertools.permutations(REPORTS, 2):
        later = max(known, new, key=REPORTS.index)
        assert newest(known, new) is later
        assert is_newer(known, new) is (later is new)
    assert not is_newer(REPORTS[0], REPORTS[0])


@pytest.mark.parametrize(("less", "more"), [(None, "4.00"), ("0", "9"), ("9.00", "10.00"), ("-1", "0")])
def test_of_the_same_instant_the_report_with_more_refunded_counts(less: str | None, more: str) -> None:
    """Shops count by the second: two refunds within one, or a refund right after the payment."""
    amounts = [None if amount is None else Decimal(amount) for amount in (less, more)]
    for facts in (
        [Payment(id="ch_1", reported_at=AT, refunded=amount) for amount in amounts],
        [
            Order(
                id="5",
                reported_at=AT,
                state=OrderState.PAID,
                refunded=amount,
                refund_ids=("1",) * bool(amount),
            )
            for amount in amounts
        ],
    ):
        assert newest(*facts) is newest(*reversed(facts)) is facts[1]


def test_of_two_addresses_of_the_same_instant_always_the_same_counts() -> None:
    """Though they are not part of what is dumped."""
    first, other = (
        Contact(id="5", reported_at=AT, email=name) for name in ("a@example.com", "b@example.com")
    )
    assert newest(first, other) is newest(other, first) is other


def test_a_report_with_an_address_counts_before_one_without() -> None:
    """Of the same instant, whatever the address begins with."""
    without = Contact(id="5", reported_at=AT)
    for name in ("0@example.com", "Ann@example.com", "ö@example.com"):
        contact = Contact(id="5", reported_at=AT, email=name)
        assert newest(contact, without) is newest(without, contact) is contact


def test_what_is_stored_is_short_and_can_be_read() -> None:
    """In one order, so that two reports of one content are the same text; names as a person writes them."""
    order = Order(id="5", reported_at=AT, state=OrderState.PAID, names=("Bücher",), total=Decimal("2.50"))
    assert dump_fact(order) == (
        '{"id":"5","kind":"order","names":["Bücher"],'
        '"reported_at":"2026-06-15T12:00:00Z","state":"paid","total":"2.50"}'
    )


def test_the_address_of_a_contact_belongs_to_no_other_fact() -> None:
    """It is stored beside the row, for all kinds of facts."""
    for fact, kind, _ in FACTS:
        loaded = load_fact(dump_fact(fact), "ben@example.com")
        assert getattr(loaded, "email", None) == ("ben@example.com" if kind == "contact" else None)
