"""What a person is asked about a sale: in which words, about what, and that an answer ends it."""

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from harness import shops
from harness.contracts import DAY, GRACE, Vendor, earlier, mapped, play, text
from licserver.shops.contract import Answer, Fetch, ProblemKind, Rules, SaleProblem
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

ACTIVE = Subscription(id="s", reported_at=DAY, state=SubscriptionState.ACTIVE)
CHOICE = (Answer.FOLLOW, Answer.LEAVE)
LEAVE = (Answer.LEAVE,)


def order(id_: str = "5", days: int = 0, **fields: Any) -> Order:
    """Return an order that is paid."""
    at = DAY + timedelta(days=days)
    return Order(**{"id": id_, "reported_at": at, "state": OrderState.PAID, "paid_at": at, **fields})


def line(sold: str, quantity: int | None = 1, id_: str | None = "1", item: str | None = None) -> Line:
    """Return a line."""
    return Line(id_, (sold,) if sold else (), sold or None, quantity, item)


def lines(*found: Line, order_id: str = "5", days: int = 0, **fields: Any) -> Lines:
    """Return the lines of an order."""
    return Lines(order_id=order_id, reported_at=DAY + timedelta(days=days), lines=found, **fields)


def items(*found: Line, days: int = 0) -> Lines:
    """Return the items of a subscription."""
    return Lines(subscription_id="s", reported_at=DAY + timedelta(days=days), lines=found)


def refund(**fields: Any) -> Refund:
    """Return a refund of the order 5."""
    return Refund(
        **{
            "id": "r",
            "reported_at": DAY,
            "state": RefundState.MADE,
            "orders": ("5",),
            "is_full": True,
            **fields,
        }
    )


def sell(*facts: Fact, names: str = "a", **terms: Any) -> Vendor:
    """Return a vendor that knows facts."""
    vendor = Vendor("standard", mapped(*names.split(), **terms))
    vendor.take(facts)
    return vendor


def answer(vendor: Vendor, given: Answer) -> None:
    """Answer the only question."""
    (question,) = vendor.problems
    vendor.answers[question.id] = given
    vendor.reconcile()


# --- in which words ------------------------------------------------------------------------------

