"""An order with all that is known of its payment, refunds and disputes."""

import enum
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Final

from licserver.shops.changes import DISPUTED, REFUNDED
from licserver.shops.contract import Rules
from licserver.shops.earlier import is_earlier
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
    is_newer,
)

UNPAID: Final = {
    OrderState.PENDING: "the order is not paid",
    OrderState.HELD: "the order is on hold",
    OrderState.FAILED: "the payment failed",
    OrderState.CANCELLED: "the order was cancelled",
}


class Share(enum.IntEnum):
    """The share of an order that was refunded."""

    NONE = 0
    PART = 1
    ALL = 2


@dataclass(slots=True)
class OrderFacts:
    """The facts of an order, which is known by several names."""

    names: set[str] = field(default_factory=set)
    order: Order | None = None
    parts: dict[str, Lines] = field(default_factory=dict)
    sales: dict[str, Order] = field(default_factory=dict)  # by the part that each reports
    payments: list[Payment] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)
    disputes: list[Dispute] = field(default_factory=list)
    refund_count: int = 0  # and disputes, of all parts of the order

    @property
    def id(self) -> str:
        """The shop's id of the order, as far as it is known."""
        return min(self.names) if self.order is None else self.order.id

    @property
    def sells(self) -> bool:
        """Whether licenses are issued for its lines."""
        return self.order is not None and self.order.reason in {OrderReason.PURCHASE, OrderReason.UNKNOWN}

    @property
    def lines(self) -> Lines | None:
        """All lines; None if no report lists them."""
        parts = [self.parts[key] for key in sorted(self.parts)]
        if len(parts) <= 1:
            return parts[0] if parts else None
        return replace(
            max(parts, key=lambda part: part.reported_at),
            lines=tuple(line for part in parts for line in part.lines),
            is_complete=all(part.is_complete for part in parts),
        )

    def is_mixed(self, sold: str | None) -> bool:
        """Return whether lines of a product have ids in some deliveries of the order, and none in others."""
        lines = [line for part in self.parts.values() for line in part.lines if line.sold == sold]
        return len({line.id is None for line in lines}) > 1

    def find_paid_at(self) -> datetime | None:
        """Return when it was paid; what is bought counts from then."""
        return None if self.order is None else self.order.paid_at or self.order.reported_at

    def list_lines(self) -> Iterator[tuple[Line, datetime | None]]:
        """Return the lines, and when each was sold if the order is reported product by product."""
        for part in sorted(self.parts):
            sale = self.sales.get(part)
            for line in self.parts[part].lines:
                yield line, None if sale is None else sale.paid_at

    def find_state(self, rules: Rules) -> OrderState:
        """Return its state, as the vendor translates it."""
        if self.order is None:
            return OrderState.UNKNOWN
        return rules.states.get(self.order.shop_state, self.order.state)

    def was_paid(self, rules: Rules) -> bool:
        """Return whether it was paid at some time, whatever has become of that."""
        is_paid = self.find_state(rules) in {OrderState.PAID, OrderState.REFUNDED}
        return is_paid or (self.order is not None and self.order.paid_at is not None)

    def find_revoked_reason(self, rules: Rules) -> str | None:
        """Return why the sale gives no license; None if it is paid, as far as it is known."""
        least = Share.PART if rules.revokes_partial_refunds else Share.ALL
        state = self.find_state(rules)
        if state is OrderState.REFUNDED or self.find_refunded_share() >= least:
            return REFUNDED
        return DISPUTED if self.is_disputed() else UNPAID.get(state)

    def find_made(self) -> list[Refund]:
        """Return the refunds that hold."""
        void = {refund.id: refund for refund in self.refunds if refund.state is RefundState.VOID}
        made = [
            refund
            for refund in self.refunds
            if refund.state is RefundState.MADE
            and ((whole := void.get(refund.part_of or "")) is None or whole.reported_at < refund.reported_at)
        ]
        return [refund for refund in made if is_earlier(refund) or not self._was_deleted(refund)]

    def _was_deleted(self, refund: Refund) -> bool:
        """Return whether a later report of the order, which lists its refunds, does not list this one."""
        if self.order is None or self.order.refund_ids is None:
            return False
        # One of the same second was made after it: shops count by the second.
        return refund.reported_at < self.order.reported_at and refund.id not in self.order.refund_ids

    def has_unread_refunds(self) -> bool:
        """Return whether it lists refunds of which only the amount is known, and not the lines."""
        listed = () if self.order is None else self.order.refund_ids or ()
        return not {refund.id for refund in self.refunds}.issuperset(listed)

    def count_refunded(self, line: Line) -> int:
        """Return how many of a line were refunded, by refunds that name it."""
        names = _list_names([line])
        named = [part for refund in self.find_made() for part in refund.lines if part.name in names]
        quantity = line.quantity or 0
        return min(quantity, sum(quantity if part.quantity is None else part.quantity for part in named))

    def names_lines(self, refund: Refund) -> bool:
        """Return whether a refund names lines, all of which are known with their quantities."""
        lines = () if self.lines is None else self.lines.lines
        line_names = _list_names(line for line in lines if line.quantity is not None)
        return bool(refund.lines) and line_names.issuperset(part.name for part in refund.lines)

    def list_unknown_names(self) -> list[str]:
        """Return what refunds name as lines, and no line has; nothing while not all lines are known."""
        if self.lines is None or not self.lines.is_complete:
            return []
        line_names = _list_names(self.lines.lines)
        return sorted({part.name for refund in self.find_made() for part in refund.lines} - line_names)

    def are_all_lines_refunded(self) -> bool:
        """Return whether refunds name all that was bought; shipping may not have been refunded."""
        if self.lines is None or not self.lines.is_complete:
            return False
        sold = [line for line in self.lines.lines if line.quantity != 0]
        return bool(sold) and all(self.count_refunded(line) == line.quantity for line in sold)

    def is_paid_again(self) -> bool:
        """Return whether it was paid after all its refunds and disputes, whose instants are known."""
        ends: list[Refund | Dispute] = [*self.find_made()]
        ends += [
            dispute for dispute in self.disputes if dispute.state in {DisputeState.OPEN, DisputeState.LOST}
        ]
        if self.order is None or self.order.paid_at is None or self.order.state is OrderState.REFUNDED:
            return False
        paid_at = self.order.paid_at
        if not ends or self.has_unread_refunds() or any(is_earlier(end) for end in ends):
            return False
        return paid_at > max(end.reported_at for end in ends)

    def find_failed_beside(self) -> Refund | None:
        """Return a refund that failed after all others, which count: it may be meant to be one of these."""
        made = [refund.reported_at for refund in self.find_made()]
        failed = [refund for refund in self.refunds if refund.state is RefundState.VOID]
        latest = max(failed, key=lambda refund: (refund.reported_at, refund.id), default=None)
        return latest if latest is not None and made and latest.reported_at > max(made) else None

    def find_failed_part(self) -> Refund | None:
        """Return a part that failed of a refund which still counts as a whole."""
        made = {refund.id: refund for refund in self.find_made()}
        failed = (refund for refund in self.refunds if refund.state is RefundState.VOID)
        return next(
            (
                refund
                for refund in failed
                if (whole := made.get(refund.part_of or "")) and whole.reported_at <= refund.reported_at
            ),
            None,
        )

    def is_disputed(self) -> bool:
        """Return whether a dispute is open or lost; each counts; a reversal takes back an open dispute."""
        states = [dispute.state for dispute in self.disputes]
        # A reversal may have changed the state of the dispute itself as well.
        reversed_ = max(0, states.count(DisputeState.REVERSAL) - states.count(DisputeState.WON))
        is_open = states.count(DisputeState.OPEN) > reversed_
        return is_open or DisputeState.LOST in states

    def find_refunded_share(self) -> Share:
        """Return how much was refunded, by all refunds that hold."""
        refunds = self.find_made()
        if any(refund.is_full for refund in refunds) or self.are_all_lines_refunded():
            return Share.ALL
        refunded, total = self._add_up(refunds), self._find_total()
        if total is not None and refunded >= total > 0:
            return Share.ALL
        return Share.PART if refunded > 0 or refunds else Share.NONE

    def has_unknown_share(self) -> bool:
        """Return whether a refund is known, and not how much of the order it is."""
        made = [refund for refund in self.find_made() if not self.names_lines(refund)]
        refunds = [refund for refund in made if refund.is_full is None]
        parts = [refund for refund in made if not refund.is_full]
        if any(refund.lines and refund.amount is None for refund in parts):
            return True
        if len(parts) > 1 and any(refund.amount is None for refund in parts):
            return True
        return bool(refunds) and (
            self._find_total() is None or any(refund.amount is None for refund in refunds)
        )

    def _find_total(self) -> Decimal | None:
        # A charge is refunded in its own currency, which may be another than the order's.
        totals = [payment.total for payment in self.payments if payment.total is not None]
        if totals:
            return _sum_up(totals)
        if self.order is None:
            return None
        # Of an order of two products, each of which has its own delivery.
        stated = {part.total for part in self.sales.values() if part.total is not None}
        return next(iter(stated), self.order.total) if len(stated) <= 1 else None

    def _add_up(self, refunds: Sequence[Refund]) -> Decimal:
        """Return the sum of refunds, of which some are known singly and others by their sum alone."""
        single = _sum_up(refund.amount for refund in refunds)
        sums = [
            (payment.reported_at, payment.refunded)
            for payment in self.payments
            if payment.refunded is not None
        ]
        if self.order is not None and self.order.refunded is not None:
            sums = [(self.order.reported_at, self.order.refunded)]
        if not sums:
            return single
        reported_at, sum_ = max(at for at, _ in sums), _sum_up(amount for _, amount in sums)
        # A sum of before a refund failed contains it.
        failed = [
            refund
            for refund in self.refunds
            if refund.state is RefundState.VOID and refund.reported_at >= reported_at
        ]
        lost = _sum_up(refund.amount for refund in failed)
        return single + max(Decimal(0), sum_ - single - lost)


