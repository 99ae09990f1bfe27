"""To when a subscription is paid, when it ends, and what it consists of: one function, without a contract."""

from datetime import datetime, timedelta
from functools import partial

import pytest

from harness.contracts import GRACE, at
from licserver.shops.changes import REFUNDED
from licserver.shops.contract import End, Rules
from licserver.shops.facts import (
    Line,
    Lines,
    Order,
    OrderReason,
    OrderState,
    Subscription,
    SubscriptionState,
)
from licserver.shops.orders import OrderFacts
from licserver.shops.subscriptions import SAME, Course, SubscriptionFacts

RULES = Rules(GRACE)
PURCHASE, RENEWAL, CHANGE = OrderReason.PURCHASE, OrderReason.RENEWAL, OrderReason.CHANGE
UNKNOWN = OrderReason.UNKNOWN
ACTIVE, PAUSED, ENDED = SubscriptionState.ACTIVE, SubscriptionState.PAUSED, SubscriptionState.ENDED
UNPAID = SubscriptionState.UNPAID
MOMENT = timedelta(seconds=1)


def paid(
    id_: str,
    day: float,
    until: float | None = None,
    reason: OrderReason = RENEWAL,
    state: OrderState = OrderState.PAID,
    *,
    start: float | None = None,
    resumes: bool = False,
    named: bool = True,
) -> OrderFacts:
    """Return an order that was paid on a day, for a period until another one."""
    order = Order(
        id=id_,
        reported_at=at(day),
        state=state,
        reason=reason,
        subscriptions=("s1",) if named else (),
        paid_at=at(day),
        starts_at=None if start is None else at(start),
        ends_at=None if until is None else at(until),
        resumes=resumes,
    )
    return OrderFacts({id_}, order)


def report(
    state: SubscriptionState,
    day: float,
    *,
    start: float | None = None,
    until: float | None = None,
    cancels: float | None = None,
    ended: float | None = None,
    period: str | None = None,
) -> Subscription:
    """Return what the shop reported of the subscription on a day."""

    def instant(number: float | None) -> datetime | None:
        return None if number is None else at(number)

    return Subscription(
        id="s1",
        reported_at=at(day),
        state=state,
        starts_at=instant(start),
        ends_at=instant(until),
        cancels_at=instant(cancels),
        ended_at=instant(ended),
        period=period,
    )


def course(*orders: OrderFacts, newest: Subscription | None = None, mapped: str | None = None) -> Course:
    """Return how the subscription goes on."""
    return SubscriptionFacts("s1", newest, orders=list(orders)).find_course(RULES, lambda _: mapped)


def awaited(day: float) -> End:
    """Return an end that a further payment moves, with the grace."""
    return End(at(day) + GRACE, is_final=False)


def final(day: float) -> End:
    """Return an end after which no payment is awaited."""
    return End(at(day), is_final=True)


BOUGHT = paid("1", 0, 30, PURCHASE)
DODO = partial(report, start=0, period="30d")  # whose payments name no period

