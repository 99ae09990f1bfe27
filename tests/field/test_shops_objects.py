"""What shops' objects do, at the level of facts: each can go back, is edited, and arrives in any order."""

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from itertools import permutations
from typing import Any

import pytest

from harness import shops
from harness.contracts import GRACE, Mapped, Vendor, earlier, mapped
from licserver.shops import SHOPS, ShopKind
from licserver.shops.contract import Answer, Rules
from licserver.shops.facts import OrderState
from licserver.shops.reading import ReadOptions

NOON = 1_781_524_800  # 2026-06-15 12:00 UTC
DAY = 86_400
STRIPE = SHOPS[ShopKind.STRIPE]


def at(days: float = 0) -> datetime:
    """An instant, in days from noon."""
    return datetime.fromtimestamp(NOON, UTC) + timedelta(days=days)


def stripe(type_: str, days: float = 0, **fields: Any) -> bytes:
    """Make an event of Stripe, so many days after noon."""
    event = {"id": "evt", "object": "event", "type": type_, "created": NOON + int(days * DAY)}
    return json.dumps({**event, "livemode": True, "data": {"object": fields}}).encode()


def subscribed(days: float = 0, *, price: str = "price_1", quantity: int = 1, **fields: Any) -> bytes:
    """Make the report of a subscription of Stripe."""
    item = {"id": "si_1", "price": {"id": price, "product": "prod_1"}, "quantity": quantity}
    status = {"id": "sub_1", "status": "active", "items": {"data": [item]}}
    return stripe("customer.subscription.updated", days, **{**status, **fields})


def line(
    start: float, end: float, *, price: str = "price_1", amount: int = 900, **fields: Any
) -> dict[str, Any]:
    """Make a line of an invoice."""
    period = {"start": NOON + int(start * DAY), "end": NOON + int(end * DAY)}
    item = {"subscription_item": "si_1", "proration": False}
    pricing = {"price_details": {"price": price, "product": "prod_1"}}
    parent = {"subscription_item_details": {**item, **fields.pop("item", {})}}
    return {"period": period, "quantity": 1, "amount": amount, "pricing": pricing, "parent": parent, **fields}


def paid(number: int, reason: str, *lines: dict[str, Any], days: float | None = None, **fields: Any) -> bytes:
    """Make a paid invoice of a subscription of Stripe."""
    begins = days if days is not None else (lines[-1]["period"]["start"] - NOON) / DAY
    invoice = {"id": f"in_{number}", "created": NOON + int(begins * DAY), "billing_reason": reason}
    parent = {"parent": {"subscription_details": {"subscription": "sub_1"}}}
    more = {"customer_email": "ann@example.com", "amount_paid": sum(line_["amount"] for line_ in lines)}
    body = {**invoice, **parent, **more, "lines": {"data": list(lines)}, **fields}
    return stripe("invoice.paid", begins, **body)


FIRST = paid(1, "subscription_create", line(0, 30))
SOLD = stripe(
    "checkout.session.completed",
    id="cs_1",
    mode="payment",
    payment_status="paid",
    payment_intent="pi_1",
    amount_total=2_000,
    metadata={"licserver_item": "app", "licserver_quantity": "1"},
)


def vendor(kind: str = "stripe", *names: str, **terms: Any) -> Vendor:
    """Return a source with mappings."""
    return Vendor(kind, mapped(*(names or ("price_1", "app")), **terms))


def in_any_order(bodies: Iterable[bytes], make: Callable[[], Vendor]) -> list[Vendor]:
    """Return a vendor for each order of the deliveries, each of which arrives twice."""
    vendors = []
    for order in permutations(list(bodies)):
        shop = make()
        shop.receive(*order, *order[::-1])
        vendors.append(shop)
    return vendors


# --- several objects that go back --------------------------------------------------------------


def dispute(number: int, status: str, days: float) -> bytes:
    """Make a report of a dispute."""
    return stripe("charge.dispute.updated", days, id=f"dp_{number}", status=status, payment_intent="pi_1")


@pytest.mark.parametrize(
    ("disputes", "is_valid"),
    [
        ([dispute(1, "needs_response", 1)], False),
        ([dispute(1, "needs_response", 1), dispute(1, "won", 9)], True),
        ([dispute(1, "won", 9), dispute(2, "needs_response", 10)], False),
        ([dispute(1, "needs_response", 1), dispute(2, "needs_response", 2), dispute(1, "won", 9)], False),
        ([dispute(1, "lost", 9), dispute(2, "won", 10)], False),
        ([dispute(1, "warning_needs_response", 1)], True),
        ([dispute(1, "warning_needs_response", 1), dispute(1, "needs_response", 2)], False),
    ],
)
def test_automattic_woocommerce_payments_11997_disputes(disputes: list[bytes], is_valid: bool) -> None:
    """Each dispute counts, whichever came first, and one that was won no longer does."""
    for shop in in_any_order([SOLD, *disputes], vendor):
        assert bool(shop.valid) is is_valid, shop.licenses


