"""What is known of an order's payment, refunds and disputes: each question by itself."""

from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from harness.contracts import GRACE, at
from licserver.shops.changes import DISPUTED, REFUNDED
from licserver.shops.contract import Rules
from licserver.shops.facts import (
    Dispute,
    DisputeState,
    Line,
    Lines,
    Order,
    OrderReason,
    OrderState,
    Payment,
    Refund,
    RefundedLine,
    RefundState,
)
from licserver.shops.orders import OrderFacts, Share, group_orders

RULES = Rules(GRACE)
MADE, VOID, PENDING = RefundState.MADE, RefundState.VOID, RefundState.PENDING
OPEN, WON, LOST, REVERSAL = DisputeState.OPEN, DisputeState.WON, DisputeState.LOST, DisputeState.REVERSAL


def money(amount: str | None) -> Decimal | None:
    """Return an amount."""
    return None if amount is None else Decimal(amount)


def refund(
    amount: str | None = None,
    state: RefundState = MADE,
    *,
    day: float = 1,
    full: bool | None = None,
    id_: str = "r",
) -> Refund:
    """Return a refund of order 1."""
    return Refund(id=id_, reported_at=at(day), state=state, orders=("1",), amount=money(amount), is_full=full)


def payment(total: str, refunded: str, *, day: float = 1, id_: str = "p") -> Payment:
    """Return a payment of order 1."""
    return Payment(id=id_, reported_at=at(day), orders=("1",), total=money(total), refunded=money(refunded))


def order(total: str | None = "10", refunded: str | None = None, *, day: float = 0, **more: Any) -> Order:
    """Return order 1."""
    known = {"id": "1", "reported_at": at(day), "state": OrderState.PAID, "total": money(total)}
    return Order(**{**known, "refunded": money(refunded), **more})


def facts(*parts: Any) -> OrderFacts:
    """Return what is known of the one order that facts are about."""
    (group,) = group_orders(parts)
    return group


SHARES = {
    "nothing": ([order()], Share.NONE),
    "a part": ([order(), refund("9.99")], Share.PART),
    "parts that add up": ([order(), refund("4", id_="a"), refund("6", id_="b")], Share.ALL),
    "more than all": ([order(), refund("11")], Share.ALL),
    "a full one": ([order(None), refund(full=True)], Share.ALL),
    "a full one that failed": ([order(), refund("10", VOID, full=True)], Share.NONE),
    "one that waits": ([order(), refund("10", PENDING)], Share.NONE),
    "of no size": ([order(), refund()], Share.PART),
    "of an unknown total": ([order(None), refund("10")], Share.PART),
    "of a free order": ([order("0"), refund("0")], Share.PART),
    "of a small order": ([order("0.5"), refund("0.5")], Share.ALL),
    "of a small part": ([order("0.5"), order("0.5", "0.2", day=1)], Share.PART),
    "as the order reports it": ([order("10", "10")], Share.ALL),
    "as the order reports in part": ([order("10", "4")], Share.PART),
    "the sum and its parts": ([order("10", "4"), refund("4")], Share.PART),
    "the sum and a later part": ([order("10", "4"), refund("6", day=2)], Share.PART),
    "a sum of before one failed": ([order("10", "10", day=1), refund("10", VOID, day=2)], Share.NONE),
    "a sum of the instant at which one failed": ([order("10", "10", day=1), refund("10", VOID)], Share.NONE),
    "a sum of after one failed": ([order("10", "10", day=3), refund("10", VOID, day=2)], Share.ALL),
    "a sum beside one of no size that failed": (
        [order("10", "10", day=1), refund(None, VOID, day=2)],
        Share.ALL,
    ),
    "a sum beside one that was made later": ([order("10", "4", day=1), refund("4", day=2)], Share.PART),
    "by its payments": ([order("99"), payment("10", "10")], Share.ALL),
    "of one of two payments": (
        [order("20"), payment("10", "10", id_="p"), payment("10", "0", id_="q")],
        Share.PART,
    ),
    "of both payments": (
        [order("20"), payment("10", "10", id_="p"), payment("10", "10", id_="q", day=2)],
        Share.ALL,
    ),
}


