"""No license of a subscription is without an end, in whatever order its reports arrive."""

import json
from collections import Counter
from collections.abc import Iterable
from datetime import date
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import shops
from harness.contracts import GRACE, Vendor, at, mapped, text
from licserver.shops.contract import Answer, Rules

MAPPED = {**mapped("p1", product="app"), **mapped("p2", product="suite")}


def sold(product: str, day: float = 0, **fields: Any) -> bytes:
    """Make a purchase of a subscription, in a shop of one's own."""
    data = {"order_id": "O", "external_id": product, "subscription_id": "S", "paid_through": text(30)}
    return shops.standard("purchase.completed", text(day), **data | fields)


def changed(product: str, day: float = 2, quantity: int = 1) -> bytes:
    """Make a report that a subscription is of another product or quantity."""
    data = {"subscription_id": "S", "external_id": product, "quantity": quantity}
    return shops.standard("subscription.changed", text(day), **data)


ENDED = shops.standard("subscription.ended", text(8), subscription_id="S")


def open_own() -> Vendor:
    """Return the source of a shop of one's own."""
    return Vendor("standard", MAPPED, Rules(GRACE, has_api=False))


def play(*bodies: bytes) -> Iterable[Vendor]:
    """Return a vendor for each order of deliveries, each of which arrives twice."""
    for order in permutations(bodies):
        vendor = open_own()
        vendor.receive(*order, *order)
        yield vendor


def count(vendor: Vendor) -> Counter[tuple[str, Any]]:
    """Count the valid licenses by product and end."""
    return Counter((license_.terms.product, license_.ends_at) for license_ in vendor.valid)


# --- what the subscription lists no more


@pytest.mark.parametrize(
    ("bodies", "expected"),
    [
        ((sold("p1"), changed("p1"), sold("p2")), {"app": 1}),
        ((sold("p1"), changed("p1", quantity=2), sold("p2", quantity=3)), {"app": 2}),
        ((sold("mug"), changed("p1"), sold("p1")), {"app": 1}),
        ((sold("p1", line_id="1"), changed("p1", quantity=2), sold("p2", line_id="2")), {"app": 2}),
    ],
    ids=["another line", "several of it", "a line that is not mapped", "lines with ids"],
)
def test_what_a_subscription_has_no_more(bodies: tuple[bytes, ...], expected: dict[str, int]) -> None:
    """A line whose order names the subscription, and which that lists no more, is not paid any more."""
    for vendor in play(*bodies):
        assert count(vendor) == {(product, at(30) + GRACE): number for product, number in expected.items()}
        vendor.receive(ENDED)
        assert {license_.ends_at for license_ in vendor.valid} == {at(8)}


def test_what_is_bought_after_the_change() -> None:
    """It is one more, and ends with the subscription as well."""
    for vendor in play(sold("p1"), changed("p1"), sold("p2", 3)):
        assert count(vendor) == {("app", at(30) + GRACE): 1, ("suite", at(30) + GRACE): 1}


def test_what_nothing_is_mapped_for_is_bought_after_the_change() -> None:
    """It issues nothing; what was served as an item before the line of that was known stays it."""
    bought = sold("p1", line_id="1"), sold("mug", 3, line_id="2")
    for vendor in play(changed("p1"), *bought):
        assert count(vendor) == {("app", at(30) + GRACE): 1}


def test_a_license_that_was_issued_without_its_subscription() -> None:
    """It gets the one that its order names, also beside what the subscription lists."""
    vendor = open_own()
    vendor.receive(sold("p1"), changed("p1"), sold("p2", 3))
    vendor.licenses[1].subscription_id = vendor.licenses[1].ends_at = None
    vendor.receive(ENDED)
    assert vendor.ends == [at(8), at(8)]


products = st.sampled_from(["p1", "p2", "mug"])
lines = st.fixed_dictionaries(
    {
        "external_id": products,
        "quantity": st.integers(1, 3),
        "subscription_id": st.sampled_from(["S", "S2"]),
        "paid_through": st.sampled_from([text(30), text(60)]),
    }
)
placed = st.tuples(st.sampled_from("OP"), st.sampled_from("12"))
of_subscriptions = st.tuples(
    st.sampled_from(["renewed", "cancelled", "resumed", "ended", "changed", "changed"]),
    st.fixed_dictionaries(
        {
            "subscription_id": st.sampled_from(["S", "S2"]),
            "paid_through": st.sampled_from([text(20), text(90)]),
            "external_id": st.sampled_from(["p1", "p2"]),
            "quantity": st.integers(1, 2),
        }
    ),
)


