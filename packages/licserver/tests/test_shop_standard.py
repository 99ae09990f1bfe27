"""What a shop of one's own reports, in any order: nothing that was paid is lost, nothing is taken over."""

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from harness import shops
from harness.contracts import GRACE, License, Vendor, at, mapped, play, text
from licserver.shops import standard
from licserver.shops.contract import Answer, ProblemKind, Rules, SaleProblem
from licserver.shops.facts import Contact, Fact, Line, Lines, Order, Subscription
from licserver.shops.reading import UnreadableDeliveryError


def purchase(order: str, days: float = 0, **data: Any) -> bytes:
    """Report an order, of the product `app`."""
    item = {"external_id": "app", "order_id": order}
    return shops.standard("purchase.completed", text(days), **{**item, **data})


def report(type_: str, days: float, **data: Any) -> bytes:
    """Report something else."""
    return shops.standard(type_, text(days), **data)


def renewal(days: float, paid_through: float, subscription: str = "s1", **data: Any) -> bytes:
    """Report the renewal of a subscription."""
    paid = {"subscription_id": subscription, "paid_through": text(paid_through)}
    return report("subscription.renewed", days, **paid, **data)


BOUGHT = purchase("1", subscription_id="s1", paid_through=text(30))
ENDED = report("subscription.ended", 37, subscription_id="s1")


def facts_of(body: bytes) -> list[Fact]:
    """Return what a report describes."""
    return list(standard.read({}, body).facts)


def late_orders(facts: list[Fact]) -> list[Fact]:
    """Return renewals as shops report them that renew nothing which has ended."""
    return [replace(fact, resumes=False) for fact in facts if isinstance(fact, Order)]


def of_order(vendor: Vendor, order: str) -> License:
    """Return the license of an order."""
    return next(license_ for license_ in vendor.licenses if license_.order_id == order)


def test_all_that_a_purchase_may_have_is_read() -> None:
    """Each field has its place in the facts."""
    customer = {"customer_email": "ann@example.com", "customer_language": "de-AT"}
    subscription = {"subscription_id": "s1", "paid_through": text(30)}
    order, lines, contact = facts_of(purchase("1", total="9.90", quantity=2, **customer, **subscription))
    assert isinstance(order, Order)
    assert isinstance(lines, Lines)
    assert isinstance(contact, Contact)
    assert (order.id, order.part, order.total, order.ends_at) == ("1", "app", Decimal("9.90"), at(30))
    assert (lines.id, lines.lines) == ("order:1/app", (Line(None, ("app",), "app", 2),))
    assert (contact.email, contact.language) == ("ann@example.com", "de")
    assert (contact.orders, contact.subscriptions) == (("1",), ("s1",))


def test_what_a_renewal_costs_and_a_resumption_has_paid_is_read() -> None:
    """Refunds add up to the one; the license ends with the other."""
    (order,) = facts_of(renewal(30, 60, total="9.90"))
    assert isinstance(order, Order)
    assert order.total == Decimal("9.90")
    (subscription,) = facts_of(
        report("subscription.resumed", 31, subscription_id="s1", paid_through=text(60))
    )
    assert isinstance(subscription, Subscription)
    assert (subscription.id, subscription.ends_at) == ("s1", at(60))


# --- money that comes in after an end


def test_a_renewal_after_the_end_goes_on() -> None:
    """The customer pays again: his license holds until the next report of an end."""
    for vendor in play("standard", "app", BOUGHT, ENDED, renewal(40, 70)):
        assert (vendor.ends, vendor.asked) == ([at(70) + GRACE], [])
    over = report("subscription.ended", 80, subscription_id="s1")
    for vendor in play("standard", "app", BOUGHT, ENDED, renewal(40, 70), over):
        assert (vendor.ends, vendor.asked) == ([at(80)], [])