SUBSCRIBED = (order(subscriptions=("s",)), lines(line("a", item="1")), ACTIVE)
RENEWAL = order("6", 40, reason=OrderReason.RENEWAL, subscriptions=("s",))
UNNAMED = order("6", 40, reason=OrderReason.RENEWAL)
MAP = "map it with `licserver source map NAME x --product SLUG --go-on`"
HAND = "use `licserver source sync`, or extend or issue its license by hand"


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        pytest.param(
            [order(), lines(line("x"))],
            SaleProblem(
                "unmapped:line:5/1:x",
                ProblemKind.UNMAPPED,
                f"order 5: x is not mapped; {MAP}",
                "order:5",
                ("x",),
            ),
            id="not mapped",
        ),
        pytest.param(
            [order(), lines(line("x", 3))],
            SaleProblem(
                "unmapped:line:5/1:x",
                ProblemKind.UNMAPPED,
                f"order 5: 3 of x are not mapped; {MAP}",
                "order:5",
                ("x",),
            ),
            id="several that are not mapped",
        ),
        pytest.param(
            [order(), lines(Line("1", ("x", "y"), "y", 1))],
            SaleProblem(
                "unmapped:line:5/1:y",
                ProblemKind.UNMAPPED,
                f"order 5: x or y is not mapped; {MAP}",
                "order:5",
                ("x", "y"),
            ),
            id="not mapped, by several ids",
        ),
        pytest.param(
            [order(), lines(line(""))],
            SaleProblem(
                "lines:line:5/1",
                ProblemKind.LINES,
                "order 5: which product was bought is not in the report; issue by hand",
                "order:5",
            ),
            id="a deleted product",
        ),
        pytest.param(
            [order(), lines(line("a", None))],
            SaleProblem(
                "quantity:line:5/1",
                ProblemKind.QUANTITY,
                "order 5: how many of a were bought is not in the report; give the source an API key, "
                "map it with `--quantity`, or issue by hand",
                "order:5",
                ("a",),
            ),
            id="quantity",
        ),
        pytest.param(
            [order(), lines(line("a", 1_001))],
            SaleProblem(
                "quantity:line:5/1",
                ProblemKind.MANY,
                "order 5: 1001 of a were bought; 1000 for a line and 10000 for a sale are issued at most: "
                "issue by hand",
                "order:5",
                ("a",),
            ),
            id="too many",
        ),
        pytest.param(
            [order()],
            SaleProblem(
                "lines:5",
                ProblemKind.LINES,
                "order 5: what was bought is not in the report; give the source an API key, or issue by hand",
                "order:5",
            ),
            id="lines",
        ),
        pytest.param(
            [order(), lines(line("a"), is_complete=False)],
            SaleProblem(
                "lines:5",
                ProblemKind.LINES,
                "order 5: not all that was bought is in the report; give the source an API key, "
                "or issue by hand",
                "order:5",
            ),
            id="some lines",
        ),
        pytest.param(
            [order(state=OrderState.UNKNOWN, shop_state="wc-shipped"), lines(line("a"))],
            SaleProblem(
                "state:5:wc-shipped",
                ProblemKind.STATE,
                "order 5 is paid, and its state wc-shipped is not known; choose what it means with "
                "`licserver source change NAME --state wc-shipped=paid`, then repeat the delivery with "
                "`licserver source replay`",
                "order:5",
            ),
            id="state",
        ),
        pytest.param(
            [UNNAMED],
            SaleProblem(
                "purchase:order:6",
                ProblemKind.SUBSCRIPTION,
                f"order 6 renews a subscription that it does not name; {HAND}",
                "order:6",
            ),
            id="renewal without a subscription",
        ),
        pytest.param(
            [RENEWAL],
            SaleProblem(
                "purchase:subscription:s",
                ProblemKind.SUBSCRIPTION,
                f"subscription s was paid, and its purchase is not known; {HAND}",
                "subscription:s",
            ),
            id="renewal without a purchase",
        ),
    ],
)
def test_what_a_purchase_asks(facts: list[Fact], asked: SaleProblem) -> None:
    """Each in a sentence that says what to do, under the same id as long as it is open."""
    vendor = sell(*facts)
    assert vendor.problems == [asked]
    assert asked.answers == LEAVE
    answer(vendor, Answer.LEAVE)
    assert vendor.problems == []


@pytest.mark.parametrize(
    ("change", "rules", "asked"),
    [
        pytest.param(
            items(line("b"), days=1),
            {"follows_changes": False},
            SaleProblem(
                "change:item:1:b",
                ProblemKind.CHANGE,
                "subscription s is for b now, and its license is not: follow the change",
                "subscription:s",
                ("b",),
                CHOICE,
            ),
            id="plan",
        ),
        pytest.param(
            items(line("a", 3), days=1),
            {"follows_changes": False},
            SaleProblem(
                "quantity:item:1:3",
                ProblemKind.CHANGE,
                "subscription s pays for 3 of a; 1 were issued: issue more",
                "subscription:s",
                ("a",),
                CHOICE,
            ),
            id="more",
        ),
        pytest.param(
            items(line("a", 0), days=1),
            {"follows_changes": False},
            SaleProblem(
                "quantity:item:1:0",
                ProblemKind.FEWER,
                "subscription s pays for 0 licenses of a; 1 were issued, and 0 are in use: "
                "revoke what is not paid",
                "subscription:s",
                ("a",),
                CHOICE,
            ),
            id="fewer",
        ),
        pytest.param(
            items(line("x"), days=1),
            {},
            SaleProblem(
                "unmapped:item:1:x",
                ProblemKind.UNMAPPED,
                f"subscription s: x is not mapped; {MAP}",
                "subscription:s",
                ("x",),
            ),
            id="a plan that is not mapped",
        ),
    ],
)
def test_what_a_change_asks(change: Lines, rules: dict[str, bool], asked: SaleProblem) -> None:
    """The license stays as it is until a person has answered."""
    vendor = sell(*SUBSCRIBED, names="a b")
    vendor.rules = Rules(GRACE, **rules)
    vendor.take([change])
    assert vendor.problems == [asked]
    assert [license_.item for license_ in vendor.valid] == ["a"]


