"""What an event changes, whatever arrived before it.

What is known of an order or a subscription only grows: each event is joined to it, so that neither the order
of events nor their number changes the result. What follows is derived from what is known before and after.
"""

import enum
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from licserver.sources.records import Item, SaleEvent, SaleKind


class Refund(enum.IntEnum):
    """How much of an order was refunded, at most."""

    NONE = 0
    PARTIAL = 1
    FULL = 2


class Dispute(enum.IntEnum):
    """How far a dispute has come; a later value replaces an earlier one."""

    NONE = 0
    OPEN = 1
    WON = 2
    LOST = 3


_DISPUTES = {
    SaleKind.DISPUTED: Dispute.OPEN,
    SaleKind.DISPUTE_WON: Dispute.WON,
    SaleKind.DISPUTE_LOST: Dispute.LOST,
}

_SAME = timedelta(days=1)  # between what was paid and an end that is the same

_T = TypeVar("_T", datetime, str)


class Rules(NamedTuple):
    """What the vendor chooses for a source."""

    grace: timedelta
    revokes_partial_refunds: bool = False


@dataclass(frozen=True, slots=True)
class OrderState:
    """What is known of an order."""

    refund: Refund = Refund.NONE
    dispute: Dispute = Dispute.NONE
    subscription_id: str | None = None

    def join(self, event: SaleEvent) -> "OrderState":
        """Add an event."""
        refund = Refund.NONE
        if event.kind is SaleKind.REFUNDED:
            refund = Refund.PARTIAL if event.is_partial else Refund.FULL
        return OrderState(
            max(self.refund, refund),
            max(self.dispute, _DISPUTES.get(event.kind, Dispute.NONE)),
            _later(self.subscription_id, event.subscription_id),
        )

    def revocation(self, rules: Rules) -> str | None:
        """Return why the order's licenses are revoked; None if they are not."""
        if self.refund is Refund.FULL or (self.refund is Refund.PARTIAL and rules.revokes_partial_refunds):
            return "the order was refunded"
        return "the payment was disputed" if self.dispute in {Dispute.OPEN, Dispute.LOST} else None


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """What is known of a subscription."""

    paid_through: datetime | None = None  # the latest instant to which it was paid
    end_reported_at: datetime | None = None  # when the shop reported the latest end, which is at `ended_at`
    ended_at: datetime | None = None
    purchased_at: datetime | None = None  # only a purchase after an end begins the subscription again
    change_reported_at: datetime | None = None  # when the shop reported last whether it was cancelled
    cancels_at: datetime | None = None  # when it ends then; None if it was not

    def join(self, event: SaleEvent) -> "SubscriptionState":
        """Add an event."""
        joined = replace(self, paid_through=_later(self.paid_through, event.paid_through))
        if event.kind is SaleKind.PURCHASED:
            return replace(joined, purchased_at=_later(self.purchased_at, event.occurred_at))
        if event.kind is SaleKind.CHANGED:
            change = event.occurred_at, event.cancels_at
            if self.change_reported_at is not None:
                change = max(change, (self.change_reported_at, self.cancels_at), key=_rank)
            return replace(joined, change_reported_at=change[0], cancels_at=change[1])
        if event.kind is not SaleKind.ENDED:
            return joined
        end = event.occurred_at, event.ended_at or event.occurred_at
        if self.end_reported_at is not None and self.ended_at is not None:
            end = max(end, (self.end_reported_at, self.ended_at))
        return replace(joined, end_reported_at=end[0], ended_at=end[1])

    def end(self, rules: Rules) -> datetime | None:
        """Return when licenses of the subscription end; None if that is not known."""
        bought, reported = self.purchased_at, self.end_reported_at
        is_renewed = bought is not None and reported is not None and bought > reported
        if self.ended_at is not None and not is_renewed:
            return self.ended_at
        paid = _later(self.paid_through, bought)  # a purchase is paid, until the shop says for how long
        if paid is None:
            return None
        # Nothing more is awaited, unless it ends later, or was renewed although it was cancelled.
        is_last = self.cancels_at is not None and abs(self.cancels_at - paid) < _SAME
        return self.cancels_at if is_last else paid + rules.grace


def _later(known: _T | None, new: _T | None) -> _T | None:
    if known is None or new is None:
        return new if known is None else known
    return max(known, new)


def _rank(change: tuple[datetime, datetime | None]) -> tuple[datetime, bool, datetime]:
    """Order reports of an instant and an end: of those of the same instant, "not cancelled" counts."""
    at, cancels_at = change
    return at, cancels_at is None, cancels_at or at


class Change(NamedTuple):
    """What an event leads to."""

    order: OrderState | None  # what is known of the order afterwards; None if the event names none
    subscription: SubscriptionState | None  # the same of the subscription
    issue: tuple[Item, ...] = ()  # positions without licenses so far
    revoke_all: str | None = None  # why all licenses of the order become revoked now
    revoke_new: str | None = None  # why new ones are revoked as soon as they are issued: a refund came first
    reinstate: bool = False  # whether the licenses of the order become valid again
    ends_at: datetime | None = None  # when licenses of the subscription end
    sets_end: bool = False  # whether `ends_at` has to be written


def decide(
    event: SaleEvent,
    order: OrderState,
    subscription: SubscriptionState,
    issued: Collection[str],
    rules: Rules,
) -> Change:
    """Decide what an event changes, given what is known of its order and of the subscription of both so far.

    `issued` are the positions of the order that have licenses.
    """
    new_order = None if event.order_id is None else order.join(event)
    new_subscription = None
    if event.subscription_id is not None:
        new_subscription = subscription.join(event)
    elif order.subscription_id is not None:
        new_subscription = subscription  # a purchase without it was reported after the subscription itself
    change = Change(new_order, new_subscription)
    if new_order is not None:
        before, after = order.revocation(rules), new_order.revocation(rules)
        change = change._replace(
            issue=tuple(item for item in event.items if item.id not in issued),
            revoke_all=after if before is None else None,
            revoke_new=after,
            reinstate=before is not None and after is None,
        )
    if new_subscription is not None:
        ends_at = new_subscription.end(rules)
        is_linked = new_order is not None and new_order.subscription_id != order.subscription_id
        is_changed = ends_at != subscription.end(rules) or is_linked or bool(change.issue)
        change = change._replace(ends_at=ends_at, sets_end=is_changed)
    return change
