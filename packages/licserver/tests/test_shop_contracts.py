"""Cases of a contract that no single shop shows: matching earlier licenses, what is asked, ends."""

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import islice, permutations
from typing import Any

import pytest

from harness.contracts import GRACE, License, Vendor, earlier, mapped, to_issued
from licserver.shops.contract import Answer, Rules
from licserver.shops.desired import desired
from licserver.shops.facts import (
    Contact,
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

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)


def order(id_: str = "5", days: int = 0, **fields: Any) -> Order:
    """Return an order that is paid."""
    at = NOON + days * DAY
    return Order(**{"id": id_, "reported_at": at, "state": OrderState.PAID, "paid_at": at, **fields})


def lines(*found: Line, order_id: str = "5", days: int = 0, **fields: Any) -> Lines:
    """Return the lines of an order."""
    return Lines(order_id=order_id, reported_at=NOON + days * DAY, lines=found, **fields)


def line(sold: str, quantity: int | None = 1, id_: str | None = None, item: str | None = None) -> Line:
    """Return a line."""
    return Line(id_, (sold,), sold, quantity, item)


def report(state: SubscriptionState, days: int = 0, **fields: Any) -> Subscription:
    """Return a report of a subscription."""
    return Subscription(id="s", reported_at=NOON + days * DAY, state=state, **fields)


def items(*found: Line, days: int = 0, **fields: Any) -> Lines:
    """Return the items of a subscription."""
    return Lines(subscription_id="s", reported_at=NOON + days * DAY, lines=found, **fields)


def sell(*facts: Fact, names: str = "a", **terms: Any) -> Vendor:
    """Return a vendor that knows facts."""
    vendor = Vendor("standard", mapped(*names.split(), **terms))
    vendor.take(facts)
    return vendor


# --- licenses of before keys were stored --------------------------------------------------------


@pytest.mark.parametrize(
    ("sold", "found", "count", "asked"),
    [
        (["a"], [line("a", id_="1")], 1, []),
        (["a", "a"], [line("a", 1, "1")], 2, ["FEWER"]),  # its quantity was reduced
        (["old"], [line("b", id_="1")], 1, []),  # one of the same product and quantity
        (["old"], [line("x", id_="1")], 1, []),  # one of the same quantity, which is not mapped
        (["old"], [line("x", id_="1"), line("y", id_="2")], 1, ["UNCLEAR", "UNCLEAR"]),
        (["old"], [line("b", 2, "1")], 1, ["UNCLEAR"]),
        (["a"], [line("a", id_="1"), line("ignored", id_="2")], 1, []),
        (["a"], [line("a", None, "1")], 1, []),
    ],
)
def test_how_licenses_of_before_are_matched(
    sold: list[str], found: list[Line], count: int, asked: list[str]
) -> None:
    """By the id that was stored, then by product and quantity, then by quantity; never a second key."""
    vendor = Vendor("standard", {**mapped("a", "b"), **mapped("ignored", product=None)})
    vendor.licenses += [earlier(number, item, "5") for number, item in enumerate(sold)]
    for license_ in vendor.licenses:
        license_.in_use = 1
    vendor.take([order(), lines(*found)])
    assert (len(vendor.licenses), vendor.asked) == (count, asked)


def test_a_license_of_before_with_its_line() -> None:
    """The line was stored, whatever it sells now."""
    vendor = Vendor("standard", mapped("a", "b"))
    vendor.licenses.append(earlier(1, "old", "5", line_id="2"))
    vendor.take([order(), lines(line("a", id_="1"), line("b", id_="2"))])
    assert [license_.key for license_ in vendor.licenses] == ["line:5/2", "line:5/1"]