ENDS = {
    "paid until a day": ([BOUGHT], None, awaited(30)),
    "renewed": ([BOUGHT, paid("2", 30, 60)], None, awaited(60)),
    "a change within the period": ([BOUGHT, paid("2", 10, 90, CHANGE)], None, awaited(30)),
    "never paid": ([paid("1", 0, 30, PURCHASE, OrderState.PENDING)], None, None),
    "paused": ([BOUGHT], report(PAUSED, 5), final(30)),
    "paused, and cancelled for later": ([BOUGHT], report(PAUSED, 5, cancels=60), final(30)),
    "paused, and cancelled for before": ([BOUGHT], report(PAUSED, 5, cancels=20), final(20)),
    "cancelled with the period": ([BOUGHT], report(ACTIVE, 5, cancels=30), final(30)),
    "cancelled within the period": ([BOUGHT], report(ACTIVE, 5, cancels=20), final(20)),
    "cancelled for after the period": ([BOUGHT], report(ACTIVE, 5, cancels=60), awaited(30)),
    "cancelled for soon after the period": (
        [BOUGHT],
        report(ACTIVE, 5, cancels=33),
        End(at(33), is_final=False),
    ),
    "cancelled, and nothing was paid": ([], report(ACTIVE, 5, cancels=20), final(20)),
    "renewed after it was cancelled": (
        [BOUGHT, paid("2", 30, 60)],
        report(ACTIVE, 5, cancels=30),
        awaited(60),
    ),
    "cancelled at the instant of a renewal": (
        [BOUGHT, paid("2", 30, 60)],
        report(ACTIVE, 30, cancels=30),
        final(30),
    ),
    "a trial": ([paid("1", 0.001, reason=UNKNOWN)], DODO(ACTIVE, 0.002, until=7), awaited(7)),
    "a trial of a day": ([paid("1", 0.001, reason=UNKNOWN)], DODO(ACTIVE, 0.002, until=1), awaited(1)),
    "a trial that nobody has paid for": (
        [paid("1", 0.001, reason=UNKNOWN)],
        DODO(UNPAID, 7.1, until=7),
        awaited(7),
    ),
    "a payment for a change of the plan": (
        [paid("1", 0, reason=UNKNOWN), paid("2", 20, reason=UNKNOWN)],
        DODO(ACTIVE, 20.1, until=30),
        awaited(30),
    ),
    "a payment beside a date that was put off": (
        [paid("1", 0.001, reason=UNKNOWN)],
        DODO(ACTIVE, 5, until=90),
        awaited(90),
    ),
    "a payment for the next period, of which no report is known": (
        [paid("1", 0, reason=UNKNOWN), paid("2", 29.9, reason=UNKNOWN)],
        DODO(ACTIVE, 0.1, until=30),
        awaited(59.9),
    ),
    "ended": ([BOUGHT], report(ENDED, 31, ended=30), final(30)),
    "ended, and it is not known when": ([BOUGHT], report(ENDED, 31), final(31)),
    "ended, and paid late": ([BOUGHT, paid("2", 40, 70)], report(ENDED, 31), final(31)),
    "ended, and resumed": ([BOUGHT, paid("2", 40, 70, resumes=True)], report(ENDED, 31), awaited(70)),
    "ended, and bought again": ([BOUGHT, paid("2", 40, 70, PURCHASE)], report(ENDED, 31), awaited(70)),
    "the shop's own period": ([BOUGHT], report(ACTIVE, 5, start=0, until=45), awaited(45)),
    "the shop's own period, which began a moment before its payment": (
        [paid("1", 0.001, None, PURCHASE)],
        report(ACTIVE, 5, start=0, until=90, period="30d"),
        awaited(90),
    ),
    "charged within the period": (
        [paid("1", 0, None, PURCHASE), paid("2", 10)],
        report(ACTIVE, 10, start=0, until=30, period="30d"),
        awaited(30),
    ),
    "paid after the shop's own period": (
        [paid("1", 0, None, PURCHASE), paid("2", 31)],
        report(ACTIVE, 10, start=0, until=30, period="30d"),
        awaited(61),
    ),
    "its payment is due": ([BOUGHT], report(UNPAID, 31, start=30), awaited(30)),
    "its payment is due, and was made": ([paid("2", 30, 60)], report(UNPAID, 31, start=30), awaited(60)),
    "its payment is due after a later day than was paid": (
        [paid("1", 0, 20, PURCHASE)],
        report(UNPAID, 31, start=30),
        awaited(30),
    ),
    "its payment is due, and it was cancelled for later": (
        [BOUGHT],
        report(UNPAID, 31, start=30, cancels=60),
        awaited(30),
    ),
    "a period that is not known": ([paid("1", 0, None, PURCHASE)], None, awaited(0)),
    "a period of the subscription": (
        [paid("1", 0, None, PURCHASE)],
        report(ACTIVE, 0, period="7d"),
        awaited(7),
    ),
}


@pytest.mark.parametrize(("orders", "newest", "end"), ENDS.values(), ids=ENDS.keys())
def test_when_it_ends_and_whether_a_payment_is_awaited(orders, newest, end) -> None:
    """By its orders and by what the shop reported last."""
    assert course(*orders, newest=newest).end == end


def test_a_renewal_counts_from_its_payment_by_the_mapped_period() -> None:
    """Where neither the order nor the subscription names one; a purchase has no mapped period."""
    renewal = paid("2", 30)
    assert course(BOUGHT, renewal, mapped="7d").end == awaited(37)
    assert course(BOUGHT, renewal, newest=report(ACTIVE, 5, period="14d"), mapped="7d").end == awaited(44)
    assert course(paid("1", 0, None, PURCHASE), mapped="7d").end == awaited(0)


