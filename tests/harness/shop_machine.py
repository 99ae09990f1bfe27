"""A state machine that plays a shop, with deliveries in any order, repeated and late, against a vendor."""

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from harness.contracts import Mapped, Vendor, mapped
from harness.shop_model import (
    BEGINNING,
    PERIOD,
    PLANS,
    PRICE,
    UNKNOWN,
    Item,
    License,
    Order,
    Payback,
    ShopModel,
    Subscription,
)
from licserver.shops import SHOPS, ShopKind

plans = st.sampled_from(sorted(PLANS))
quantities = st.integers(1, 3)


def open_vendor(shop: ShopModel) -> Vendor:
    """Return a source that has mapped all that the shop sells."""
    mappings: dict[str, Mapped] = {}
    for plan, product in PLANS.items():
        mappings |= mapped(*shop.list_names(plan), product=product, plan=plan, expires_in=None)
    return Vendor(shop.kind, mappings)


class Machine(RuleBasedStateMachine):
    """Objects change and are reported; what was reported is delivered at some time."""

    make: Callable[[], ShopModel]

    def __init__(self) -> None:
        super().__init__()
        self.shop = type(self).make()
        self.vendor = self.open_vendor(self.shop)
        self.waiting: list[bytes] = []

    def open_vendor(self, shop: ShopModel) -> Any:
        """Return what takes the deliveries."""
        return open_vendor(shop)

    def _collect(self) -> None:
        self.waiting += self.shop.reports
        self.shop.reports.clear()
        self.shop.pass_time()

    def _orders(self) -> list[Order]:
        of_periods = [
            period_.order
            for each in self.shop.subscriptions
            for period_ in each.periods
            if not (
                each.is_due or each.cancels or each.paused or any(period.is_moved for period in each.periods)
            )
        ]
        return [*self.shop.orders, *of_periods]

    def _running(self, *, due: bool | None = False) -> list[Subscription]:
        return [
            subscription
            for subscription in self.shop.subscriptions
            if subscription.ended_at is None
            and (due is None or (subscription.is_due is due and not subscription.paused))
        ]

    # --- what is bought

    @precondition(lambda self: len(self.shop.orders) < 3)
    @rule(bought=st.dictionaries(plans, quantities, min_size=1, max_size=2))
    def buy(self, bought: dict[str, int]) -> None:
        """Sell a product, or two in an order."""
        self.shop.buy(bought)
        self._collect()

    @precondition(lambda self: self.shop.sells_subscriptions and len(self.shop.subscriptions) < 2)
    @rule(plan=plans, quantity=quantities)
    def subscribe(self, plan: str, quantity: int) -> None:
        """Sell a subscription."""
        self.shop.subscribe(plan, quantity)
        self._collect()

    # --- subscriptions

    @precondition(lambda self: any(not subscription.cancels for subscription in self._running()))
    @rule(data=st.data(), what=st.sampled_from(["renew", "renew", "miss"]))
    def reach_the_end(self, data: st.DataObject, what: str) -> None:
        """Pay the next period, or fail to."""
        subscription = data.draw(
            st.sampled_from([subscription for subscription in self._running() if not subscription.cancels])
        )
        getattr(self.shop, what)(subscription)
        self._collect()

    @precondition(lambda self: self._running(due=True))
    @rule(data=st.data())
    def pay_late(self, data: st.DataObject) -> None:
        """Pay what was due."""
        self.shop.pay_late(data.draw(st.sampled_from(self._running(due=True))))
        self._collect()

    @precondition(lambda self: self._running(due=None))
    @rule(data=st.data(), plan=plans, quantity=quantities)
    def change(self, data: st.DataObject, plan: str, quantity: int) -> None:
        """Upgrade or downgrade."""
        subscription = data.draw(st.sampled_from(self._running(due=None)))
        self.shop.change(subscription, data.draw(st.sampled_from(subscription.items)), plan, quantity)
        self._collect()

    @precondition(lambda self: self.shop.most_items > 1 and self._running(due=None))
    @rule(data=st.data(), plan=plans, quantity=quantities, adds=st.booleans())
    def change_items(self, data: st.DataObject, plan: str, quantity: int, adds: bool) -> None:
        """Add or remove an item."""
        subscription = data.draw(st.sampled_from(self._running(due=None)))
        if adds and len(subscription.items) < self.shop.most_items:
            self.shop.add_item(subscription, plan, quantity)
        elif not adds and len(subscription.items) > 1:
            self.shop.remove_item(subscription)
        self._collect()

    @precondition(lambda self: self.shop.moves_dates and self._running())
    @rule(data=st.data(), days=st.sampled_from([2, 10, 90]))
    def move(self, data: st.DataObject, days: int) -> None:
        """Move the billing date."""
        subscription = data.draw(st.sampled_from(self._running()))
        period = subscription.periods[-1]
        moved = max(self.shop.now, period.start) + timedelta(days=days)
        is_other = abs(moved - period.start - PERIOD) > timedelta(days=1)  # than the end that was paid
        if period.order.is_good and not subscription.cancels and is_other:
            self.shop.move(subscription, days)
        self._collect()

    def _cancellable(self) -> list[Subscription]:
        return [running for running in self._running() if running.cancels or self.shop.can_cancel(running)]

    @precondition(lambda self: self._cancellable())
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        """Cancel, or take it back."""
        subscription = data.draw(st.sampled_from(self._cancellable()))
        self.shop.cancel(subscription, cancels=not subscription.cancels)
        self._collect()

    @precondition(lambda self: self._running(due=None))
    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        """End at once."""
        self.shop.end(data.draw(st.sampled_from(self._running(due=None))))
        self._collect()

    @precondition(lambda self: any(running.cancels for running in self._running()))
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """End when that was cancelled for."""
        self.shop.expire(data.draw(st.sampled_from([each for each in self._running() if each.cancels])))
        self._collect()

    @precondition(lambda self: self.shop.pauses and self._running())
    @rule(data=st.data())
    def pause(self, data: st.DataObject) -> None:
        """Pause."""
        subscription = data.draw(st.sampled_from(self._running()))
        if not subscription.cancels:
            self.shop.pause(subscription, data.draw(st.sampled_from(self.shop.pauses)))
        self._collect()

    def _resumable(self) -> list[Subscription]:
        return [
            each
            for each in self.shop.subscriptions
            if (self.shop.resumes_ended if each.ended_at else each.paused)
        ]

    @precondition(lambda self: self._resumable())
    @rule(data=st.data(), days=st.sampled_from([0, 3, 40]))
    def resume(self, data: st.DataObject, days: int) -> None:
        """Resume, perhaps after what was paid is over."""
        self.shop.pass_time(days * 86_400)
        self.shop.resume(data.draw(st.sampled_from(self._resumable())))
        self._collect()

    # --- money that goes back

    @precondition(lambda self: self._orders())
    @rule(data=st.data(), share=st.sampled_from([1, 2]))
    def refund(self, data: st.DataObject, share: int) -> None:
        """Refund half of the rest, or all of it."""
        order = data.draw(st.sampled_from(self._orders()))
        rest = order.total - order.refunded
        if rest >= PRICE // 4:
            self.shop.refund(order, rest // share)
        self._collect()

    def _refundable_lines(self) -> list[tuple[Order, Item]]:
        is_whole = self.shop.refunds_whole_lines
        return [
            (order, item)
            for order in self._orders()
            for item in order.items
            if order.refunded < order.total
            and order.count_left(item) > (item.quantity - 1 if is_whole else 0)
        ]

    @precondition(lambda self: self.shop.names_lines and self._refundable_lines())
    @rule(data=st.data(), are_others_too=st.booleans())
    def refund_lines(self, data: st.DataObject, are_others_too: bool) -> None:
        """Refund a line or a part of it, perhaps with all others."""
        refundable = self._refundable_lines()
        order, item = data.draw(st.sampled_from(refundable))
        lines = {item.id: order.count_left(item)}
        if not self.shop.refunds_whole_lines:
            lines[item.id] = data.draw(st.integers(1, order.count_left(item)))
        if are_others_too:
            others = [other for order_, other in refundable if order_ is order and other is not item]
            lines |= {other.id: order.count_left(other) for other in others}
        amount = min(PRICE * sum(lines.values()), order.total - order.refunded)
        self.shop.refund(order, amount, lines)
        self._collect()

    @precondition(lambda self: self.shop.fails_refunds and any(order_.made for order_ in self._orders()))
    @rule(data=st.data())
    def fail_refund(self, data: st.DataObject) -> None:
        """A refund fails later."""
        order = data.draw(st.sampled_from([order_ for order_ in self._orders() if order_.made]))
        self.shop.fail_refund(order, data.draw(st.sampled_from(order.made)))
        self._collect()

    def _disputable(self) -> list[Order]:
        return [order for order in self._orders() if self.shop.can_dispute(order)]

    @precondition(lambda self: self._disputable())
    @rule(data=st.data())
    def dispute(self, data: st.DataObject) -> None:
        """Dispute, though it was disputed before."""
        self.shop.dispute(data.draw(st.sampled_from(self._disputable())))
        self._collect()

    def _disputed(self) -> list[tuple[Order, Payback]]:
        return [
            (order, dispute)
            for order in self._orders()
            for dispute in order.disputes
            if dispute.state == "open"
        ]

    @precondition(lambda self: self._disputed())
    @rule(data=st.data(), state=st.sampled_from(["won", "won", "lost"]))
    def resolve(self, data: st.DataObject, state: str) -> None:
        """Win or lose."""
        self.shop.resolve(*data.draw(st.sampled_from(self._disputed())), state)
        self._collect()

    @precondition(lambda self: self.shop.edits_products and self.shop.orders)
    @rule(data=st.data())
    def edit(self, data: st.DataObject) -> None:
        """Edit the product of a line, then delete it."""
        # The licenses of an order that had some stay, whatever its line becomes.
        self.settle()
        order = data.draw(st.sampled_from(self.shop.orders))
        if any(refund.lines for refund in order.refunds):
            return  # of its lines some may be issued, and others not
        is_issued = any(license_.order_id == str(order.id) for license_ in self.vendor.licenses)
        self.shop.edit(order, is_issued=is_issued)
        self._collect()

    # --- deliveries

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def deliver(self, data: st.DataObject) -> None:
        """Deliver one report, perhaps not for the last time."""
        place = data.draw(st.integers(0, len(self.waiting) - 1))
        keeps, is_asked = data.draw(st.booleans()), data.draw(st.booleans())
        self.vendor.receive(self.waiting[place] if keeps else self.waiting.pop(place))
        if is_asked:
            self._ask_api()

    @rule()
    def settle(self) -> None:
        """Deliver all: the licenses are those of the oracle, and nobody has to look at anything else."""
        self._deliver_all()
        found = [
            (license_.terms.product, license_.terms.plan or "", license_.ends_at)
            for license_ in self.vendor.valid
        ]
        expected = list(self.shop.expected().elements())
        assert _find_differences(found, expected, self.shop.tolerance) == ([], [])
        self.vendor.reconcile()
        assert self.vendor.asked == self.shop.asked()

    def _deliver_all(self) -> None:
        self.vendor.receive(*self.waiting)
        self.waiting.clear()
        self._ask_api()
        assert not self._ask_api(), "the shop is asked again and again"

    def _ask_api(self) -> int:
        """Ask the shop for what its reports lack; return how often it has responded."""
        self.vendor.reconcile()
        responses = [(fetch, self.shop.respond(fetch.kind, fetch.id)) for fetch in self.vendor.result.fetches]
        known = [(fetch, body) for fetch, body in responses if body is not None]
        for fetch, body in known:
            self.vendor.take(SHOPS[ShopKind(self.shop.kind)].read_fetched(fetch, body, self.shop.now))
        if known:
            self.shop.pass_time()  # what happens next is later than what was read
        return len(known)

    def teardown(self) -> None:
        """Compare at last."""
        self.settle()


def _find_differences(
    found: Iterable[License], expected: Iterable[License], tolerance: timedelta
) -> tuple[list[License], list[License]]:
    """Return the licenses that only one side has; an end may be a little later than the scheduled one."""
    extra, missing = sorted(found, key=_by_end), list[License]()
    for license_ in sorted(expected, key=_by_end):  # those whose end is not known come last
        match = next((other for other in extra if _is_near(other, license_, tolerance)), None)
        if match is None:
            missing.append(license_)
        else:
            extra.remove(match)
    return extra, missing


def _by_end(license_: License) -> tuple[datetime, str, str]:
    product, plan, end = license_
    return end or BEGINNING, product, plan


def _is_near(found: License, expected: License, tolerance: timedelta) -> bool:
    """Return whether a license is the expected one; an end of which the shop reports nothing may be any."""
    end, scheduled = found[-1], expected[-1]
    if found[:-1] != expected[:-1]:
        return False
    if scheduled == UNKNOWN or end is None or scheduled is None:
        return scheduled == UNKNOWN or end is scheduled
    return scheduled <= end < scheduled + tolerance