@pytest.mark.parametrize("paid", [renewal(40, 30), renewal(36, 70)], ids=["of before", "reported before"])
def test_a_payment_of_what_is_over_does_not_go_on(paid: bytes) -> None:
    """It pays a time before the end; or the end is what was reported later."""
    for vendor in play("standard", "app", BOUGHT, ENDED, paid):
        assert (vendor.ends, vendor.asked) == ([at(37)], [])


def test_a_payment_after_an_end_of_what_has_no_license_asks_for_its_purchase_alone() -> None:
    """There is nothing to extend."""
    vendor = Vendor("standard")
    vendor.take([*facts_of(ENDED), *late_orders(facts_of(renewal(40, 70)))])
    assert vendor.asked == ["SUBSCRIPTION"]


def test_a_late_payment_is_asked_about_once() -> None:
    """Under the order's id, in a sentence, and no more once it was answered."""
    vendor = Vendor("standard", mapped("app"))
    vendor.take([*facts_of(BOUGHT), *facts_of(ENDED)])
    vendor.take(late_orders(facts_of(renewal(40, 70, order_id="2"))))
    question = SaleProblem(
        "late:s1:s1/2",
        ProblemKind.LATE,
        "subscription s1 has ended, and order s1/2 was paid for it later; extend its licenses with "
        "`licserver subscription end s1 --at YYYY-MM-DD`, or refund the order",
        "subscription:s1",
    )
    assert vendor.problems == [question]
    vendor.answers[question.id] = Answer.LEAVE
    assert vendor.reconcile().problems == ()


def test_a_renewal_that_is_refunded_after_the_end() -> None:
    """The end stands again."""
    refund = report("purchase.refunded", 41, order_id="2")
    for vendor in play("standard", "app", BOUGHT, ENDED, renewal(40, 70, order_id="2"), refund):
        assert (vendor.ends, vendor.asked) == ([at(37)], [])


def test_a_late_payment_of_what_was_cancelled_stays_cancelled() -> None:
    """The payment is of the period that was cancelled for its end."""
    cancelled = report("subscription.cancelled", 10, subscription_id="s1", paid_through=text(30))
    for vendor in play("standard", "app", BOUGHT, cancelled, renewal(12, 30)):
        assert vendor.ends == [at(30)]


def test_an_order_that_is_paid_again_after_its_refund_is_asked_about() -> None:
    """Nothing is reinstated by itself: a sender may have repeated an old report with a new instant."""
    refund = report("purchase.refunded", 5, order_id="1")
    for vendor in play("standard", "app", purchase("1"), refund, purchase("1", 9)):
        assert vendor.valid == []
        assert vendor.problems == [
            SaleProblem(
                "again:1:2026-06-24T12:00:00Z",
                ProblemKind.LATE,
                "order 1 was paid again after its refund or dispute; issue or reinstate by hand",
                "order:1",
            )
        ]
    for vendor in play("standard", "app", purchase("1"), report("purchase.disputed", 5, order_id="1")):
        assert (vendor.valid, vendor.asked) == ([], [])


# --- orders that are named by others


def test_a_renewal_that_names_the_order_of_another_sale_takes_nothing_over() -> None:
    """Order 7 keeps its license without an end; the renewal counts for the subscription that it names."""
    other = purchase("7")
    for vendor in play("standard", "app", BOUGHT, other, renewal(30, 60, order_id="7")):
        mine, bought = of_order(vendor, "1"), of_order(vendor, "7")
        assert (mine.subscription_id, mine.ends_at, mine.revoked) == ("s1", at(60) + GRACE, None)
        assert (bought.subscription_id, bought.ends_at, bought.revoked) == (None, None, None)


def test_a_renewal_of_an_unknown_subscription_that_names_another_sale_is_asked_about() -> None:
    """The order's license is not linked to it."""
    for vendor in play("standard", "app", purchase("7"), renewal(30, 60, "s9", order_id="7")):
        license_ = of_order(vendor, "7")
        assert (license_.subscription_id, license_.ends_at, vendor.asked) == (None, None, ["SUBSCRIPTION"])