def test_a_license_of_before_stays_unmatched_and_is_refunded() -> None:
    """Nothing is known of its lines, and then they do not contain it."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses.append(earlier(1, "a", "5"))
    refund = Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("5",), is_full=True)
    vendor.take([refund])
    assert [license_.revoked for license_ in vendor.licenses] == ["the order was refunded"]
    assert vendor.licenses[0].key == "earlier:5/a"


# --- what is asked ------------------------------------------------------------------------------


def test_lines_that_are_missing() -> None:
    """None is known; some are; and the subscription itself has them."""
    assert sell(order()).asked == ["LINES"]
    some = sell(order(), lines(line("a"), is_complete=False))
    assert (len(some.valid), some.asked, [fetch.kind for fetch in some.result.fetches]) == (
        1,
        ["LINES"],
        ["lines"],
    )
    paid = order(reason=OrderReason.UNKNOWN, subscriptions=("s",))
    known = sell(paid, report(SubscriptionState.ACTIVE, ends_at=NOON + 30 * DAY), items(line("a")))
    assert (len(known.valid), known.asked) == (1, [])
    assert sell(paid, report(SubscriptionState.ACTIVE), items(line("a"), is_complete=False)).valid == []


def test_two_lines_of_the_same_thing() -> None:
    """They add up, unless one of them is not known."""
    assert len(sell(order(), lines(line("a", 2), line("a", 1))).valid) == 3
    assert sell(order(), lines(line("a", 2), line("a", None))).asked == ["QUANTITY"]


def test_items_of_one_price_without_ids() -> None:
    """They add up as well, unless one is not known; those with ids are two."""
    bought = (order(subscriptions=("s",)), lines(line("a", 2)))
    assert len(sell(*bought, items(line("a", 2), line("a", 1))).valid) == 3
    assert len(sell(*bought, items(line("a", 2), line("a", None))).valid) == 2
    assert len(sell(*bought, items(line("a", 1, "1"), line("a", 2, "2"))).valid) == 3


@pytest.mark.parametrize(("other", "count"), [("a", 3), ("b", 0)])
def test_an_item_without_a_quantity(other: str, count: int) -> None:
    """It has that of its order, if that has sold the same."""
    bought = (order(subscriptions=("s",)), lines(line("a", 3)))
    vendor = sell(*bought, items(line(other, None), days=1), names="a b")
    assert (len(vendor.valid), vendor.asked) == (count, [] if count else ["QUANTITY"])


def test_which_license_an_item_keeps() -> None:
    """That which is valid; only of another product one that was removed is valid again."""
    bought = (order(subscriptions=("s",)), lines(line("a", item="1")))
    vendor = Vendor("standard", {**mapped("a", "b", "c"), **mapped("d", product="suite")})
    vendor.take([*bought, items(line("a", id_="1"), line("b", id_="2"))])
    first, second = vendor.licenses
    vendor.take([items(line("b", id_="2"), days=1)])
    vendor.take([items(line("a", id_="3"), days=2)])
    assert (vendor.valid, second.item) == ([second], "a")
    vendor.take([items(line("a", id_="3"), line("c", id_="4"), days=3)])
    assert (len(vendor.licenses), first.revoked, first.item) == (2, None, "c")
    vendor.take([items(line("d", id_="5"), line("c", id_="4"), days=4)])
    suite = vendor.licenses[2]
    assert [license_.terms.product for license_ in vendor.valid] == ["app", "suite"]
    vendor.take([items(line("c", id_="4"), line("a", id_="6"), days=5)])
    assert (suite.revoked is not None, second.revoked, len(vendor.licenses)) == (True, None, 3)


def test_items_that_were_added_and_cannot_be_issued() -> None:
    """How many there are is not known; and one that has ended asks for nothing."""
    bought = (order(subscriptions=("s",)), lines(line("a")))
    vendor = sell(*bought, items(line("a"), line("b", None)), names="a b")
    assert (len(vendor.valid), vendor.asked) == (1, ["QUANTITY"])
    over = sell(*bought, items(line("a"), line("x"), days=1), report(SubscriptionState.ENDED, 2))
    assert (len(over.valid), over.asked) == (1, [])


def test_a_refund_whose_share_is_not_known() -> None:
    """A person has to look, unless any refund revokes."""
    refund = Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("5",), amount=Decimal(5))
    vendor = sell(order(), lines(line("a")))
    vendor.take([refund])
    assert (len(vendor.valid), vendor.asked) == (1, ["REFUND"])
    vendor.rules = Rules(GRACE, revokes_partial_refunds=True)
    vendor.reconcile()
    assert (vendor.valid, vendor.asked) == ([], [])


def test_a_refund_of_what_is_not_known_is_looked_up() -> None:
    """Nobody is asked: most payments have nothing to do with licenses."""
    refund = Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("pi", "ch"), is_full=True)
    vendor = sell(refund)
    assert [(fetch.kind, fetch.id) for fetch in vendor.result.fetches] == [
        ("payment", "ch"),
        ("payment", "pi"),
    ]
    assert vendor.asked == []


def test_a_customer_who_is_looked_up() -> None:
    """Once, for what is issued without an address."""
    contact = Contact(id="5", reported_at=NOON, orders=("5",), customer_id="ctm_1")
    vendor = sell(order(), lines(line("a", 2)), contact)
    assert [(fetch.kind, fetch.id, fetch.about) for fetch in vendor.result.fetches] == [
        ("customer", "ctm_1", "order:5")
    ]


def test_a_renewal_for_a_time_that_is_not_known() -> None:
    """Asked about once its license is known; a mapped period is taken, if there is one only."""
    renewal = order("6", 40, reason=OrderReason.RENEWAL, subscriptions=("s",))
    bought = (order(subscriptions=("s",), ends_at=NOON + 30 * DAY), lines(line("a"), line("b")))
    renewed = lines(line("a"), line("b"), order_id="6", days=40)
    vendor = sell(*bought, renewal, renewed, names="a b")
    assert vendor.asked == []  # the licenses are only issued now
    vendor.reconcile()
    assert vendor.asked == ["PERIOD"]
    vendor = sell(*bought, renewal, renewed, names="a b", expires_in="1m")
    assert vendor.ends == [datetime(2026, 8, 25, 12, tzinfo=UTC) + GRACE] * 2


def test_a_higher_quantity_of_what_is_not_mapped_any_more() -> None:
    """What was issued stays; for the rest a person is asked."""
    vendor = sell(order(), lines(line("a", 1, "1")))
    vendor.mappings.clear()
    vendor.take([lines(line("a", 2, "1"), days=1)])
    assert (len(vendor.valid), vendor.asked) == (1, ["UNMAPPED"])


def test_what_is_ignored_later_stays() -> None:
    """A mapping that issues nothing any more takes nothing away."""
    vendor = sell(order(), lines(line("a", 1, "1")))
    vendor.mappings = mapped("a", product=None)
    vendor.take([lines(line("a", 2, "1"), days=1)])
    assert (len(vendor.valid), vendor.asked) == (1, [])


def test_a_plan_that_issues_nothing() -> None:
    """The license stays as it is: nothing else is mapped for it."""
    bought = (order(subscriptions=("s",)), lines(line("a")), report(SubscriptionState.ACTIVE))
    vendor = sell(*bought)
    vendor.mappings |= mapped("free", product=None)
    vendor.take([items(line("free"), days=1)])
    assert ([license_.item for license_ in vendor.valid], vendor.asked) == (["a"], [])


def test_another_product_that_is_refunded_meanwhile() -> None:
    """The old license is replaced, and no new one is issued until the money is back."""
    bought = (order(subscriptions=("s",), total=Decimal(9)), lines(line("a")))
    vendor = Vendor("standard", {**mapped("a"), **mapped("b", product="other")})
    vendor.take(bought)
    refund = Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("5",), amount=Decimal(9))
    vendor.take([refund, items(line("b"), days=1)])
    assert (vendor.valid, len(vendor.licenses)) == ([], 1)


def test_a_question_that_was_answered_by_following() -> None:
    """More licenses are issued."""
    vendor = sell(order(), lines(line("a", 1, "1")))
    vendor.rules = Rules(GRACE, follows_changes=False)
    vendor.take([lines(line("a", 2, "1"), days=1)])
    assert vendor.asked == ["CHANGE"]
    vendor.answers[vendor.problems[0].id] = Answer.FOLLOW
    vendor.reconcile()
    assert len(vendor.valid) == 2


# --- orders and subscriptions -------------------------------------------------------------------


def test_an_order_that_is_delivered_in_parts() -> None:
    """Each product of it is a delivery, and none replaces another one."""
    parts = [lines(line(name), part=name) for name in ("a", "b")]
    vendor = sell(order(), parts[0], names="a b")
    vendor.take([order(), parts[1]])
    vendor.take([lines(line("a", 2), part="a", days=1)])
    assert sorted(license_.item or "" for license_ in vendor.valid) == ["a", "a", "b"]


def test_payments_that_are_refunded_in_another_currency() -> None:
    """The charge is all of it, whatever the order cost."""
    charge = Payment(id="ch", reported_at=NOON, orders=("5",), total=Decimal(90), refunded=Decimal(90))
    assert sell(order(total=Decimal(100)), lines(line("a")), charge).valid == []


def test_an_order_that_was_called_differently_before_it_was_paid() -> None:
    """The newer report counts."""
    before = order("cs", -1, state=OrderState.PENDING, paid_at=None)
    after = order("pi", names=("cs",))
    listed = [lines(line("a", 2), order_id="cs", days=-1), lines(line("a"), order_id="pi")]
    known: list[Fact] = [before, after, *listed]
    for facts in (known, known[::-1]):
        assert len(sell(*facts).valid) == 1


@pytest.mark.parametrize(
    ("fields", "end"),
    [
        ({"state": SubscriptionState.ACTIVE, "cancels_at": NOON + 30 * DAY}, NOON + 30 * DAY),
        ({"state": SubscriptionState.ACTIVE, "cancels_at": NOON + 10 * DAY}, NOON + 10 * DAY),
        ({"state": SubscriptionState.ACTIVE, "cancels_at": NOON + 90 * DAY}, NOON + 37 * DAY),
        ({"state": SubscriptionState.ACTIVE, "cancels_at": NOON + 33 * DAY}, NOON + 33 * DAY),
        ({"state": SubscriptionState.PAUSED, "cancels_at": NOON + 90 * DAY}, NOON + 30 * DAY),
        ({"state": SubscriptionState.UNPAID, "starts_at": NOON + 30 * DAY}, NOON + 37 * DAY),
        ({"state": SubscriptionState.UNPAID, "starts_at": NOON}, NOON + 37 * DAY),  # it is paid
        ({"state": SubscriptionState.ENDED}, NOON + 5 * DAY),
        ({"state": SubscriptionState.UNKNOWN}, NOON + 37 * DAY),
    ],
)
def test_ends(fields: dict[str, Any], end: datetime) -> None:
    """Of a subscription that is paid for thirty days, reported on the fifth one."""
    bought = order(subscriptions=("s",), starts_at=NOON, ends_at=NOON + 30 * DAY)
    vendor = sell(bought, lines(line("a")), report(**{"days": 5, **fields}))
    assert vendor.ends == [end]


def test_a_renewal_after_a_cancellation_and_a_purchase_after_an_end() -> None:
    """The first goes on; the second begins again; a late charge of before does not, and a person is asked."""
    bought = order(subscriptions=("s",), starts_at=NOON, ends_at=NOON + 30 * DAY)
    sold, charge = lines(line("a")), {"reason": OrderReason.RENEWAL, "subscriptions": ("s",)}
    cancelled = report(SubscriptionState.ACTIVE, 5, cancels_at=NOON + 30 * DAY)
    renewal = order("6", 30, starts_at=NOON + 30 * DAY, ends_at=NOON + 60 * DAY, **charge)
    assert sell(bought, sold, cancelled, renewal).ends == [NOON + 60 * DAY + GRACE]
    ended = report(SubscriptionState.ENDED, 31)
    late = order("6", 32, starts_at=NOON + 30 * DAY, ends_at=NOON + 60 * DAY, **charge)
    vendor = sell(bought, sold, ended, late)
    assert (vendor.ends, vendor.asked) == ([NOON + 31 * DAY], ["LATE"])
    early = order("6", 30, starts_at=NOON + 30 * DAY, ends_at=NOON + 60 * DAY, **charge)
    assert sell(bought, sold, ended, early).asked == []
    without = order("6", 32, **charge)
    assert sell(bought, sold, ended, without).asked == ["LATE"]
    again = order("7", 40, subscriptions=("s",), starts_at=NOON + 40 * DAY, ends_at=NOON + 70 * DAY)
    vendor = sell(bought, sold, ended, again, lines(line("a"), order_id="7"))
    assert set(vendor.ends) == {NOON + 70 * DAY + GRACE}


def test_a_cancellation_of_what_is_not_known() -> None:
    """Its end is known all the same, for licenses by hand."""
    vendor = sell(report(SubscriptionState.ACTIVE, cancels_at=NOON))
    assert [(name, end.at, end.is_final) for name, end in vendor.result.ends.items()] == [("s", NOON, True)]
    assert dict(sell(report(SubscriptionState.ACTIVE)).result.ends) == {}


def test_a_charge_within_a_period_pays_none() -> None:
    """The end stays that of the period in which it is."""
    bought = order(subscriptions=("s",), starts_at=NOON, ends_at=NOON + 30 * DAY)
    charge = order("6", 5, reason=OrderReason.CHANGE, subscriptions=("s",), ends_at=NOON + 90 * DAY)
    assert sell(bought, lines(line("a")), charge).ends == [NOON + 30 * DAY + GRACE]


def test_a_subscription_that_is_unpaid_since_a_day_that_no_order_has_paid() -> None:
    """It was in order until then, and has the grace from there."""
    bought = order(subscriptions=("s",))
    unpaid = report(SubscriptionState.UNPAID, 35, starts_at=NOON + 30 * DAY)
    assert sell(bought, lines(line("a")), unpaid).ends == [NOON + 30 * DAY + GRACE]


def test_the_period_that_a_subscription_reports_goes_with_the_refund_of_its_payment() -> None:
    """The one before counts again; a period whose payment is another one stays."""
    bought = order(subscriptions=("s",), starts_at=NOON, ends_at=NOON + 30 * DAY)
    month = {"starts_at": NOON + 30 * DAY, "ends_at": NOON + 60 * DAY}
    renewal = order("6", 30, reason=OrderReason.RENEWAL, subscriptions=("s",), **month)
    active = report(SubscriptionState.ACTIVE, 31, **month)
    back = Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("6",), is_full=True)
    sold = (bought, lines(line("a")), active)
    assert sell(*sold, renewal).ends == [NOON + 60 * DAY + GRACE]
    assert sell(*sold, renewal, back).ends == [NOON + 30 * DAY + GRACE]
    again = order(
        "7", 31, reason=OrderReason.RENEWAL, subscriptions=("s",), **{**month, "starts_at": NOON + 31 * DAY}
    )
    assert sell(*sold, renewal, back, again).ends == [NOON + 60 * DAY + GRACE]


def test_a_sum_of_refunds_that_the_order_itself_reports() -> None:
    """It contains the single ones, and one that failed since."""
    sold = (order(total=Decimal(100), refunded=Decimal(100)), lines(line("a")))
    assert sell(*sold).valid == []
    failed = Refund(id="r", reported_at=NOON + DAY, state=RefundState.VOID, orders=("5",), amount=Decimal(40))
    assert len(sell(*sold, failed).valid) == 1


# --- items --------------------------------------------------------------------------------------

RENEWAL = order("6", 40, reason=OrderReason.RENEWAL, subscriptions=("s",))
BOUGHT = (order(subscriptions=("s",)), lines(line("a", item="1")))


def by_hand(subscription: str = "s") -> License:
    """Return a license that a person has issued for a subscription."""
    return replace(earlier(99, "", ""), order_id=None, item=None, subscription_id=subscription)


def test_an_item_that_was_removed_before_its_license_was_issued() -> None:
    """Nothing is issued for it: the subscription does not pay it any more."""
    two = lines(line("a", item="1"), line("b", item="2"))
    assert len(sell(order(subscriptions=("s",)), two, items(line("a", id_="1")), names="a b").valid) == 1


def test_an_item_that_is_removed_stays_what_it_was_for_last() -> None:
    """Its license is revoked for what its customer had; the item itself is sold no more."""
    vendor = sell(*BOUGHT, items(line("a", id_="1")), names="a b c")
    vendor.take([items(line("b", id_="1"), line("c", id_="2"), days=1)])
    first, second = vendor.licenses
    assert [(license_.key, license_.item) for license_ in vendor.valid] == [("item:1", "b"), ("item:2", "c")]
    vendor.take([items(line("c", id_="2"), days=2)])
    assert ([license_.item for license_ in vendor.valid], first.item) == (["c"], "b")
    vendor.take([items(line("c", id_="2"), line("a", id_="3"), days=3)])
    assert ([(license_.key, license_.item) for license_ in vendor.valid], first.item) == (
        [("item:1", "a"), ("item:2", "c")],
        "a",
    )
    assert second.revoked is None


@pytest.mark.parametrize(
    ("found", "key"), [(line("a", item="1"), "item:1"), (line("a", id_="1"), "line:5/1")]
)
@pytest.mark.parametrize("last", ["a", "b"])
def test_an_item_of_two_products_that_is_removed(found: Line, key: str, last: str) -> None:
    """The license of the product that was paid last is paid no more; the other one was replaced before."""
    vendor = Vendor("standard", {**mapped("a", "c"), **mapped("b", product="suite")})
    others = line("c", id_="2"), line("c", id_="3")
    vendor.take([order(subscriptions=("s",)), lines(found), items(line("a", id_="1"), *others)])
    vendor.take([items(line("b", id_="1"), *others, days=1)])
    vendor.take([items(line(last, id_="1"), *others, days=2)])
    vendor.take([items(*others, days=3)])
    fewer, replaced = "fewer are paid than were issued", "another product is paid instead"
    app, suite = (replaced, fewer) if last == "b" else (fewer, replaced)
    known = {license_.key: license_.revoked for license_ in vendor.licenses}
    assert known == {key: app, f"{key}@suite": suite, "item:2": None, "item:3": None}


def test_lines_of_one_item_are_one() -> None:
    """They add up, and what follows them in the order is sold as well."""
    found = lines(line("a", item="1"), line("a", 2, item="1"), line("b", item="2"))
    vendor = sell(order(subscriptions=("s",)), found, names="a b")
    assert [license_.key for license_ in vendor.valid] == ["item:1", "item:1", "item:1", "item:2"]


def test_an_item_of_two_products_is_the_later_one() -> None:
    """An invoice for the time before and after a change has both, under one id."""
    vendor = sell(*BOUGHT, items(line("a", 5, "1"), line("b", 2, "1"), line("b", 1, "1")), names="a b")
    assert [(license_.key, license_.item) for license_ in vendor.valid] == [("item:1", "b")] * 3


def test_an_item_that_two_orders_sell() -> None:
    """It belongs to the one that was paid first."""
    again = order("4", 30, reason=OrderReason.UNKNOWN, subscriptions=("s",))
    vendor = sell(*BOUGHT, again, lines(line("a", item="1"), order_id="4", days=30))
    assert [(license_.key, license_.order_id) for license_ in vendor.valid] == [("item:1", "5")]


def test_a_license_of_a_subscription_ends_with_it_and_on_no_day_of_its_own() -> None:
    """Where the end of the subscription is known; otherwise on the day of the mapping."""
    paid = order(subscriptions=("s",), ends_at=NOON + 30 * DAY)
    vendor = sell(paid, lines(line("a", item="1")), expires_in="1y")
    (license_,) = vendor.result.licenses
    assert license_.terms is not None
    assert (license_.ends_at, license_.terms.expires_on) == (NOON + 30 * DAY + GRACE, None)
    (once,) = sell(order(), lines(line("a")), expires_in="1y").result.licenses
    assert once.terms is not None
    assert (once.ends_at, once.terms.expires_on) == (None, date(2027, 6, 15))


def test_a_plan_whose_product_was_sold_before() -> None:
    """The license of that product is valid again, though its plan is another one."""
    vendor = Vendor("standard", {**mapped("a", "c"), **mapped("b", product="suite")})
    vendor.take([*BOUGHT, items(line("a", id_="1"))])
    (app,) = vendor.licenses
    vendor.take([items(line("b", id_="1"), days=1)])
    suite = vendor.licenses[1]
    assert ([license_.key for license_ in vendor.licenses], vendor.valid) == (
        ["item:1", "item:1@suite"],
        [suite],
    )
    vendor.take([items(line("c", id_="1"), days=2)])
    assert (vendor.valid, app.item, len(vendor.licenses)) == ([app], "c", 2)
    assert [license_.key for license_ in vendor.licenses] == ["item:1", "item:1@suite"]


def test_a_changed_plan_that_a_person_has_agreed_to() -> None:
    """The license follows, and nothing is asked any more."""
    vendor = sell(*BOUGHT, items(line("a", id_="1")), names="a b")
    vendor.rules = Rules(GRACE, follows_changes=False)
    vendor.take([items(line("b", id_="1"), days=1)])
    (question,) = vendor.problems
    vendor.answers[question.id] = Answer.FOLLOW
    vendor.reconcile()
    assert ([license_.item for license_ in vendor.valid], vendor.asked) == (["b"], [])


def test_fewer_licenses_that_a_person_has_left() -> None:
    """They stay, also when fewer of them are in use later."""
    vendor = sell(*BOUGHT, items(line("a", 3, "1")))
    for license_ in vendor.valid:
        license_.in_use = 1
    vendor.take([items(line("a", 1, "1"), days=1)])
    (question,) = vendor.problems
    vendor.answers[question.id] = Answer.LEAVE
    for license_ in vendor.valid:
        license_.in_use = 0
    vendor.reconcile()
    assert (len(vendor.valid), vendor.asked) == (3, [])


def test_a_plan_change_of_a_license_whose_order_is_not_known() -> None:
    """The license follows; its payment has no day that is known."""
    vendor = sell(items(line("a", id_="1")), report(SubscriptionState.ACTIVE), names="a b", expires_in="1y")
    vendor.licenses.append(replace(earlier(1, "a", "5"), key="item:1", order_id=None, subscription_id="s"))
    vendor.take([items(line("b", id_="1"), days=1)])
    assert [(license_.item, license_.expires_on) for license_ in vendor.valid] == [("b", None)]


def test_an_item_without_a_report_of_all_items() -> None:
    """Its license stays: the lines of the order name none of the items."""
    vendor = sell(order(subscriptions=("s",)), lines(line("a", id_="1")))
    more = replace(earlier(1, "a", "5"), key="item:2", subscription_id="s")
    vendor.licenses.append(more)
    vendor.reconcile()
    assert (len(vendor.valid), more.revoked) == (2, None)


def test_an_order_that_turns_out_to_be_a_renewal() -> None:
    """The license that was issued for it stays, unless its money is given back."""
    vendor = sell(order(), lines(line("a", id_="1")))
    vendor.take([replace(RENEWAL, id="5", ends_at=NOON + 90 * DAY), lines(line("a", id_="1"), days=41)])
    assert [(license_.key, license_.revoked) for license_ in vendor.licenses] == [("line:5/1", None)]
    vendor.take([Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("5",), is_full=True)])
    assert [license_.revoked for license_ in vendor.licenses] == ["the order was refunded"]


def test_a_license_by_hand_beside_those_of_the_shop() -> None:
    """A refund revokes the shop's, and not the person's."""
    vendor = sell(*BOUGHT, report(SubscriptionState.ACTIVE))
    vendor.licenses.insert(0, by_hand())
    vendor.take([Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("5",), is_full=True)])
    assert [license_.revoked for license_ in vendor.licenses] == [None, "the order was refunded"]


def test_a_license_of_before_whose_order_no_report_describes() -> None:
    """It ends with its subscription all the same."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses.append(earlier(1, "a", "9", subscription_id="s"))
    vendor.take([report(SubscriptionState.ENDED, 3, ended_at=NOON + 3 * DAY)])
    (license_,) = vendor.result.licenses
    assert (license_.license_id, license_.order_id, license_.subscription_id) == (b"earlier 1", "9", None)
    assert (vendor.ends, vendor.result.nothing) == ([NOON + 3 * DAY], "")


