"""Dodo Payments: reports of payments, subscriptions, refunds and disputes, for `ShopModel`."""

import json
from collections import Counter
from datetime import datetime, timedelta
from typing import Any

from harness.shop_model import (
    PERIOD,
    PRICE,
    Item,
    Order,
    Payback,
    ShopModel,
    Subscription,
    write_time,
)

LAG = timedelta(seconds=5)  # of a payment, after its period has begun
WON = ("dispute_won", "dispute_cancelled")
LOST = ("dispute_lost", "dispute_accepted", "dispute_expired")


class DodoShop(ShopModel):
    """Reports as Dodo Payments has them: each payment of a subscription has the same form.

    A period begins when it is due, also if it is paid later.
    """

    kind = "dodo"
    most_lines = 2
    tolerance = timedelta(days=1)
    pauses = ("paused",)

    def __init__(self) -> None:
        super().__init__()
        self._is_late = False

    def list_names(self, plan: str) -> list[str]:
        """Return the ids of the product and of the add-on."""
        return [f"pdt_{plan}", f"adn_{plan}"]

    def start_of_next(self, subscription: Subscription) -> datetime:
        """Return when the next period begins: anew, if the payment is a period late."""
        is_lost = self._is_late and self.now - subscription.end >= PERIOD
        return self.now if is_lost else subscription.end

    def pay_late(self, subscription: Subscription) -> None:
        """Charge the period that was due."""
        self._is_late = True
        super().pay_late(subscription)
        self._is_late = False

    def change(self, subscription: Subscription, item: Item, plan: str, quantity: int) -> None:
        """Change it, and charge the difference if all is paid; near the end it could be the next period."""
        super().change(subscription, item, plan, quantity)
        period = subscription.periods[-1]
        is_paid = period.order.is_good and not subscription.is_due and not subscription.paused
        if is_paid and self.now < period.end - timedelta(days=1):
            period.is_moved = True  # this payment could be that of the period, and is refunded no more
            self._report_payment(Order(self.next_id(), self.now, [], PRICE // 3), subscription)

    # --- what it reports

    def _event(self, type_: str, payload: str, **data: Any) -> None:
        event = {"business_id": "bus_1", "type": type_, "timestamp": _write(self.now)}
        self.reports.append(json.dumps({**event, "data": {"payload_type": payload, **data}}).encode())

    def _report_payment(self, order: Order, subscription: Subscription | None = None) -> None:
        cart = [{"product_id": f"pdt_{item.plan}", "quantity": item.quantity} for item in order.items]
        self._event(
            "payment.succeeded",
            "Payment",
            payment_id=f"pay_{order.id}",
            status="succeeded",
            total_amount=order.total,
            product_cart=cart if subscription is None else None,
            subscription_id=None if subscription is None else f"sub_{subscription.id}",
            customer={"customer_id": "cus_1", "email": "ann@example.com"},
            created_at=_write(order.at),
        )

    def report_order(self, order: Order) -> None:
        """Report a payment."""
        self._report_payment(order)

    def report_period(self, subscription: Subscription) -> None:
        """Report a payment of a subscription."""
        period = subscription.periods[-1]
        if not self._is_late:
            period.order.at = period.start
        self._report_payment(period.order, subscription)

    def report_subscription(self, subscription: Subscription) -> None:
        """Report a subscription."""
        fields = self._describe(subscription)
        self._event(f"subscription.{fields['status']}", "Subscription", **fields)

    @staticmethod
    def _describe(subscription: Subscription) -> dict[str, Any]:
        period, (product, *others) = subscription.periods[-1], subscription.items
        status, start, end = "active", period.start - LAG, period.end
        if subscription.ended_at is not None:
            status = "expired" if subscription.id % 2 else "cancelled"
        elif subscription.paused:
            status = "paused"
        elif subscription.is_due:
            status, start, end = "on_hold", end, end + PERIOD
        addons = Counter[str]()
        for item in others:
            addons[f"adn_{item.plan}"] += item.quantity
        ended_at = _write(subscription.ended_at)
        return {
            "subscription_id": f"sub_{subscription.id}",
            "product_id": f"pdt_{product.plan}",
            "quantity": product.quantity,
            "addons": [{"addon_id": name, "quantity": count} for name, count in addons.items()],
            "status": status,
            "previous_billing_date": _write(start),
            "next_billing_date": _write(end),
            "payment_frequency_interval": "Day",
            "payment_frequency_count": PERIOD.days,
            "cancel_at_next_billing_date": subscription.cancels and subscription.ended_at in {None, end},
            "cancelled_at": ended_at if status == "cancelled" else None,
            "expires_at": ended_at if status == "expired" else None,
            "customer": {"customer_id": "cus_1", "email": "ann@example.com"},
        }

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report a refund."""
        status = "succeeded" if refund.state == "made" else "failed"
        self._event(
            f"refund.{status}",
            "Refund",
            refund_id=f"ref_{refund.id}",
            payment_id=f"pay_{order.id}",
            status=status,
            amount=refund.amount,
            is_partial=refund.amount < order.total,
        )

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report a dispute, of which there are several outcomes."""
        status = "dispute_opened"
        if dispute.state != "open":
            outcomes = WON if dispute.state == "won" else LOST
            status = outcomes[dispute.id % len(outcomes)]
        self._event(
            f"dispute.{status.removeprefix('dispute_')}",
            "Dispute",
            dispute_id=f"dsp_{dispute.id}",
            payment_id=f"pay_{order.id}",
            dispute_status=status,
            dispute_stage="dispute",
        )

    def respond(self, kind: str, id_: str) -> bytes | None:
        """Return a subscription."""
        subscription = next((each for each in self.subscriptions if f"sub_{each.id}" == id_), None)
        if kind != "subscription" or subscription is None:
            return None
        return json.dumps(self._describe(subscription)).encode()

    # --- what a vendor owes

    def find_end(self, subscription: Subscription, paid: datetime) -> datetime:
        """Return when it ends; a paused subscription without a grace."""
        is_paused = subscription.paused and subscription.ended_at is None
        return paid if is_paused else super().find_end(subscription, paid)


def _write(at: datetime | None) -> str | None:
    return None if at is None else f"{write_time(at)}Z"