@settings(max_examples=30)  # the random shops play more
@given(st.data())
def test_whatever_happens_in_a_shop_of_ones_own(data: st.DataObject) -> None:
    """Each license ends with its subscription; the order of deliveries is no matter, or a person is asked."""
    bought = data.draw(st.dictionaries(placed, lines, min_size=1, max_size=3))
    events = [
        ("purchase.completed", {"order_id": order, "line_id": line, **fields})
        for (order, line), fields in bought.items()
    ]
    more = data.draw(st.lists(of_subscriptions, max_size=3))
    events = data.draw(
        st.permutations([*events, *((f"subscription.{name}", fields) for name, fields in more)])
    )
    bodies = [shops.standard(type_, text(day), **fields) for day, (type_, fields) in enumerate(events)]
    vendors = [open_own(), open_own()]
    for vendor, order in zip(vendors, (bodies, data.draw(st.permutations(bodies))), strict=True):
        for body in [*order, *order]:
            vendor.receive(body)
            assert all(license_.subscription_id and license_.ends_at for license_ in vendor.valid)
    assert count(vendors[0]) == count(vendors[1]) or any(vendor.asked for vendor in vendors)


# --- in every shop


def paddle_item(price: str, *, is_recurring: bool = True) -> dict[str, Any]:
    """Make an item of a transaction or a subscription."""
    cycle = {"interval": "month", "frequency": 1} if is_recurring else None
    return {"price": {"id": price, "billing_cycle": cycle}, "quantity": 1, "recurring": is_recurring}


def paddle(type_: str, day: float, **data: Any) -> bytes:
    """Make an event of Paddle."""
    event = {"event_id": "e", "event_type": type_, "occurred_at": text(day)}
    return json.dumps({**event, "data": data}).encode()


PERIOD = {"starts_at": text(0), "ends_at": text(30)}
MIXED = [paddle_item("p1"), paddle_item("p2"), paddle_item("once", is_recurring=False)]
PADDLE = (
    paddle(
        "transaction.completed",
        0,
        id="txn_1",
        origin="web",
        subscription_id="sub_1",
        billing_period=PERIOD,
        items=MIXED,
    ),
    paddle(
        "subscription.created",
        0.001,
        id="sub_1",
        status="active",
        items=MIXED,
        transaction_id="txn_1",
        next_billed_at=text(30),
    ),
    paddle(
        "subscription.updated",
        3,
        id="sub_1",
        status="active",
        items=[paddle_item("p1")],
        transaction_id="txn_1",
        next_billed_at=text(30),
    ),
)


def stripe(type_: str, day: float, **fields: Any) -> bytes:
    """Make an event of Stripe."""
    event = {"id": "evt", "object": "event", "type": type_, "created": int(at(day).timestamp())}
    return json.dumps({**event, "livemode": True, "data": {"object": fields}}).encode()


def stripe_line(price: str, item: str | None) -> dict[str, Any]:
    """Make a line of the first invoice; without an item it is sold once."""
    period = {"start": int(at(0).timestamp()), "end": int(at(30).timestamp())}
    parent = {"subscription_item_details": {"subscription_item": item}} if item else {}
    pricing = {"price_details": {"price": price}}
    return {"period": period, "quantity": 1, "amount": 900, "pricing": pricing, "parent": parent}


def stripe_items(day: float, *prices: str) -> bytes:
    """Make the report of a subscription with these items."""
    ends = int(at(30).timestamp())
    items = [
        {"id": f"si_{price}", "price": {"id": price}, "quantity": 1, "current_period_end": ends}
        for price in prices
    ]
    return stripe("customer.subscription.updated", day, id="sub_1", status="active", items={"data": items})


STRIPE = (
    stripe(
        "invoice.paid",
        0,
        id="in_1",
        billing_reason="subscription_create",
        parent={"subscription_details": {"subscription": "sub_1"}},
        lines={"data": [stripe_line("p1", "si_p1"), stripe_line("p2", "si_p2"), stripe_line("once", None)]},
    ),
    stripe_items(0, "p1", "p2"),
    stripe_items(3, "p1"),
)


