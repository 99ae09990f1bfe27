"""A subscription with its orders: to when it is paid, when it ends, and what it consists of."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from licserver.shops.contract import End, Rules
from licserver.shops.facts import (
    Fact,
    Line,
    Lines,
    OrderReason,
    Subscription,
    SubscriptionState,
)
from licserver.shops.orders import OrderFacts
from licserver.shops.periods import add_period_to_instant

SAME: Final = timedelta(days=1)
"""Two ends that are closer are the same end, if one is counted from a payment and the other scheduled."""


class _Period(NamedTuple):
    starts_at: datetime
    as_of: datetime
    ends_at: datetime | None
    is_counted: bool = False  # its end is counted from the payment, and a schedule may say another hour
    is_reported: bool = False  # by the subscription itself
    items: frozenset[str] = frozenset()  # that were paid, where lines name them


class Course(NamedTuple):
    """The course of a subscription.

    Args:
        end: When it ends; None if that is not known.
        revoked_reason: Why the license is not valid; None if some period holds.
        has_unknown_period: Whether a renewal was paid, and not for how long.
        late: The orders that were paid after its end, for a time after it, and do not let it go on.
    """

    end: End | None = None
    revoked_reason: str | None = None
    has_unknown_period: bool = False
    late: tuple[str, ...] = ()


@dataclass(slots=True)
class SubscriptionFacts:
    """The facts of a subscription, and its orders."""

    id: str
    report: Subscription | None = None
    items: Lines | None = None
    orders: list[OrderFacts] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether its newest report is that it has ended."""
        return self.report is not None and self.report.state is SubscriptionState.ENDED

    @property
    def is_completed(self) -> bool:
        """Whether its newest report is that all agreed payments are made (D-412)."""
        return self.report is not None and self.report.state is SubscriptionState.COMPLETED

    def find_items(self) -> Lines | None:
        """Return what it consists of, as the newest report has it; None if no report does."""
        listings = [self.items] if self.items is not None and self.items.is_complete else []
        for order_facts in reversed(self.orders):
            lines, order = order_facts.lines, order_facts.order
            if lines is None or order is None or not lines.is_complete:
                continue
            of_items = [line for line in lines.lines if line.item_id is not None]
            if of_items:
                items = [line._replace(id=line.item_id) for line in of_items]
                listings.append(_at(lines, self._add_unpaid(items, lines, order.ends_at)))
            elif order.reason is OrderReason.RENEWAL and lines.lines:
                listings.append(_at(lines, list(lines.lines)))
        if not listings:
            return None
        # Of the same instant its own report counts, and then that of its latest order.
        return max(listings, key=lambda listing: listing.holds_from)

    def _add_unpaid(self, items: list[Line], lines: Lines, ends_at: datetime | None) -> list[Line]:
        """Return the items that an order pays, and those that were paid until after its end (D-413)."""
        if self.items is None or not self.items.is_complete or ends_at is None:
            return items
        paid_longer = {
            line.item_id
            for order_facts in self.orders
            if order_facts.order is not None and (order_facts.order.ends_at or ends_at) > ends_at
            for line in (() if order_facts.lines is None else order_facts.lines.lines)
        }
        missing = paid_longer.difference([None], lines.credited, (item.id for item in items))
        return [*items, *(item for item in self.items.lines if item.id in missing)]

    def find_course(self, rules: Rules, find_mapped: Callable[[OrderFacts], str | None]) -> Course:
        """Return when it ends, and whether it holds.

        Args:
            rules: Of the source.
            find_mapped: Returns the period that is mapped for a renewal whose subscription names no period.
        """
        held, refused, is_revived = list[_Period](), list[tuple[_Period, str]](), False
        unknown, lasting, late = list[_Period](), list[_Period](), list[str]()
        for order_facts in self.orders:
            period = self._find_period(order_facts, rules, find_mapped)
            if period is None:
                continue
            revoked_reason = order_facts.find_revoked_reason(rules)
            if revoked_reason is not None:
                refused.append((period, revoked_reason))
                continue
            held.append(period)
            order = order_facts.order
            is_purchase = order is not None and order.reason is OrderReason.PURCHASE
            # What was bought as a subscription is paid, until the shop reports for how long.
            if period.ends_at or (is_purchase and order is not None and self.id in order.subscriptions):
                lasting.append(period)
            resumes = order is not None and order.resumes
            is_late = self._is_late(period, resumes=resumes)
            if is_purchase or (is_late and resumes):
                is_revived = is_revived or self._follows_report(period, resumes=resumes)
            elif is_late:
                late.append(order_facts.id)
            if not is_purchase and period.ends_at is None:
                unknown.append(period)
        reported = self._find_reported(held, refused)
        end = self._find_end([*lasting, *reported], rules, is_revived=is_revived)
        is_refused = bool(refused) and not (held or reported)
        starts = [period.starts_at for period in (*held, *reported) if period.ends_at is not None]
        # Until when an ended subscription was paid does not matter any more.
        is_open = is_revived or not self.is_over
        # The period that was reported is that of a payment which does not count any more.
        is_taken_back = bool(held and refused) and not (lasting or reported)
        is_unknown = is_taken_back or any(not starts or period.starts_at > max(starts) for period in unknown)
        revoked_reason = max(refused, key=_by_start)[1] if is_refused else None
        return Course(end, revoked_reason, is_open and is_unknown, () if is_revived else tuple(late))

    def _follows_report(self, period: _Period, *, resumes: bool) -> bool:
        """Return whether a period was paid after the newest report, or in its second and goes on."""
        if self.report is None:
            return False
        at = self.report.reported_at
        return period.as_of > at or (resumes and period.as_of == at)

    def _is_late(self, period: _Period, *, resumes: bool) -> bool:
        """Return whether a period was paid after the subscription has ended, for a time after that."""
        report = self.report
        if report is None or report.state is not SubscriptionState.ENDED:
            return False
        ended_at = report.ended_at or report.reported_at
        goes_on = period.ends_at is None or period.ends_at > ended_at
        return goes_on and self._follows_report(period, resumes=resumes)

    def _find_period(
        self, order_facts: OrderFacts, rules: Rules, find_mapped: Callable[[OrderFacts], str | None]
    ) -> _Period | None:
        """Return the period that an order pays, or paid before that was taken back."""
        order, at = order_facts.order, order_facts.find_paid_at()
        if (
            order is None
            or at is None
            or order.reason is OrderReason.CHANGE
            or not order_facts.was_paid(rules)
        ):
            return None
        length = None if self.report is None else self.report.period
        if length is None and order.reason is OrderReason.RENEWAL:
            length = find_mapped(order_facts)
        starts_at = order.starts_at or at
        if order.ends_at is None and length is not None:
            ends_at = self._find_scheduled(starts_at, add_period_to_instant(starts_at, length))
            return _Period(starts_at, at, ends_at, is_counted=True)
        lines = () if order_facts.lines is None else order_facts.lines.lines
        items = frozenset(line.item_id for line in lines if line.item_id is not None)
        return _Period(starts_at, at, order.ends_at, items=items)

    def _find_scheduled(self, paid_at: datetime, counted: datetime) -> datetime:
        """Return the end of the current period if that was paid then: a trial, or a change within it."""
        report = self.report
        if report is None or report.starts_at is None or report.ends_at is None:
            return counted
        near = min(SAME, (report.ends_at - report.starts_at) / 2)
        is_current = report.starts_at - near < paid_at < report.ends_at - near
        return report.ends_at if is_current and abs(counted - report.ends_at) >= SAME else counted

    def _find_reported(
        self, held: Sequence[_Period], refused: Sequence[tuple[_Period, str]]
    ) -> list[_Period]:
        """Return the current period, as the subscription itself reports it."""
        report = self.report
        if report is None:
            return []
        if report.state is SubscriptionState.UNPAID and report.starts_at is not None:
            # It was in order until then. The period itself holds once an order has paid it.
            if any(period.starts_at >= report.starts_at for period in held):
                return []
            reported = _Period(report.starts_at, report.reported_at, report.starts_at, is_reported=True)
        elif report.state in {SubscriptionState.ACTIVE, SubscriptionState.PAUSED} and report.ends_at:
            starts_at = report.starts_at or report.reported_at
            reported = _Period(starts_at, report.reported_at, report.ends_at, is_reported=True)
        else:
            return []
        return [] if any(_covers(period, reported, held) for period, _ in refused) else [reported]

    def _find_longer(self, held: Sequence[_Period]) -> Iterator[datetime]:
        """Return the ends of items that the latest payment was not for."""
        of_items = sorted((period for period in held if period.items), key=_by_payment)
        listing = self.find_items()
        if not of_items or listing is None:
            return
        for item in listing.lines:
            periods = [period for period in of_items if item.id in period.items]
            if periods and periods[-1] is not of_items[-1] and periods[-1].ends_at is not None:
                yield periods[-1].ends_at

    def _find_end(self, held: Sequence[_Period], rules: Rules, *, is_revived: bool) -> End | None:
        report, newest = self.report, _find_newest(held)
        if report is not None and report.state is SubscriptionState.ENDED:
            # A late payment of an old invoice does not begin it again: a person is asked.
            if not is_revived:
                return End(report.ended_at or report.reported_at, is_final=True)
            newest = _find_newest([period for period in held if period.as_of >= report.reported_at])
        cancels_at = None if report is None else report.cancels_at
        if newest is None:
            return None if cancels_at is None else End(cancels_at, is_final=True)
        paid = max([newest.ends_at or newest.starts_at, *self._find_longer(held)])
        is_over = report is not None and report.state is SubscriptionState.PAUSED
        if report is None or cancels_at is None:
            return End(paid, is_final=True) if is_over else End(paid + rules.grace, is_final=False)
        if newest.as_of > report.reported_at and paid - cancels_at >= SAME:  # renewed nevertheless
            return End(paid + rules.grace, is_final=False)
        if cancels_at - paid < SAME or is_over:
            return End(min(cancels_at, paid) if is_over else cancels_at, is_final=True)
        return End(min(paid + rules.grace, cancels_at), is_final=False)