def test_renewals_that_name_the_first_order() -> None:
    """Some senders know no other one."""
    renewals = [renewal(30, 60, order_id="1"), renewal(60, 90, order_id="1")]
    for vendor in play("standard", "app", BOUGHT, *renewals):
        assert (vendor.ends, vendor.asked) == ([at(90) + GRACE], [])


@pytest.mark.parametrize("type_", ["subscription.cancelled", "subscription.ended"])
def test_an_end_that_names_the_order_of_another_sale_ends_nothing_of_it(type_: str) -> None:
    """Only a purchase links an order with its subscription."""
    end = report(type_, 5, subscription_id="s9", order_id="7", paid_through=text(10))
    for vendor in play("standard", "app", purchase("7"), end):
        assert (of_order(vendor, "7").subscription_id, vendor.ends) == (None, [None])


def test_an_order_of_two_subscriptions() -> None:
    """Each product ends with its own; a refund is of the order, and revokes both."""
    other = {"subscription_id": "s2", "external_id": "pro", "paid_through": text(60)}
    bodies = [BOUGHT, purchase("1", 1, **other)]
    for vendor in play("standard", "app pro", *bodies):
        ends = {license_.subscription_id: license_.ends_at for license_ in vendor.valid}
        assert ends == {"s1": at(30) + GRACE, "s2": at(60) + GRACE}
    renewed = renewal(30, 90)
    for vendor in play("standard", "app pro", *bodies, renewed):
        ends = {license_.subscription_id: license_.ends_at for license_ in vendor.valid}
        assert ends == {"s1": at(90) + GRACE, "s2": at(60) + GRACE}
    refund = report("purchase.refunded", 2, order_id="1")
    for vendor in play("standard", "app pro", *bodies, refund):
        assert (vendor.valid, vendor.asked) == ([], [])


def test_an_order_of_a_subscription_and_of_what_is_none() -> None:
    """What was bought once does not end with the subscription beside it."""
    for vendor in play("standard", "app pro", BOUGHT, purchase("1", 1, external_id="pro")):
        ends = {license_.item: (license_.subscription_id, license_.ends_at) for license_ in vendor.valid}
        assert ends == {"app": ("s1", at(30) + GRACE), "pro": (None, None)}


def test_an_order_of_two_products_of_one_subscription() -> None:
    """Both go on with it."""
    more = purchase("1", 1, external_id="pro", subscription_id="s1", paid_through=text(30))
    for vendor in play("standard", "app pro", BOUGHT, more, renewal(30, 60)):
        assert vendor.ends == [at(60) + GRACE] * 2


# --- several lines of one product in an order


def line(name: str, **fields: Any) -> bytes:
    """Make the purchase of a line of order 1."""
    more = {"external_id": "a", "line_id": name, "total": 30}
    return shops.standard("purchase.completed", text(0), order_id="1", **{**more, **fields})


def test_two_subscriptions_of_a_product_in_an_order() -> None:
    """Each line has its license, and each subscription an end of its own."""
    first = line("1", subscription_id="s1", paid_through=text(30))
    second = line("2", subscription_id="s2", paid_through=text(30), quantity=2)
    renewal = shops.standard("subscription.renewed", text(30), subscription_id="s2", paid_through=text(60))
    for vendor in play("standard", "a", first, second, renewal):
        ends = Counter((license_.subscription_id, license_.ends_at) for license_ in vendor.valid)
        assert ends == {("s1", at(30) + GRACE): 1, ("s2", at(60) + GRACE): 2}
        assert (len(vendor.licenses), vendor.asked) == (3, [])


