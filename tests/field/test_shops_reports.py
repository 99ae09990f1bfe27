"""Reports of other systems about what shops send: tried on the licenses that follow."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness import shops
from harness.contracts import GRACE, Vendor, at, mapped, play, text

MAKE: Any = shops  # called with fields of any type


# --- Stripe -----------------------------------------------------------------------------------


def stripe(type_: str, days: float = 0, **fields: Any) -> bytes:
    """Make an event of Stripe."""
    event = {"id": "evt", "object": "event", "type": type_, "created": int(at(days).timestamp())}
    return json.dumps({**event, "livemode": True, "data": {"object": fields}}).encode()


def invoice(number: int, start: float, *, reason: str = "subscription_cycle", **fields: Any) -> bytes:
    """Make a paid invoice of 30 days."""
    period = {"start": int(at(start).timestamp()), "end": int(at(start + 30).timestamp())}
    item = {"subscription_item_details": {"subscription_item": "si_1"}}
    price = {"price_details": {"price": "price_1", "product": "prod_1"}}
    line = {"period": period, "quantity": 1, "amount": 900, "pricing": price, "parent": item}
    more = {"parent": {"subscription_details": {"subscription": "sub_1"}}, "amount_paid": 900, **fields}
    return stripe(
        "invoice.paid", start, id=f"in_{number}", billing_reason=reason, lines={"data": [line]}, **more
    )


def subscription(days: float, status: str = "active", *, type_: str = "updated", **fields: Any) -> bytes:
    """Make a report of a subscription with its first period."""
    dates = {"current_period_start": int(at(0).timestamp()), "current_period_end": int(at(30).timestamp())}
    quantity = fields.pop("quantity", 1)
    items = {"data": [{"id": "si_1", "price": {"id": "price_1"}, "quantity": quantity}]}
    body = {"id": "sub_1", "status": status, "items": items, **dates, **fields}
    return stripe(f"customer.subscription.{type_}", days, **body)


FIRST = invoice(1, 0, reason="subscription_create")
LIFETIME = stripe(
    "checkout.session.completed",
    id="cs_1",
    mode="payment",
    payment_status="paid",
    payment_intent="pi_1",
    amount_total=2_000,
    metadata={"licserver_item": "app", "licserver_quantity": "1"},
)


@pytest.mark.parametrize("later", [0, 1 / 86_400])
def test_laravel_cashier_stripe_1201(later: float) -> None:
    """The state before payment arrives last, and is of the same second (also stripe/stripe-cli#418)."""
    created = subscription(0, "incomplete", type_="created")
    for shop in play("stripe", "price_1", created, subscription(later), FIRST):
        assert (shop.ends, shop.asked) == ([at(30) + GRACE], [])


def test_mickasmt_next_saas_stripe_starter_42() -> None:
    """The invoice is reported before the session that names the customer (also pay-rails/pay#282)."""
    session = stripe(
        "checkout.session.completed", id="cs_1", mode="subscription", subscription="sub_1", locale="fr"
    )
    for shop in play("stripe", "price_1", session, FIRST, subscription(0)):
        assert len(shop.valid) == 1
    first, *_ = play("stripe", "price_1", session, FIRST)
    assert first.licenses[0].language == "fr"


def test_luqp2_image_metahub_531() -> None:
    """A dispute of a lifetime purchase, and of a subscription, takes the access; a won one gives it back."""
    disputed = stripe("charge.dispute.created", 1, id="dp_1", payment_intent="pi_1", status="needs_response")
    won = stripe("charge.dispute.closed", 9, id="dp_1", payment_intent="pi_1", status="won")
    for bought, name in (
        (LIFETIME, "app"),
        (invoice(1, 0, reason="subscription_create", payment_intent="pi_1"), "price_1"),
    ):
        assert not any(shop.valid for shop in play("stripe", name, bought, disputed))
        assert all(shop.valid for shop in play("stripe", name, bought, disputed, won))


def test_getlago_lago_api_6444() -> None:
    """An inquiry takes no money; of two disputes, one that is won does not clear the other."""
    names = {"payment_intent": "pi_1"}
    inquiry = stripe("charge.dispute.created", 1, id="dp_1", status="warning_needs_response", **names)
    other = stripe("charge.dispute.created", 2, id="dp_2", status="needs_response", **names)
    closed = stripe("charge.dispute.closed", 3, id="dp_1", status="warning_closed", **names)
    assert all(shop.valid for shop in play("stripe", "app", LIFETIME, inquiry))
    assert not any(shop.valid for shop in play("stripe", "app", LIFETIME, inquiry, other, closed))


def test_liberusoftware_genealogy_laravel_1605() -> None:
    """A pause of payments leaves the state active: what was paid is the end, until it goes on."""
    paused = subscription(
        5, pause_collection={"behavior": "void"}, current_period_end=int(at(60).timestamp())
    )
    for shop in play("stripe", "price_1", FIRST, paused):
        assert shop.ends == [at(30)]
    resumed = subscription(
        40, current_period_start=int(at(30).timestamp()), current_period_end=int(at(60).timestamp())
    )
    for shop in play("stripe", "price_1", FIRST, paused, resumed):
        assert shop.ends == [at(60) + GRACE]


def test_ai_shipping_labs_website_1314() -> None:
    """A cancellation by `cancel_at` alone is for later, and can be taken back."""
    cancelled = subscription(3, cancel_at=int(at(30).timestamp()), cancel_at_period_end=False)
    for shop in play("stripe", "price_1", FIRST, cancelled):
        assert shop.ends == [at(30)]
    for shop in play("stripe", "price_1", FIRST, cancelled, subscription(4)):
        assert shop.ends == [at(30) + GRACE]


def test_stripe_stripe_dotnet_3103() -> None:
    """A subscription that began for nothing, of which more are bought: each has a license."""
    free = invoice(1, 0, reason="subscription_create", amount_paid=0)
    for shop in play("stripe", "price_1", free, subscription(5, quantity=2)):
        assert len(shop.valid) == 2


def test_opengovsg_formsg_5937() -> None:
    """Partly refunded, fully refunded, disputed: in that order or another one."""
    part = stripe(
        "charge.refunded",
        1,
        id="ch_1",
        payment_intent="pi_1",
        refunded=False,
        amount=2_000,
        amount_refunded=500,
    )
    whole = stripe(
        "charge.refunded",
        2,
        id="ch_1",
        payment_intent="pi_1",
        refunded=True,
        amount=2_000,
        amount_refunded=2_000,
    )
    assert all(shop.valid for shop in play("stripe", "app", LIFETIME, part))
    assert not any(shop.valid for shop in play("stripe", "app", LIFETIME, part, whole))


def test_theopenco_llmgateway_3832() -> None:
    """A renewal that arrives before the purchase, and an older state that arrives last."""
    for shop in play("stripe", "price_1", invoice(2, 30), FIRST, subscription(0)):
        assert (shop.ends, len(shop.licenses)) == ([at(60) + GRACE], 1)


# --- Paddle -----------------------------------------------------------------------------------


def paddle(days: float, status: str, start: float = 0, **fields: Any) -> bytes:
    """Make a report of a subscription of Paddle."""
    period = {"starts_at": text(start), "ends_at": text(start + 30)}
    item = {"price": {"id": "pri_1"}, "quantity": 1}
    data = {"id": "sub_1", "status": status, "current_billing_period": period, "items": [item], **fields}
    event = {"event_id": "e", "event_type": "subscription.updated", "occurred_at": text(days), "data": data}
    return json.dumps(event).encode()


def transaction(number: int, start: float, origin: str = "subscription_recurring") -> bytes:
    """Make a paid transaction of Paddle."""
    period = {"starts_at": text(start), "ends_at": text(start + 30)}
    items = [{"price": {"id": "pri_1"}, "quantity": 1}]
    data = {"id": f"txn_{number}", "origin": origin, "billed_at": text(start), "billing_period": period}
    about = {"event_id": "e", "event_type": "transaction.completed", "occurred_at": text(start)}
    return json.dumps({**about, "data": {**data, "items": items, "subscription_id": "sub_1"}}).encode()


WEB = transaction(1, 0, "web")


def test_paddlehq_paddle_node_sdk_107() -> None:
    """A renewal that fails is first reported as active with the next period: what was paid is the end."""
    failing = [paddle(30, "active", 30), paddle(30.01, "past_due", 30)]
    for shop in play("paddle", "pri_1", WEB, *failing):
        assert shop.ends == [at(30) + GRACE]
    for shop in play("paddle", "pri_1", WEB, *failing, transaction(2, 30)):
        assert shop.ends == [at(60) + GRACE]


def test_plausible_analytics_4240() -> None:
    """Past due and active of the same second: the state that has got further counts, in any order."""
    for shop in play("paddle", "pri_1", WEB, paddle(30, "past_due", 30), paddle(30, "active", 30)):
        assert shop.ends == [at(60) + GRACE]


def test_laravel_cashier_paddle_238() -> None:
    """The thirteen deliveries of one purchase, of which one is a sale."""
    types = [
        "transaction.created",
        "customer.updated",
        "address.created",
        "transaction.ready",
        "transaction.paid",
    ]
    others = [shops.paddle(type_, {}) for type_ in [*types, "business.created", "transaction.updated"]]
    (shop, *_) = play("paddle", "pri_1", *others, WEB, paddle(0, "active"))
    assert len(shop.licenses) == 1


@pytest.mark.parametrize("canceled_at", [10, 30])
def test_laravel_cashier_paddle_92(canceled_at: float) -> None:
    """Cancelled at once ends at once, whatever was scheduled before (also almarklein/timetagger#332)."""
    scheduled = paddle(5, "active", scheduled_change={"action": "cancel", "effective_at": text(30)})
    ended = paddle(canceled_at, "canceled", canceled_at=text(canceled_at))
    for shop in play("paddle", "pri_1", WEB, scheduled):
        assert shop.ends == [at(30)]
    for shop in play("paddle", "pri_1", WEB, scheduled, ended):
        assert shop.ends == [at(canceled_at)]


def test_laravel_cashier_paddle_101() -> None:
    """A paused subscription has no next payment, and can be cancelled."""
    paused = paddle(30, "paused", next_billed_at=None)
    for shop in play("paddle", "pri_1", WEB, paused):
        assert shop.ends == [at(30)]
    for shop in play("paddle", "pri_1", WEB, paused, paddle(40, "canceled", canceled_at=text(40))):
        assert shop.ends == [at(40)]


# --- Lemon Squeezy ----------------------------------------------------------------------------

ORDER = shops.lemon("order_created", "5", shops.lemon_order())


def lemon(status: str, name: str = "updated", **fields: Any) -> bytes:
    """Make a report of a subscription."""
    item: dict[str, Any] = {"variant_id": 11, "product_id": 7, "first_subscription_item": {"quantity": 1}}
    return shops.lemon(f"subscription_{name}", "77", MAKE.lemon_subscription(status, **{**item, **fields}))


def test_lmsqueezy_lemonsqueezy_js_145_the_event_itself() -> None:
    """`subscription_plan_changed` is in no documentation."""
    changed = lemon("active", "plan_changed", variant_id=12, updated_at="2026-06-20T12:00:00Z")
    for shop in play("lemonsqueezy", "11 12", ORDER, lemon("active"), changed):
        assert [license_.item for license_ in shop.valid] == ["12"]


def test_lmsqueezy_lemonsqueezy_js_116() -> None:
    """Variant and quantity are changed one after the other: the later report has both."""
    more: dict[str, Any] = {"variant_id": 12, "updated_at": "2026-06-20T12:00:01Z"}
    variant = lemon("active", variant_id=12, updated_at="2026-06-20T12:00:00Z")
    quantity = lemon("active", first_subscription_item={"quantity": 4}, **more)
    for shop in play("lemonsqueezy", "11 12", ORDER, variant, quantity):
        assert len(shop.valid) == 4


def test_lmsqueezy_laravel_32() -> None:
    """Cancelled is not over, and can be resumed (also lmsqueezy/laravel#113, moasq/agentic-ship#28)."""
    ends = {"ends_at": "2026-07-15T12:00:00Z", "updated_at": "2026-06-20T12:00:00Z"}
    for shop in play("lemonsqueezy", "11", ORDER, lemon("cancelled", "cancelled", **ends)):
        assert shop.ends == [at(30)]
    resumed = lemon("active", "resumed", updated_at="2026-06-21T12:00:00Z")
    for shop in play("lemonsqueezy", "11", ORDER, lemon("cancelled", "cancelled", **ends), resumed):
        assert shop.ends == [at(30) + GRACE]


@pytest.mark.parametrize(
    ("status", "end"),
    [("past_due", 10 + 7), ("unpaid", 10), ("paused", 10), ("expired", 30)],
)
def test_ametel01_bruno_382(status: str, end: float) -> None:
    """Past due has the grace, unpaid and paused have none, expired is over."""
    report = lemon(
        status, updated_at=text(10), renews_at=text(40), ends_at=text(30) if status == "expired" else None
    )
    for shop in play("lemonsqueezy", "11", ORDER, lemon("active"), report):
        assert shop.ends == [at(end)]


# --- WooCommerce ------------------------------------------------------------------------------

PAID = {"date_paid_gmt": "2026-06-15T12:00:00"}
WOO = shops.woo("processing", **PAID)
MONTHLY = {"billing_period": "day", "billing_interval": 30, "next_payment_date_gmt": "2026-07-15T12:00:00"}
SUBSCRIBED = MAKE.woo_subscription(**MONTHLY)


def renewal(id_: int, status: str = "processing", days: float = 30, **fields: Any) -> bytes:
    """Make an order of a renewal."""
    when = text(days).removesuffix("Z")
    return shops.woo_renewal(id_, status=status, date_paid_gmt=when, date_modified_gmt=when, **fields)


@pytest.mark.parametrize("status", ["refunded", "cancelled"])
def test_license_wp_license_wp_34(status: str) -> None:
    """A license of a refunded order (also Automattic/sensei#181)."""
    over = shops.woo(status, date_modified_gmt="2026-06-20T12:00:00", **PAID)
    assert not any(shop.valid for shop in play("woocommerce", "APP", WOO, over))


def test_woocommerce_woocommerce_18363() -> None:
    """All was refunded, and the order stays completed."""
    over = shops.woo(
        "completed", date_modified_gmt="2026-06-20T12:00:00", refunds=[{"total": "-29.35"}], **PAID
    )
    assert not any(shop.valid for shop in play("woocommerce", "APP", WOO, over))


def test_license_wp_license_wp_27() -> None:
    """A cancelled subscription that is bought again is a new purchase; the old license has ended."""
    cancelled = shops.woo_subscription(
        "cancelled", date_modified_gmt="2026-06-20T12:00:00", end_date_gmt="2026-06-20T12:00:00"
    )
    resubscribed = shops.woo(
        "processing",
        id=801,
        line_items=[shops.woo_line(400)],
        meta_data=[{"key": "_subscription_resubscribe", "value": 900}],
        created_via="subscription",
        date_paid_gmt="2026-06-20T12:00:00",
    )
    again = shops.woo_subscription(id=901, parent_id=801, date_modified_gmt="2026-06-20T12:00:01")
    for shop in play("woocommerce", "APP", WOO, cancelled, resubscribed, again):
        assert [license_.ends_at for license_ in shop.licenses if license_.order_id == "727"] == [at(5)]
        assert len(shop.licenses) == 2


def test_wpexpertsio_license_manager_for_woocommerce_154() -> None:
    """A switch to another variation keeps the key, and the next renewal as well (its #165)."""
    line = shops.woo_line(400, variation_id=24)
    switch = shops.woo(
        "completed",
        id=810,
        line_items=[line],
        meta_data=[{"key": "_subscription_switch", "value": 900}],
        **PAID,
    )
    after = MAKE.woo_subscription(
        **{**MONTHLY, "date_modified_gmt": "2026-06-20T12:00:00", "line_items": [line]}
    )
    for shop in play("woocommerce", "APP 24", WOO, switch, after, renewal(801, line_items=[line])):
        assert (len(shop.licenses), shop.ends, shop.asked) == (1, [at(60) + GRACE], [])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("status", ["cancelled", "pending", "processing"])
def test_woocommerce_woocommerce_65961(status: str) -> None:
    """Two orders renew the same period: it is one period, whatever becomes of the second order."""
    for shop in play("woocommerce", "APP", WOO, SUBSCRIBED, renewal(801), renewal(802, status)):
        assert (shop.ends, len(shop.licenses)) == ([at(60) + GRACE], 1)


def test_automattic_woocommerce_subscriptions_core_820() -> None:
    """A renewal has the number of the first order: its license stays, and is extended."""
    shop = Vendor("woocommerce", mapped("APP"))
    shop.receive(WOO, SUBSCRIBED, renewal(727))
    assert (len(shop.licenses), shop.ends) == (1, [at(60) + GRACE])


def test_wpexpertsio_license_manager_for_woocommerce_101() -> None:
    """Processing, then completed, then saved again: one license."""
    bodies = [
        shops.woo(status, date_modified_gmt=f"2026-06-{day}T12:00:00", **PAID)
        for status, day in (("completed", 16), ("completed", 17))
    ]
    for shop in play("woocommerce", "APP", WOO, *bodies):
        assert len(shop.licenses) == 1


# --- Polar ------------------------------------------------------------------------------------

POLAR = {"subscription_id": "sub_1", "billing_reason": "subscription_create"}
POLAR_FIRST = shops.polar("order.paid", **shops.polar_order(**POLAR))


def polar(
    days: float, status: str = "active", type_: str = "updated", start: float = 0, **fields: Any
) -> bytes:
    """Make a report of a subscription."""
    period = {"current_period_start": text(start), "current_period_end": text(start + 30)}
    unit = {"recurring_interval": "day", "recurring_interval_count": 30, "modified_at": text(days)}
    return shops.polar(
        f"subscription.{type_}", text(days), **shops.polar_subscription(status, **period, **unit, **fields)
    )


def test_polarsource_polar_8325() -> None:
    """`subscription.revoked` is also sent for one that is past due, and that is paid later."""
    missing = polar(30, "past_due", "revoked", 30)
    for shop in play("polar", "prod_1", POLAR_FIRST, polar(0), missing):
        assert shop.ends == [at(30) + GRACE]
    for shop in play("polar", "prod_1", POLAR_FIRST, missing, polar(33, start=30)):
        assert shop.ends == [at(60) + GRACE]


def test_textbee_textbee_237() -> None:
    """Canceled is for the end of the period, and revoked is the end (also danestves/laravel-polar#32)."""
    cancelled = polar(5, "active", "canceled", cancel_at_period_end=True, ends_at=text(30))
    revoked = polar(30, "canceled", "revoked", ended_at=text(30))
    for shop in play("polar", "prod_1", POLAR_FIRST, cancelled):
        assert shop.ends == [at(30)]
    for shop in play("polar", "prod_1", POLAR_FIRST, cancelled, revoked):
        assert shop.ends == [at(30)]


def test_polarsource_polar_9473() -> None:
    """Cancelled for later, and then at once; or taken back (its #8677)."""
    later = polar(5, "active", "canceled", cancel_at_period_end=True, ends_at=text(30))
    for shop in play(
        "polar", "prod_1", POLAR_FIRST, later, polar(6, "canceled", "canceled", ended_at=text(6))
    ):
        assert shop.ends == [at(6)]
    for shop in play("polar", "prod_1", POLAR_FIRST, later, polar(6, "active", "uncanceled")):
        assert shop.ends == [at(30) + GRACE]


@pytest.mark.parametrize("is_paid", [True, False])
def test_polarsource_polar_6746(is_paid: bool) -> None:
    """A renewal: the subscription with its next period, an order that is pending, then paid or not."""
    cycle = {**POLAR, "billing_reason": "subscription_cycle", "id": "ord_2", "created_at": text(30.001)}
    pending = shops.polar("order.created", text(30.001), **shops.polar_order(status="pending", **cycle))
    paid = shops.polar("order.paid", text(30.01), **shops.polar_order(**cycle))
    last = paid if is_paid else polar(30.02, "past_due", "past_due", 30)
    for shop in play("polar", "prod_1", POLAR_FIRST, polar(30, start=30), pending, last):
        assert shop.asked == []
        assert len(shop.licenses) == 1
        (end,) = shop.ends
        assert end is not None
        assert abs(end - at(60 if is_paid else 30) - GRACE) < timedelta(hours=1)


def test_polarsource_polar_7951() -> None:
    """Partial refunds add up to the order; one that failed is none (its #4837)."""
    dates = {"created_at": text(1)}

    def refund(number: int, status: str, days: float) -> bytes:
        fields = {"id": f"re_{number}", "order_id": "ord_1", "status": status, "amount": 1_000}
        return shops.polar("refund.updated", text(days), modified_at=text(days), **fields, **dates)

    bought = shops.polar("order.paid", **shops.polar_order())
    halves = [refund(1, "succeeded", 1), refund(2, "succeeded", 2)]
    assert not any(shop.valid for shop in play("polar", "prod_1", bought, *halves))
    assert all(shop.valid for shop in play("polar", "prod_1", bought, *halves, refund(2, "failed", 3)))
    whole = shops.polar(
        "order.updated", text(3), **shops.polar_order(status="refunded", refunded_amount=2_000)
    )
    assert not any(shop.valid for shop in play("polar", "prod_1", bought, whole))


def test_polarsource_polar_7465() -> None:
    """Seats that are bought later are licenses."""
    for shop in play("polar", "prod_1", POLAR_FIRST, polar(0), polar(5, seats=4)):
        assert len(shop.valid) == 4


# --- Dodo Payments ----------------------------------------------------------------------------

DODO_PAID = shops.dodo("payment.succeeded", **shops.dodo_payment(subscription_id="sub_1", product_cart=None))
DODO = {"payment_frequency_interval": "Day", "payment_frequency_count": 30}


def dodo(type_: str, days: float = 0, status: str = "active", start: float = 0, **fields: Any) -> bytes:
    """Make a report of a subscription."""
    dates = {"previous_billing_date": text(start), "next_billing_date": text(start + 30)}
    return shops.dodo(
        f"subscription.{type_}", text(days), **shops.dodo_subscription(status, **dates, **DODO, **fields)
    )


def test_sachinchaurasiya360_internhack_1953() -> None:
    """The payment before the subscription, or after it."""
    for shop in play("dodo", "pdt_1", DODO_PAID, dodo("active")):
        assert (len(shop.licenses), shop.ends, shop.asked) == (1, [at(30) + GRACE], [])


def test_dodopayments_dodo_docs_279() -> None:
    """A failed charge puts it on hold; a later payment reactivates it."""
    failed = shops.dodo(
        "payment.failed", text(30), **shops.dodo_payment(payment_id="pay_2", subscription_id="sub_1")
    )
    held = dodo("on_hold", 30.01, "on_hold", 30)
    for shop in play("dodo", "pdt_1", DODO_PAID, failed, held):
        assert shop.ends == [at(30) + GRACE]
    for shop in play("dodo", "pdt_1", DODO_PAID, held, dodo("active", 32, start=30)):
        assert (shop.ends, len(shop.licenses)) == ([at(60) + GRACE], 1)


def test_koala73_worldmonitor_4440() -> None:
    """Five attempts of which one succeeds: one license."""
    tries = [
        shops.dodo(
            "payment.processing",
            **shops.dodo_payment(payment_id=f"pay_{n}", status="requires_customer_action"),
        )
        for n in range(2, 6)
    ]
    shop, *_ = play("dodo", "pdt_1", *tries, shops.dodo("payment.succeeded", **shops.dodo_payment()))
    assert (len(shop.licenses), shop.asked) == (1, [])


def test_thadeucity_kana_app_back_59() -> None:
    """A refund or a dispute of the payment of a subscription takes the access, though it goes on."""
    names = {"payment_id": "pay_1"}
    refund = shops.dodo("refund.succeeded", text(1), refund_id="r", status="succeeded", amount=2_000, **names)
    dispute = shops.dodo("dispute.opened", text(1), dispute_id="d", dispute_status="dispute_opened", **names)
    for back in (refund, dispute):
        assert not any(shop.valid for shop in play("dodo", "pdt_1", DODO_PAID, dodo("active"), back))


# --- Gumroad ----------------------------------------------------------------------------------

MEMBER = {"subscription_id": "sub_1==", "recurrence": "monthly"}
JOINED = shops.gumroad(**MEMBER)


def test_antiwork_gumroad_469() -> None:
    """No ping is sent for a cancellation: the membership ends after what was paid (also its #6812)."""
    for shop in play("gumroad", "app", JOINED):
        assert shop.ends == [datetime(2026, 7, 15, 12, tzinfo=UTC) + GRACE]
    cancelled = shops.gumroad_subscription("cancellation", cancelled_at=text(3))
    for shop in play("gumroad", "app", JOINED, cancelled):
        assert shop.ends == [datetime(2026, 7, 15, 12, tzinfo=UTC)]


def test_antiwork_gumroad_4036() -> None:
    """Two memberships of the same product and customer are two."""
    other = shops.gumroad(sale_id="sale_2==", subscription_id="sub_2==", recurrence="monthly")
    ended = shops.gumroad_subscription("subscription_ended", subscription_id="sub_2==", ended_at=text(5))
    for shop in play("gumroad", "app", JOINED, other, ended):
        assert sorted(shop.ends, key=str) == [at(5), datetime(2026, 7, 15, 12, tzinfo=UTC) + GRACE]


def test_antiwork_gumroad_4825() -> None:
    """Two partial refunds: the ping says when all of it is gone."""
    part, whole = shops.gumroad("refund"), shops.gumroad("refund", refunded="true")
    for shop in play("gumroad", "app", shops.gumroad(), part):
        assert (len(shop.valid), shop.asked) == (1, [])
    assert not any(shop.valid for shop in play("gumroad", "app", shops.gumroad(), part, whole))


def test_antiwork_gumroad_532() -> None:
    """Five copies are five licenses; a recurring charge of them is none."""
    again = shops.gumroad(
        sale_id="sale_2==", quantity="5", is_recurring_charge="true", sale_timestamp=text(30), **MEMBER
    )
    for shop in play("gumroad", "app", shops.gumroad(quantity="5", **MEMBER), again):
        assert (len(shop.licenses), set(shop.ends)) == (5, {datetime(2026, 8, 15, 12, tzinfo=UTC) + GRACE})
