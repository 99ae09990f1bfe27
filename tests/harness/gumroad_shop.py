"""Gumroad: pings about sales and memberships, for `ShopModel`."""

import calendar
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from harness.shop_model import Item, Order, Payback, ShopModel, Subscription, write_time


class GumroadShop(ShopModel):
    """Pings as Gumroad sends them: forms, without the instant at which they were made.

    A membership is of tiers of a product. Its charge is for a month of the calendar from its instant, also
    for an upgrade; a downgrade begins with the next charge. Failed charges are not reported.
    """

    kind = "gumroad"
    edits_products = True
    most_items = 1
    moves_dates = False
    fails_refunds = False
    resumes_ended = True

    def __init__(self) -> None:
        super().__init__()
        self._renamed = set[str]()
        self._downgrades: dict[int, tuple[str, int]] = {}
        self._restarted: dict[int, datetime] = {}

    def list_names(self, plan: str) -> list[str]:
        """Return the tier of a product, by both of its names."""
        return [f"{_name_product(plan)}:{name}" for name in (plan, f"{plan} edition")]

    # --- what happens

    def find_period_end(self, start: datetime) -> datetime:
        """Return the same day of the next month, or its last."""
        year, month = start.year + start.month // 12, start.month % 12 + 1
        day = min(start.day, calendar.monthrange(year, month)[1])
        return start.replace(year=year, month=month, day=day)

    def start_of_next(self, subscription: Subscription) -> datetime:
        """Return the instant of the charge."""
        if subscription.id in self._downgrades:
            item = subscription.items[0]
            item.plan, item.quantity = self._downgrades.pop(subscription.id)
        return self.now

    def miss(self, subscription: Subscription) -> None:
        """Fail to charge the next period, and report nothing."""
        super().miss(subscription)
        self.reports.clear()

    def change(self, subscription: Subscription, item: Item, plan: str, quantity: int) -> None:
        """Upgrade now, for a new month that is paid; downgrade for the next charge."""
        if _name_product(plan) != _name_product(item.plan):
            plan = item.plan
        old, new = (item.plan, item.quantity), (plan, quantity)
        if subscription.is_due or subscription.cancels or old == new:
            return
        is_upgrade = plan == "pro" if plan != item.plan else quantity > item.quantity
        self._downgrades.pop(subscription.id, None)
        if is_upgrade:
            item.plan, item.quantity = new
            self._charge(subscription, self.now)
        else:
            self._downgrades[subscription.id] = new
        effective_as_of = self.now if is_upgrade else subscription.end
        plans = {
            f"{when}_plan[{field}]": value
            for when, (tier, count) in {"old": old, "new": new}.items()
            for field, value in {"tier][name": self._name_tier(tier), "quantity": count}.items()
        }
        self._ping_subscription(
            "subscription_updated",
            subscription,
            type="upgrade" if is_upgrade else "downgrade",
            effective_as_of=_write(effective_as_of),
            **plans,
        )

    def can_cancel(self, subscription: Subscription) -> bool:
        """Return whether it was not restarted within the period: that ping could not be told apart."""
        restarted_at = self._restarted.get(subscription.id)
        return restarted_at is None or restarted_at < subscription.periods[-1].start

    def cancel(self, subscription: Subscription, *, cancels: bool) -> None:
        """Cancel for the end of the period, or restart."""
        if not cancels:
            self._restarted[subscription.id] = self.now
        super().cancel(subscription, cancels=cancels)

    def resume(self, subscription: Subscription) -> None:
        """Restart a membership that has ended; it is charged again after what was paid."""
        self._restarted[subscription.id] = self.now
        subscription.cancels = subscription.is_due = False
        super().resume(subscription)

    def can_dispute(self, order: Order) -> bool:
        """Return whether it was not disputed before."""
        return not order.disputes

    def edit(self, order: Order, *, is_issued: bool) -> None:
        """Rename the tier, or name it as before; the address of the product changes with it."""
        self._renamed ^= {order.items[0].plan}
        self.report_order(order)

    # --- what it reports

    def _ping(self, resource: str, **fields: Any) -> None:
        self.reports.append(urlencode({"seller_id": "sel==", "resource_name": resource, **fields}).encode())

    def _name_tier(self, plan: str) -> str:
        return f"{plan} edition" if plan in self._renamed else plan

    def _ping_sale(self, resource: str, order: Order) -> None:
        item, fields = order.items[0], dict[str, Any]()
        for subscription in self.subscriptions:
            if any(period.order is order for period in subscription.periods):
                fields = {"subscription_id": f"sub_{subscription.id}==", "recurrence": "monthly"}
                if subscription.periods[0].order is not order:
                    fields["is_recurring_charge"] = "true"
        product, tier = _name_product(item.plan), self._name_tier(item.plan)
        address = f"{product.removesuffix('==')}-{tier.replace(' ', '-')}"
        self._ping(
            resource,
            sale_id=f"sale_{order.id}==",
            sale_timestamp=_write(order.at),
            product_id=product,
            short_product_id=product[:4],
            permalink=address,
            product_permalink=f"https://ann.gumroad.com/l/{address}",
            email="ann@example.com",
            price=order.total,
            quantity=item.quantity,
            refunded=_flag(order.refunded >= order.total),
            disputed=_flag(bool(order.disputes)),
            dispute_won=_flag(any(dispute.state == "won" for dispute in order.disputes)),
            test="false",
            **{"variants[Tier]": tier},
            **fields,
        )

    def report_order(self, order: Order) -> None:
        """Report a sale."""
        self._ping_sale("sale", order)

    def report_period(self, subscription: Subscription) -> None:
        """Report a charge."""
        self._ping_sale("sale", subscription.periods[-1].order)

    def _ping_subscription(self, resource: str, subscription: Subscription, **fields: Any) -> None:
        self._ping(
            resource,
            subscription_id=f"sub_{subscription.id}==",
            product_id=_name_product(subscription.items[0].plan),
            user_email="ann@example.com",
            created_at=_write(subscription.periods[0].start),
            charge_occurrence_count="",
            recurrence="monthly",
            **fields,
        )

    def report_subscription(self, subscription: Subscription) -> None:
        """Report an end, a cancellation or a restart, of which charges report nothing."""
        if subscription.ended_at is not None:
            reason = "cancelled" if subscription.cancels else "failed_payment"
            fields = {"ended_at": _write(subscription.ended_at), "ended_reason": reason}
            self._ping_subscription("subscription_ended", subscription, **fields)
        elif subscription.cancels:
            # It is dated to the end of what was paid.
            fields = {"cancelled": "true", "cancelled_at": _write(subscription.end)}
            self._ping_subscription("cancellation", subscription, cancelled_by_buyer="true", **fields)
        elif self._restarted.get(subscription.id) == self.now:
            fields = {"restarted_at": _write(self.now)}
            self._ping_subscription("subscription_restarted", subscription, **fields)

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report the sale, with nothing about the amount unless that is all."""
        self._ping_sale("refund", order)

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report the sale; nothing is sent if the dispute is lost."""
        if dispute.state != "lost":
            self._ping_sale("dispute" if dispute.state == "open" else "dispute_won", order)

    # --- what a vendor owes

    def find_end(self, subscription: Subscription, paid: datetime) -> datetime:
        """Return when it ends; one that is cancelled ends without a grace."""
        is_cancelled = subscription.cancels and subscription.ended_at is None
        return paid if is_cancelled else super().find_end(subscription, paid)


def _name_product(plan: str) -> str:
    return "suite_product==" if plan == "suite" else "app_product=="


def _write(at: datetime) -> str:
    return f"{write_time(at)}Z"


def _flag(value: bool) -> str:
    return "true" if value else "false"