@pytest.mark.parametrize(
    ("lines", "refunded"),
    [
        ([line("1"), line("2")], {"line_id": "2"}),
        ([line("1"), line("2")], {"line_id": "2", "quantity": 1, "refund_id": "r", "amount": 15}),
        ([purchase("1", external_id="a"), purchase("1", external_id="b")], {"external_id": "b"}),
    ],
)
def test_one_of_two_subscriptions_of_an_order_is_refunded(lines: list[bytes], refunded: Any) -> None:
    """It ends, and the other one goes on without a question; a refund without lines is of both."""
    subscribed = [
        json.dumps({**event, "data": {**event["data"], "subscription_id": f"s{number}"}}).encode()
        for number, event in enumerate(map(json.loads, lines), 1)
    ]
    refund = shops.standard("purchase.refunded", text(1), order_id="1", **refunded)
    for vendor in play("standard", "a b", *subscribed, refund):
        assert [license_.subscription_id for license_ in vendor.valid] == ["s1"]
        assert (vendor.asked, vendor.result.notes) == ([], ())
    whole = shops.standard("purchase.refunded", text(2), order_id="1")
    for vendor in play("standard", "a b", *subscribed, refund, whole):
        assert (vendor.valid, vendor.asked) == ([], [])


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"line_id": "1"}, {"line:1/2": 2}),
        ({"line_id": "2", "quantity": 1, "refund_id": "r"}, {"line:1/1": 1, "line:1/2": 1}),
        ({"line_id": "2", "external_id": "a", "refund_id": "r"}, {"line:1/1": 1}),
        ({}, {}),
    ],
)
def test_a_refund_names_a_line_by_its_id(fields: dict[str, Any], left: dict[str, int]) -> None:
    """The product would be both lines."""
    refund = shops.standard("purchase.refunded", text(1), order_id="1", **fields)
    for vendor in play("standard", "a", line("1"), line("2", quantity=2), refund):
        assert Counter(license_.key for license_ in vendor.valid) == left
        assert vendor.asked == []


def test_a_refund_that_names_the_product_of_lines_is_asked_about() -> None:
    """It is not known which of them it is; how many of a line needs an id."""
    refund = shops.standard("purchase.refunded", text(1), order_id="1", external_id="a")
    for vendor in play("standard", "a", line("1"), line("2"), refund):
        assert (len(vendor.valid), vendor.asked) == (2, ["REFUND"])
    with pytest.raises(UnreadableDeliveryError, match=r"data\.refund_id: Field required"):
        standard.read({}, shops.standard("purchase.refunded", text(1), order_id="1", line_id="1", quantity=1))


# --- several purchases of one subscription

SECOND = purchase("2", 10, subscription_id="s1", paid_through=text(60))


@pytest.mark.parametrize(
    ("refunded", "kept", "end"),
    [("2", "1", at(30) + GRACE), ("1", "2", at(60) + GRACE)],
)
def test_of_two_purchases_the_refunded_one_is_revoked(refunded: str, kept: str, end: datetime) -> None:
    """The other one stays, to the end of what it has paid."""
    refund = report("purchase.refunded", 12, order_id=refunded)
    for vendor in play("standard", "app", BOUGHT, SECOND, refund):
        assert [(license_.order_id, license_.ends_at) for license_ in vendor.valid] == [(kept, end)]
    again = report("purchase.refund_failed", 13, order_id=refunded)
    for vendor in play("standard", "app", BOUGHT, SECOND, refund, again):
        assert len(vendor.valid) == 2


def counted(quantity: int, external_id: str = "app", days: float = 11) -> bytes:
    """Report what the subscription has."""
    data = {"subscription_id": "s1", "external_id": external_id, "quantity": quantity}
    return report("subscription.changed", days, **data)


@pytest.mark.parametrize("external_id", ["app", "pro"])
@pytest.mark.parametrize("orders", [["1"], ["1", "2"], ["1", "1", "2"]], ids=len)
def test_two_purchases_that_the_shop_has_counted_since(orders: list[str], external_id: str) -> None:
    """They are as many as it has counted, keep their keys, and a refund of one of them changes nothing."""
    refund = report("purchase.refunded", 12, order_id="2")
    for vendor in play("standard", "app pro", BOUGHT, SECOND, counted(len(orders), external_id)):
        assert sorted(license_.order_id or "" for license_ in vendor.valid) == orders
        assert {license_.ends_at for license_ in vendor.valid} == {at(60) + GRACE}
        vendor.receive(refund)
        assert len(vendor.valid) == len(orders)