@pytest.mark.parametrize(("hours", "day"), [(5, 7 + 5 / 24), (-5, 7), (30, 7 + 30 / 24)])
def test_of_a_counted_and_a_scheduled_end_that_are_nearly_the_same_the_later_counts(hours, day) -> None:
    """The schedule is of the same day, and may be some hours earlier; another day is another period."""
    newest = report(ACTIVE, 0.5, start=0, until=7 + hours / 24, period="7d")
    assert course(paid("1", 0, None, PURCHASE), newest=newest).end == awaited(day)


def test_the_edges_of_a_day() -> None:
    """Ends that are less than a day apart are the same end."""
    orders = [BOUGHT, paid("2", 30, 60)]
    within = report(ACTIVE, 5)
    for cancels_at, end in (
        (at(60) - SAME, End(at(60) + GRACE, is_final=False)),
        (at(60) - SAME + MOMENT, End(at(60) - SAME + MOMENT, is_final=True)),
    ):
        cancelled = Subscription(id="s1", reported_at=within.reported_at, state=ACTIVE, cancels_at=cancels_at)
        assert course(*orders, newest=cancelled).end == end
    for cancels_at, is_final in ((at(30) + SAME, False), (at(30) + SAME - MOMENT, True)):
        cancelled = Subscription(id="s1", reported_at=at(40), state=ACTIVE, cancels_at=cancels_at)
        assert course(BOUGHT, newest=cancelled).end == End(cancels_at, is_final=is_final)


def test_a_report_of_the_instant_of_a_payment_counts_as_later() -> None:
    """An end that is reported with a payment is not revived by it, and the payment is not late.

    But for a renewal of one's own shop, which states that the subscription goes on: what was paid counts.
    """
    ended = report(ENDED, 40)
    for order in (paid("2", 40, 70), paid("2", 40, 70, PURCHASE)):
        assert course(BOUGHT, order, newest=ended) == Course(final(40))
    assert course(BOUGHT, paid("2", 40, 70, resumes=True), newest=ended) == Course(awaited(70))
    assert course(BOUGHT, paid("2", 30, 40, resumes=True), newest=ended) == Course(final(40))


def test_what_was_paid_late_is_named_unless_it_goes_on() -> None:
    """For a time after the end; a late payment of an old period is none."""
    ended = report(ENDED, 31, ended=30)
    assert course(BOUGHT, paid("2", 40, 70), newest=ended).late == ("2",)
    assert course(BOUGHT, paid("2", 40), newest=ended).late == ("2",)
    assert course(BOUGHT, paid("2", 40, 30), newest=ended).late == ()
    again = paid("3", 50, 80, PURCHASE)
    assert course(BOUGHT, paid("2", 40, 70), again, newest=ended).late == ()
    assert course(BOUGHT, paid("2", 40, 70, CHANGE), newest=ended).late == ()
    at_once = paid("2", 31, 61, PURCHASE)
    assert course(BOUGHT, at_once, paid("3", 40, 70), newest=ended).late == ("3",), "it ended after that"


def test_what_was_paid_before_the_end_is_over_when_it_goes_on() -> None:
    """Though it is for a later time; what was paid in the second of the end goes on as well."""
    again, ended = paid("3", 50, 80, PURCHASE), report(ENDED, 40)
    assert course(BOUGHT, paid("2", 39, 90, start=60), again, newest=ended).end == awaited(80)
    assert course(BOUGHT, paid("2", 40, 90, start=60), again, newest=ended).end == awaited(90)


def test_a_refund_of_all_periods_refuses_it() -> None:
    """For the reason of the latest; one period that holds is enough."""
    refunded = paid("1", 0, 30, PURCHASE, OrderState.REFUNDED)
    assert course(refunded).revoked_reason == REFUNDED
    assert course(refunded, paid("2", 30, 60, state=OrderState.HELD)).revoked_reason == "the order is on hold"
    assert course(paid("2", 30, 60, state=OrderState.HELD), refunded).revoked_reason == "the order is on hold"
    assert course(refunded, paid("2", 30, 60)).revoked_reason is None
    assert course(refunded, paid("0", -30, None, CHANGE), paid("2", 30, 60)).end == awaited(60)
    unknown, held = paid("3", 0, None, RENEWAL, OrderState.REFUNDED), paid("2", 0, 30, state=OrderState.HELD)
    assert course(unknown, held).revoked_reason == REFUNDED, "of the same instant always the same"