def test_the_most_that_is_issued() -> None:
    """For a line, and for a sale; the lines before it are served."""
    many = [line("a", 1_000, str(number)) for number in range(10)]
    vendor = sell(order(), lines(*many, line("a", 1, "x"), line("a", 0, "y")))
    assert (len(vendor.valid), vendor.asked) == (10_000, ["MANY"])
    assert vendor.problems[0].text.startswith("order 5: 1 of a were bought; 1000 for a line and 10000 ")
    vendor = sell(order(), lines(line("a", 10**9), line("a", 2, "2"), line("x", 10**9, "3")))
    assert (len(vendor.valid), vendor.asked) == (2, ["MANY", "UNMAPPED"])
    free = Vendor("standard", {**mapped("a"), **mapped("free", product=None)})
    free.take([order(), lines(line("free", 10**9), line("a", 1, "2"))])
    assert (len(free.valid), free.asked) == (1, [])


def test_a_subscription_that_grows_beyond_the_most_that_is_issued() -> None:
    """Its licenses stay, also if its plan changes at the same time; what is over or ignored asks nothing."""
    vendor = sell(*SUBSCRIBED, names="a b")
    vendor.mappings |= mapped("other", product="other")
    vendor.take([items(line("a", 1_001), days=1)])
    assert (len(vendor.valid), vendor.asked) == (1, ["MANY"])
    vendor.take([items(line("other", 1_001), days=2)])
    assert ([license_.terms.product for license_ in vendor.valid], vendor.asked) == (["other"], ["MANY"])
    vendor.take([items(line("other", 1_000), days=3)])
    assert (len(vendor.valid), vendor.asked) == (1_000, [])
    vendor.mappings |= mapped("other", product=None)
    vendor.take([items(line("other", 1_001), days=4)])
    assert (len(vendor.valid), vendor.asked) == (1_000, [])
    vendor.mappings |= mapped("other", product="other")
    vendor.take([refund(orders=("5",)), items(line("other", 1_002), days=5)])
    assert (len(vendor.valid), vendor.asked) == (0, [])