@pytest.mark.parametrize(("kind", "bodies"), [("paddle", PADDLE), ("stripe", STRIPE)])
def test_what_is_sold_once_beside_a_subscription(kind: str, bodies: tuple[bytes, ...]) -> None:
    """It has no end; an item that was removed issues nothing without one."""
    for order in permutations(bodies):
        vendor = Vendor(kind, MAPPED | mapped("once", product="extra"))
        for body in order:
            vendor.receive(body)
            assert {license_.terms.product for license_ in vendor.valid if license_.ends_at is None} <= {
                "extra"
            }
        assert count(vendor) == {("app", at(30) + GRACE): 1, ("extra", None): 1}
        assert vendor.asked == []


def woo(*lines: dict[str, Any], **fields: Any) -> bytes:
    """Make an order of WooCommerce that is paid."""
    return shops.woo("processing", date_paid_gmt=text(0)[:-1], line_items=list(lines), **fields)


WOO_LINES = shops.woo_line(1, sku="p1"), shops.woo_line(2, product_id=94, sku="p2")


def woo_subscription(day: float, *lines: dict[str, Any]) -> bytes:
    """Make a report of a subscription of WooCommerce."""
    dates = {"date_modified_gmt": text(day)[:-1], "next_payment_date_gmt": text(30)[:-1]}
    return shops.woo_subscription(line_items=list(lines), **dates)


def test_a_line_of_woocommerce_that_its_subscription_may_have_had() -> None:
    """The order does not say which of its lines are sold once: of a later report a person is asked."""
    vendor = Vendor("woocommerce", MAPPED)
    vendor.receive(woo_subscription(3, WOO_LINES[0]), woo(*WOO_LINES))
    assert count(vendor) == {("app", at(30) + GRACE): 1}
    (problem,) = vendor.problems
    assert problem.text == (
        "order 727: whether p2 or 94 was sold once, or was of subscription 900 before that was changed, "
        "is not known; issue a license by hand if one is missing"
    )
    assert [fetch for fetch in vendor.result.fetches if fetch.is_needed] == []
    vendor.receive(woo_subscription(4, *WOO_LINES))
    assert (len(vendor.valid), vendor.asked) == (2, [])


def test_a_line_of_woocommerce_beside_its_subscription() -> None:
    """Both are reported when they are bought: what the subscription lacks was sold once."""
    for order in permutations((woo(*WOO_LINES), woo_subscription(0.01, WOO_LINES[0]))):
        vendor = Vendor("woocommerce", MAPPED)
        vendor.receive(*order, woo_subscription(9, WOO_LINES[0]))
        assert count(vendor) == {("app", at(30) + GRACE): 1, ("suite", None): 1}
        assert vendor.asked == []


def test_another_plan_leaves_what_was_sold_once() -> None:
    """Also if the order has sold that article beside the subscription."""
    vendor = Vendor("woocommerce", MAPPED)
    once = shops.woo_line(2, product_id=94, sku="p2", quantity=3)
    vendor.receive(woo(WOO_LINES[0], once), woo_subscription(0.01, shops.woo_line(50, sku="p1")))
    assert count(vendor) == {("app", at(30) + GRACE): 1, ("suite", None): 3}
    vendor.receive(woo_subscription(0.2, shops.woo_line(50, product_id=94, sku="p2")))
    assert count(vendor) == {("suite", at(30) + GRACE): 1, ("suite", None): 3}
    assert vendor.asked == []


def test_a_line_of_a_subscription_that_was_removed_and_added_again() -> None:
    """Its number is a new one: whether it is sold once now, a person is asked."""
    vendor = Vendor("woocommerce", MAPPED)
    item, again = shops.woo_line(50, sku="p1"), shops.woo_line(110, sku="p1")
    vendor.receive(woo(WOO_LINES[0]), woo_subscription(0.01, item))
    vendor.receive(woo(again, date_modified_gmt=text(0.2)[:-1]))
    assert count(vendor) == {("app", at(30) + GRACE): 1}
    assert vendor.asked == ["UNCLEAR"]


