"""Polar: reports of orders, subscriptions and refunds, for `ShopModel`."""

import json
from datetime import datetime, timedelta
from typing import Any

from harness.shop_model import PERIOD, PRICE, Item, Order, Payback, ShopModel, Subscription, write_time

LAG = timedelta(seconds=5)  # of an order, after its period has begun


class PolarShop(ShopModel):
    """Reports as Polar has them. A quantity is one of seats.

    A period and its order begin when they are due, also if the order is paid later.
    """

    kind = "polar"
    edits_products = True
    most_items = 1

    def list_names(self, plan: str) -> list[str]:
        """Return the id of the product."""
        return [f"prod_{plan}"]

    def can_dispute(self, order: Order) -> bool:
        """Return that it reports no disputes."""
        return False

    def edit(self, order: Order, *, is_issued: bool) -> None:
        """Rename the product, which keeps its id."""
        order.items[0].edits += 1
        self.report_order(order)

    # --- what it reports

    def _event(self, type_: str, id_: str, created_at: datetime, **fields: Any) -> None:
        now = f"{write_time(self.now)}Z"
        dates = {"created_at": f"{write_time(created_at)}Z", "modified_at": now}
        event = {"type": type_, "timestamp": now, "data": {"id": id_, **dates, **fields}}
        self.reports.append(json.dumps(event).encode())

    @staticmethod
    def _name_product(item: Item) -> dict[str, Any]:
        id_ = f"prod_{item.plan}"
        product = {"id": id_, "name": f"{item.plan} {item.edits}"}
        return {"product_id": id_, "product": product, "seats": item.quantity}

    def _report_order(self, event: str, order: Order, reason: str, status: str, **fields: Any) -> None:
        amounts = {"refunded_amount": _find_net(order.refunded), "refunded_tax_amount": order.refunded // 5}
        self._event(
            f"order.{event}",
            f"ord_{order.id}",
            order.at,
            status=status,
            paid=status != "pending",
            billing_reason=reason,
            net_amount=_find_net(order.total),
            tax_amount=order.total // 5,
            total_amount=order.total,
            customer={"id": "cus_1", "email": "ann@example.com"},
            **amounts,
            **self._name_product(order.items[0]),
            **fields,
        )

    def _report_any(self, event: str, order: Order, status: str) -> None:
        reason, subscription_id = "purchase", None
        for subscription in self.subscriptions:
            if any(period.order is order for period in subscription.periods):
                is_first = subscription.periods[0].order is order
                reason = f"subscription_{'create' if is_first else 'cycle'}"
                subscription_id = f"sub_{subscription.id}"
        self._report_order(event, order, reason, status, subscription_id=subscription_id)

    def report_order(self, order: Order) -> None:
        """Report an order, which is pending at first."""
        if not order.refunds:
            self._report_any("created", order, "pending")
        self._report_any("paid", order, self._find_status(order))

    @staticmethod
    def _find_status(order: Order) -> str:
        if order.refunded >= order.total:
            return "refunded"
        return "partially_refunded" if order.refunded else "paid"

    def report_period(self, subscription: Subscription) -> None:
        """Report the order of a period, which was created when that began."""
        period = subscription.periods[-1]
        period.order.at = period.start
        self.report_order(period.order)

    def report_subscription(self, subscription: Subscription) -> None:
        """Report a subscription."""
        fields = self._describe(subscription)
        self._event("subscription.updated", f"sub_{subscription.id}", subscription.periods[0].start, **fields)

    @staticmethod
    def _describe(subscription: Subscription) -> dict[str, Any]:
        period, status, ended_at = subscription.periods[-1], "active", None
        start, end = period.start - LAG, period.end
        if subscription.is_due:
            status, start, end = "past_due", end, end + PERIOD
        if subscription.ended_at is not None:
            status, ended_at = "canceled", f"{write_time(subscription.ended_at)}Z"
        return {
            "status": status,
            "current_period_start": f"{write_time(start)}Z",
            "current_period_end": f"{write_time(end)}Z",
            "recurring_interval": "day",
            "recurring_interval_count": PERIOD.days,
            "cancel_at_period_end": subscription.cancels,
            "ends_at": ended_at or (f"{write_time(end)}Z" if subscription.cancels else None),
            "ended_at": ended_at,
            **PolarShop._name_product(subscription.items[0]),
        }

    def change(self, subscription: Subscription, item: Item, plan: str, quantity: int) -> None:
        """Change it, and charge the difference."""
        super().change(subscription, item, plan, quantity)
        order = Order(self.next_id(), self.now, [item], PRICE // 2)
        self._report_order(
            "paid", order, "subscription_update", "paid", subscription_id=f"sub_{subscription.id}"
        )

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report a refund, and its order."""
        is_made = refund.state == "made"
        self._event(
            "refund.created" if is_made else "refund.updated",
            f"re_{refund.id}",
            refund.at,
            status="succeeded" if is_made else "failed",
            amount=_find_net(refund.amount),
            tax_amount=refund.amount // 5,
            order_id=f"ord_{order.id}",
        )
        self._report_any("refunded" if is_made else "updated", order, self._find_status(order))

    def respond(self, kind: str, id_: str) -> bytes | None:
        """Return a subscription."""
        subscription = next((each for each in self.subscriptions if f"sub_{each.id}" == id_), None)
        if kind != "subscription" or subscription is None:
            return None
        created_at = f"{write_time(subscription.periods[0].start)}Z"
        return json.dumps({"id": id_, "created_at": created_at, **self._describe(subscription)}).encode()


def _find_net(amount: int) -> int:
    """Return an amount without its tax; the sum of the two is the amount."""
    return amount - amount // 5