def test_why_there_is_no_license_is_not_said_of_what_has_one() -> None:
    """Though another payment of it was given back."""
    vendor = sell(*BOUGHT)
    vendor.take([replace(RENEWAL, state=OrderState.REFUNDED)])
    assert (len(vendor.valid), vendor.result.nothing) == (1, "")


def test_licenses_in_any_order() -> None:
    """What follows from them is the same."""
    vendor = Vendor("standard", {**mapped("a", "c"), **mapped("b", product="suite")})
    vendor.licenses += [earlier(1, "a", "6", subscription_id="s"), by_hand()]
    vendor.take([*BOUGHT, items(line("a", 3, "1"))])
    vendor.take([items(line("b", 2, "1"), days=1)])
    vendor.take([items(line("c", 1, "1"), days=2)])
    issued = [to_issued(license_) for license_ in vendor.licenses]
    facts = list(vendor.facts.values())
    first, *others = (
        sorted(desired(facts, vendor.mappings, vendor.rules, some, {}).licenses, key=str)
        for some in islice(permutations(issued), 0, None, 97)
    )
    assert all(other_license == first for other_license in others)


# --- keys and numbers ---------------------------------------------------------------------------


def test_licenses_of_before_get_the_key_of_their_line_and_numbers() -> None:
    """And those that are bought later the same key, and the next numbers."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses += [earlier(1, "a", "5"), earlier(2, "a", "5")]
    vendor.take([order()])
    assert [(license_.key, license_.number) for license_ in vendor.licenses] == [
        ("earlier:5/a", n) for n in (1, 2)
    ]
    vendor.take([lines(line("a", 3, "1"))])
    assert [(license_.key, license_.number) for license_ in vendor.licenses] == [
        ("line:5/1", n) for n in (1, 2, 3)
    ]


def test_licenses_of_before_belong_to_lines_that_have_none() -> None:
    """One line has its license by its key, and one by the line that was stored."""
    vendor = sell(order(), lines(line("a", id_="1")))
    vendor.licenses += [earlier(2, "old", "5", line_id="2"), earlier(3, "a", "5")]
    vendor.take([lines(line("a", id_="1"), line("a", id_="2"), line("a", id_="3"), days=1)])
    assert [(license_.key, license_.revoked) for license_ in vendor.licenses] == [
        ("line:5/1", None),
        ("line:5/2", None),
        ("line:5/3", None),
    ]


def test_a_line_that_was_edited() -> None:
    """It is itself: its license is for what it sells now, with the terms that it was issued with."""
    vendor = sell(order(), lines(line("a", id_="1")), names="a b")
    vendor.take([lines(line("b", id_="1"), days=1)])
    assert [(license_.key, license_.item) for license_ in vendor.licenses] == [("line:5/1", "b")]


def sell_edited(*found: Line, **rules: Any) -> Vendor:
    """Return a vendor that has sold a line of a, which was edited day after day; b is of another product."""
    vendor = Vendor("standard", {**mapped("a", "a2"), **mapped("b", product="suite")}, Rules(GRACE, **rules))
    vendor.take([order(), lines(line("a", id_="1"))])
    for days, edited in enumerate(found, 1):
        vendor.take([lines(edited, days=days)])
        vendor.reconcile()
    return vendor


def products(vendor: Vendor) -> list[tuple[str, int, str, str | None]]:
    """Return the licenses with their products."""
    return [
        (license_.key or "", license_.number, license_.terms.product, license_.revoked)
        for license_ in vendor.licenses
    ]


def test_a_line_that_is_of_another_product_now() -> None:
    """It was served: a person decides whether the license is replaced; until then nothing is issued."""
    vendor = sell_edited(line("b", 2, "1"))
    served = [("line:5/1", 1, "app", None)]
    assert (products(vendor), [problem.text for problem in vendor.problems]) == (
        served,
        ["order 5 is for b now, and its license is not: follow the change"],
    )
    (problem,) = vendor.problems
    vendor.answers[problem.id] = Answer.LEAVE
    vendor.reconcile()
    assert (products(vendor), vendor.asked) == (served, [])
    vendor.answers[problem.id] = Answer.FOLLOW
    vendor.reconcile()
    replaced = [
        ("line:5/1", 1, "app", "another product is paid instead"),
        ("line:5/1@suite", 1, "suite", None),
        ("line:5/1@suite", 2, "suite", None),
    ]
    assert (products(vendor), vendor.asked) == (replaced, [])
    vendor.take([lines(line("a", 3, "1"), days=9)])
    assert Counter(license_.terms.product for license_ in vendor.valid) == {"app": 3}


@pytest.mark.parametrize("edited", [line("a2", 2, "1"), line("x", 1, "1"), Line("1", (), None, 1)])
def test_a_line_that_is_still_of_its_product(edited: Line) -> None:
    """Its article number has changed, is not mapped, or is gone: nobody is asked."""
    vendor = sell_edited(edited)
    assert ({license_.terms.product for license_ in vendor.valid}, vendor.asked) == ({"app"}, [])
    assert len(vendor.valid) == edited.quantity


def test_licenses_of_two_products_at_one_line() -> None:
    """As a version before has issued them: a further license takes a place that is free."""
    vendor = sell_edited()
    other = replace(vendor.licenses[0].terms, product="suite")
    vendor.licenses.append(replace(vendor.licenses[0], id=b"other", number=2, item="b", terms=other))
    vendor.take([lines(line("b", 3, "1"), days=1)])
    assert products(vendor) == [
        ("line:5/1", 1, "app", "another product is paid instead"),
        ("line:5/1", 2, "suite", None),
        ("line:5/1", 3, "suite", None),
        ("line:5/1", 4, "suite", None),
    ]


def test_a_place_that_a_renamed_product_has_taken() -> None:
    """The key of its license has the name of before, and another product has that now."""
    vendor = Vendor("standard", {**mapped("a"), **mapped("b", product="suite")})
    vendor.take([*BOUGHT, items(line("a", id_="1"))])
    renamed = replace(vendor.licenses[0], id=b"renamed", key="item:1@suite", item="old", revoked="by hand")
    vendor.licenses.append(replace(renamed, terms=replace(renamed.terms, product="renamed")))
    vendor.take([items(line("b", 1, "1"), days=1)])
    assert [(license_.key, license_.number) for license_ in vendor.valid] == [("item:1@suite", 2)]


def test_a_product_that_was_replaced_stays_so() -> None:
    """A change that is not followed leaves what is valid, and not what was replaced before."""
    vendor = Vendor("standard", {**mapped("a"), **mapped("b", product="suite")})
    for days, plan in enumerate(("a", "b", "a", "x")):
        vendor.take([*BOUGHT, items(line(plan, id_="1"), days=days)])
    assert ([license_.terms.product for license_ in vendor.valid], vendor.asked) == (["app"], ["UNMAPPED"])


def test_a_license_of_before_without_anything_that_was_stored() -> None:
    """It has a key of its order."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses.append(replace(earlier(1, "", "5"), item=None))
    vendor.take([order()])
    assert [license_.key for license_ in vendor.licenses] == ["earlier:5/"]


