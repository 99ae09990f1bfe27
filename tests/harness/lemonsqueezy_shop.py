"""Lemon Squeezy: reports of orders, subscriptions and their invoices, for `ShopModel`."""

import json
from datetime import datetime, timedelta
from typing import Any

from harness.shop_model import (
    GRACE,
    PRICE,
    UNKNOWN,
    Item,
    Order,
    Payback,
    ShopModel,
    Subscription,
    write_time,
)

PAUSE = timedelta(days=10)  # of those that end by themselves


class LemonSqueezyShop(ShopModel):
    """Reports as Lemon Squeezy has them. The first payment of a subscription is an order and an invoice.

    An order that it takes for fraud, and then not, is a dispute here. A report of a subscription names the
    end of what is paid as long as nothing is due; no payment does.
    """

    kind = "lemonsqueezy"
    edits_products = True
    most_items = 1
    pauses = ("free", "free for a time", "void")
    fails_refunds = False
    variants = {"basic": 21, "pro": 22, "suite": 23}  # noqa: RUF012 - never changed
    products = {"app": 7, "suite": 8}  # noqa: RUF012 - never changed

    def list_names(self, plan: str) -> list[str]:
        """Return the variant."""
        return [str(self.variants[plan])]

    def can_dispute(self, order: Order) -> bool:
        """Return whether it is an order; an invoice has no such state."""
        return order in self.orders or any(each.periods[0].order is order for each in self.subscriptions)

    def edit(self, order: Order, *, is_issued: bool) -> None:
        """Rename the product, and delete it the next time; its id was reported before."""
        order.items[0].edits += 1
        self.report_order(order)

    # --- what it reports

    def _event(self, name: str, type_: str, id_: int, **attributes: Any) -> None:
        dates = {"updated_at": _write(self.now), "test_mode": False, "store_id": 1}
        data = {"type": type_, "id": str(id_), "attributes": {**attributes, **dates}}
        meta = {"event_name": name, "test_mode": False, "webhook_id": f"wh_{self.next_id()}"}
        self.reports.append(json.dumps({"meta": meta, "data": data}).encode())

    def _name_product(self, item: Item) -> dict[str, Any]:
        variant = self.variants[item.plan]
        product = self.products["suite" if item.plan == "suite" else "app"]
        return {"variant_id": variant, "product_id": product, "variant_name": f"{item.plan} {item.edits}"}

    def report_order(self, order: Order) -> None:
        """Report an order, in the state that it has."""
        item, is_fraud = order.items[0], any(dispute.state != "won" for dispute in order.disputes)
        status, name = "paid", "order_refunded" if order.refunds else "order_created"
        if is_fraud:
            status = "fraudulent"
        elif order.refunded >= order.total:
            status = "refunded"
        elif order.refunded:
            status = "partial_refund"
        line = {"id": item.id, "order_id": order.id, "quantity": item.quantity, **self._name_product(item)}
        self._event(
            name,
            "orders",
            order.id,
            status=status,
            total=order.total,
            refunded=status == "refunded",
            refunded_amount=order.refunded,
            refunded_at=_write(order.refunds[-1].at) if order.refunds else None,
            user_email="ann@example.com",
            first_order_item=None if item.edits > 1 else line,
            created_at=_write(order.at),
        )

    def _report_invoice(self, subscription: Subscription, order: Order, reason: str) -> None:
        status, name = "paid", "success"
        if order.refunded:
            status, name = "refunded" if order.refunded >= order.total else "partial_refund", "refunded"
        elif reason == "renewal" and order.at > subscription.periods[-1].start:
            name = "recovered"
        self._event(
            f"subscription_payment_{name}",
            "subscription-invoices",
            order.id,
            subscription_id=subscription.id,
            billing_reason=reason,
            status=status,
            total=order.total,
            refunded_amount=order.refunded,
            created_at=_write(order.at),
        )

    def _report_payment(self, subscription: Subscription, order: Order) -> None:
        is_first = subscription.periods[0].order is order
        if is_first:
            self.report_order(order)
        self._report_invoice(subscription, order, "initial" if is_first else "renewal")

    def report_period(self, subscription: Subscription) -> None:
        """Report the order or the invoice."""
        self._report_payment(subscription, subscription.periods[-1].order)

    def report_subscription(self, subscription: Subscription) -> None:
        """Report a subscription."""
        self._event("subscription_updated", "subscriptions", subscription.id, **self._describe(subscription))

    def _describe(self, subscription: Subscription) -> dict[str, Any]:
        item, renews_at, pause = subscription.items[0], subscription.end, None
        status, ends_at = "active", None
        if subscription.ended_at is not None:
            status, ends_at = "expired", subscription.ended_at
        elif subscription.cancels:
            status, ends_at = "cancelled", subscription.end
        elif subscription.paused:
            status, mode = "paused", subscription.paused.partition(" ")[0]
            pause = {"mode": mode, "resumes_at": _write(self._find_resumption(subscription))}
        elif subscription.is_due:  # the next attempt is due then
            status, renews_at = "past_due", subscription.updated_at + timedelta(days=2)
        return {
            "order_id": subscription.periods[0].order.id,
            "status": status,
            "cancelled": status == "cancelled",
            "pause": pause,
            "renews_at": _write(renews_at),
            "ends_at": _write(ends_at),
            "user_email": "ann@example.com",
            "first_subscription_item": {"subscription_id": subscription.id, "quantity": item.quantity},
            "created_at": _write(subscription.periods[0].start),
            **self._name_product(item),
        }

    @staticmethod
    def _find_resumption(subscription: Subscription) -> datetime | None:
        return subscription.updated_at + PAUSE if subscription.paused == "free for a time" else None

    def change(self, subscription: Subscription, item: Item, plan: str, quantity: int) -> None:
        """Change it, and charge the difference."""
        super().change(subscription, item, plan, quantity)
        self._report_invoice(subscription, Order(self.next_id(), self.now, [], PRICE // 3), "updated")

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report the payment."""
        self._report_any(order)

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report the payment."""
        self._report_any(order)

    def _report_any(self, order: Order) -> None:
        for subscription in self.subscriptions:
            if any(period.order is order for period in subscription.periods):
                self._report_payment(subscription, order)
                return
        self.report_order(order)

    def respond(self, kind: str, id_: str) -> bytes | None:
        """Return a subscription, unless it lacks the same as its reports, or the items of an order."""
        subscription = next((each for each in self.subscriptions if str(each.id) == id_), None)
        if kind == "subscription" and subscription is not None:
            if self.find_end(subscription, subscription.end) == UNKNOWN:
                return None
            attributes = {**self._describe(subscription), "updated_at": _write(subscription.updated_at)}
            return json.dumps({"data": {"id": id_, "attributes": attributes}}).encode()
        order = next((order for order in self.orders if str(order.id) == id_), None)
        if kind != "lines" or order is None or order.items[0].edits > 1:
            return None
        item = {"quantity": order.items[0].quantity, **self._name_product(order.items[0])}
        return json.dumps({"data": [{"id": "1", "attributes": item}]}).encode()

    # --- what a vendor owes

    def find_end(self, subscription: Subscription, paid: datetime) -> datetime:
        """Return when it ends; after a refund of the last payment, no report has an earlier end."""
        if subscription.ended_at is not None:
            return subscription.ended_at
        if not subscription.periods[-1].order.is_good:
            return UNKNOWN
        if subscription.paused == "void":
            return min(subscription.end, subscription.updated_at)
        if subscription.is_due:  # for a time that began by then
            return subscription.updated_at + GRACE
        if subscription.paused:
            return max(subscription.end, self._find_resumption(subscription) or subscription.end) + GRACE
        return super().find_end(subscription, paid)

    def asked(self) -> list[str]:
        """Return what a person has to look at: how long a license holds after such a refund."""
        paid = [each for each in self.subscriptions if any(period.order.is_good for period in each.periods)]
        ends = [self.find_end(each, each.end) for each in paid]
        return ["PERIOD"] * ends.count(UNKNOWN) + super().asked()


def _write(at: datetime | None) -> str | None:
    return None if at is None else f"{write_time(at)}.000000Z"