def refund(number: int, amount: int, status: str, days: float) -> bytes:
    """Make a report of a refund."""
    fields = {"id": f"re_{number}", "amount": amount, "status": status, "payment_intent": "pi_1"}
    return stripe("refund.updated", days, charge="ch_1", **fields)


def charge(refunded: int, days: float) -> bytes:
    """Make the report of a charge that was refunded."""
    fields = {"amount": 2_000, "amount_refunded": refunded, "refunded": refunded == 2_000}
    return stripe("charge.refunded", days, id="ch_1", payment_intent="pi_1", **fields)


@pytest.mark.parametrize(
    ("refunds", "is_valid"),
    [
        ([charge(2_000, 1)], False),
        ([charge(2_000, 1), refund(1, 2_000, "succeeded", 1), refund(1, 2_000, "failed", 5)], True),
        ([charge(500, 1)], True),
        ([charge(500, 1), charge(2_000, 2)], False),
        ([refund(1, 500, "succeeded", 1), refund(2, 1_500, "succeeded", 2)], False),
        ([refund(1, 500, "succeeded", 1), refund(2, 1_500, "canceled", 2)], True),
        # The first one failed, and the second one is known by the charge alone.
        ([refund(1, 2_000, "failed", 5), charge(2_000, 6)], False),
        ([charge(2_000, 2), refund(1, 500, "succeeded", 1), refund(2, 1_500, "failed", 5)], True),
    ],
)
def test_woocommerce_woocommerce_gateway_stripe_4403(refunds: list[bytes], is_valid: bool) -> None:
    """Refunds add up to the whole order, and one that failed is none."""
    for shop in in_any_order([SOLD, *refunds], vendor):
        assert bool(shop.valid) is is_valid, shop.licenses


@pytest.mark.parametrize(
    ("taken_back", "is_valid"),
    [
        ([dispute(1, "won", 9), refund(1, 2_000, "succeeded", 10)], False),
        ([dispute(1, "won", 9), refund(1, 500, "succeeded", 10)], True),
        ([dispute(1, "won", 9), dispute(2, "needs_response", 10), refund(1, 500, "succeeded", 11)], False),
        ([dispute(1, "lost", 9), refund(1, 500, "failed", 10)], False),
    ],
)
def test_automattic_woocommerce_payments_11997_refunds(taken_back: list[bytes], is_valid: bool) -> None:
    """A dispute that was won takes back no refund, and a refund in part ends no dispute."""
    for shop in in_any_order([SOLD, *taken_back], vendor):
        assert bool(shop.valid) is is_valid, shop.licenses


def adjustment(number: int, action: str, amount: str, status: str = "approved", days: int = 1) -> bytes:
    """Make an adjustment of Paddle, of a part."""
    when = f"2026-06-{15 + days}T12:00:00Z"
    fields = {"id": f"adj_{number}", "action": action, "status": status, "transaction_id": "txn_1"}
    data = {**fields, "items": [{"type": "partial"}], "totals": {"total": amount}}
    event = {"event_id": "e", "event_type": "adjustment.updated", "occurred_at": when, "data": data}
    return json.dumps(event).encode()


PADDLE = shops.paddle(
    "transaction.completed", shops.paddle_transaction(details={"totals": {"grand_total": "2000"}})
)


@pytest.mark.parametrize(
    ("adjustments", "is_valid"),
    [
        ([adjustment(1, "refund", "500"), adjustment(2, "refund", "1500")], False),
        ([adjustment(1, "refund", "500"), adjustment(2, "refund", "1500", "rejected")], True),
        ([adjustment(1, "refund", "500"), adjustment(2, "refund", "1500", "pending_approval")], True),
        ([adjustment(1, "chargeback", "2000")], False),
        ([adjustment(1, "chargeback", "2000"), adjustment(2, "chargeback_reverse", "2000", days=2)], True),
        (
            [
                adjustment(1, "chargeback", "2000"),
                adjustment(2, "chargeback_reverse", "2000", days=2),
                adjustment(3, "chargeback", "2000", days=3),
            ],
            False,
        ),
        (
            [
                adjustment(1, "chargeback", "2000", "reversed", days=2),
                adjustment(2, "chargeback_reverse", "2000", days=2),
                adjustment(3, "chargeback", "2000", days=3),
            ],
            False,
        ),
    ],
)
def test_two_partial_refunds_of_paddle_are_a_full_one(adjustments: list[bytes], is_valid: bool) -> None:
    """And so do chargebacks, and what takes them back."""
    for shop in in_any_order([PADDLE, *adjustments], lambda: vendor("paddle", "pri_1")):
        assert len(shop.licenses) == 2 * bool(is_valid or shop.licenses)
        assert bool(shop.valid) is is_valid