@pytest.mark.parametrize(("parts", "share"), SHARES.values(), ids=SHARES.keys())
def test_how_much_was_refunded(parts: list[Any], share: Share) -> None:
    """By refunds, by the sums of payments and by that of the order, which contains the refunds."""
    assert facts(*parts).find_refunded_share() is share


@pytest.mark.parametrize(
    ("parts", "is_unknown"),
    [
        ([order(), refund("4")], False),
        ([order(None), refund("4")], True),
        ([order(), refund()], True),
        ([order(), refund(full=False)], False),
        ([order(), refund(full=False, id_="a"), refund(full=False, id_="b")], True),
        ([order(), refund("4", full=False, id_="a"), refund("4", full=False, id_="b")], False),
        ([order(), refund(full=False, id_="a"), refund(full=False, id_="b", state=VOID)], False),
        ([order(), refund(full=True, id_="a"), refund(full=False, id_="b")], False),
        ([order(), refund(state=VOID)], False),
        ([order()], False),
        ([refund("4")], True),
    ],
)
def test_whether_the_size_of_a_refund_is_unknown(parts: list[Any], is_unknown: bool) -> None:
    """A part of unknown size is known to be a part; two of them may be all."""
    assert facts(*parts).has_unknown_share() is is_unknown


@pytest.mark.parametrize(
    ("states", "is_disputed"),
    [
        ([], False),
        ([DisputeState.INQUIRY], False),
        ([OPEN], True),
        ([WON], False),
        ([LOST], True),
        ([LOST, WON], True),
        ([OPEN, WON], True),
        ([OPEN, REVERSAL], False),
        ([OPEN, OPEN, REVERSAL], True),
        ([WON, REVERSAL], False),
        ([OPEN, WON, REVERSAL], True),
    ],
)
def test_whether_a_dispute_holds(states: list[DisputeState], is_disputed: bool) -> None:
    """A reversal takes back an open dispute, unless it has changed the state of its own one."""
    disputes = [
        Dispute(id=f"d{number}", reported_at=at(number), state=state, orders=("1",))
        for number, state in enumerate(states)
    ]
    assert facts(order(), *disputes).is_disputed() is is_disputed


def test_a_refund_that_failed_after_all_others() -> None:
    """The latest of them; one that failed before another was made is not meant to be that."""
    made, early = refund("4", id_="a", day=2), refund("4", VOID, id_="b", day=1)
    late, last = refund("4", VOID, id_="c", day=3), refund("4", VOID, id_="d", day=4)
    assert facts(order(), made, early, late, last).find_failed_beside() == last
    assert facts(order(), made, late, refund("4", VOID, id_="e", day=3)).find_failed_beside().id == "e"
    assert facts(order(), made, early).find_failed_beside() is None
    assert facts(order(), made, refund("4", VOID, id_="b", day=2)).find_failed_beside() is None
    assert facts(order(), late).find_failed_beside() is None


def test_an_order_that_is_paid_again() -> None:
    """After its last refund and its last dispute that holds; of an order that is not known nothing is."""

    def dispute(state: DisputeState, day: float) -> Dispute:
        return Dispute(id="d", reported_at=at(day), state=state, orders=("1",))

    def is_again(paid_at: datetime | None, *ends: Any) -> bool:
        return facts(order(paid_at=paid_at), *ends).is_paid_again()

    assert is_again(at(3), refund("4", day=2))
    assert is_again(at(3), dispute(OPEN, 2))
    assert is_again(at(3), dispute(LOST, 2))
    assert not is_again(at(3), refund("4", day=3))
    assert not is_again(at(3), dispute(WON, 2))
    assert not is_again(at(3), refund("4", VOID, day=2))
    assert not is_again(None, refund("4", day=2))
    assert not is_again(at(3))
    assert not facts(refund("4", day=2)).is_paid_again()