def test_a_license_of_before_by_its_product() -> None:
    """The item of the subscription has a price now, and names the product beside it."""
    vendor = Vendor("standard", mapped("price"))
    vendor.licenses += [earlier(1, "old", "5", product="other"), earlier(2, "prod", "5")]
    item = Line("i", ("price", "prod"), "price", 1)
    vendor.take([order(subscriptions=("s",)), items(item), report(SubscriptionState.ACTIVE)])
    assert [license_.item for license_ in vendor.valid] == ["old", "price"]


def test_an_order_that_was_called_by_its_subscription() -> None:
    """As Stripe's charges were; another shop's order never was."""
    for reason, count in ((OrderReason.UNKNOWN, 1), (OrderReason.PURCHASE, 2)):
        vendor = Vendor("standard", mapped("a"))
        vendor.licenses.append(earlier(1, "a", "s", subscription_id="s"))
        vendor.take([order(subscriptions=("s",), reason=reason), lines(line("a", id_="1"))])
        assert len(vendor.licenses) == count


def test_a_number_that_is_free_is_given_first() -> None:
    """No two licenses of a line have the same."""
    vendor = sell(order(), lines(line("a", 1, "1")))
    vendor.licenses[0].number = 2
    vendor.take([lines(line("a", 3, "1"), days=1)])
    assert [license_.number for license_ in vendor.licenses] == [2, 1, 3]