def test_koding_koding_3394() -> None:
    """The change from a yearly to a monthly plan ends with the month, and then by `cancel_at`."""
    year = paid(1, "subscription_create", line(0, 365, amount=9_000))
    credit = line(100, 365, amount=-6_500, item={"proration": True})
    month = paid(2, "subscription_update", credit, line(100, 130, price="price_m", amount=900))
    changed = subscribed(100, price="price_m")
    cancelled = subscribed(110, price="price_m", cancel_at=NOON + 130 * DAY)
    for shop in in_any_order([year, month, changed], lambda: vendor("stripe", "price_1", "price_m")):
        assert shop.ends == [at(130) + GRACE]
    for shop in in_any_order([year, month, cancelled], lambda: vendor("stripe", "price_1", "price_m")):
        assert shop.ends == [at(130)]


@pytest.mark.slow
def test_a_renewal_that_is_refunded_or_disputed_takes_its_period_back() -> None:
    """What was paid before stays; the dispute that is won gives the period back."""
    renewal = paid(2, "subscription_cycle", line(30, 60), payment_intent="pi_1")
    bodies = [
        FIRST,
        renewal,
        subscribed(30, current_period_start=NOON + 30 * DAY, current_period_end=NOON + 60 * DAY),
    ]
    for shop in in_any_order([*bodies, dispute(1, "needs_response", 31)], vendor):
        assert shop.ends == [at(30) + GRACE]
    shop = vendor()
    shop.receive(*bodies, dispute(1, "needs_response", 31), dispute(1, "won", 40))
    assert shop.ends == [at(60) + GRACE]
    linked = stripe(
        "invoice_payment.paid", 30, id="inpay_1", invoice="in_2", payment={"payment_intent": "pi_9"}
    )
    renewal = paid(2, "subscription_cycle", line(30, 60))
    refunded = stripe("refund.created", 31, id="re_1", payment_intent="pi_9", amount=900, status="succeeded")
    for shop in in_any_order([FIRST, renewal, linked, refunded], vendor):
        assert shop.ends == [at(30) + GRACE]


# --- changes ----------------------------------------------------------------------------------


def test_fleetdm_fleet_16945() -> None:
    """A higher quantity in a running subscription issues the licenses that are missing, once."""
    for shop in in_any_order([FIRST, subscribed(1, quantity=3), subscribed(2, quantity=5)], vendor):
        assert len(shop.valid) == 5
        assert {(license_.key, license_.number) for license_ in shop.valid} == {
            ("item:si_1", number) for number in range(1, 6)
        }


def test_lmsqueezy_lemonsqueezy_js_145() -> None:
    """Another plan follows its mapping; one that is not mapped is asked about, and changes nothing."""
    plans = {**mapped("price_1", plan="basic"), **mapped("price_2", plan="pro", slots=9)}
    for shop in in_any_order([FIRST, subscribed(1, price="price_2")], lambda: Vendor("stripe", dict(plans))):
        assert [(license_.terms.plan, license_.terms.slots, license_.item) for license_ in shop.valid] == [
            ("pro", 9, "price_2")
        ]
        assert shop.asked == []
    shop = Vendor("stripe", mapped("price_1", plan="basic"))
    shop.receive(FIRST, subscribed(1, price="price_2"))
    assert ([license_.terms.plan for license_ in shop.valid], shop.asked) == (["basic"], ["UNMAPPED"])
    shop.mappings = dict(plans)
    shop.reconcile()
    assert ([license_.terms.plan for license_ in shop.valid], shop.asked) == (["pro"], [])


def test_another_product_replaces_the_license_and_back() -> None:
    """A license is of one product: the old one is revoked, and valid again when the plan is changed back."""
    plans = {**mapped("price_1", product="basic"), **mapped("price_2", product="pro")}
    shop = Vendor("stripe", plans)
    shop.receive(FIRST, subscribed(1, price="price_2", quantity=2))
    assert [(license_.terms.product, license_.key, license_.number) for license_ in shop.valid] == [
        ("pro", "item:si_1@pro", 1),
        ("pro", "item:si_1@pro", 2),
    ]
    shop.receive(subscribed(2, price="price_1"))
    assert [license_.terms.product for license_ in shop.valid] == ["basic"]
    assert len(shop.licenses) == 3


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("in_use", [0, 2, 3, 5])
def test_fewer_licenses_are_paid(in_use: int, follows: bool) -> None:
    """Those in use stay; if more are in use than are paid, or the vendor wants to be asked, he is."""
    shop = vendor()
    shop.rules = Rules(GRACE, follows_changes=follows)
    shop.receive(paid(1, "subscription_create", line(0, 30, quantity=5)))
    used = shop.licenses[5 - in_use :] if in_use else []
    for license_ in used:
        license_.in_use = 1
    shop.receive(subscribed(1, quantity=3))
    if in_use > 3 or not follows:
        assert (len(shop.valid), shop.asked) == (5, ["FEWER"])
        shop.answers[shop.problems[0].id] = Answer.FOLLOW
        shop.reconcile()
    assert (len(shop.valid), shop.asked) == (3, [])
    assert in_use > 3 or all(license_.revoked is None for license_ in used)
    shop.receive(subscribed(2, quantity=4))
    if not follows:
        assert (len(shop.valid), shop.asked) == (3, ["CHANGE"])
        shop.answers.update({ask.id: Answer.FOLLOW for ask in shop.problems})
        shop.reconcile()
    assert (len(shop.valid), len(shop.licenses)) == (4, 5)