def test_a_purchase_after_the_shop_has_counted_is_one_more() -> None:
    """It ends with its subscription, and goes with its own refund."""
    third = purchase("3", 20, subscription_id="s1", paid_through=text(60))
    for vendor in play("standard", "app", BOUGHT, SECOND, counted(2), third):
        assert [license_.ends_at for license_ in vendor.valid] == [at(60) + GRACE] * 3
        vendor.receive(report("purchase.refunded", 21, order_id="3"))
        assert sorted(license_.order_id or "" for license_ in vendor.valid) == ["1", "2"]


def test_a_refund_of_the_only_purchase_leaves_what_was_renewed() -> None:
    """The license goes on with the renewal, which was paid."""
    refund = report("purchase.refunded", 32, order_id="1")
    for vendor in play("standard", "app", BOUGHT, renewal(30, 60), refund):
        assert vendor.ends == [at(60) + GRACE]


# --- refunds in part, quantities


def part(number: int, **data: Any) -> bytes:
    """Report a refund in part."""
    return report("purchase.refunded", number, order_id="1", refund_id=f"r{number}", **data)


def test_refunds_in_part_add_up_or_ask() -> None:
    """By their amounts; several without one may be all of it, and a person is asked."""
    whole = purchase("1", total="20.00")
    for vendor in play("standard", "app", whole, part(1, amount="5"), part(2, amount="15.00")):
        assert (vendor.valid, vendor.asked) == ([], [])
    for vendor in play("standard", "app", whole, part(1, partial=True)):
        assert (len(vendor.valid), vendor.asked) == (1, [])
    for vendor in play("standard", "app", whole, part(1, partial=True), part(2, partial=True)):
        assert (len(vendor.valid), vendor.asked) == (1, ["REFUND"])


def test_a_refund_of_two_lines_is_two_deliveries() -> None:
    """With one refund_id: the second one took the refund of the first line back."""
    refunds = [report("purchase.refunded", 3, order_id="1", line_id=name, refund_id="r") for name in "12"]
    for vendor in play("standard", "a", line("1"), line("2"), *refunds):
        assert (vendor.valid, vendor.asked) == ([], [])


@pytest.mark.parametrize("named", [{"line_id": "zzz"}, {"external_id": "other"}])
def test_a_refund_of_what_is_no_line_is_asked_about(named: dict[str, Any]) -> None:
    """The advice was for another fault: to send `partial` in place of an amount, which nobody had sent."""
    refund = report("purchase.refunded", 3, order_id="1", **named)
    for vendor in play("standard", "a", line("1"), line("2"), refund):
        (name,) = named.values()
        assert (len(vendor.valid), vendor.asked) == (2, ["REFUND"])
        assert f"order 1: a refund names '{name}', which is no line of it" in vendor.problems[0].text


def test_ids_with_slashes_stay_apart() -> None:
    """The line Y/Z of order X and the line Z of order X/Y had one key: the second customer got no license."""
    bodies = [purchase("X", line_id="Y/Z"), purchase("X/Y", line_id="Z"), purchase("Q", line_id="50%")]
    for vendor in play("standard", "app", *bodies):
        assert (len(vendor.valid), vendor.asked) == (3, [])
    refund = report("purchase.refunded", 3, order_id="X", line_id="Y/Z")
    for vendor in play("standard", "app", *bodies, refund):
        assert (len(vendor.valid), vendor.asked) == (2, [])


def test_a_line_that_is_delivered_with_an_id_and_without_is_asked_about() -> None:
    """Whether that is a second one is not known; it got a second license in silence."""
    bare, named = purchase("1"), purchase("1", line_id="a")
    for vendor in play("standard", "app", bare, named):
        assert (len(vendor.valid), vendor.asked) == (1, ["UNCLEAR"])
    for vendor in play("standard", "app", named, purchase("1", line_id="b")):
        assert (len(vendor.valid), vendor.asked) == (2, [])


