"""A shop: its orders and subscriptions as they are, what it reports of them, and an oracle of the licenses.

The oracle looks at the shop itself, never at a report. A subclass writes the reports of one platform.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

PRICE = 1_000
SHIPPING = 400  # of an order
PERIOD = timedelta(days=30)
GRACE = timedelta(days=7)
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)

UNKNOWN = datetime.max.replace(tzinfo=UTC)
"""An end that a shop does not report: a person is asked, and the licenses keep the one they have."""

PLANS = {"basic": "app", "pro": "app", "suite": "suite"}
"""What is sold → our product; the plan of a license has the same name."""


@dataclass
class Payback:
    """A refund or a dispute."""

    id: int
    amount: int
    state: str  # of a refund made, failed; of a dispute open, won, lost
    at: datetime  # of its state
    lines: dict[int, int] = field(default_factory=dict)  # of a refund that names lines: how many of each


@dataclass
class Item:
    """A line of an order, or an item of a subscription."""

    id: int
    plan: str
    quantity: int
    edits: int = 0  # of its product in the shop
    is_unknown: bool = False  # its product was deleted before a license was issued for it


@dataclass
class Order:
    """A payment."""

    id: int
    at: datetime
    items: list[Item]
    total: int
    refunds: list[Payback] = field(default_factory=list)
    disputes: list[Payback] = field(default_factory=list)

    @property
    def made(self) -> list[Payback]:
        """The refunds that hold."""
        return [refund for refund in self.refunds if refund.state == "made"]

    @property
    def refunded(self) -> int:
        """How much was given back."""
        return sum(refund.amount for refund in self.made)

    def count_left(self, item: Item) -> int:
        """Return how many of a line no refund names."""
        return item.quantity - sum(refund.lines.get(item.id, 0) for refund in self.made)

    @property
    def is_refunded(self) -> bool:
        """Whether nothing is left, of the money or of the lines."""
        return self.refunded >= self.total or not any(self.count_left(item) for item in self.items)

    @property
    def is_good(self) -> bool:
        """Whether the vendor has the money."""
        return not self.is_refunded and all(dispute.state == "won" for dispute in self.disputes)


@dataclass
class Period:
    """A period of a subscription."""

    start: datetime
    end: datetime
    order: Order
    is_moved: bool = False


@dataclass
class Subscription:
    """A subscription."""

    id: int
    items: list[Item]
    periods: list[Period]
    is_due: bool = False  # the payment of the next period failed
    cancels: bool = False
    paused: str = ""  # how, one of the shop's `pauses`
    updated_at: datetime = BEGINNING
    ended_at: datetime | None = None

    @property
    def end(self) -> datetime:
        """When the present period ends."""
        return self.periods[-1].end


License = tuple[str, str, datetime | None]


class ShopModel:
    """A shop, and the reports that are not delivered yet."""

    kind = ""
    edits_products = False  # also in the orders that it has; deletes them, too
    sells_subscriptions = True
    most_lines = 1  # of an order
    most_items = 3  # of a subscription
    moves_dates = True  # of payments
    tolerance = timedelta(microseconds=1)  # within which an end may be later than the scheduled one
    pauses: Sequence[str] = ()  # the ways in which it pauses a subscription
    resumes_ended = False  # a subscription that has ended can go on
    names_lines = False  # in refunds
    refunds_whole_lines = False  # names a line only if all of it is refunded
    fails_refunds = True
    reports_failures = True  # of refunds; otherwise they are gone

    def __init__(self) -> None:
        self.now = BEGINNING
        self.orders: list[Order] = []
        self.subscriptions: list[Subscription] = []
        self.reports: list[bytes] = []
        self._last_id = 0

    def list_names(self, plan: str) -> list[str]:
        """Return the ids of a plan that a vendor maps."""
        return [plan]

    def next_id(self) -> int:
        """Return an id that no other object has."""
        self._last_id += 1
        return self._last_id

    def pass_time(self, seconds: int = 1) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)

    # --- what happens

    def buy(self, bought: dict[str, int]) -> None:
        """Sell so many of some plans once."""
        items = [Item(self.next_id(), plan, count) for plan, count in [*bought.items()][: self.most_lines]]
        price = PRICE * sum(item.quantity for item in items)
        order = Order(self.next_id(), self.now, items, price + SHIPPING)
        self.orders.append(order)
        self.report_order(order)

    def subscribe(self, plan: str, quantity: int) -> None:
        """Sell a subscription."""
        subscription = Subscription(self.next_id(), [Item(self.next_id(), plan, quantity)], [])
        self.subscriptions.append(subscription)
        self._charge(subscription, self.now)

    def _charge(self, subscription: Subscription, start: datetime) -> None:
        items = [Item(line.id, line.plan, line.quantity) for line in subscription.items]
        order = Order(self.next_id(), self.now, items, PRICE * sum(line.quantity for line in items))
        subscription.periods.append(Period(start, self.find_period_end(start), order))
        subscription.is_due = False
        self.report_period(subscription)
        self.update(subscription)

    def update(self, subscription: Subscription) -> None:
        """Report a subscription that has changed."""
        subscription.updated_at = self.now
        self.report_subscription(subscription)

    def find_period_end(self, start: datetime) -> datetime:
        """Return when a period ends."""
        return start + PERIOD

    def renew(self, subscription: Subscription) -> None:
        """Charge the next period when it is due."""
        self.now = max(self.now, subscription.end)
        self._charge(subscription, self.start_of_next(subscription))

    def miss(self, subscription: Subscription) -> None:
        """Fail to charge the next period."""
        self.now = max(self.now, subscription.end) + timedelta(hours=1)
        subscription.is_due = True
        self.update(subscription)

    def pay_late(self, subscription: Subscription) -> None:
        """Charge the period that was due."""
        self.now += timedelta(days=3)
        self._charge(subscription, self.start_of_next(subscription))

    def start_of_next(self, subscription: Subscription) -> datetime:
        """Return when the next period begins."""
        return subscription.end

    def change(self, subscription: Subscription, item: Item, plan: str, quantity: int) -> None:
        """Change the plan and the quantity."""
        item.plan, item.quantity = plan, quantity
        self.update(subscription)

    def add_item(self, subscription: Subscription, plan: str, quantity: int) -> None:
        """Add an item."""
        subscription.items.append(Item(self.next_id(), plan, quantity))
        self.update(subscription)

    def remove_item(self, subscription: Subscription) -> None:
        """Remove the last item."""
        subscription.items.pop()
        self.update(subscription)

    def move(self, subscription: Subscription, days: int) -> None:
        """Move the date of the next payment."""
        period = subscription.periods[-1]
        period.end = max(self.now, period.start) + timedelta(days=days)
        period.is_moved = True
        self.update(subscription)

    def cancel(self, subscription: Subscription, *, cancels: bool) -> None:
        """Cancel for the end of the period, or take that back."""
        subscription.cancels = cancels
        self.update(subscription)

    def end(self, subscription: Subscription) -> None:
        """End at once."""
        subscription.ended_at = self.now
        self.update(subscription)

    def expire(self, subscription: Subscription) -> None:
        """End with the period for whose end it was cancelled."""
        self.now, subscription.ended_at = max(self.now, subscription.end), subscription.end
        self.update(subscription)

    def can_cancel(self, subscription: Subscription) -> bool:
        """Return whether it can be cancelled for the end of the period."""
        return True

    def pause(self, subscription: Subscription, mode: str) -> None:
        """Pause the payments."""
        subscription.paused = mode
        self.update(subscription)

    def resume(self, subscription: Subscription) -> None:
        """Resume the payments; what was paid before is not paid again."""
        subscription.paused, subscription.ended_at = "", None
        if subscription.end > self.now:
            self.update(subscription)
        else:
            self._charge(subscription, self.now)

    def can_dispute(self, order: Order) -> bool:
        """Return whether a payment can be disputed, perhaps once more."""
        return True

    def refund(self, order: Order, amount: int, lines: dict[int, int] | None = None) -> None:
        """Give money back."""
        order.refunds.append(Payback(self.next_id(), amount, "made", self.now, lines or {}))
        self.report_refund(order, order.refunds[-1])

    def fail_refund(self, order: Order, refund: Payback) -> None:
        """The bank could not give the money back."""
        refund.state, refund.at = "failed", self.now
        self.report_refund(order, refund)

    def dispute(self, order: Order) -> None:
        """A customer disputes."""
        order.disputes.append(Payback(self.next_id(), order.total, "open", self.now))
        self.report_dispute(order, order.disputes[-1])

    def resolve(self, order: Order, dispute: Payback, state: str) -> None:
        """A bank decides."""
        dispute.state = state
        self.report_dispute(order, dispute)

    def edit(self, order: Order, *, is_issued: bool) -> None:
        """Change the article number of a line, and delete its product the next time."""
        item = order.items[0]
        item.edits += 1
        item.is_unknown |= item.edits > 1 and not is_issued
        self.report_order(order)

    # --- what it reports

    def report_order(self, order: Order) -> None:
        """Report an order that was sold once."""
        raise NotImplementedError

    def report_period(self, subscription: Subscription) -> None:
        """Report the payment of the last period."""
        raise NotImplementedError

    def report_subscription(self, subscription: Subscription) -> None:
        """Report a subscription."""
        raise NotImplementedError

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report a refund."""
        raise NotImplementedError

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report a dispute."""
        raise NotImplementedError

    def respond(self, kind: str, id_: str) -> bytes | None:
        """Return what its API responds about an object; None if it knows nothing of it."""
        return None

    # --- what a vendor owes

    def expected(self) -> Counter[License]:
        """Return the valid licenses: product, plan and end."""
        found: Counter[License] = Counter()
        for order in self.orders:
            for item in order.items if order.is_good else ():
                if not item.is_unknown:
                    found[PLANS[item.plan], item.plan, None] += order.count_left(item)
        for running in self.subscriptions:
            good = [period for period in running.periods if period.order.is_good]
            if not good:
                continue
            end = self.find_end(running, good[-1].end)
            for item in running.items:
                found[PLANS[item.plan], item.plan, end] += item.quantity
        return +found

    def find_end(self, subscription: Subscription, paid: datetime) -> datetime:
        """Return when it ends, by the end of the newest period that is paid."""
        if subscription.ended_at is not None:
            return subscription.ended_at
        return min(paid + GRACE, subscription.end) if subscription.cancels else paid + GRACE

    def asked(self) -> list[str]:
        """Return what a person has to look at.

        What was paid, and the shop no longer has the product of; a refund that failed beside others that
        hold: it may be meant to be one of these.
        """
        unknown = [order for order in self.orders if order.is_good and self._has_unknown(order)]
        failed = [order for order in self._list_paid() if order.is_refunded and self._has_failed_last(order)]
        return ["LINES"] * len(unknown) + ["REFUND"] * len(failed)

    def _list_paid(self) -> list[Order]:
        """Return all that was paid."""
        of_periods = [period.order for each in self.subscriptions for period in each.periods]
        return [*self.orders, *of_periods]

    @staticmethod
    def _has_unknown(order: Order) -> bool:
        return any(item.is_unknown and order.count_left(item) for item in order.items)

    def _has_failed_last(self, order: Order) -> bool:
        failed = [refund.at for refund in order.refunds if refund.state == "failed"]
        is_last = bool(order.made and failed) and max(failed) > max(refund.at for refund in order.made)
        return self.reports_failures and is_last


# --- Stripe -----------------------------------------------------------------------------------


class StripeShop(ShopModel):
    """Reports as Stripe has them."""

    kind = "stripe"

    def _event(self, type_: str, **fields: Any) -> None:
        created = int(self.now.timestamp())
        event = {"id": f"evt_{self.next_id()}", "object": "event", "type": type_, "created": created}
        self.reports.append(json.dumps({**event, "livemode": True, "data": {"object": fields}}).encode())

    def report_order(self, order: Order) -> None:
        """Report a session."""
        item = order.items[0]
        self._event(
            "checkout.session.completed",
            id=f"cs_{order.id}",
            mode="payment",
            payment_status="paid",
            payment_intent=f"pi_{order.id}",
            amount_total=order.total,
            metadata={"licserver_item": item.plan, "licserver_quantity": str(item.quantity)},
        )

    def report_period(self, subscription: Subscription) -> None:
        """Report a paid invoice, and which payment has paid it."""
        period, is_first = subscription.periods[-1], len(subscription.periods) == 1
        days = {"start": int(period.start.timestamp()), "end": int(period.end.timestamp())}
        lines = [
            {
                "period": days,
                "quantity": item.quantity,
                "amount": PRICE * item.quantity,
                "pricing": {"price_details": {"price": item.plan, "product": f"prod_{item.plan}"}},
                "parent": {"subscription_item_details": {"subscription_item": f"si_{item.id}"}},
            }
            for item in period.order.items
        ]
        self._event(
            "invoice.paid",
            id=f"in_{period.order.id}",
            created=int(self.now.timestamp()),
            billing_reason="subscription_create" if is_first else "subscription_cycle",
            parent={"subscription_details": {"subscription": f"sub_{subscription.id}"}},
            amount_paid=period.order.total,
            lines={"data": lines},
        )
        payment = {"type": "payment_intent", "payment_intent": f"pi_{period.order.id}"}
        names = {"id": f"inpay_{period.order.id}", "invoice": f"in_{period.order.id}"}
        self._event("invoice_payment.paid", **names, payment=payment)

    def report_subscription(self, subscription: Subscription) -> None:
        """Report a subscription; a period that is due has begun."""
        period = subscription.periods[-1]
        start, end = period.start, period.end
        if subscription.is_due:
            start, end = end, end + PERIOD
        dates = {"current_period_start": int(start.timestamp()), "current_period_end": int(end.timestamp())}
        items = [
            {"id": f"si_{item.id}", "price": {"id": item.plan}, "quantity": item.quantity, **dates}
            for item in subscription.items
        ]
        is_over = subscription.ended_at is not None
        status = "past_due" if subscription.is_due else "active"
        self._event(
            "customer.subscription.deleted" if is_over else "customer.subscription.updated",
            id=f"sub_{subscription.id}",
            status="canceled" if is_over else status,
            items={"data": items},
            cancel_at=int(end.timestamp()) if subscription.cancels else None,
            ended_at=None if subscription.ended_at is None else int(subscription.ended_at.timestamp()),
        )

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report a refund, and the charge if money has gone."""
        names = {"payment_intent": f"pi_{order.id}", "charge": f"ch_{order.id}"}
        is_made = refund.state == "made"
        state = {"amount": refund.amount, "status": "succeeded" if is_made else "failed"}
        self._event("refund.created" if is_made else "refund.failed", id=f"re_{refund.id}", **names, **state)
        if is_made:
            amounts = {"amount": order.total, "amount_refunded": order.refunded}
            is_all = order.refunded >= order.total
            fields = {"id": f"ch_{order.id}", "payment_intent": f"pi_{order.id}", "refunded": is_all}
            self._event("charge.refunded", **fields, **amounts)

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report a dispute."""
        is_open = dispute.state == "open"
        self._event(
            "charge.dispute.created" if is_open else "charge.dispute.closed",
            id=f"dp_{dispute.id}",
            payment_intent=f"pi_{order.id}",
            status="needs_response" if is_open else dispute.state,
        )


# --- WooCommerce ------------------------------------------------------------------------------


class WooShop(ShopModel):
    """Reports as WooCommerce and WooCommerce Subscriptions have them: each time the whole object."""

    kind = "woocommerce"
    edits_products = True
    most_lines = 2
    names_lines = True  # in its API alone
    reports_failures = False
    products = {"basic": 21, "pro": 22, "suite": 23}  # noqa: RUF012 - never changed

    def list_names(self, plan: str) -> list[str]:
        """Return the article number, and the product, which it is without one."""
        return [plan, str(self.products[plan])]

    def start_of_next(self, subscription: Subscription) -> datetime:
        """Return the instant of the payment, from which WooCommerce Subscriptions counts."""
        return max(self.now, subscription.end)

    def _line(self, item: Item) -> dict[str, Any]:
        product, number = self.products[item.plan], f"{item.plan}-{item.edits}" if item.edits else item.plan
        gone = item.edits > 1  # deleted in the shop
        line = {"product_id": 0 if gone else product, "variation_id": 0, "sku": "" if gone else number}
        return {"id": item.id, "quantity": item.quantity, **line}

    def _write(self, id_: int, status: str, **fields: Any) -> None:
        modified = {"date_modified_gmt": write_time(self.now)}
        self.reports.append(json.dumps({"id": id_, "status": status, **modified, **fields}).encode())

    def _write_order(self, order: Order, **fields: Any) -> None:
        states = {dispute_.state for dispute_ in order.disputes}
        status = "processing"
        if "lost" in states:
            status = "cancelled"
        elif "open" in states:
            status = "on-hold"
        elif order.refunded >= order.total:
            status = "refunded"
        self._write(
            order.id,
            status,
            date_created_gmt=write_time(order.at),
            date_paid_gmt=write_time(order.at),
            total=str(order.total),
            line_items=[self._line(item) for item in order.items],
            refunds=[{"id": refund_.id, "total": f"-{refund_.amount}"} for refund_ in order.made],
            **fields,
        )

    def _report_any(self, order: Order) -> None:
        for subscription in self.subscriptions:
            if any(period.order is order for period in subscription.periods):
                is_first = subscription.periods[0].order is order
                named = [{"key": "_subscription_renewal", "value": subscription.id}]
                self._write_order(order, meta_data=[] if is_first else named)
                return
        self._write_order(order)

    def report_order(self, order: Order) -> None:
        """Report an order."""
        self._report_any(order)

    def report_period(self, subscription: Subscription) -> None:
        """Report the order of a period."""
        self._report_any(subscription.periods[-1].order)

    def report_subscription(self, subscription: Subscription) -> None:
        """Report a subscription."""
        status, end = "active", ""
        payment = write_time(subscription.end)
        if subscription.ended_at is not None:
            status, payment, end = "cancelled", "", write_time(subscription.ended_at)
        elif subscription.cancels:
            status, payment, end = "pending-cancel", "", write_time(subscription.end)
        elif subscription.is_due:
            status = "on-hold"
        self._write(
            subscription.id,
            status,
            parent_id=subscription.periods[0].order.id,
            billing_period="day",
            billing_interval=PERIOD.days,
            next_payment_date_gmt=payment,
            end_date_gmt=end,
            line_items=[self._line(item) for item in subscription.items],
        )

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report the order, which lists its refunds."""
        self._report_any(order)

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report the order, which a plugin of the bank puts on hold."""
        self._report_any(order)

    def respond(self, kind: str, id_: str) -> bytes | None:
        """List the refunds of an order with their lines."""
        order = next((order for order in self._list_paid() if str(order.id) == id_), None)
        if kind != "refunds" or order is None:
            return None
        return json.dumps([self._write_refund(refund) for refund in order.made]).encode()

    def _write_refund(self, refund: Payback) -> dict[str, Any]:
        items = [
            {"quantity": -count, "meta_data": [{"key": "_refunded_item_id", "value": str(line)}]}
            for line, count in refund.lines.items()
        ]
        at = {"date_created_gmt": write_time(refund.at)}
        return {"id": refund.id, "amount": str(refund.amount), "line_items": items, **at}


class WooShopWithoutSubscriptions(WooShop):
    """A shop that has not installed WooCommerce Subscriptions."""

    sells_subscriptions = False


def write_time(at: datetime) -> str:
    """Return an instant as the shops write it, without a time zone."""
    return at.strftime("%Y-%m-%dT%H:%M:%S")


# --- Paddle -----------------------------------------------------------------------------------


class PaddleShop(ShopModel):
    """Reports as Paddle has them, of sales without subscriptions."""

    kind = "paddle"
    sells_subscriptions = False
    most_lines = 2
    names_lines = refunds_whole_lines = True

    def _event(self, type_: str, **data: Any) -> None:
        event = {
            "event_id": f"evt_{self.next_id()}",
            "event_type": type_,
            "occurred_at": f"{write_time(self.now)}Z",
        }
        self.reports.append(json.dumps({**event, "data": data}).encode())

    def report_order(self, order: Order) -> None:
        """Report a transaction."""
        names = [{"id": f"txnitm_{item.id}", "price_id": item.plan} for item in order.items]
        self._event(
            "transaction.completed",
            id=f"txn_{order.id}",
            origin="web",
            items=[{"price": {"id": item.plan}, "quantity": item.quantity} for item in order.items],
            details={"totals": {"grand_total": str(order.total)}, "line_items": names},
        )

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report an adjustment, which names all lines if it is an amount."""
        kinds = {item.id: "full" if item.id in refund.lines else "partial" for item in order.items}
        self._event(
            "adjustment.updated",
            id=f"adj_{refund.id}",
            action="refund",
            status="approved" if refund.state == "made" else "rejected",
            transaction_id=f"txn_{order.id}",
            items=[
                {"item_id": f"txnitm_{item}", "type": kind}
                for item, kind in kinds.items()
                if kind == "full" or not refund.lines
            ],
            totals={"total": str(refund.amount)},
        )

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report a chargeback, or its reversal; one that is lost stays as it is."""
        if dispute.state != "lost":
            is_open = dispute.state == "open"
            self._event(
                "adjustment.created",
                id=f"adj_{dispute.id}" if is_open else f"adj_{dispute.id}_back",
                action="chargeback" if is_open else "chargeback_reverse",
                status="approved",
                transaction_id=f"txn_{order.id}",
            )


# --- A shop of one's own ----------------------------------------------------------------------


class OwnShop(ShopModel):
    """Reports in the format of Standard Webhooks, of sales without subscriptions: each product by itself."""

    kind = "standard"
    sells_subscriptions = False
    most_lines = 2
    names_lines = True

    def _event(self, type_: str, order: Order, **data: Any) -> None:
        event = {"type": f"purchase.{type_}", "timestamp": f"{write_time(self.now)}Z"}
        self.reports.append(json.dumps({**event, "data": {"order_id": str(order.id), **data}}).encode())

    def report_order(self, order: Order) -> None:
        """Report each product that was bought."""
        for item in order.items:
            self._event("completed", order, external_id=item.plan, quantity=item.quantity, total=order.total)

    def report_refund(self, order: Order, refund: Payback) -> None:
        """Report the refund of an amount, or of each line with its share of the amount."""
        type_ = "refunded" if refund.state == "made" else "refund_failed"
        rest = refund.amount
        for item in order.items:
            count = refund.lines.get(item.id)
            if count:
                amount = min(rest, PRICE * count)
                rest -= amount
                names = {"refund_id": f"{refund.id}-{item.id}", "external_id": item.plan}
                self._event(type_, order, **names, quantity=count, amount=amount)
        if not refund.lines:
            self._event(type_, order, refund_id=str(refund.id), amount=refund.amount)

    def report_dispute(self, order: Order, dispute: Payback) -> None:
        """Report a dispute."""
        type_ = "disputed" if dispute.state == "open" else f"dispute_{dispute.state}"
        self._event(type_, order, dispute_id=str(dispute.id))