def test_a_change_that_is_asked_and_left() -> None:
    """Nothing changes, and nobody is asked again until the next change."""
    shop = Vendor("stripe", {**mapped("price_1", plan="basic"), **mapped("price_2", "price_3", plan="pro")})
    shop.rules = Rules(GRACE, follows_changes=False)
    shop.receive(FIRST, subscribed(1, price="price_2"))
    assert shop.asked == ["CHANGE"]
    shop.answers[shop.problems[0].id] = Answer.LEAVE
    shop.receive(subscribed(2, price="price_2"))
    assert ([license_.terms.plan for license_ in shop.valid], shop.asked) == (["basic"], [])
    shop.receive(subscribed(3, price="price_3"))
    assert shop.asked == ["CHANGE"]
    shop.answers[shop.problems[0].id] = Answer.FOLLOW
    shop.reconcile()
    assert ([license_.terms.plan for license_ in shop.valid], shop.asked) == (["pro"], [])


def test_lemon_squeezy_plan_and_quantity() -> None:
    """Lemon Squeezy has one item, and changes its variant and quantity."""
    bought = shops.lemon("order_created", "5", shops.lemon_order())
    begun = shops.lemon_subscription("active", variant_id=11, product_id=7)
    more = {"updated_at": "2026-06-20T12:00:00Z", "variant_id": 12, "product_id": 7}
    item = {"first_subscription_item": {"quantity": 4}}
    changed = shops.lemon_subscription("active", **more, **item)
    bodies = [shops.lemon("subscription_updated", "77", body) for body in (begun, changed)]
    plans = {**mapped("11", plan="basic"), **mapped("12", plan="pro")}
    for shop in in_any_order([bought, *bodies], lambda: Vendor("lemonsqueezy", dict(plans))):
        assert [license_.terms.plan for license_ in shop.valid] == ["pro"] * 4


# --- what is not known ------------------------------------------------------------------------


def test_arlyon_async_stripe_476() -> None:
    """The quantity of a payment link is asked, never 1; then fetched, or set by the vendor."""
    link = stripe(
        "checkout.session.completed",
        id="cs_1",
        mode="payment",
        payment_status="paid",
        payment_intent="pi_1",
        payment_link="plink_1",
    )
    shop = vendor("stripe", "plink_1")
    shop.receive(link)
    assert (shop.licenses, shop.asked) == ([], ["QUANTITY"])
    (fetch,) = [query for query in shop.result.fetches if STRIPE.fetch_path(query)]
    assert (fetch.kind, fetch.id, fetch.about) == ("lines", "cs_1", "order:pi_1")
    answer = {"id": "cs_1", "mode": "payment", "payment_link": "plink_1"}
    items = {"line_items": {"data": [{"price": {"id": "price_1", "product": "prod_1"}, "quantity": 5}]}}
    assert STRIPE.fetch_path(fetch) == "v1/checkout/sessions/cs_1?expand[]=line_items"
    shop.take(STRIPE.read_fetched(fetch, json.dumps({**answer, **items}).encode(), at(1)))
    assert (len(shop.valid), shop.asked, shop.result.fetches) == (5, [], ())
    said = vendor("stripe", "plink_1", quantity=1)
    said.receive(link, link)
    assert (len(said.valid), said.asked) == (1, [])


def test_two_products_behind_a_link() -> None:
    """The link says nothing about which is which: each is mapped by its price, or asked about."""
    two = [{"price": {"id": f"price_{n}", "product": f"prod_{n}"}, "quantity": 1} for n in (1, 2)]
    bought = stripe(
        "checkout.session.completed",
        id="cs_1",
        mode="payment",
        payment_status="paid",
        payment_link="plink_1",
        line_items={"data": two},
    )
    shop = vendor("stripe", "plink_1", quantity=1)
    shop.receive(bought)
    assert (shop.licenses, shop.asked) == ([], ["UNMAPPED", "UNMAPPED"])
    shop.mappings |= mapped("price_1", "prod_2")
    shop.reconcile()
    assert (len(shop.valid), shop.asked) == (2, [])


# --- dates ------------------------------------------------------------------------------------


@pytest.mark.parametrize("edited", ["2026-06-15T12:00:00", "2026-09-01T08:00:00"])
def test_awesomemotive_easy_digital_downloads_9709(edited: str) -> None:
    """Periods count from the payment, whenever the order was edited."""
    shop = vendor("woocommerce", "APP", expires_in="1y", support="6m")
    shop.receive(shops.woo("processing", date_paid_gmt="2026-06-10T09:00:00", date_modified_gmt=edited))
    assert [str(license_.terms.expires_on) for license_ in shop.valid] == ["2027-06-10"]
    assert [str(license_.terms.support_until) for license_ in shop.valid] == ["2026-12-10"]