def test_a_reported_period_whose_payment_was_taken_back_does_not_hold() -> None:
    """Unless a later one was paid, or it lasts longer than what was taken back."""
    refunded = paid("1", 0, 30, PURCHASE, OrderState.REFUNDED)
    assert course(refunded, newest=report(ACTIVE, 5, start=0, until=30)).revoked_reason == REFUNDED
    assert course(refunded, newest=report(ACTIVE, 5, start=0, until=31)).revoked_reason is None
    unknown = paid("1", 0, None, PURCHASE, OrderState.REFUNDED)
    assert course(unknown, newest=report(ACTIVE, 5, start=0, until=31)).revoked_reason == REFUNDED
    later = paid("2", 30, 60)
    assert course(refunded, later, newest=report(ACTIVE, 35, start=29, until=29)).end == awaited(60)
    moved = report(ACTIVE, 35, start=30, until=30.5)
    assert course(refunded, later, newest=moved).end == awaited(30.5)


def test_a_renewal_for_a_time_that_is_not_known_is_asked_about() -> None:
    """Unless a later period is known; a purchase is no renewal."""
    assert course(BOUGHT, paid("2", 30)).has_unknown_period
    assert course(paid("2", 30)).has_unknown_period
    assert not course(BOUGHT, paid("2", 30), paid("3", 60, 90)).has_unknown_period
    assert not course(BOUGHT, paid("2", 30), newest=report(ACTIVE, 31, start=30, until=60)).has_unknown_period
    assert not course(paid("1", 0, None, PURCHASE)).has_unknown_period


def test_only_what_names_the_subscription_is_paid_without_a_period() -> None:
    """An order that the subscription names, and that is of another kind, does not keep it."""
    assert course(paid("1", 0, None, PURCHASE, named=False)).end is None


# --- what it consists of


def lines_of(day: float, *lines: Line, is_complete: bool = True, since: float | None = None) -> Lines:
    """Return the lines of an order as reported on a day."""
    as_of = None if since is None else at(since)
    return Lines(order_id="o", reported_at=at(day), as_of=as_of, lines=lines, is_complete=is_complete)


def with_lines(order: OrderFacts, lines: Lines) -> OrderFacts:
    """Return an order with lines."""
    order.parts[""] = lines
    return order


PLAIN, ITEM = Line("l1", ("app",), "app", 1), Line("l2", ("pro",), "pro", 2, item_id="i1")


def items_of(*orders: OrderFacts, own: Lines | None = None) -> Lines | None:
    """Return what the subscription consists of."""
    return SubscriptionFacts("s1", items=own, orders=list(orders)).find_items()


def test_lines_that_name_items_are_what_it_consists_of() -> None:
    """Under the ids of the items; of a renewal all lines, and of a purchase without items none."""
    listing = items_of(with_lines(paid("1", 0, 30, PURCHASE), lines_of(0, PLAIN, ITEM, since=3)))
    assert listing == Lines(order_id="o", reported_at=at(0), as_of=at(3), lines=(ITEM._replace(id="i1"),))
    assert items_of(with_lines(paid("1", 0, 30, PURCHASE), lines_of(0, PLAIN))) is None
    renewed = items_of(with_lines(paid("2", 30, 60), lines_of(30, PLAIN)))
    assert renewed is not None
    assert renewed.lines == (PLAIN,)


def test_the_newest_listing_counts() -> None:
    """Its own before that of an order of the same instant; an incomplete one, or none, is passed over."""
    own = Lines(subscription_id="s1", reported_at=at(30), lines=(Line("i9", ("own",), "own", 1),))
    renewal = with_lines(paid("2", 30, 60), lines_of(30, PLAIN))
    assert items_of(renewal, own=own) == own
    newer = with_lines(paid("3", 60, 90), lines_of(60, ITEM))
    listing = items_of(renewal, newer, own=own)
    assert listing is not None
    assert [line.id for line in listing.lines] == ["i1"]
    partial = with_lines(paid("4", 90, 120), lines_of(90, PLAIN, is_complete=False))
    nameless = OrderFacts({"5"})
    again = items_of(renewal, newer, partial, nameless, paid("6", 95, 125), own=own)
    assert again == listing
    assert (
        items_of(partial, own=Lines(subscription_id="s1", reported_at=at(9), lines=(), is_complete=False))
        is None
    )