def test_whether_it_was_paid_at_some_time() -> None:
    """By its state, as the vendor translates it, or by an instant."""
    held = order(state=OrderState.HELD, shop_state="waiting")
    assert not facts(held).was_paid(RULES)
    assert facts(held).was_paid(Rules(GRACE, states={"waiting": OrderState.PAID}))
    assert facts(order(state=OrderState.REFUNDED)).was_paid(RULES)
    assert facts(order(state=OrderState.HELD, paid_at=at(0))).was_paid(RULES)
    assert not facts(refund("4")).was_paid(RULES)
    assert facts(refund("4")).find_state(RULES) is OrderState.UNKNOWN


def test_what_was_bought_counts_from_its_payment() -> None:
    """From the report, if that does not contain when it was paid."""
    assert facts(order(day=3, paid_at=at(1))).find_paid_at() == at(1)
    assert facts(order(day=3)).find_paid_at() == at(3)
    assert facts(refund("4")).find_paid_at() is None


DISPUTE = Dispute(id="d", reported_at=at(1), state=OPEN, orders=("1",))


@pytest.mark.parametrize(
    ("parts", "refusal"),
    [
        ([order()], None),
        ([order(state=OrderState.PENDING)], "the order is not paid"),
        ([order(state=OrderState.HELD)], "the order is on hold"),
        ([order(state=OrderState.FAILED)], "the payment failed"),
        ([order(state=OrderState.CANCELLED)], "the order was cancelled"),
        ([order(state=OrderState.REFUNDED)], REFUNDED),
        ([order(), refund("10")], REFUNDED),
        ([order(), refund("4")], None),
        ([order(), DISPUTE], DISPUTED),
        ([order(state=OrderState.CANCELLED), DISPUTE], DISPUTED),
        ([order(), refund("10"), DISPUTE], REFUNDED),
    ],
)
def test_why_a_sale_gives_no_license(parts: list[Any], refusal: str | None) -> None:
    """A refund before a dispute, and both before what the shop calls the order."""
    assert facts(*parts).find_revoked_reason(RULES) == refusal


def test_a_vendor_revokes_at_any_refund() -> None:
    """Of a part as well, if that is his rule."""
    rules = Rules(GRACE, revokes_partial_refunds=True)
    assert facts(order(), refund("4")).find_revoked_reason(rules) == REFUNDED
    assert facts(order()).find_revoked_reason(rules) is None


def lines(*listed: Line, is_complete: bool = True) -> Lines:
    """Return the lines of order 1."""
    return Lines(order_id="1", reported_at=at(0), lines=listed, is_complete=is_complete)


def back(*names: str, id_: str = "r", count: int | None = None) -> Refund:
    """Return a refund that names lines."""
    return replace(refund(full=False, id_=id_), lines=tuple(RefundedLine(name, count) for name in names))


TWO, ONE = Line("a", ("app",), "app", 2, names=("txn_a",)), Line(None, ("pro",), "pro", 1)


def test_how_many_of_a_line_are_refunded() -> None:
    """By any of its names, and never more than were bought; of an unknown quantity none."""
    by_id, by_name = back("a", count=1), back("txn_a", id_="s", count=1)
    assert facts(order(), lines(TWO), by_id).count_refunded(TWO) == 1
    assert facts(order(), lines(TWO), by_id, by_name).count_refunded(TWO) == 2
    assert facts(order(), lines(TWO), back("a", count=3)).count_refunded(TWO) == 2
    assert facts(order(), lines(TWO), back("a")).count_refunded(TWO) == 2
    assert facts(order(), lines(TWO), back("app")).count_refunded(TWO) == 0, "it has an id"
    assert facts(order(), lines(ONE), back("pro")).count_refunded(ONE) == 1
    unknown = TWO._replace(quantity=None)
    assert facts(order(), lines(unknown), by_id).count_refunded(unknown) == 0