def test_a_billing_date_that_is_moved_without_a_payment() -> None:
    """Paddle: the license follows, in both directions, and then the next payment."""

    def report(days: float, ends: float, status: str = "active") -> bytes:
        period = {"starts_at": at().isoformat(), "ends_at": at(ends).isoformat()}
        item = {"price": {"id": "pri_1"}, "quantity": 1}
        data = {"id": "sub_1", "status": status, "current_billing_period": period, "items": [item]}
        event = {"event_id": "e", "event_type": "subscription.updated", "occurred_at": at(days).isoformat()}
        return json.dumps({**event, "data": {**data, "next_billed_at": at(ends).isoformat()}}).encode()

    period = {"starts_at": at().isoformat(), "ends_at": at(30).isoformat()}
    one_item = [{"price": {"id": "pri_1"}, "quantity": 1}]
    bought = shops.paddle(
        "transaction.completed",
        shops.paddle_transaction(subscription_id="sub_1", billing_period=period, items=one_item),
    )
    for shop in in_any_order([bought, report(1, 90)], lambda: vendor("paddle", "pri_1")):
        assert shop.ends == [at(90) + GRACE]
    for shop in in_any_order([bought, report(1, 90), report(2, 20)], lambda: vendor("paddle", "pri_1")):
        assert shop.ends == [at(20) + GRACE]


# --- states -----------------------------------------------------------------------------------

PAID = {"date_paid_gmt": "2026-06-15T12:00:00"}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ("on-hold", "the order is on hold"),
        ("pending", "the order is not paid"),
        ("cancelled", "the order was cancelled"),
        ("failed", "the payment failed"),
        ("refunded", "the order was refunded"),
        ("completed", None),
        ("shipped", None),  # the vendor's own, after it was served
    ],
)
def test_a_paid_order_that_changes_its_state(status: str, reason: str | None) -> None:
    """Its license is revoked as long as the state lasts."""
    shop = vendor("woocommerce", "APP")
    shop.receive(shops.woo("processing", **PAID))
    shop.receive(shops.woo(status, date_modified_gmt="2026-06-16T12:00:00", **PAID))
    assert [license_.revoked for license_ in shop.licenses] == [reason]
    shop.receive(shops.woo("completed", date_modified_gmt="2026-06-17T12:00:00", **PAID))
    assert ([license_.revoked for license_ in shop.licenses], shop.asked) == ([None], [])


@pytest.mark.parametrize("status", ["on-hold", "pending", "cancelled", "failed", "checkout-draft", "quote"])
def test_an_order_that_was_not_paid(status: str) -> None:
    """It issues nothing, and nobody has to look."""
    shop = vendor("woocommerce", "APP")
    shop.receive(shops.woo(status))
    assert (shop.licenses, shop.asked) == ([], [])


def test_a_paid_order_in_a_state_of_the_vendors_own() -> None:
    """It is asked about, and issued when the state is mapped."""
    shop = vendor("woocommerce", "APP")
    shop.receive(shops.woo("shipped", **PAID))
    assert (shop.licenses, shop.asked) == ([], ["STATE"])
    assert "--state shipped=paid`" in shop.problems[0].text
    shop.rules = Rules(GRACE, states={"shipped": OrderState.PAID})
    shop.reconcile()
    assert (len(shop.valid), shop.asked) == (1, [])


def test_a_product_that_is_deleted_in_the_shop() -> None:
    """Its line has neither product nor article number any more: it was served."""
    shop = vendor("woocommerce", "APP")
    gone = shops.woo_line(product_id=0, sku="")
    shop.receive(shops.woo("processing", **PAID))
    shop.receive(shops.woo("completed", line_items=[gone], date_modified_gmt="2026-07-01T00:00:00", **PAID))
    assert (len(shop.valid), shop.asked) == (1, [])


@pytest.mark.parametrize("by_hand", [1, 2])
def test_woocommerce_woocommerce_9513(by_hand: int) -> None:
    """The product was deleted before any license was issued: there is nothing to map, so a person issues."""
    late = {"date_modified_gmt": "2026-07-01T00:00:00", **PAID}
    sold = [shops.woo_line(product_id=0, sku=None, quantity=by_hand)]
    shop = vendor("woocommerce", "APP", "93")
    shop.receive(shops.woo("refunded", refunds=[{"total": "-49.00"}], **PAID))
    shop.receive(shops.woo("processing", line_items=sold, **late))
    assert (shop.licenses, shop.asked, shop.problems[0].external_ids) == ([], ["LINES"], ())
    assert shop.problems[0].text.endswith("issue by hand")
    shop.licenses = [earlier(number, "", "727") for number in range(by_hand)]
    late["date_modified_gmt"] = "2026-07-02T00:00:00"
    shop.receive(shops.woo("completed", line_items=sold, **late))
    assert (len(shop.valid), shop.asked) == (by_hand, [])


def test_a_deleted_product_is_not_one_that_can_be_mapped() -> None:
    """Mapping the 0 of one deleted product issued a license for all of them."""
    shop = vendor("woocommerce", "APP", "0")
    shop.receive(shops.woo("processing", line_items=[shops.woo_line(product_id=0, sku="")], **PAID))
    assert (shop.licenses, shop.asked) == ([], ["LINES"])