def test_an_order_that_was_changed_after_its_licenses_of_before_were_issued_asks() -> None:
    """For each line that may be the one of a license; ids may have colons."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses.append(earlier(1, "old", "5:1"))
    vendor.take([order("5:1"), lines(line("x"), line("y", id_="2"), order_id="5:1")])
    text = "order 5:1 was changed after its licenses were issued, and it is not known whether they are for"
    by_hand = "issue a license by hand if one is missing"
    kind, about = ProblemKind.UNCLEAR, "order:5:1"
    assert vendor.problems == [
        SaleProblem("unclear:line:5:1/1", kind, f"{text} x; {by_hand}", about, ("x",)),
        SaleProblem("unclear:line:5:1/2", kind, f"{text} y; {by_hand}", about, ("y",)),
    ]


def test_a_refund_of_an_unknown_share_asks() -> None:
    """Once its license is known, and as long as it is not revoked."""
    part = refund(is_full=None, amount=Decimal(5))
    assert sell(part).problems == []
    vendor = sell(order(), lines(line("a")))
    vendor.take([part])
    text = "order 5 was refunded, and it is not known whether in part or all; revoke its licenses "
    text += "by hand if it was all, or leave it"
    assert vendor.problems == [SaleProblem("refund:5", ProblemKind.REFUND, text, "order:5")]


@pytest.mark.parametrize("has_api", [True, False])
def test_a_refund_of_unknown_lines_asks(has_api: bool) -> None:
    """It names three of them at most, each by its beginning; a shop without an API can send it again."""
    names = [f"{number}{'x' * 50}" for number in range(4)]
    named = refund(is_full=None, lines=tuple(RefundedLine(name) for name in names))
    vendor = Vendor("standard", mapped("a"), Rules(GRACE, has_api=has_api))
    vendor.take([order(), lines(line("a"))])
    vendor.take([named])
    shown = ", ".join(f"'{name[:40]}'" for name in names[:3])
    again = "" if has_api else "send the refund again with the right one and a later `timestamp`; or "
    text = f"order 5: a refund names {shown}, which is no line of it; {again}"
    text += "revoke its license by hand, or leave it"
    assert vendor.problems == [SaleProblem("refund:5", ProblemKind.REFUND, text, "order:5")]


def test_a_renewal_for_an_unknown_time_asks() -> None:
    """Its licenses are extended by hand, or by what the API knows."""
    vendor = sell(*SUBSCRIBED, order(subscriptions=("s",), ends_at=DAY + timedelta(days=30)))
    vendor.take([RENEWAL])
    text = "subscription s was paid for a time that is not known; extend its licenses with "
    text += "`licserver subscription end s --at YYYY-MM-DD`"
    assert vendor.problems == [SaleProblem("period:s", ProblemKind.PERIOD, text, "subscription:s")]
    assert vendor.result.fetches == (Fetch("subscription", "s", "subscription:s"),)


def test_a_renewal_that_is_refunded_asks_for_the_end() -> None:
    """Of a shop whose payments name no period: to extend the licenses would be the wrong advice."""
    vendor = sell(*SUBSCRIBED, order(subscriptions=("s",)))
    refunded = order("7", 70, reason=OrderReason.RENEWAL, subscriptions=("s",), state=OrderState.REFUNDED)
    vendor.take([RENEWAL, refunded])
    text = "subscription s: a payment does not count any more, and until when the others paid is not "
    text += "known; change the end of its licenses by hand, or leave it"
    assert vendor.problems == [SaleProblem("period:s", ProblemKind.PERIOD, text, "subscription:s")]

    # Once it has ended, there is nothing to decide any more.
    ended_at = DAY + timedelta(days=90)
    vendor.take([replace(ACTIVE, reported_at=ended_at, state=SubscriptionState.ENDED, ended_at=ended_at)])
    assert (vendor.problems, vendor.ends) == ([], [ended_at])


def test_a_first_renewal_that_is_refunded_asks_for_the_end() -> None:
    """The period that the subscription reports is that of the refunded payment."""
    dates = {"reported_at": DAY + timedelta(days=41), "ends_at": DAY + timedelta(days=70)}
    vendor = sell(order(), lines(line("a")), replace(ACTIVE, orders=("5",), **dates), RENEWAL)
    assert vendor.asked == []
    vendor.take([replace(RENEWAL, reported_at=DAY + timedelta(days=42), state=OrderState.REFUNDED)])
    assert vendor.asked == ["PERIOD"]


# --- what is not asked ---------------------------------------------------------------------------


def test_a_renewal_of_what_issues_nothing_asks_nobody() -> None:
    """Its purchase is unknown, and would have issued no license; of one line that may, it is asked."""
    ignored = mapped("free", product=None)
    for renewal in (RENEWAL, UNNAMED):
        vendor = Vendor("standard", ignored)
        vendor.take([renewal, lines(line("free"), order_id="6")])
        assert vendor.problems == []
        vendor.take([lines(line("free"), line("b", id_="2"), order_id="6", days=1)])
        assert vendor.asked == ["SUBSCRIPTION"]


def test_an_order_whose_state_and_payment_are_unknown_waits() -> None:
    """It is neither paid nor refused."""
    vendor = sell(order(state=OrderState.UNKNOWN, paid_at=None), lines(line("a")))
    assert (vendor.licenses, vendor.problems) == ([], [])


def test_items_of_a_subscription_that_nobody_has_bought_issue_nothing() -> None:
    """They may be of a shop that is not a source, or the purchase has not arrived."""
    vendor = sell(ACTIVE, items(line("a")))
    assert (vendor.licenses, vendor.problems) == ([], [])


def test_a_license_of_before_beside_the_items_of_its_subscription() -> None:
    """No item is left for it: it stays, and ends with the subscription."""
    vendor = Vendor("standard", mapped("a"))
    vendor.licenses += [earlier(1, "a", "5"), earlier(2, "old", "5", product="other")]
    cancelled = Subscription(id="s", reported_at=DAY, state=SubscriptionState.ACTIVE, cancels_at=DAY)
    vendor.take([order(subscriptions=("s",)), items(line("a", id_="i")), cancelled])
    assert [(license_.key, license_.subscription_id) for license_ in vendor.valid] == [
        ("earlier:5/a", "s"),
        ("earlier:5/old", "s"),
    ]
    assert vendor.ends == [DAY, DAY]
    assert vendor.problems == []


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ([order(), lines(line("free"))], "no license of order 5: what was bought is mapped to none"),
        ([order(), lines(line("free"), line("x", id_="2"))], ""),
        ([order(), lines()], ""),
        ([order(), lines(line("a"))], ""),  # it has one
        ([refund()], ""),  # whether there is a purchase is not known
        ([refund(), order(), lines(line("a"))], "no license of order 5: the order was refunded"),
        ([order(state=OrderState.HELD, paid_at=None)], "no license of order 5: the order is on hold"),
    ],
)
def test_why_there_is_no_license(facts: list[Fact], why: str) -> None:
    """As far as it is known."""
    vendor = Vendor("standard", {**mapped("a"), **mapped("free", product=None)})
    vendor.take(facts)
    assert vendor.result.nothing == why


# --- answered by a license that a person has issued ---------------------------------------------


@pytest.mark.parametrize(
    ("facts", "then"),
    [
        ([order(), lines(line("x"))], None),
        ([order(), lines(line("a", None))], lines(line("a", 2), days=1)),
        ([order(), lines(line(""))], lines(line("a"), days=1)),
        ([order()], lines(line("a"))),
        (
            [order(state=OrderState.UNKNOWN, shop_state="own"), lines(line("a"))],
            order(days=1, shop_state="own"),
        ),
        ([RENEWAL], order(subscriptions=("s",))),
    ],
    ids=["mapping", "quantity", "product", "lines", "state", "purchase"],
)
def test_a_sale_that_was_served_by_hand_issues_nothing_more(facts: list[Fact], then: Fact | None) -> None:
    """Whatever the shop reports later of it, or whatever is mapped."""
    vendor = sell(*facts)
    answer(vendor, Answer.ISSUED)
    vendor.mappings |= mapped("x")
    more = [] if then is None else [then]
    vendor.take([*more, items(line("a"))] if facts == [RENEWAL] else more or facts)
    assert (vendor.licenses, vendor.problems) == ([], [])


def test_a_sale_beside_one_that_was_served_by_hand() -> None:
    """Another line of the same order still issues its license."""
    vendor = sell(order(), lines(line("x"), line("a", id_="2")))
    answer(vendor, Answer.ISSUED)
    vendor.mappings |= mapped("x")
    vendor.reconcile()
    assert [license_.key for license_ in vendor.licenses] == ["line:5/2"]


# --- what is looked up ---------------------------------------------------------------------------


def test_what_the_api_is_asked_for() -> None:
    """By each name of an order, of which the shop knows one."""
    fetches = sell(order("pi", names=("cs", "ch"))).result.fetches
    assert fetches == tuple(Fetch("lines", name, "order:pi") for name in ("ch", "cs", "pi"))
    assert sell(order(), lines(line("a", None))).result.fetches == (Fetch("lines", "5", "order:5"),)
    assert sell(RENEWAL).result.fetches == (Fetch("subscription", "s", "subscription:s"),)
    disputed = Dispute(id="d", reported_at=DAY, state=DisputeState.OPEN, orders=("ch",))
    assert sell(disputed).result.fetches == (Fetch("payment", "ch", "order:ch"),)
    won = Dispute(id="d", reported_at=DAY, state=DisputeState.WON, orders=("ch",))
    assert sell(won).result.fetches == ()
    served = Vendor("standard", mapped("a"))
    served.licenses.append(earlier(1, "a", "5"))
    served.take([refund()])
    assert served.result.fetches == ()


def test_the_customer_is_looked_up_once_for_what_is_new() -> None:
    """The contact that was reported last counts; an address that is known is not looked up."""
    contacts = [
        Contact(id=str(day), reported_at=DAY + timedelta(days=day), orders=("5",), customer_id=f"c{day}")
        for day in (1, 2)
    ]
    vendor = sell(order(), lines(line("a", 2)), *contacts)
    assert vendor.result.fetches == (Fetch("customer", "c2", "order:5"),)
    vendor.reconcile()
    assert vendor.result.fetches == ()
    known = Contact(id="0", reported_at=DAY, orders=("5",), email="a@example.com", language="de")
    vendor = sell(order(), lines(line("a")), *contacts, known)
    assert vendor.result.fetches == ()
    assert [(license_.email, license_.language) for license_ in vendor.licenses] == [("a@example.com", "de")]
    other = Contact(id="9", reported_at=DAY + timedelta(days=9), orders=("9",), email="b@example.com")
    vendor = sell(*SUBSCRIBED, known, other)
    assert [license_.email for license_ in vendor.licenses] == ["a@example.com"]


def test_the_contact_of_a_subscription() -> None:
    """Also that of an earlier order of it."""
    contact = Contact(id="s", reported_at=DAY, subscriptions=("s",), email="s@example.com")
    assert [license_.email for license_ in sell(*SUBSCRIBED, contact).licenses] == ["s@example.com"]
    again = order("7", 40, subscriptions=("s",))
    of_first = Contact(id="5", reported_at=DAY, orders=("5",), email="a@example.com")
    vendor = sell(*SUBSCRIBED, again, of_first, items(line("a"), line("b", id_="2"), days=41), names="a b")
    assert [(license_.email, license_.order_id) for license_ in vendor.licenses] == [
        ("a@example.com", "5"),
        ("a@example.com", "7"),
    ]


# --- terms ---------------------------------------------------------------------------------------


def test_all_terms_of_a_mapping() -> None:
    """Periods begin with the payment."""
    terms = {"slots": 2, "lifetime": True, "plan": "pro", "floating_seats": 4}
    vendor = sell(order(days=-10), lines(line("a")), expires_in="1m", support="1y", **terms)
    (license_,) = vendor.licenses
    assert {name: getattr(license_.terms, name) for name in terms} == terms
    assert (license_.terms.product, license_.terms.expires_on) == ("app", date(2026, 7, 5))
    assert license_.terms.support_until == date(2027, 6, 5)
    assert (license_.number, license_.item, license_.order_id) == (1, "a", "5")
    (plain,) = sell(order(), lines(line("a"))).licenses
    assert (plain.terms.expires_on, plain.terms.support_until) == (None, None)


def test_an_order_that_was_paid_at_no_known_time_counts_from_its_report() -> None:
    """It is the only instant that is known."""
    vendor = sell(order(paid_at=None), lines(line("a")), expires_in="1m")
    assert vendor.licenses[0].terms.expires_on == date(2026, 7, 15)


def test_no_day_of_its_own_beside_the_end_of_a_subscription() -> None:
    """A license without that end has the day of its mapping."""
    paid = order(subscriptions=("s",), ends_at=DAY + timedelta(days=30))
    ended = sell(paid, lines(line("a", item="1")), expires_in="1y").licenses[0]
    assert (ended.terms.expires_on, ended.ends_at) == (None, DAY + timedelta(days=30) + GRACE)
    report = Subscription(id="s", reported_at=DAY, state=SubscriptionState.ACTIVE, orders=("5",))
    (endless,) = sell(order(), lines(line("a", item="1")), report, expires_in="1y").licenses
    assert (endless.subscription_id, endless.expires_on, endless.ends_at) == ("s", date(2027, 6, 15), None)


# --- how many ------------------------------------------------------------------------------------


def test_numbers_of_licenses_that_come_and_go() -> None:
    """Those in use stay; what was not paid comes back before a new one is issued."""
    vendor = sell(*SUBSCRIBED, items(line("a", 3), days=1))
    assert [license_.number for license_ in vendor.licenses] == [1, 2, 3]
    vendor.licenses[2].in_use = 1
    vendor.take([items(line("a", 1), days=2)])
    assert [license_.number for license_ in vendor.valid] == [3]
    assert {license_.revoked for license_ in vendor.licenses} == {None, "fewer are paid than were issued"}
    vendor.take([items(line("a", 4), days=3)])
    assert [license_.number for license_ in vendor.licenses] == [1, 2, 3, 4]
    assert len(vendor.valid) == 4


def test_fewer_than_are_in_use() -> None:
    """A person is asked, also by default; with the answer those that are used least go."""
    vendor = sell(*SUBSCRIBED, items(line("a", 3), days=1))
    for license_ in vendor.licenses[1:]:
        license_.in_use = 2
    vendor.take([items(line("a", 1), days=2)])
    text = "subscription s pays for 1 license of a; 3 were issued, and 2 are in use: revoke what is not paid"
    assert [(question.text, question.id) for question in vendor.problems] == [(text, "quantity:item:1:1")]
    assert len(vendor.valid) == 3
    answer(vendor, Answer.FOLLOW)
    assert [issued.number for issued in vendor.valid] == [2]
    vendor.take([items(line("a", 2), days=3)])
    assert [issued.number for issued in vendor.valid] == [2, 3]


def test_what_is_more_than_was_issued_while_it_is_refunded() -> None:
    """Nothing is issued, and nobody is asked to map anything."""
    vendor = sell(order(), lines(line("a")))
    vendor.mappings.clear()
    vendor.take([refund(), lines(line("a", 2), days=1)])
    assert (vendor.valid, len(vendor.licenses), vendor.problems) == ([], 1, [])


def test_a_line_that_is_gone() -> None:
    """Its license is not paid any more; one of before, or beside lines that are not all known, stays."""
    vendor = sell(order(), lines(line("a"), line("b", id_="2")), names="a b")
    vendor.take([lines(line("a"), is_complete=False, days=1)])
    assert len(vendor.valid) == 2
    vendor.take([lines(line("a"), days=2)])
    assert [license_.item for license_ in vendor.valid] == ["a"]
    assert vendor.licenses[1].revoked == "fewer are paid than were issued"


def test_two_orders_do_not_share_their_licenses() -> None:
    """Each of two of one product has its own, also with ids that differ by a separator alone."""
    vendor = Vendor("standard", mapped("a"))
    for id_ in ("1", "1/1", "1@1", "1%401"):
        vendor.take([order(id_), lines(line("a"), order_id=id_)])
    assert len({license_.key for license_ in vendor.licenses}) == len(vendor.valid) == 4


def test_an_order_with_too_many_refunds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Further ones are not stored: a person is asked, also of an order whose lines have two subscriptions."""
    monkeypatch.setattr("licserver.shops.desired.MAX_REFUNDS", 2)
    bought = [
        shops.standard(
            "purchase.completed", order_id="1", external_id=name, subscription_id=name, paid_through=text(30)
        )
        for name in ("a", "b")
    ]
    refunds = [
        shops.standard("purchase.refunded", text(1), order_id="1", refund_id=f"{number}", external_id="a")
        for number in range(2)
    ]
    for vendor in play("standard", "a b", *bought, *refunds):
        assert vendor.asked == ["REFUND"]
    for vendor in play("standard", "a b", *bought, refunds[0]):
        assert vendor.asked == []