def _sum_up(amounts: Iterable[Decimal | None]) -> Decimal:
    return Decimal(sum(amount for amount in amounts if amount is not None))


def _list_names(lines: Iterable[Line]) -> set[str | None]:
    """Return the names by which refunds know lines."""
    return {name for line in lines for name in (line.id or line.sold, *line.names)}


def group_orders(facts: Iterable[Fact], order_ids: Iterable[str] = ()) -> list[OrderFacts]:
    """Return the orders that facts are about; of those in `order_ids` nothing may be known."""
    order_facts = [fact for fact in facts if not isinstance(fact, Subscription)]  # it names different orders
    sold = {
        fact.id for fact in order_facts if isinstance(fact, Order) and fact.reason is OrderReason.PURCHASE
    }
    groups: dict[str, OrderFacts] = {id_: OrderFacts({id_}) for id_ in order_ids}
    for fact in order_facts:
        _join(groups, _names_of(fact, sold))
    for fact in order_facts:
        names = _names_of(fact, sold)
        if names:
            _add(groups[names[0]], fact)
    orders = {id(order): order for order in groups.values()}.values()
    return [part for order in sorted(orders, key=lambda order: order.id) for part in _split(order)]


def _split(group: OrderFacts) -> list[OrderFacts]:
    """Return an order whose parts belong to different subscriptions as an order for each of these."""
    parts: dict[tuple[str, ...], list[str]] = {}
    for part in sorted(group.sales):
        parts.setdefault(group.sales[part].subscriptions, []).append(part)
    if len(parts) <= 1:
        return [group]
    return [
        replace(
            group,
            order=max((group.sales[part] for part in named), key=lambda order: order.reported_at),
            parts={part: group.parts[part] for part in named if part in group.parts},
            refunds=_find_refunds(group, named),
        )
        for _, named in sorted(parts.items())
    ]