def woo_subscribed(seconds: int, **lines: tuple[int, int]) -> bytes:
    """Make a report of a subscription, with the product and quantity of each of its lines."""
    items = [
        shops.woo_line(int(name.removeprefix("line_")), product_id=product, sku="", quantity=quantity)
        for name, (product, quantity) in lines.items()
    ]
    at = f"2026-06-15T12:00:{seconds:02}"
    return shops.woo_subscription(line_items=items, date_modified_gmt=at)


def test_what_a_removed_item_was_for_last() -> None:
    """Its licenses had the id of what it was for first, and were valid again as another product's."""
    shop = Vendor("woocommerce", {**mapped("21"), **mapped("23", product="suite")})
    shop.receive(shops.woo("processing", line_items=[shops.woo_line(product_id=21, sku="")], **PAID))
    shop.receive(woo_subscribed(1, line_316=(21, 1)))
    shop.receive(woo_subscribed(2, line_316=(21, 1), line_317=(23, 1)))
    shop.receive(woo_subscribed(3, line_316=(23, 2), line_317=(23, 1)))
    shop.receive(woo_subscribed(4, line_316=(23, 2)))
    assert {(each.terms.product, each.item) for each in shop.licenses} == {("app", "21"), ("suite", "23")}
    shop.receive(woo_subscribed(5, line_316=(21, 3)))
    assert [(each.terms.product, each.item) for each in shop.valid] == [("app", "21")] * 3
    assert shop.asked == []


def test_a_removed_item_that_was_another_product_in_between() -> None:
    """The licenses of the product in between had the id of the last one, and were valid again instead."""
    shop = Vendor("woocommerce", {**mapped("21"), **mapped("23", product="suite")})
    shop.receive(shops.woo("processing", line_items=[shops.woo_line(product_id=21, sku="")], **PAID))
    shop.receive(woo_subscribed(1, line_316=(21, 1)))
    shop.receive(woo_subscribed(2, line_316=(23, 1)))
    shop.receive(woo_subscribed(3, line_316=(23, 1), line_317=(21, 3)))
    shop.receive(woo_subscribed(4, line_316=(23, 1)))
    assert {(each.terms.product, each.item) for each in shop.licenses} == {("app", "21"), ("suite", "23")}
    shop.receive(woo_subscribed(5, line_316=(23, 1), line_318=(21, 1)))
    assert sorted(each.terms.product for each in shop.valid) == ["app", "suite"]
    assert shop.asked == []


def stripe_items(days: float, *items: tuple[str, str, int]) -> bytes:
    """Make a report of a subscription of Stripe: id, price and quantity of each item."""
    data = [
        {"id": id_, "price": {"id": price, "product": "prod_1"}, "quantity": count}
        for id_, price, count in items
    ]
    return subscribed(days, items={"data": data})


def test_an_item_is_replaced_beside_one_that_was_removed() -> None:
    """Two items of one product, of which one was removed: what is changed next keeps the key that is used."""
    shop = vendor("stripe", "price_1", "price_2", "price_3")
    shop.receive(FIRST, stripe_items(1, ("si_1", "price_1", 1), ("si_2", "price_2", 1)))
    kept = next(each for each in shop.licenses if each.item == "price_2")
    shop.receive(stripe_items(2, ("si_2", "price_2", 1)))
    assert shop.valid == [kept]
    shop.receive(stripe_items(3, ("si_3", "price_3", 1)))  # a new item, as Stripe does it for another plan
    assert (shop.valid, len(shop.licenses), shop.asked) == ([kept], 2, [])
    shop.receive(stripe_items(4, ("si_4", "price_1", 1)))
    assert (shop.valid, len(shop.licenses), shop.asked) == ([kept], 2, [])


def test_two_items_of_one_price_of_which_one_is_removed() -> None:
    """The other one is made anew by the shop at the same time: its key stays."""
    shop = vendor("stripe", "price_1")
    shop.receive(FIRST, stripe_items(1, ("si_1", "price_1", 1), ("si_2", "price_1", 1)))
    assert len(shop.valid) == 2
    shop.receive(stripe_items(2, ("si_2", "price_1", 1)))
    (kept,) = shop.valid
    shop.receive(stripe_items(3, ("si_3", "price_1", 1)))
    assert (shop.valid, len(shop.licenses)) == ([kept], 2)
    shop.receive(stripe_items(4, ("si_3", "price_1", 1), ("si_4", "price_1", 1)))
    assert (len(shop.valid), len(shop.licenses)) == (2, 2)