@pytest.mark.parametrize(
    ("listed", "named", "share"),
    [
        (lines(TWO, ONE), ["a", "pro"], Share.ALL),
        (lines(TWO, ONE._replace(quantity=0)), ["a"], Share.ALL),
        (lines(TWO, ONE), ["a"], Share.PART),
        (lines(TWO, ONE, is_complete=False), ["a", "pro"], Share.PART),
        (lines(TWO, ONE._replace(quantity=None)), ["a", "pro"], Share.PART),
        (lines(ONE._replace(quantity=0)), ["pro"], Share.PART),
        (lines(), [], Share.PART),
        (order(), ["a"], Share.PART),
    ],
)
def test_all_lines_are_the_whole_order(listed: Any, named: list[str], share: Share) -> None:
    """What was paid for shipping is not asked for; a line that was removed is not either."""
    assert facts(order(), listed, back(*named)).find_refunded_share() is share


@pytest.mark.parametrize(
    ("listed", "returned", "is_unknown"),
    [
        (lines(TWO), back("a"), False),
        (lines(TWO), back("b"), True),
        (lines(TWO), back("a", "b"), True),
        (lines(TWO._replace(quantity=None)), back("a"), True),
        (lines(TWO), replace(back("b"), amount=Decimal(4)), False),
        (order(), back("a"), True),
    ],
)
def test_a_refund_of_a_line_that_is_not_known(listed: Any, returned: Refund, is_unknown: bool) -> None:
    """A person is asked, unless its amount is known."""
    assert facts(order(), listed, returned).has_unknown_share() is is_unknown


def test_a_refund_that_the_order_does_not_list_was_deleted() -> None:
    """By a later report of the order; of the same second it was made after that."""
    made = refund("10", day=1)
    assert facts(order(refund_ids=("r",), day=2), made).find_made() == [made]
    assert facts(order(refund_ids=(), day=2), made).find_made() == []
    assert facts(order(refund_ids=(), day=1), made).find_made() == [made]
    assert facts(order(refund_ids=None, day=2), made).find_made() == [made]
    assert facts(made).find_made() == [made]


def test_the_refunds_that_are_listed_and_not_known() -> None:
    """They are asked for; one that failed is known."""
    listed = order(refund_ids=("r", "s"))
    assert facts(listed, refund("4")).has_unread_refunds()
    assert not facts(listed, refund("4"), refund("4", VOID, id_="s")).has_unread_refunds()
    assert not facts(order(), refund("4")).has_unread_refunds()
    assert not facts(refund("4")).has_unread_refunds()


def test_an_order_of_parts_of_several_subscriptions_is_several() -> None:
    """Each has the newest report of its own parts, and their lines alone."""

    def part(name: str, subscription: str, day: float) -> list[Any]:
        lines = Lines(order_id="1", reported_at=at(day), lines=(), part=name)
        return [order(part=name, subscriptions=(subscription,), day=day), lines]

    first, second = group_orders([*part("a", "s1", 3), *part("b", "s1", 2), *part("c", "s2", 1)])
    assert (sorted(first.parts), sorted(second.parts)) == (["a", "b"], ["c"])
    assert first.order is not None
    assert second.order is not None
    assert (first.order.reported_at, second.order.reported_at) == (at(3), at(1))
    (single,) = group_orders([*part("a", "s1", 3), *part("b", "s1", 2)])
    assert sorted(single.parts) == ["a", "b"]


def test_of_two_orders_of_one_name_the_later_counts() -> None:
    """A shop calls it differently before it is paid."""
    pending = order(state=OrderState.PENDING, day=1, id="0", names=("1",))
    assert facts(order(day=2), pending).order == order(day=2)
    same = order(day=1, reason=OrderReason.PURCHASE)
    assert facts(pending, same).order == same, "of the same instant that with the higher id"
    parts = [order(part="a"), order("20", part="b")]
    assert facts(*parts).order == facts(*reversed(parts)).order == parts[1], "and of two parts the last one"


def test_a_renewal_is_never_the_order_that_has_sold_something() -> None:
    """Though a sender names that order; by its other names it is known as well."""
    renewal = order(id="2", reason=OrderReason.RENEWAL, names=("1", "in_9"))
    groups = group_orders([order(), renewal, refund("4"), replace(refund("6", id_="s"), orders=("in_9",))])
    assert [(group.names, [refund.id for refund in group.refunds]) for group in groups] == [
        ({"1"}, ["r"]),
        ({"2", "in_9"}, ["s"]),
    ]