def test_another_plan_before_the_first_listing_that_is_known() -> None:
    """Whether it takes the place of a line, a person decides; nothing has no end in silence."""
    mapping = MAPPED | mapped("once", product=None)
    free, other = shops.woo_line(3, product_id=95, sku="once"), shops.woo_line(50, product_id=94, sku="p2")
    item = woo_subscription(0.2, other)
    for bodies in permutations((woo(WOO_LINES[0], free), item)):
        vendor = Vendor("woocommerce", mapping)
        vendor.receive(*bodies)
        assert count(vendor) == ({} if bodies[0] is item else {("app", None): 1})
        (problem,) = (asked for asked in vendor.problems if asked.about == "subscription:900")
        assert problem.text == (
            "subscription 900 is for p2 or 94, which its first order has not sold, and it is not known "
            "whether that takes the place of p1 or 93; follow the change, or issue a license by hand"
        )
        vendor.answers[problem.id] = Answer.FOLLOW
        vendor.reconcile()
        assert (count(vendor), vendor.asked) == ({("suite", at(30) + GRACE): 1}, [])
        vendor.receive(woo_subscription(3, WOO_LINES[0]))
        assert (count(vendor), vendor.asked) == ({("app", at(30) + GRACE): 1}, [])


def test_another_plan_of_one_of_several_lines() -> None:
    """Of which one, no report says: an edited order that arrives first is no other case."""
    item = woo_subscription(0.01, shops.woo_line(50, product_id=96, sku="p3"))
    order, mapping = woo(*WOO_LINES), MAPPED | mapped("p3", product="extra")
    for bodies in permutations((order, item)):
        vendor = Vendor("woocommerce", mapping)
        vendor.receive(*bodies)
        assert all(license_.terms.product != "extra" for license_ in vendor.valid)
        (problem,) = (asked for asked in vendor.problems if asked.about == "subscription:900")
        assert problem.text.endswith("takes the place of p1 or 93 or p2 or 94; issue and revoke by hand")
        vendor.answers[problem.id] = Answer.ISSUED
        vendor.reconcile()
        assert [asked for asked in vendor.problems if asked.about == "subscription:900"] == []
        vendor.receive(shops.woo("refunded", line_items=list(WOO_LINES), date_modified_gmt=text(2)[:-1]))
        assert vendor.asked == ["BY_HAND"]


def test_another_plan_takes_no_line_of_another_subscription() -> None:
    """What may be replaced is what no subscription has."""
    vendor = Vendor("woocommerce", MAPPED | mapped("p3", product="extra"))
    other = shops.woo_subscription(
        id=899,
        date_modified_gmt=text(0.02)[:-1],
        line_items=[shops.woo_line(60, product_id=96, sku="p3")],
        next_payment_date_gmt=text(60)[:-1],
    )
    vendor.receive(woo(*WOO_LINES), woo_subscription(0.01, WOO_LINES[0]), other)
    (problem,) = vendor.problems
    assert problem.text.endswith("takes the place of p2 or 94; follow the change, or issue a license by hand")
    assert count(vendor) == {("app", at(30) + GRACE): 1, ("suite", None): 1}


def test_a_line_that_is_of_another_subscription_of_its_order() -> None:
    """It is asked about until that is known."""
    vendor = Vendor("woocommerce", MAPPED)
    other = shops.woo_subscription(
        id=901, date_modified_gmt=text(3)[:-1], line_items=[WOO_LINES[1]], next_payment_date_gmt=text(60)[:-1]
    )
    vendor.receive(woo_subscription(3, WOO_LINES[0]), woo(*WOO_LINES))
    assert vendor.asked == ["UNCLEAR"]
    vendor.receive(other)
    assert count(vendor) == {("app", at(30) + GRACE): 1, ("suite", at(60) + GRACE): 1}
    assert vendor.asked == []


def test_a_subscription_of_which_no_end_is_known() -> None:
    """Its license has none, and a person is asked; not where the mapping gives it a day."""
    order = shops.lemon("order_created", "5", shops.lemon_order())
    report = shops.lemon(
        "subscription_created", "77", shops.lemon_subscription("active", renews_at=None, variant_id=11)
    )
    vendor = Vendor("lemonsqueezy", mapped("11"))
    vendor.receive(order, report)
    (problem,) = vendor.problems
    assert vendor.ends == [None]
    assert problem.text == (
        "subscription 77: until when it is paid is not known; change the end of its licenses by hand, "
        "or leave it"
    )
    refunded = shops.lemon_order(status="refunded", updated_at=text(1))
    vendor.receive(shops.lemon("order_refunded", "5", refunded))
    assert (vendor.valid, vendor.asked) == ([], [])
    dated = Vendor("lemonsqueezy", mapped("11", expires_in="1y"))
    dated.receive(order, report)
    assert ([license_.expires_on for license_ in dated.valid], dated.asked) == ([date(2027, 6, 15)], [])