def _find_refunds(group: OrderFacts, own: Collection[str]) -> list[Refund]:
    """Return the refunds of an order that are not of lines of its other parts alone."""
    others = _list_names(
        line for part, lines in group.parts.items() if part not in own for line in lines.lines
    )
    return [
        refund
        for refund in group.refunds
        if not refund.lines or not others.issuperset(part.name for part in refund.lines)
    ]


_OrderFact = Order | Payment | Lines | Refund | Dispute | Contact


def _names_of(fact: _OrderFact, sold: Collection[str]) -> tuple[str, ...]:
    match fact:
        case Order() if fact.reason is OrderReason.RENEWAL:
            # It is never the order that has sold something, even if a sender names that.
            return fact.id, *(name for name in fact.names if name not in sold)
        case Order():
            return fact.id, *fact.names
        case Payment():
            return fact.id, *fact.orders
        case Refund() | Dispute() | Contact():
            return fact.orders
        case Lines():
            return () if fact.order_id is None else (fact.order_id,)


def _join(groups: dict[str, OrderFacts], names: tuple[str, ...]) -> None:
    joined = set(names).union(*(groups[name].names for name in names if name in groups))
    group = OrderFacts(joined)
    for name in joined:
        groups[name] = group


def _add(group: OrderFacts, fact: _OrderFact) -> None:
    match fact:
        case Order():
            # Several only if the shop has called it differently before it was paid, or reports its parts.
            group.order = max(group.order or fact, fact, key=_by_report)
            if fact.part:
                group.sales[fact.part] = fact
        case Lines():
            if fact.part not in group.parts or is_newer(group.parts[fact.part], fact):
                group.parts[fact.part] = fact
        case Payment():
            group.payments.append(fact)
        case Refund():
            group.refunds.append(fact)
            group.refund_count += 1
        case Dispute():
            group.disputes.append(fact)
            group.refund_count += 1
        case Contact():
            pass  # `desired` looks at those of a whole contract


def _by_report(order: Order) -> tuple[datetime, str, str]:
    return order.reported_at, order.id, order.part