@pytest.mark.parametrize(
    ("made", "failed"), [({"refund_id": "r", "amount": 20}, {}), ({}, {"refund_id": "r"})]
)
def test_a_failed_refund_that_is_named_differently_is_asked_about(
    made: dict[str, Any], failed: dict[str, Any]
) -> None:
    """The money may be back with the vendor, and the license stayed revoked in silence."""
    bodies = [purchase("1", total=20), report("purchase.refunded", 3, order_id="1", **made)]
    for vendor in play(
        "standard", "app", *bodies, report("purchase.refund_failed", 4, order_id="1", **failed)
    ):
        assert vendor.valid == []
        assert vendor.problems == [
            SaleProblem(
                f"failed:1:1/{failed.get('refund_id', '/all')}",
                ProblemKind.REFUND,
                "order 1: a refund failed, and another one still counts; reinstate by hand, or leave it",
                "order:1",
            )
        ]
    early = report("purchase.refund_failed", 2, order_id="1", refund_id="another")
    for vendor in play("standard", "app", *bodies, early):
        assert (vendor.valid, vendor.asked) == ([], [])


def test_more_than_are_issued_for_a_line_is_asked_about() -> None:
    """It was unreadable, and only the list of deliveries had it."""
    for vendor in play("standard", "app", purchase("1", quantity=1_001)):
        assert (vendor.licenses, vendor.asked) == ([], ["MANY"])


# --- what a person has decided


def test_a_refund_of_what_was_issued_by_hand_is_asked_about() -> None:
    """Its license is not the shop's, and stays until a person revokes it."""
    vendor = Vendor("standard")
    vendor.receive(purchase("1"))
    assert vendor.asked == ["UNMAPPED"]
    vendor.answers[vendor.problems[0].id] = Answer.ISSUED
    vendor.reconcile()
    assert (vendor.asked, vendor.result.nothing) == ([], "no license of order 1: one was issued by hand")
    vendor.receive(report("purchase.refunded", 5, order_id="1"))
    hint = "its license was issued by hand; revoke that by hand, or leave it"
    text_ = f"order 1: the order was refunded, and {hint}"
    assert vendor.problems == [SaleProblem("by-hand:1", ProblemKind.BY_HAND, text_, "order:1")]
    # Of an order whose lines no report has, too.
    vendor = Vendor("standard", answers={"lines:1": Answer.ISSUED})
    vendor.take([fact for fact in facts_of(purchase("1")) if isinstance(fact, Order)])
    assert (vendor.asked, vendor.result.nothing) == ([], "no license of order 1: one was issued by hand")
    vendor.receive(report("purchase.refunded", 5, order_id="1"))
    assert vendor.asked == ["BY_HAND"]


def test_a_sale_that_was_left_says_so() -> None:
    """Its delivery said that the purchase had not arrived."""
    vendor = Vendor("standard")
    vendor.receive(purchase("1"))
    vendor.answers[vendor.problems[0].id] = Answer.LEAVE
    assert vendor.reconcile().nothing == "no license of order 1: it was left as it is"


def test_a_refund_in_part_says_what_it_does() -> None:
    """Nothing is revoked, and the delivery has the reason."""
    for vendor in play("standard", "app", purchase("1", total=20), part(1, amount=5)):
        assert vendor.result.notes == ("order 1 was refunded in part, which revokes nothing",)
    for vendor in play("standard", "app", purchase("1", total=20), part(1, amount=20)):
        assert vendor.result.notes == ()


@pytest.mark.parametrize(
    ("has_api", "advice"), [(True, "use `licserver source sync`"), (False, "report the purchase")]
)
def test_an_unknown_purchase_is_asked_of_an_api_only_where_there_is_one(has_api: bool, advice: str) -> None:
    """A shop of one's own has none."""
    vendor = Vendor("standard", rules=Rules(GRACE, has_api=has_api))
    vendor.receive(renewal(30, 60, "s9"))
    assert vendor.problems[0].text == (
        "subscription s9 was paid, and its purchase is not known; "
        f"{advice}, or extend or issue its license by hand"
    )
