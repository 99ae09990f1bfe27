"""Reports about the shape of payloads, late settlement, trials, pauses, instalments and addresses."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from harness import sales, shops
from harness.contracts import GRACE, Vendor, at, mapped, play, text
from licserver.services.sources import BadSignatureError
from licserver.shops import SHOPS, ShopKind
from licserver.shops.reading import UnreadableDeliveryError

# --- WooCommerce


def order(status: str = "processing", day: float = 0, **fields: Any) -> bytes:
    """Make an order that was paid on the first day."""
    dates = {"date_modified_gmt": text(day)[:-1], "date_paid_gmt": text(0)[:-1]}
    return shops.woo(status, **{**dates, **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"meta_data": {"1": {"id": 7, "key": "_billing_vat", "value": ""}}},
        {"meta_data": [[], [], {}]},
        {"meta_data": [{"id": 7, "key": None, "value": None}]},
        {"meta_data": {}},
        {"line_items": {"315": shops.woo_line()}},
        {"refunds": {"1": {"id": 5, "total": "-1.00"}}},
    ],
    ids=["a list with gaps", "empty fields", "a field without a name", "nothing", "lines", "refunds"],
)
def test_woocommerce_woocommerce_34966(fields: dict[str, Any]) -> None:
    """PHP writes lists as objects once a plugin has removed elements (also 14184), or leaves empty ones.

    woocommerce/woocommerce#17003, woocommerce/woocommerce#17223, woocommerce/woocommerce#24148 (WPML).
    """
    for vendor in play("woocommerce", "APP", order(**fields)):
        assert (len(vendor.valid), vendor.asked) == (1, [])


def test_fields_that_are_no_list() -> None:
    """They are named."""
    with pytest.raises(UnreadableDeliveryError, match=r"^meta_data: "):
        SHOPS[ShopKind.WOOCOMMERCE].read({}, order(meta_data="none"))


def test_woocommerce_woocommerce_34966_names_the_subscription_that_is_renewed() -> None:
    """What stands among the gaps is read: otherwise a renewal would be another sale."""
    named = {"3": {"id": 9, "key": "_subscription_renewal", "value": 900}, "7": []}
    lines = {"316": shops.woo_line(316)}
    subscription = shops.woo_subscription(line_items=lines, next_payment_date_gmt=text(60)[:-1])
    for vendor in play("woocommerce", "APP", order(), subscription, order(id=728, day=30, meta_data=named)):
        assert (vendor.ends, vendor.asked) == ([at(60) + GRACE], [])
        assert len(vendor.licenses) == 1


@pytest.mark.parametrize("gone", [{"sku": None}, {"sku": None, "product_id": None, "variation_id": None}])
def test_woocommerce_woocommerce_65530(gone: dict[str, Any]) -> None:
    """A product of an order was deleted: its article number is null. The other line is served."""
    lines = [shops.woo_line(), shops.woo_line(316, **{"product_id": 0, **gone})]
    for vendor in play("woocommerce", "APP", order(line_items=lines)):
        assert (len(vendor.valid), vendor.asked) == (1, ["LINES"])


def test_woocommerce_woocommerce_34798() -> None:
    """The lines of an order are changed, and its date of modification is not: the larger order counts."""
    nine, ten = (order(line_items=[shops.woo_line(quantity=quantity)]) for quantity in (9, 10))
    two = order(line_items=[shops.woo_line(), shops.woo_line(316, sku="", product_id=94)])
    for vendor in play("woocommerce", "APP", nine, ten):
        assert (len(vendor.valid), vendor.asked) == (10, [])
    for vendor in play("woocommerce", "APP 94", order(), two):
        assert (len(vendor.valid), vendor.asked) == (2, [])


def test_woocommerce_woocommerce_41226() -> None:
    """Only looking at an order gives it a new date of modification."""
    refunded = order("refunded", 5, refunds=[{"id": 5, "total": "-29.35"}])
    for vendor in play("woocommerce", "APP", order(), order(day=3), order(day=900)):
        assert (len(vendor.licenses), len(vendor.valid), vendor.asked) == (1, 1, [])
    for vendor in play("woocommerce", "APP", order(), refunded, order("refunded", 900)):
        assert vendor.valid == []


def test_woocommerce_woocommerce_14607() -> None:
    """An order is moved to the trash, which is reported by its number alone, and restored."""
    vendor = Vendor("woocommerce", mapped("APP"))
    vendor.receive(order())
    deleted = SHOPS[ShopKind.WOOCOMMERCE].read({"x-wc-webhook-topic": "order.deleted"}, b'{"id":727}')
    assert (deleted.facts, deleted.reason) == ((), "this topic changes no license")
    vendor.receive(order("trash", 3))  # with HPOS (woocommerce/woocommerce#39079)
    assert vendor.valid == []
    vendor.receive(order("completed", 4), topic="order.restored")
    assert (len(vendor.licenses), len(vendor.valid)) == (1, 1)


@pytest.mark.parametrize(
    ("fields", "next_payment"),
    [({}, 40), ({"total": "0.00", "date_paid_gmt": None, "date_created_gmt": text(0)[:-1]}, 14)],
    ids=["synchronised", "a free trial"],
)
def test_automattic_woocommerce_payments_4565(fields: dict[str, Any], next_payment: float) -> None:
    """The first period is shorter than the others (also Automattic/woocommerce-payments#6610)."""
    subscription = shops.woo_subscription(next_payment_date_gmt=text(next_payment)[:-1])
    for vendor in play("woocommerce", "APP", order(**fields), subscription):
        assert (vendor.ends, vendor.asked) == ([at(next_payment) + GRACE], [])


def test_woocommerce_woocommerce_gateway_stripe_1943() -> None:
    """SEPA settles days later (also woocommerce/woocommerce-gateway-stripe#1294)."""
    waiting = (
        order("on-hold", date_paid_gmt=None),
        shops.woo_subscription("on-hold", next_payment_date_gmt=text(30)[:-1]),
    )
    settled = (
        order(day=5, date_paid_gmt=text(5)[:-1]),
        shops.woo_subscription(date_modified_gmt=text(5)[:-1], next_payment_date_gmt=text(30)[:-1]),
    )
    for vendor in play("woocommerce", "APP", *waiting):
        assert (vendor.licenses, vendor.asked) == ([], [])
    for vendor in play("woocommerce", "APP", *waiting, *settled):
        assert (vendor.ends, vendor.asked) == ([at(30) + GRACE], [])
        assert len(vendor.licenses) == 1


def test_digital_license_manager_60() -> None:
    """The vendor makes a subscription by hand, without an order: a person is asked when it is paid."""
    by_hand = shops.woo_subscription(parent_id=0)
    for vendor in play("woocommerce", "APP", by_hand):
        assert (vendor.licenses, vendor.asked) == ([], [])
    for vendor in play("woocommerce", "APP", by_hand, shops.woo_renewal(728, date_paid_gmt=text(30)[:-1])):
        assert (vendor.licenses, vendor.asked) == ([], ["SUBSCRIPTION"])


@pytest.fixture
def world(world: Any) -> Any:
    """A product, and a source of each shop."""
    world.services.products.add("app", "App")
    return world


def ask_about_addresses(world: Any) -> list[str]:
    """Return the kinds of what a person is asked."""
    return [problem.kind for problem in world.services.sale_problems.list_open().items]


@pytest.mark.usefixtures("shop_secrets")
def test_woocommerce_woocommerce_19330(world: Any) -> None:
    """An order was anonymised: nothing is mailed to the address that no domain can have."""
    sales.add(world, "woocommerce")
    address = {"email": "deleted@site.invalid"}
    sales.process(world, "woocommerce", order(), order(day=1_000, billing=address))
    (license_,) = sales.licenses(world)
    assert (license_.customer_email, ask_about_addresses(world)) == ("ann@example.com", [])
    sales.process(world, "woocommerce", order(id=800, billing=address))
    assert len(sales.licenses(world)) == 2
    assert ask_about_addresses(world) == ["address not usable"]


@pytest.mark.parametrize("billing", [[], {}, {"email": ""}, None])
@pytest.mark.usefixtures("shop_secrets")
def test_kilbot_woocommerce_pos_89(world: Any, billing: Any) -> None:
    """A sale at the counter has no address (also woocommerce/woocommerce#27534); it gets its key."""
    sales.add(world, "woocommerce")
    sales.process(world, "woocommerce", order(billing=billing))
    (license_,) = sales.licenses(world)
    assert license_.customer_email is None
    sales.process(world, "woocommerce", order(day=1, billing={"email": "bob@example.com"}))
    (license_,) = sales.licenses(world)
    assert license_.customer_email == "bob@example.com"


# --- Stripe


def stripe(type_: str, day: float, **fields: Any) -> bytes:
    """Make an event of Stripe."""
    head = {"id": "evt", "object": "event", "type": type_, "created": int(at(day).timestamp())}
    return json.dumps({**head, "livemode": True, "data": {"object": fields}}).encode()


def session(type_: str, day: float, status: str, **fields: Any) -> bytes:
    """Make a report of a Checkout Session."""
    bought = {"mode": "payment", "metadata": {"licserver_item": "app", "licserver_quantity": "1"}}
    payment = {"payment_status": status, "payment_intent": "pi_1", "amount_total": 900}
    return stripe(f"checkout.session.{type_}", day, **{"id": "cs_1", **bought, **payment, **fields})


@pytest.mark.parametrize("payment", [{}, {"payment_intent": None}])
def test_gameserverapp_platform_1216(payment: dict[str, Any]) -> None:
    """A debit settles days after the session (also AI-Shipping-Labs/website#1423), or fails."""
    completed = session("completed", 0, "unpaid", **payment)
    for vendor in play("stripe", "app", completed, session("async_payment_succeeded", 5, "paid")):
        assert (len(vendor.licenses), len(vendor.valid), vendor.asked) == (1, 1, [])
    for vendor in play("stripe", "app", completed, session("async_payment_failed", 5, "unpaid")):
        assert (vendor.licenses, vendor.asked) == ([], [])


def test_stripe_stripe_java_1146() -> None:
    """A coupon of 100 % leaves no payment (also ozziexsh/bling#7)."""
    free = session("completed", 0, "no_payment_required", payment_intent=None, amount_total=0)
    for vendor in play("stripe", "app", free):
        assert (len(vendor.valid), vendor.asked) == (1, [])


def test_craftcms_commerce_stripe_317() -> None:
    """An invoice that the vendor has written by hand names no subscription: the delivery says so."""
    lines = {"data": [{"price": {"id": "price_1"}, "quantity": 1}]}
    body = stripe("invoice.paid", 0, id="in_1", billing_reason="manual", subscription=None, lines=lines)
    assert SHOPS[ShopKind.STRIPE].read({}, body).reason == "an invoice without a subscription"


@pytest.mark.parametrize("later", ["under_review", "won"])
def test_elizaos_eliza_11017(later: str) -> None:
    """A dispute is won, and the money comes back: two reports of the same second."""
    opened = stripe("charge.dispute.created", 1, id="dp_1", payment_intent="pi_1", status="needs_response")
    won = stripe("charge.dispute.closed", 9, id="dp_1", payment_intent="pi_1", status="won")
    money = stripe("charge.dispute.funds_reinstated", 9, id="dp_1", payment_intent="pi_1", status=later)
    for vendor in play("stripe", "app", session("completed", 0, "paid"), opened, won, money):
        assert (len(vendor.licenses), len(vendor.valid), vendor.asked) == (1, 1, [])


def test_laravel_cashier_stripe_613() -> None:
    """A week is given for free by a trial amid the subscription; its pause suspends it at once."""

    def report(day: float, status: str, end: float) -> bytes:
        dates = {
            "current_period_start": int(at(0).timestamp()),
            "current_period_end": int(at(end).timestamp()),
        }
        items = {"data": [{"id": "si_1", "price": {"id": "price_1"}, "quantity": 1}]}
        return stripe("customer.subscription.updated", day, id="sub_1", status=status, items=items, **dates)

    period = {"start": int(at(0).timestamp()), "end": int(at(30).timestamp())}
    line = {
        "period": period,
        "quantity": 1,
        "amount": 900,
        "price": {"id": "price_1"},
        "subscription_item": "si_1",
    }
    paid = stripe(
        "invoice.paid",
        0,
        id="in_1",
        billing_reason="subscription_create",
        subscription="sub_1",
        lines={"data": [line]},
    )
    for vendor in play("stripe", "price_1", paid, report(0, "active", 30), report(9, "trialing", 37)):
        assert (vendor.ends, vendor.asked) == ([at(37) + GRACE], [])
    for vendor in play("stripe", "price_1", paid, report(0, "active", 30), report(9, "paused", 30)):
        assert (vendor.ends, vendor.asked) == ([at(30)], [])


def seconds(day: float) -> int:
    """Return an instant as Stripe writes it."""
    return int(at(day).timestamp())


def mixed_line(name: str, start: float, end: float, amount: int = 900) -> dict[str, Any]:
    """Make a line of an invoice for an item of a subscription."""
    item = {"subscription_item_details": {"subscription_item": f"si_{name}"}}
    price = {"price_details": {"price": name, "product": "prod_1"}}
    period = {"start": seconds(start), "end": seconds(end)}
    return {"period": period, "quantity": 1, "amount": amount, "pricing": price, "parent": item}


def mixed_invoice(number: int, day: float, *lines: dict[str, Any], reason: str = "cycle") -> bytes:
    """Make an invoice that is paid an hour after it was made."""
    return stripe(
        "invoice.paid",
        day + 0.04,
        id=f"in_{number}",
        billing_reason=f"subscription_{reason}",
        created=seconds(day),
        lines={"data": lines},
        parent={"subscription_details": {"subscription": "sub_1"}},
    )


def mixed_subscription(day: float, *items: tuple[str, float, float]) -> bytes:
    """Make a report of a subscription, whose items have periods of their own."""
    data = [
        {
            "id": f"si_{name}",
            "price": {"id": name},
            "quantity": 1,
            "current_period_start": seconds(start),
            "current_period_end": seconds(end),
        }
        for name, start, end in items
    ]
    return stripe("customer.subscription.updated", day, id="sub_1", status="active", items={"data": data})


MIXED = (
    mixed_invoice(1, 0, mixed_line("year", 0, 365), mixed_line("month", 0, 30), reason="create"),
    mixed_subscription(0, ("year", 0, 365), ("month", 0, 30)),
)


@pytest.mark.parametrize("later", [0, 2 / 86_400])
def test_evangauer_openvpm_288(later: float) -> None:
    """A yearly and a monthly item of one subscription (also laravel/cashier-stripe#1832).

    The invoices of a month do not have the yearly item, which is neither removed nor ends then.
    """
    month = (
        mixed_subscription(30, ("year", 0, 365), ("month", 30, 60)),
        mixed_invoice(2, 30 + later, mixed_line("month", 30, 60)),
    )
    for vendor in play("stripe", "year month", *MIXED, *month):
        assert (vendor.ends, vendor.asked) == ([at(365) + GRACE] * 2, [])
        assert len(vendor.licenses) == 2
    removed = mixed_subscription(40, ("year", 0, 365))
    for vendor in play("stripe", "year month", *MIXED, *month, removed):
        assert (vendor.ends, vendor.asked) == ([at(365) + GRACE], [])


def test_a_yearly_item_that_another_one_replaces() -> None:
    """The invoice credits it: the monthly item keeps its license, and ends with its month."""
    yearly = (
        mixed_invoice(1, 0, mixed_line("year", 0, 365), reason="create"),
        mixed_subscription(0, ("year", 0, 365)),
    )
    lines = mixed_line("year", 100, 365, -600), mixed_line("month", 100, 130)
    monthly = (
        mixed_invoice(2, 100, *lines, reason="update"),
        mixed_subscription(100, ("month", 100, 130)),
    )
    for vendor in play("stripe", "year month", *yearly, *monthly):
        assert (vendor.ends, vendor.asked) == ([at(130) + GRACE], [])
        assert len(vendor.licenses) == 1


@pytest.mark.parametrize("prices", [("a", "b"), ("b", "a")])
def test_spikonado_sprocket_74(prices: tuple[str, str]) -> None:
    """A plan is changed in the second in which its subscription was made, in each order of the reports."""
    old, new = prices

    def report(type_: str, price: str) -> bytes:
        dates = {"current_period_start": seconds(0), "current_period_end": seconds(30)}
        item = {"id": "si_1", "price": {"id": price}, "quantity": 1, **dates}
        return stripe(
            f"customer.subscription.{type_}", 0, id="sub_1", status="active", items={"data": [item]}
        )

    line = mixed_line("1", 0, 30) | {"pricing": {"price_details": {"price": old}}}
    paid = mixed_invoice(1, 0, line, reason="create")
    for vendor in play("stripe", "a b", paid, report("created", old), report("updated", new)):
        assert [license_.item for license_ in vendor.valid] == [new]


@pytest.mark.parametrize("variants", [(11, 12), (12, 11)])
def test_spikonado_sprocket_74_of_lemon_squeezy(variants: tuple[int, int]) -> None:
    """The same there, whose instants are of a second as well."""
    old, new = variants

    def report(type_: str, variant: int) -> bytes:
        fields = {"variant_id": variant, "first_subscription_item": {"quantity": 1}}
        return shops.lemon(f"subscription_{type_}", "77", shops.lemon_subscription("active", **fields))

    item = {"variant_id": old, "product_id": 7, "quantity": 1}
    bought = shops.lemon("order_created", "5", shops.lemon_order(first_order_item=item))
    for vendor in play("lemonsqueezy", "11 12", bought, report("created", old), report("updated", new)):
        assert [license_.item for license_ in vendor.valid] == [f"{new}"]


@pytest.mark.usefixtures("shop_secrets")
def test_raystack_frontier_1587(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret is being replaced, and an endpoint was made twice (woocommerce-gateway-stripe#3326).

    Each of the two signs by its own secret, and a copy has another id (Vexa-ai/vexa#519).
    """
    monkeypatch.setenv("NEW_SECRET", "whsec_the-new-one")
    sales.add(world, "stripe")
    world.services.sources.change("stripe", secret_env="NEW_SECRET,STRIPE_SECRET")
    for number, secret in enumerate(("whsec_the-new-one", shops.SECRETS["stripe"])):
        body = shops.stripe("checkout.session.completed", shops.stripe_session(), id_=f"evt_{number}")
        headers = {
            name.lower(): value for name, value in shops.sign("stripe", body, world.clock(), secret).items()
        }
        world.services.sources.receive("stripe", headers, body)
        with pytest.raises(BadSignatureError):
            world.services.sources.receive("stripe", {**headers, "stripe-signature": "t=1,v1=00"}, body)
    sales.work(world)
    assert len(sales.licenses(world)) == 1
    assert sales.states(world, "stripe") == ["done", "done"]


def test_mozilla_fxa_14331() -> None:
    """An upgrade within the month has lines of the change alone: a credit and the rest of the month."""
    first = (
        mixed_invoice(1, 0, mixed_line("month", 0, 30), reason="create"),
        mixed_subscription(0, ("month", 0, 30)),
    )
    proration = {"subscription_item_details": {"subscription_item": "si_month", "proration": True}}
    lines = [mixed_line("month", 10, 30, amount) | {"parent": proration} for amount in (-600, 1_200)]
    for vendor in play("stripe", "month", *first, mixed_invoice(2, 10, *lines, reason="update")):
        assert (vendor.ends, vendor.asked) == ([at(30) + GRACE], [])
        assert len(vendor.licenses) == 1


def test_laravel_cashier_stripe_1518() -> None:
    """One of two items is removed: its license ends at once, and the other one stays."""
    both = (
        mixed_invoice(1, 0, mixed_line("a", 0, 30), mixed_line("b", 0, 30), reason="create"),
        mixed_subscription(0, ("a", 0, 30), ("b", 0, 30)),
    )
    for vendor in play("stripe", "a b", *both, mixed_subscription(9, ("a", 0, 30))):
        assert ([license_.item for license_ in vendor.valid], vendor.asked) == (["a"], [])


@pytest.mark.parametrize(("refunded", "is_valid"), [(9_898, True), (9_899, False)])
def test_woocommerce_woocommerce_gateway_stripe_435(refunded: int, is_valid: bool) -> None:
    """Yen have no decimals (also antiwork/gumroad#3749): a refund of all but one is one in part."""
    bought = session("completed", 0, "paid", amount_total=9_899, currency="jpy")
    charge = {"id": "ch_1", "payment_intent": "pi_1", "refunded": False, "amount": 9_899}
    refund = stripe("charge.refunded", 1, **charge, amount_refunded=refunded, currency="jpy")
    for vendor in play("stripe", "app", bought, refund):
        assert (bool(vendor.valid), vendor.asked) == (is_valid, [])
    refunds = [{"id": 5, "total": f"-{refunded}"}]
    for vendor in play(
        "woocommerce", "APP", order(total="9899"), order(day=1, total="9899", refunds=refunds)
    ):
        assert (bool(vendor.valid), vendor.asked) == (is_valid, [])


def test_woocommerce_woocommerce_26532() -> None:
    """A refund is deleted, which is reported with the next change of the order only."""
    refunded = order("refunded", 1, refunds=[{"id": 5, "total": "-29.35"}])
    for vendor in play("woocommerce", "APP", order(), refunded, order("completed", 9)):
        assert (len(vendor.licenses), len(vendor.valid), vendor.asked) == (1, 1, [])


# --- Paddle, Polar and Dodo Payments


def test_paddlehq_paddle_python_sdk_154() -> None:
    """A trial of nothing, or one that costs something, is paid until its own end, then by the month."""
    items = [
        {"price": {"id": "pri_1", "billing_cycle": {"interval": "month", "frequency": 1}}, "quantity": 1}
    ]

    def paid(id_: str, start: float, end: float, origin: str, total: str) -> bytes:
        data = {"id": id_, "origin": origin, "items": items, "subscription_id": "sub_1"}
        period = {"starts_at": text(start), "ends_at": text(end)}
        more = {"billing_period": period, "details": {"totals": {"grand_total": total}}}
        event = {"event_id": id_, "event_type": "transaction.completed", "occurred_at": text(start)}
        return json.dumps({**event, "data": {**data, **more}}).encode()

    for total in ("0", "100"):
        trial = paid("txn_1", 0, 14, "web", total)
        for vendor in play("paddle", "pri_1", trial):
            assert (vendor.ends, vendor.asked) == ([at(14) + GRACE], [])
        for vendor in play("paddle", "pri_1", trial, paid("txn_2", 14, 44, "subscription_recurring", "900")):
            assert (vendor.ends, vendor.asked) == ([at(44) + GRACE], [])
            assert len(vendor.licenses) == 1


def test_laravel_cashier_paddle_38() -> None:
    """A customer is merged with another one: what is sold has ids of its own (also 269)."""
    items = [
        {"price": {"id": "pri_1", "billing_cycle": {"interval": "month", "frequency": 1}}, "quantity": 1}
    ]

    def paid(id_: str, start: float, origin: str, customer: str) -> bytes:
        period = {"starts_at": text(start), "ends_at": text(start + 30)}
        names = {"id": id_, "customer_id": customer, "subscription_id": "sub_1", "origin": origin}
        event = {"event_id": id_, "event_type": "transaction.completed", "occurred_at": text(start)}
        return json.dumps({**event, "data": {**names, "items": items, "billing_period": period}}).encode()

    later = paid("txn_2", 30, "subscription_recurring", "ctm_2")
    for vendor in play("paddle", "pri_1", paid("txn_1", 0, "web", "ctm_1"), later):
        assert (vendor.ends, vendor.asked) == ([at(60) + GRACE], [])
        assert len(vendor.licenses) == 1


def polar(type_: str, day: float, status: str = "active", **fields: Any) -> bytes:
    """Make a report of a monthly subscription of Polar."""
    dates = {"current_period_start": text(0), "current_period_end": text(30), "modified_at": text(day)}
    cycle = {"recurring_interval": "month", "recurring_interval_count": 1}
    subscription = shops.polar_subscription(status, **{**dates, **cycle, **fields})
    return shops.polar(f"subscription.{type_}", text(day), **subscription)


def polar_order(type_: str, day: float, status: str) -> bytes:
    """Make a report of the first order of that subscription."""
    names = {"billing_reason": "subscription_create", "subscription_id": "sub_1"}
    return shops.polar(
        f"order.{type_}", text(day), **shops.polar_order(status=status, created_at=text(0), **names)
    )


POLAR_PAID = polar_order("paid", 0.0001, "paid")


def test_polarsource_polar_6751() -> None:
    """Active, updated and created within a second, in this order (also 6134), and a pending order first.

    danestves/laravel-polar#19.
    """
    bodies = polar("active", 0), polar("updated", 0), polar("created", 0, modified_at=None)
    for vendor in play("polar", "prod_1", *bodies, polar_order("created", 0, "pending"), POLAR_PAID):
        assert (vendor.ends, vendor.asked) == ([at(30) + GRACE], [])
        assert len(vendor.licenses) == 1


def test_polarsource_polar_12981() -> None:
    """A subscription is paused, so that no payment is awaited, and resumed (also sheeki03/tirith#212)."""
    paused = polar("paused", 10, "paused")
    for vendor in play("polar", "prod_1", POLAR_PAID, polar("active", 0.001), paused):
        assert (vendor.ends, vendor.asked) == ([at(30)], [])
    dates = {"current_period_start": text(50), "current_period_end": text(80)}
    for vendor in play("polar", "prod_1", POLAR_PAID, paused, polar("resumed", 50, **dates)):
        assert (vendor.ends, vendor.asked) == ([at(80) + GRACE], [])


def test_koala73_worldmonitor_4765() -> None:
    """The report of a renewed subscription was lost: its payment alone pays the period."""

    def payment(number: int, day: float) -> bytes:
        names = {"payment_id": f"pay_{number}", "subscription_id": "sub_1", "product_cart": None}
        return shops.dodo("payment.succeeded", text(day), **shops.dodo_payment(**names, created_at=text(day)))

    dates = {"previous_billing_date": text(0), "next_billing_date": text(30)}
    cycle = {"payment_frequency_interval": "Month", "payment_frequency_count": 1}
    report = shops.dodo(
        "subscription.active", text(0.001), **shops.dodo_subscription("active", **dates, **cycle)
    )
    for vendor in play("dodo", "pdt_1", payment(1, 0), report, payment(2, 30)):
        ((end,), asked) = (vendor.ends, vendor.asked)
        assert end is not None
        assert (at(60) + GRACE <= end <= at(61) + GRACE, asked) == (True, [])


# --- Gumroad


def ping(**fields: Any) -> bytes:
    """Make a ping about a sale."""
    sale = {"sale_id": "s1", "sale_timestamp": text(0), "product_id": "gp==", "short_product_id": "abc"}
    more = {"email": "ann@example.com", "price": "1000", "quantity": "1", "resource_name": "sale"}
    return urlencode({**sale, **more, **fields}).encode()


def test_antiwork_gumroad_1554() -> None:
    """The last instalment is paid (also 2907): a customer who has paid all is not locked out unasked."""
    of_plan = {"subscription_id": "sub", "recurrence": "monthly"}
    charges = [
        ping(**of_plan, sale_id=f"s{number}", sale_timestamp=text(30 * number), is_recurring_charge=is_later)
        for number, is_later in enumerate(["false", "true", "true"])
    ]
    ended = {
        "product_id": "gp==",
        "created_at": text(0),
        "ended_at": text(61),
        "charge_occurrence_count": "3",
    }
    reason = {"resource_name": "subscription_ended", "ended_reason": "fixed_subscription_period_ended"}
    for vendor in play("gumroad", "abc", *charges, urlencode({**of_plan, **ended, **reason}).encode()):
        ((end,), asked) = (vendor.ends, vendor.asked)
        assert end is not None
        assert (end > at(61) + GRACE, asked) == (True, ["PERIOD"])
        assert vendor.problems[0].text == (
            "subscription sub: all its payments are made, and whether its licenses stay, as after "
            "instalments, or end is not known; extend its licenses with `licserver subscription end sub "
            "--at YYYY-MM-DD`, or leave it"
        )
    cancelled = {"resource_name": "subscription_ended", "ended_reason": "cancelled"}
    for vendor in play("gumroad", "abc", *charges, urlencode({**of_plan, **ended, **cancelled}).encode()):
        assert (vendor.ends, vendor.asked) == ([at(61)], [])


def test_antiwork_gumroad_5394() -> None:
    """PayPal closes a dispute with a refund in part: Gumroad reports it as reversed."""
    disputed = ping(disputed="true", resource_name="dispute")
    reversed_ = ping(
        disputed="true", dispute_won="true", partially_refunded="true", resource_name="dispute_won"
    )
    for vendor in play("gumroad", "abc", ping(), disputed, reversed_):
        assert (len(vendor.licenses), len(vendor.valid), vendor.asked) == (1, 1, [])