def _by_payment(period: _Period) -> tuple[datetime, datetime]:
    return period.starts_at, period.as_of


def _by_start(refused: tuple[_Period, str]) -> tuple[datetime, datetime, str]:
    return refused[0].starts_at, refused[0].as_of, refused[1]


def _at(lines: Lines, items: list[Line]) -> Lines:
    return Lines(
        order_id=lines.order_id, reported_at=lines.reported_at, as_of=lines.as_of, lines=tuple(items)
    )


def _covers(refused: _Period, reported: _Period, held: Sequence[_Period]) -> bool:
    """Return whether the period that a subscription reports is the one whose payment was taken back."""
    if any(period.starts_at > refused.starts_at for period in held):
        return False
    return refused.ends_at is None or (reported.ends_at or reported.starts_at) - refused.ends_at < SAME


def _find_newest(periods: Sequence[_Period]) -> _Period | None:
    ending = [period for period in periods if period.ends_at is not None] or list(periods)
    if not ending:
        return None
    reported_at = max((period.as_of for period in ending if period.is_reported), default=None)
    newest = max(
        # The date that a shop schedules counts more than one that is counted from an earlier payment.
        (period for period in ending if reported_at is None or not _is_counted_before(period, reported_at)),
        key=lambda period: (period.starts_at, period.as_of, period.ends_at or period.starts_at),
    )
    end = newest.ends_at
    if end is None:
        return newest
    counted = [period.ends_at for period in ending if period.is_counted and period.ends_at is not None]
    return newest._replace(ends_at=max([end, *(end_ for end_ in counted if abs(end_ - end) < SAME)]))


def _is_counted_before(period: _Period, at: datetime) -> bool:
    return period.is_counted and period.as_of <= at


def group_subscriptions(facts: Iterable[Fact], orders: Sequence[OrderFacts]) -> list[SubscriptionFacts]:
    """Return the subscriptions that facts are about, with their orders, by their ids."""
    groups: dict[str, SubscriptionFacts] = {}

    def find(id_: str) -> SubscriptionFacts:
        return groups.setdefault(id_, SubscriptionFacts(id_))

    for fact in facts:
        if isinstance(fact, Subscription):
            find(fact.id).report = fact
        elif isinstance(fact, Lines) and fact.subscription_id is not None:
            find(fact.subscription_id).items = fact
    for order_facts in orders:
        for id_ in () if order_facts.order is None else order_facts.order.subscriptions:
            find(id_)
    for group in groups.values():
        named = () if group.report is None else group.report.orders
        group.orders = [
            order_facts
            for order_facts in orders
            if (order_facts.order is not None and group.id in order_facts.order.subscriptions)
            or order_facts.names & set(named)
        ]
    return [groups[id_] for id_ in sorted(groups)]