# --- purchases that are not known ---------------------------------------------------------------


def test_a_renewal_of_a_license_that_a_person_has_issued() -> None:
    """Its purchase is that license; but a time that is not known is asked about."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses.append(by_hand())
    vendor.take([replace(RENEWAL, ends_at=NOON + 90 * DAY)])
    assert (vendor.asked, vendor.ends) == ([], [NOON + 90 * DAY + GRACE])
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses.append(by_hand())
    vendor.take([RENEWAL])
    assert vendor.asked == ["PERIOD"]


def test_a_renewal_of_a_license_of_before() -> None:
    """The subscription names its order, of which nothing else is known."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses.append(earlier(1, "a", "9"))
    vendor.take([report(SubscriptionState.ACTIVE, orders=("9",)), RENEWAL])
    assert vendor.asked == ["PERIOD"]


def test_two_subscriptions_of_an_order_of_which_one_has_licenses() -> None:
    """The other one's purchase is asked about."""
    both = replace(RENEWAL, subscriptions=("s", "t"), ends_at=NOON + 90 * DAY)
    for known, asked in (("s", "t"), ("t", "s")):
        vendor = Vendor("standard", mapped("a"))
        vendor.licenses.append(by_hand(known))
        vendor.take([both])
        assert [question.about for question in vendor.problems] == [f"subscription:{asked}"]


@pytest.mark.parametrize(
    "more",
    [
        Refund(id="r", reported_at=NOON, state=RefundState.MADE, orders=("6",), is_full=True),
        replace(RENEWAL, reported_at=NOON + 41 * DAY, state=OrderState.PENDING, paid_at=None),
    ],
    ids=["refunded", "not paid"],
)
def test_a_renewal_that_is_not_paid_asks_nobody(more: Fact) -> None:
    """Its purchase is not known either, and there is nothing to serve."""
    vendor = sell(RENEWAL)
    assert vendor.asked == ["SUBSCRIPTION"]
    vendor.take([more])
    assert vendor.asked == []