def dodo(type_: str, day: float, status: str, *, paid_until: float, **fields: Any) -> bytes:
    """Make the report of a monthly subscription of Dodo Payments."""
    dates = {"previous_billing_date": text(0), "next_billing_date": text(paid_until)}
    cycle = {"payment_frequency_interval": "Month", "payment_frequency_count": 1}
    subscription = shops.dodo_subscription(status, **dates, **cycle, **fields)
    return shops.dodo(f"subscription.{type_}", text(day), **subscription)


def dodo_payment(number: int, day: float, amount: int) -> bytes:
    """Make a payment of a subscription of Dodo Payments."""
    fields = {"payment_id": f"pay_{number}", "subscription_id": "sub_1", "product_cart": None}
    payment = shops.dodo_payment(**fields, created_at=text(day), total_amount=amount)
    return shops.dodo("payment.succeeded", text(day), **payment)


def test_an_add_on_that_comes_back_beside_the_one_that_took_its_place() -> None:
    """Each has a license of its own, and both end with the subscription."""
    vendor = Vendor("dodo", MAPPED | mapped("pdt_1", product="base"))
    vendor.receive(dodo_payment(1, 0, 900))
    for day, names in enumerate(("1", "2", "21", "1", "12")):
        add_ons = [{"addon_id": f"p{name}", "quantity": 1} for name in names]
        vendor.receive(dodo("plan_changed", day, "active", paid_until=30, addons=add_ons))
        expected = {"base", *({"1": "app", "2": "suite"}[name] for name in names)}
        assert {product for product, _ in count(vendor)} == expected
        assert set(count(vendor)) == {(product, at(30) + GRACE) for product in expected}
        assert len(vendor.valid) == len(expected)


def test_add_ons_whose_ids_end_alike() -> None:
    """A license's key is never that of another item, whatever characters the ids have."""
    vendor = Vendor("dodo", MAPPED | mapped("pdt_1", product="base") | mapped("p1+", product="plus"))
    vendor.receive(dodo_payment(1, 0, 900))
    for day, names in enumerate((["p1"], ["p2"], ["p2", "p1", "p1+"], ["p2", "p1", "p1+"])):
        add_ons = [{"addon_id": name, "quantity": 1} for name in names]
        vendor.receive(dodo("plan_changed", day, "active", paid_until=30, addons=add_ons))
    assert {product: number for (product, _), number in count(vendor).items()} == {
        "base": 1,
        "app": 1,
        "suite": 1,
        "plus": 1,
    }


def polar(day: float, status: str) -> bytes:
    """Make the report of a monthly subscription of Polar in its trial of 14 days."""
    dates = {"current_period_start": text(0), "current_period_end": text(14), "modified_at": text(day)}
    cycle = {"recurring_interval": "month", "recurring_interval_count": 1}
    return shops.polar(
        "subscription.updated", text(day), **shops.polar_subscription(status, **dates, **cycle)
    )


POLAR_ORDER = shops.polar_order(
    billing_reason="subscription_create", subscription_id="sub_1", total_amount=0, created_at=text(0.001)
)


@pytest.mark.parametrize(
    ("kind", "bodies", "end"),
    [
        ("dodo", (dodo_payment(1, 0.001, 0), dodo("active", 0.002, "active", paid_until=7)), 7),
        ("dodo", (dodo_payment(1, 0.001, 0), dodo("on_hold", 7.1, "on_hold", paid_until=7)), 7),
        (
            "dodo",
            (
                dodo_payment(1, 0, 900),
                dodo_payment(2, 20, 333),
                dodo("plan_changed", 20.1, "active", paid_until=30),
            ),
            30,
        ),
        ("polar", (shops.polar("order.paid", text(0.001), **POLAR_ORDER), polar(0.002, "trialing")), 14),
    ],
    ids=["a trial", "a trial that nobody has paid for", "a change of the plan", "a trial of Polar"],
)
def test_the_schedule_of_a_shop_ends_the_current_period(
    kind: str, bodies: tuple[bytes, ...], end: float
) -> None:
    """A payment of nothing, or for a change within it, pays no whole period."""
    for order in permutations(bodies):
        vendor = Vendor(kind, mapped("pdt_1", "prod_1"))
        vendor.receive(*order)
        assert (vendor.ends, vendor.asked) == ([at(end) + GRACE], [])