def test_items_without_ids_that_change_and_come_back() -> None:
    """What a license is for now decides which item it belongs to, not what was bought with it."""
    shop = Vendor("paddle", mapped("pri_a", "pri_b", "pri_c"))

    def report(seconds: int, *prices: str, origin: str = "") -> bytes:
        items = [{"price": {"id": price}, "quantity": 1} for price in prices]
        bought = {"id": "txn_1", "origin": "web", "subscription_id": "sub_1", "items": items}
        found = {"id": "sub_1", "status": "active", "transaction_id": "txn_1", "items": items}
        type_ = "transaction.completed" if origin else "subscription.updated"
        event = {"event_id": "e", "event_type": type_, "occurred_at": f"2026-06-15T12:00:{seconds:02}Z"}
        return json.dumps({**event, "data": bought if origin else found}).encode()

    shop.receive(report(0, "pri_a", "pri_c", origin="web"), report(1, "pri_a", "pri_c"))
    first, second = shop.licenses
    shop.receive(report(2, "pri_b", "pri_c"))
    shop.receive(report(3, "pri_b", "pri_a"))
    assert (first.item, second.item, len(shop.licenses), len(shop.valid)) == ("pri_b", "pri_a", 2, 2)


# --- identity ---------------------------------------------------------------------------------

