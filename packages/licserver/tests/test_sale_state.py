"""What events change: the same, in whatever order and however often they arrive."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licserver.sources.records import Item, SaleEvent, SaleKind
from licserver.sources.state import Change, Dispute, OrderState, Refund, Rules, SubscriptionState, decide

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
RULES = Rules(timedelta(days=7))


def at(days: float) -> datetime:
    """An instant, in days from noon."""
    return NOON + timedelta(days=days)


def purchase(order: str = "o1", day: float = 0, **fields: object) -> SaleEvent:
    """A purchase of two."""
    event = SaleEvent(
        kind=SaleKind.PURCHASED, occurred_at=at(day), order_id=order, items=(Item(("app",), 2),)
    )
    return replace(event, **fields)


def renewal(day: float, through: float, order: str | None = None) -> SaleEvent:
    """A subscription that was paid."""
    return SaleEvent(
        kind=SaleKind.RENEWED,
        occurred_at=at(day),
        order_id=order,
        subscription_id="s1",
        paid_through=at(through),
    )


def end(day: float) -> SaleEvent:
    """A subscription that ended."""
    return SaleEvent(kind=SaleKind.ENDED, occurred_at=at(day), subscription_id="s1", ended_at=at(day))


def change(day: float, cancels: float | None) -> SaleEvent:
    """A report that a subscription was cancelled for an end, or was not."""
    cancels_at = None if cancels is None else at(cancels)
    return SaleEvent(kind=SaleKind.CHANGED, occurred_at=at(day), subscription_id="s1", cancels_at=cancels_at)


def money(kind: SaleKind, order: str = "o1", *, is_partial: bool = False) -> SaleEvent:
    """A refund or a dispute."""
    return SaleEvent(kind=kind, occurred_at=at(1), order_id=order, is_partial=is_partial)


@dataclass
class Shop:
    """Does what `decide` returns: what the database would hold."""

    rules: Rules = RULES
    orders: dict[str, OrderState] = field(default_factory=dict)
    subscriptions: dict[str, SubscriptionState] = field(default_factory=dict)
    licenses: dict[str, dict[str, int]] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)
    ends: dict[str, datetime | None] = field(default_factory=dict)

    def apply(self, events: Sequence[SaleEvent]) -> "Shop":
        """Apply events as they arrive."""
        for event in events:
            order_id = event.order_id or ""
            order = self.orders.get(order_id, OrderState())
            subscription_id = event.subscription_id or order.subscription_id or ""
            subscription = self.subscriptions.get(subscription_id, SubscriptionState())
            issued = self.licenses.setdefault(order_id, {})
            change = decide(event, order, subscription, issued, self.rules)
            if change.order is not None:
                self.orders[order_id] = change.order
            if change.subscription is not None:
                self.subscriptions[subscription_id] = change.subscription
            issued |= {item.id: item.quantity for item in change.issue}
            if change.revoke_all or (change.revoke_new and change.issue):
                self.revoked.add(order_id)
            if change.reinstate:
                self.revoked.discard(order_id)
            if change.sets_end:
                self.ends[subscription_id] = change.ends_at
        return self

    @property
    def result(self) -> tuple[object, ...]:
        """What a customer notices."""
        linked = {one: state.subscription_id for one, state in self.orders.items()}
        licenses = {one: issued for one, issued in self.licenses.items() if issued}
        return licenses, self.revoked & licenses.keys(), self.ends, linked


_EVENTS = [
    purchase(),
    purchase("o2", 3, subscription_id="s1", paid_through=at(33)),
    purchase("o3", 50, subscription_id="s1", paid_through=at(80)),
    renewal(0, 30, "o1"),
    renewal(30, 60),
    renewal(31, 61),
    end(40),
    end(45),
    change(20, 30),
    change(20, None),
    change(21, 33),
    change(35, 60),
    money(SaleKind.REFUNDED),
    money(SaleKind.REFUNDED, "o2", is_partial=True),
    *(money(kind, "o3") for kind in (SaleKind.DISPUTED, SaleKind.DISPUTE_WON, SaleKind.DISPUTE_LOST)),
]


@given(events=st.lists(st.sampled_from(_EVENTS), max_size=12), data=st.data())
def test_neither_order_nor_repetition_matters(events: list[SaleEvent], data: st.DataObject) -> None:
    """Any order and any duplication of events leads to the same licenses, revocations and ends."""
    shuffled = data.draw(
        st.permutations(
            events + data.draw(st.lists(st.sampled_from(events or _EVENTS[:0])) if events else st.just([]))
        )
    )
    for rules in (RULES, RULES._replace(revokes_partial_refunds=True)):
        assert Shop(rules).apply(events).result == Shop(rules).apply(shuffled).result


def test_a_lost_cancellation_ends_with_what_was_paid() -> None:
    """A license of a subscription ends after the paid time and the grace, if nothing more arrives."""
    shop = Shop().apply([purchase(subscription_id="s1", paid_through=at(30)), renewal(30, 60)])
    assert shop.ends == {"s1": at(67)}


def test_a_cancelled_subscription_ends_with_what_was_paid() -> None:
    """Without the grace; it is renewed after all if the shop takes that back, or is paid again."""
    bought = purchase(subscription_id="s1", paid_through=at(30))
    for cancels in (30, 30.5):  # half a day is no other end
        assert Shop().apply([bought, change(5, cancels)]).ends == {"s1": at(cancels)}
    assert Shop().apply([bought, change(6, None), change(5, 30)]).ends == {"s1": at(37)}
    assert Shop().apply([change(5, 30), bought, renewal(30, 60)]).ends == {"s1": at(67)}


def test_a_subscription_that_is_to_end_in_a_year_is_to_be_paid_until_then() -> None:
    """Otherwise a customer who pays no more would have a license for that year."""
    shop = Shop().apply([purchase(subscription_id="s1", paid_through=at(30)), change(5, 365)])
    assert shop.ends == {"s1": at(37)}


def test_an_end_is_not_undone_by_a_late_event() -> None:
    """Only an explicit purchase after an end begins a subscription again."""
    shop = Shop().apply([purchase(subscription_id="s1", paid_through=at(30)), end(20), renewal(30, 60)])
    assert shop.ends == {"s1": at(20)}
    assert shop.apply([purchase("o3", 20, subscription_id="s1")]).ends == {"s1": at(20)}
    assert shop.apply([purchase("o2", 25, subscription_id="s1")]).ends == {"s1": at(67)}


def test_a_purchase_without_a_paid_time_lasts_for_the_grace() -> None:
    """A renewal that never arrives leaves no license for ever, and one that does counts from then on."""
    shop = Shop().apply([purchase(subscription_id="s1")])
    assert shop.ends == {"s1": at(7)}
    assert shop.apply([renewal(0, 30)]).ends == {"s1": at(37)}


def test_a_time_paid_before_the_present_purchase_does_not_count() -> None:
    """A subscription that begins again is not over at once."""
    shop = Shop().apply([renewal(0, 10), end(20), purchase("o2", 25, subscription_id="s1")])
    assert shop.ends["s1"] == at(32)


@pytest.mark.parametrize("any_refund", [True, False])
def test_partial_refunds(any_refund: bool) -> None:
    """A partial refund revokes only if the vendor chose so; a full one always does."""
    partial, full = money(SaleKind.REFUNDED, is_partial=True), money(SaleKind.REFUNDED)
    shop = Shop(RULES._replace(revokes_partial_refunds=any_refund)).apply([purchase(), partial])
    assert bool(shop.revoked) is any_refund
    assert shop.apply([full]).revoked == {"o1"}


def test_a_dispute_that_was_won_reinstates() -> None:
    """Licenses are revoked while their payment is disputed; they come back if the dispute is won."""
    shop = Shop().apply([purchase(), money(SaleKind.DISPUTED)])
    assert shop.revoked == {"o1"}
    assert not shop.apply([money(SaleKind.DISPUTE_WON), money(SaleKind.DISPUTED)]).revoked
    assert shop.apply([money(SaleKind.DISPUTE_LOST)]).revoked == {"o1"}
    assert Shop().apply([purchase(), money(SaleKind.REFUNDED), money(SaleKind.DISPUTE_WON)]).revoked == {"o1"}


def test_a_position_without_licenses_is_issued_by_a_replay() -> None:
    """What was not mapped the first time is issued when the same event is processed again."""
    order = OrderState().join(purchase())
    change = decide(purchase(), order, SubscriptionState(), {"other"}, RULES)
    assert change.issue == (Item(("app",), 2),)
    assert decide(purchase(), order, SubscriptionState(), {"app"}, RULES).issue == ()


PAID = SubscriptionState(paid_through=at(30), purchased_at=NOON)
REFUNDED, DISPUTED = "the order was refunded", "the payment was disputed"


@pytest.mark.parametrize(
    ("event", "order", "subscription", "expected"),
    [
        (purchase(), OrderState(), SubscriptionState(), Change(OrderState(), None, (Item(("app",), 2),))),
        (
            purchase(subscription_id="s1", paid_through=at(30)),
            OrderState(),
            SubscriptionState(),
            Change(
                OrderState(subscription_id="s1"), PAID, (Item(("app",), 2),), ends_at=at(37), sets_end=True
            ),
        ),
        (  # a position that could not be issued before
            purchase(subscription_id="s1", paid_through=at(30)),
            OrderState(subscription_id="s1"),
            PAID,
            Change(
                OrderState(subscription_id="s1"), PAID, (Item(("app",), 2),), ends_at=at(37), sets_end=True
            ),
        ),
        (renewal(9, 30), OrderState(), PAID, Change(None, PAID, ends_at=at(37))),
        (
            renewal(9, 60, "o1"),
            OrderState(subscription_id="s1"),
            PAID,
            Change(
                OrderState(subscription_id="s1"),
                replace(PAID, paid_through=at(60)),
                ends_at=at(67),
                sets_end=True,
            ),
        ),
        (
            renewal(9, 30, "o1"),
            OrderState(),
            PAID,
            Change(OrderState(subscription_id="s1"), PAID, ends_at=at(37), sets_end=True),
        ),
        (
            end(40),
            OrderState(),
            PAID,
            Change(
                None, replace(PAID, end_reported_at=at(40), ended_at=at(40)), ends_at=at(40), sets_end=True
            ),
        ),
        (
            money(SaleKind.REFUNDED),
            OrderState(),
            SubscriptionState(),
            Change(OrderState(Refund.FULL), None, revoke_all=REFUNDED, revoke_new=REFUNDED),
        ),
        (
            money(SaleKind.DISPUTED),
            OrderState(Refund.PARTIAL),
            SubscriptionState(),
            Change(OrderState(Refund.PARTIAL, Dispute.OPEN), None, revoke_all=DISPUTED, revoke_new=DISPUTED),
        ),
        (
            money(SaleKind.DISPUTE_WON),
            OrderState(dispute=Dispute.OPEN),
            SubscriptionState(),
            Change(OrderState(dispute=Dispute.WON), None, reinstate=True),
        ),
        (
            money(SaleKind.DISPUTED),
            OrderState(Refund.FULL, subscription_id="s1"),
            PAID,
            Change(OrderState(Refund.FULL, Dispute.OPEN, "s1"), PAID, revoke_new=REFUNDED, ends_at=at(37)),
        ),
    ],
)
def test_all_that_an_event_changes(
    event: SaleEvent, order: OrderState, subscription: SubscriptionState, expected: Change
) -> None:
    """And nothing else."""
    assert decide(event, order, subscription, (), RULES) == expected


def test_of_two_ends_the_one_that_was_reported_later_counts() -> None:
    """Whichever arrives first; of two reports of the same instant the later end."""
    early, late = (replace(end(day), ended_at=at(when)) for day, when in ((40, 50), (45, 45)))
    for events in ((early, late), (late, early)):
        assert Shop().apply([renewal(0, 30), *events]).ends == {"s1": at(45)}
    same = replace(early, ended_at=at(60))
    for events in ((early, same), (same, early)):
        assert Shop().apply([renewal(0, 30), *events]).ends == {"s1": at(60)}
    assert Shop().apply([replace(end(40), ended_at=None)]).ends == {"s1": at(40)}