EDITS: dict[str, dict[str, Any]] = {
    "an article number": {"sku": "APP-2026"},
    "no article number": {"sku": ""},
    "another product": {"product_id": 94},
    "a variation": {"variation_id": 24},
    "nothing": {},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
@pytest.mark.parametrize("names", [("APP",), ("93",), ("APP", "93", "94", "24", "APP-2026")], ids=str)
def test_woocommerce_woocommerce_22527(names: tuple[str, ...], edit: dict[str, Any]) -> None:
    """A line is itself, whatever is changed in it: one license, and never asked about again."""
    later = {"date_modified_gmt": "2026-07-01T00:00:00", **PAID}
    shop = vendor("woocommerce", *names)
    shop.receive(shops.woo("processing", **PAID))
    shop.receive(shops.woo("completed", line_items=[shops.woo_line(**edit)], **later))
    assert (len(shop.licenses), len(shop.valid), shop.asked) == (1, 1, [])


@pytest.mark.parametrize("edit", EDITS.values(), ids=list(EDITS))
@pytest.mark.parametrize("item", ["APP", "93"])
def test_woocommerce_woocommerce_52682(item: str, edit: dict[str, Any]) -> None:
    """The same for a license from before lines were stored."""
    shop = vendor("woocommerce", "APP", "93", "94", "24", "APP-2026")
    shop.licenses.append(earlier(1, item, "727"))
    shop.receive(shops.woo("completed", line_items=[shops.woo_line(**edit)], **PAID))
    assert (len(shop.licenses), len(shop.valid), shop.asked) == (1, 1, [])
    assert shop.licenses[0].key == "line:727/315"


def test_a_quantity_of_an_order_that_is_edited() -> None:
    """More are issued; of fewer those that nobody uses are revoked; a line that is gone is like none."""
    shop = vendor("woocommerce", "APP")

    def edited(day: int, *lines: dict[str, Any]) -> bytes:
        return shops.woo(
            "completed", date_modified_gmt=f"2026-06-{day}T12:00:00", line_items=list(lines), **PAID
        )

    shop.receive(edited(15, shops.woo_line(quantity=2)))
    shop.receive(edited(16, shops.woo_line(quantity=3)))
    assert len(shop.valid) == 3
    shop.licenses[2].in_use = 1
    shop.receive(edited(17, shops.woo_line(quantity=1)))
    assert [license_.revoked for license_ in shop.licenses] == ["fewer are paid than were issued"] * 2 + [
        None
    ]
    shop.receive(edited(18))
    assert (len(shop.valid), shop.asked) == (1, ["FEWER"])


# --- renewals ---------------------------------------------------------------------------------

WOO_FIRST = shops.woo("processing", created_via="checkout", **PAID)
WOO_SUBSCRIPTION = shops.woo_subscription()
NEXT_YEAR = "2027-06-15T12:30:00"
WOO_RENEWAL = shops.woo_renewal(801, date_paid_gmt=NEXT_YEAR, date_modified_gmt=NEXT_YEAR)


@pytest.mark.parametrize("expires_in", [None, "1y", "2y"])
def test_wpexpertsio_license_manager_for_woocommerce_165(expires_in: str | None) -> None:
    """A renewal extends, in any order of deliveries; it issues nothing."""
    bodies = [WOO_FIRST, WOO_SUBSCRIPTION, WOO_RENEWAL]
    for shop in in_any_order(bodies, lambda: vendor("woocommerce", "APP", expires_in=expires_in)):
        assert len(shop.licenses) == 1
        assert shop.ends == [datetime(2028, 6, 15, 12, 30, tzinfo=UTC) + GRACE]
        assert (shop.licenses[0].expires_on, shop.asked) == (None, [])


def test_license_wp_license_wp_29() -> None:
    """A key that an earlier renewal got is extended as well."""
    shop = vendor("woocommerce", "APP", expires_in="1y")
    shop.licenses += [earlier(1, "APP", "727"), earlier(2, "APP", "801")]
    shop.receive(WOO_FIRST, WOO_SUBSCRIPTION, WOO_RENEWAL)
    assert shop.ends == [datetime(2028, 6, 15, 12, 30, tzinfo=UTC) + GRACE] * 2


def test_a_renewal_by_a_plugin_that_is_not_known() -> None:
    """A setting names the field of the order that names its subscription."""
    field = [{"key": "my_plugin_subscription", "value": "900"}]
    renewal = shops.woo("processing", id=801, meta_data=field, date_paid_gmt=NEXT_YEAR)
    shop = vendor("woocommerce", "APP", expires_in="1y")
    shop.options = ReadOptions(renewal_field="my_plugin_subscription")
    shop.receive(WOO_FIRST, WOO_SUBSCRIPTION, renewal)
    assert shop.ends == [datetime(2028, 6, 15, 12, 30, tzinfo=UTC) + GRACE]


@pytest.mark.parametrize("named", [900, None])
def test_a_renewal_of_what_is_not_known_is_asked_about(named: int | None) -> None:
    """It issues nothing; what issues no license anyway needs nobody."""
    renewal = shops.woo_renewal(801, named, date_paid_gmt=NEXT_YEAR)
    shop = vendor("woocommerce", "APP")
    shop.receive(renewal)
    assert (shop.licenses, shop.asked) == ([], ["SUBSCRIPTION"])
    shop = vendor("woocommerce", "APP", product=None)
    shop.receive(renewal)
    assert (shop.licenses, shop.asked) == ([], [])


def test_a_switch_of_woocommerce_subscriptions_changes_the_license() -> None:
    """Its order sells nothing; the subscription has another line afterwards, with another id."""
    switch = {"meta_data": [{"key": "_subscription_switch", "value": 900}], "created_via": "checkout"}
    order = shops.woo(
        "completed", id=810, line_items=[shops.woo_line(400, product_id=94, sku="PRO")], **switch
    )
    after = shops.woo_subscription(
        date_modified_gmt="2026-07-01T12:00:00", line_items=[shops.woo_line(401, product_id=94, sku="PRO")]
    )
    plans = {**mapped("APP", plan="basic"), **mapped("PRO", plan="pro")}
    bodies = [WOO_FIRST, WOO_SUBSCRIPTION, order, after]
    for shop in in_any_order(bodies, lambda: Vendor("woocommerce", dict(plans))):
        assert ([license_.terms.plan for license_ in shop.valid], shop.asked) == (["pro"], [])


# --- the order of events ----------------------------------------------------------------------


def test_a_lemon_squeezy_order_before_its_subscription() -> None:
    """`--expires-in` does not lock out a subscriber who pays."""
    bought = shops.lemon("order_created", "5", shops.lemon_order())
    begun = shops.lemon("subscription_created", "77", shops.lemon_subscription("active"))
    later = {"updated_at": "2027-07-15T12:00:00Z", "renews_at": "2027-08-15T12:00:00Z"}
    renewed = shops.lemon("subscription_updated", "77", shops.lemon_subscription("active", **later))
    for shop in in_any_order([bought, begun, renewed], lambda: vendor("lemonsqueezy", "11", expires_in="1y")):
        assert shop.ends == [datetime(2027, 8, 15, 12, tzinfo=UTC) + GRACE]
        assert [license_.expires_on for license_ in shop.licenses] == [None]


def test_earlier_sales_of_which_no_fact_is_known() -> None:
    """What was issued stays, follows its subscription, and is matched once its order arrives again."""
    shop = vendor("stripe", "price_1", "price_2")
    shop.licenses += [earlier(1, "price_1", "in_1"), earlier(2, "price_1", "in_1")]
    for license_ in shop.licenses:
        license_.subscription_id = "sub_1"
    shop.receive(paid(2, "subscription_cycle", line(30, 60, quantity=2)))
    assert (shop.ends, len(shop.licenses), shop.asked) == ([at(60) + GRACE] * 2, 2, [])
    shop.receive(paid(1, "subscription_create", line(0, 30, quantity=2)))
    assert (len(shop.licenses), {issued.key for issued in shop.licenses}) == (2, {"item:si_1"})
    shop.receive(subscribed(40, quantity=3))
    assert len(shop.valid) == 3


def test_a_mug_beside_the_app_in_an_invoice() -> None:
    """What is not mapped is asked about; the rest is issued."""
    mug = line(0, 30, price="price_mug", item={"subscription_item": None})
    shop = vendor()
    shop.receive(paid(1, "subscription_create", line(0, 30), mug))
    assert (len(shop.valid), shop.asked) == (1, ["UNMAPPED"])
    shop.mappings["price_mug"] = Mapped(external_id="price_mug", product=None)
    shop.reconcile()
    assert (len(shop.valid), shop.asked) == (1, [])


def test_the_language_and_the_address_of_a_subscriber() -> None:
    """The session has the language, and the invoice the address."""
    session = stripe(
        "checkout.session.completed", id="cs_1", mode="subscription", subscription="sub_1", locale="de"
    )
    shop = vendor()
    shop.receive(session, FIRST)
    assert [(license_.email, license_.language) for license_ in shop.licenses] == [("ann@example.com", "de")]
