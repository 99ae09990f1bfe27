"""Further reports about Lemon Squeezy, Paddle and Gumroad, tried on the licenses that follow."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness import shops
from harness.contracts import GRACE, at, play, text
from licserver.shops.facts import Lines

MAKE: Any = shops  # called with fields of any type

PARTS: dict[str, tuple[str, list[bytes]]] = {
    "stripe": (
        "app",
        [
            shops.stripe(
                "checkout.session.completed",
                MAKE.stripe_session(
                    amount_total=2_000, metadata={"licserver_item": "app", "licserver_quantity": "1"}
                ),
            ),
            *(
                shops.stripe(
                    "refund.created",
                    {"id": f"re_{n}", "payment_intent": "pi_1", "amount": 1_000, "status": "succeeded"},
                )
                for n in (1, 2)
            ),
        ],
    ),
    "lemonsqueezy": (
        "11",
        [
            shops.lemon("order_created", "5", MAKE.lemon_order(total=2_000)),
            *(
                shops.lemon(
                    "order_refunded",
                    "5",
                    MAKE.lemon_order(
                        total=2_000, status="partial_refund", refunded_amount=1_000 * n, updated_at=text(n)
                    ),
                )
                for n in (1, 2)
            ),
        ],
    ),
    "woocommerce": (
        "APP",
        [
            shops.woo("processing"),
            shops.woo("processing", refunds=[{"total": "-14.35"}], date_modified_gmt=text(1)),
            shops.woo(
                "processing", refunds=[{"total": "-14.35"}, {"total": "-15"}], date_modified_gmt=text(2)
            ),
        ],
    ),
    "dodo": (
        "pdt_1",
        [
            shops.dodo("payment.succeeded", **shops.dodo_payment()),
            *(
                MAKE.dodo(
                    "refund.succeeded",
                    text(n),
                    refund_id=f"r{n}",
                    payment_id="pay_1",
                    status="succeeded",
                    amount=1_000,
                    is_partial=True,
                )
                for n in (1, 2)
            ),
        ],
    ),
    "standard": (
        "app",
        [
            shops.standard("purchase.completed", order_id="1042", external_id="app", total="20.00"),
            *(
                shops.standard(
                    "purchase.refunded",
                    text(n),
                    order_id="1042",
                    refund_id=f"r{n}",
                    amount="10",
                    partial=True,
                )
                for n in (1, 2)
            ),
        ],
    ),
}
"""A purchase and two refunds that are all of it; those of Paddle and Polar have tests of their own."""


@pytest.mark.parametrize("kind", PARTS)
def test_refunds_in_part_add_up(kind: str) -> None:
    """In any order, each twice: one of them leaves the license, and both take it."""
    name, (bought, first, second) = PARTS[kind]
    assert all(len(shop.valid) == 1 for shop in play(kind, name, bought, first))
    assert not any(shop.valid for shop in play(kind, name, bought, first, second))


NAMES = ["x" * 5_000, "專業版" * 300, "a\0b\r\n", "\x7f\x80 c", "a:b/c@d%e"]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@pytest.mark.parametrize("kind", ["gumroad", "woocommerce"])
def test_names_of_any_length_and_form(kind: str, name: str) -> None:
    """What a vendor has called a version or an article: the product's id, which is mapped, still counts."""
    body = shops.gumroad(**{"variants[Tier]": name})
    if kind == "woocommerce":
        body = shops.woo(line_items=[MAKE.woo_line(sku=name)])
    shop, *_ = play(kind, "product_1== 93", body)
    (license_,) = shop.valid
    assert license_.item is not None
    ids = [
        each for fact in shop.facts.values() if isinstance(fact, Lines) for each in fact.lines[0].external_ids
    ]
    assert all(each.isprintable() and 0 < len(each) <= 255 for each in ids)


# --- Lemon Squeezy ----------------------------------------------------------------------------


def order(days: float = 0, name: str = "order_created", **fields: Any) -> bytes:
    """Make a report of the order."""
    attributes = MAKE.lemon_order(created_at=text(0), updated_at=text(days), total=2_000, **fields)
    return shops.lemon(name, "5", attributes)


def member(days: float, status: str = "active", name: str = "subscription_updated", **fields: Any) -> bytes:
    """Make a report of the subscription of that order."""
    item = {"id": 1, "quantity": fields.pop("quantity", 1)}
    ids = {"variant_id": 11, "product_id": 7, "first_subscription_item": item}
    dates = {"updated_at": text(days), "renews_at": text(30), "ends_at": None}
    return shops.lemon(name, "77", MAKE.lemon_subscription(status, **{**ids, **dates, **fields}))


def invoice(
    id_: str, days: float, reason: str = "renewal", name: str = "success", status: str = "paid", **fields: Any
) -> bytes:
    """Make a payment within the subscription."""
    dates = {"created_at": text(days), "updated_at": text(days)}
    attributes = {"subscription_id": 77, "billing_reason": reason, "status": status, **dates, **fields}
    return shops.lemon(f"subscription_payment_{name}", id_, attributes)


def test_singhharsh1708_scrollcraft_263() -> None:
    """A refund that arrives before its order leaves nothing to use; nor is one used that was chargeback."""
    refund = order(2, "order_refunded", status="refunded", refunded=True, refunded_at=text(2))
    for shop in play("lemonsqueezy", "11", order(), refund):
        assert (shop.valid, shop.asked) == ([], [])
    for shop in play("lemonsqueezy", "11", order(), order(2, "order_chargeback", status="fraudulent")):
        assert (shop.valid, shop.asked) == ([], [])


def test_hermanmartinus_bearblog_321() -> None:
    """A paused subscription is not paid, and goes on once it is unpaused."""
    paused = member(40, "paused", "subscription_paused", pause={"mode": "void"}, renews_at=text(60))
    first, renewal = member(0, name="subscription_created"), invoice("2", 30)
    renewed = member(30, renews_at=text(60))
    for shop in play("lemonsqueezy", "11", order(), first, renewal, renewed, paused):
        assert shop.ends == [at(40)]
    unpaused = member(50, "active", "subscription_unpaused", renews_at=text(60))
    for shop in play("lemonsqueezy", "11", order(), first, renewed, paused, unpaused):
        assert shop.ends == [at(60) + GRACE]


def test_merlinfuchs_kite_331() -> None:
    """A renewal moves the end of every subscription; while one has no next date, a person is asked."""
    unknown = member(31, renews_at=None)
    for shop in play("lemonsqueezy", "11", order(), member(0), member(30, renews_at=text(60))):
        assert shop.ends == [at(60) + GRACE]
    for shop in play("lemonsqueezy", "11", order(), member(0), unknown):
        assert (len(shop.valid), shop.asked) == (1, ["PERIOD"])


def test_merlinfuchs_kite_331_bought_again() -> None:
    """Cancelled and bought again: the second one is a subscription of its own."""
    cancelled = member(10, "cancelled", "subscription_cancelled", ends_at=text(30))
    again = shops.lemon("order_created", "6", MAKE.lemon_order(created_at=text(12), updated_at=text(12)))
    second = shops.lemon(
        "subscription_created",
        "78",
        MAKE.lemon_subscription(
            "active", order_id=6, variant_id=11, updated_at=text(12), renews_at=text(42), ends_at=None
        ),
    )
    for shop in play("lemonsqueezy", "11", order(), member(0), cancelled, again, second):
        assert sorted(shop.ends, key=str) == [at(30), at(42) + GRACE]


def test_pay_rails_pay_1086() -> None:
    """`subscription_updated` with the state *cancelled* is a cancellation."""
    for shop in play("lemonsqueezy", "11", order(), member(0), member(3, "cancelled", ends_at=text(30))):
        assert shop.ends == [at(30)]


def test_pay_rails_pay_1041() -> None:
    """The order and the first payment are one purchase, and a refund of that payment is one of the order."""
    initial = invoice("1", 0, "initial", total=2_000)
    for shop in play("lemonsqueezy", "11", order(), member(0), initial):
        assert (len(shop.licenses), shop.asked) == (1, [])
    refunded = invoice(
        "1", 5, "initial", "refunded", "refunded", created_at=text(0), total=2_000, refunded_amount=2_000
    )
    for shop in play("lemonsqueezy", "11", order(), member(0), initial, refunded):
        assert (shop.valid, shop.asked) == ([], [])
    part = invoice("1", 5, "initial", "refunded", "partial_refund", total=2_000, refunded_amount=500)
    for shop in play("lemonsqueezy", "11", order(), member(0), initial, part):
        assert len(shop.valid) == 1


def test_lmsqueezy_laravel_33() -> None:
    """A payment has an id of its own, which may be that of another subscription or order."""
    renewed = member(30, renews_at=text(60))
    for shop in play("lemonsqueezy", "11", order(), member(0), invoice("77", 30), renewed):
        assert (len(shop.licenses), shop.ends, shop.asked) == (1, [at(60) + GRACE], [])
    for shop in play("lemonsqueezy", "11", order(), member(0), invoice("5", 30), renewed):
        assert (len(shop.licenses), shop.ends) == (1, [at(60) + GRACE])


def test_remorses_lemonsqueezy_webhooks_1() -> None:
    """An event that no list has is read by what it is about."""
    future = member(30, "active", "subscription_invented_later", renews_at=text(60))
    for shop in play("lemonsqueezy", "11", order(), member(0), future):
        assert shop.ends == [at(60) + GRACE]


def test_lemon_orders_without_items() -> None:
    """An order whose item was deleted with its product: a person is asked, or the API."""
    body = MAKE.lemon_order(first_order_item=None)
    shop, *_ = play("lemonsqueezy", "11", shops.lemon("order_created", "5", body))
    assert (shop.licenses, shop.asked) == ([], ["LINES"])
    assert [fetch.kind for fetch in shop.result.fetches] == ["lines"]


# --- Paddle -----------------------------------------------------------------------------------


def paddle(type_: str, days: float, **fields: Any) -> bytes:
    """Make an event."""
    body = {"event_id": f"evt_{type_}_{days}", "event_type": type_, "occurred_at": text(days)}
    return json.dumps({**body, "data": fields}).encode()


def transaction(id_: str = "txn_1", days: float = 0, origin: str = "web", **fields: Any) -> bytes:
    """Make a completed transaction of a subscription."""
    period = {"starts_at": text(days), "ends_at": text(days + 30)}
    items = [{"price": {"id": "pri_1", "product_id": "pro_1"}, "quantity": 1}]
    totals = {"details": {"totals": {"total": "2000", "grand_total": "2000"}}}
    names = {"id": id_, "origin": origin, "subscription_id": "sub_1", "billed_at": text(days)}
    return paddle(
        "transaction.completed",
        days,
        **{**names, "items": items, "billing_period": period, **totals, **fields},
    )


def subscription(days: float, status: str = "active", type_: str = "updated", **fields: Any) -> bytes:
    """Make a report of the subscription."""
    period = {"starts_at": text(0), "ends_at": text(30)}
    items = [{"price": {"id": "pri_1", "product_id": "pro_1"}, "quantity": 1, "status": "active"}]
    body = {"id": "sub_1", "status": status, "transaction_id": "txn_1", "items": items}
    dates = {"current_billing_period": period, "next_billed_at": text(30), "scheduled_change": None}
    return paddle(f"subscription.{type_}", days, **{**body, **dates, **fields})


def adjustment(id_: str, days: float, action: str, **fields: Any) -> bytes:
    """Make an adjustment of the first transaction."""
    body = {"id": id_, "action": action, "status": "approved", "transaction_id": "txn_1"}
    return paddle("adjustment.created", days, **{**body, **fields})


def test_laravel_cashier_paddle_310() -> None:
    """Renewal, its transaction and the subscription within milliseconds, in any order, and repeated."""
    renewed = transaction("txn_2", 30, "subscription_recurring")
    next_ = {"starts_at": text(30), "ends_at": text(60)}
    report = subscription(30, current_billing_period=next_, next_billed_at=text(60))
    for shop in play("paddle", "pri_1", transaction(), subscription(0), renewed, report):
        assert (len(shop.licenses), shop.ends, shop.asked) == (1, [at(60) + GRACE], [])


def test_laravel_cashier_paddle_135() -> None:
    """A refund of what was paid takes the access at once, whether or not the subscription was cancelled."""
    cancelled = subscription(
        5, scheduled_change={"action": "cancel", "effective_at": text(30), "resume_at": None}
    )
    refund = adjustment("adj_1", 6, "refund", type="full", totals={"total": "2000"})
    for shop in play("paddle", "pri_1", transaction(), subscription(0), cancelled):
        assert shop.ends == [at(30)]
    for shop in play("paddle", "pri_1", transaction(), cancelled, refund):
        assert shop.valid == []


def test_websideproject_django_paddle_billing_125() -> None:
    """`chargeback_reverse` gives back what a chargeback took; other actions take nothing."""
    chargeback, reverse = adjustment("adj_1", 5, "chargeback"), adjustment("adj_2", 9, "chargeback_reverse")
    for shop in play("paddle", "pri_1", transaction(), chargeback):
        assert shop.valid == []
    for shop in play("paddle", "pri_1", transaction(), chargeback, reverse):
        assert len(shop.valid) == 1
    for action in ("chargeback_warning", "chargeback_warning_reverse", "credit", "invented_later"):
        for shop in play("paddle", "pri_1", transaction(), adjustment("adj_1", 5, action)):
            assert len(shop.valid) == 1
    second = adjustment("adj_3", 12, "chargeback")
    for shop in play("paddle", "pri_1", transaction(), chargeback, reverse, second):
        assert shop.valid == []


def test_laravel_cashier_paddle_252() -> None:
    """A scheduled pause ends the license at its date, which a resumption takes back (also its #206)."""
    pause = {"action": "pause", "effective_at": text(30), "resume_at": text(90)}
    scheduled = subscription(5, scheduled_change=pause)
    for shop in play("paddle", "pri_1", transaction(), subscription(0), scheduled):
        assert shop.ends == [at(30)]
    for shop in play("paddle", "pri_1", transaction(), scheduled, subscription(6, type_="resumed")):
        assert shop.ends == [at(30) + GRACE]
    resume = {"action": "resume", "effective_at": text(90), "resume_at": None}
    paused = subscription(
        30, "paused", "paused", current_billing_period=None, next_billed_at=None, scheduled_change=resume
    )
    for shop in play("paddle", "pri_1", transaction(), scheduled, paused):
        assert shop.ends == [at(30)]
    charge = transaction("txn_2", 90, "subscription_recurring")
    next_ = {"starts_at": text(90), "ends_at": text(120)}
    back = subscription(90, "active", "resumed", current_billing_period=next_, next_billed_at=text(120))
    for shop in play("paddle", "pri_1", transaction(), paused, charge, back):
        assert (len(shop.licenses), shop.ends) == (1, [at(120) + GRACE])


def test_pentacent_keila_56() -> None:
    """The payment may come first, or the subscription (also PaddleHQ/php-subscriptions-basic#2)."""
    created = subscription(0, type_="created")
    for shop in play("paddle", "pri_1", transaction(), created):
        assert (len(shop.licenses), shop.ends, shop.asked) == (1, [at(30) + GRACE], [])


def test_laravel_cashier_paddle_194() -> None:
    """`subscription.created` again, with another id of the event, and after a change."""
    more = [{"price": {"id": "pri_1", "product_id": "pro_1"}, "quantity": 3, "status": "active"}]
    created, changed = subscription(0, type_="created"), subscription(5, items=more)
    again = subscription(0.001, type_="created")
    for shop in play("paddle", "pri_1", transaction(), created, changed, again):
        assert len(shop.valid) == 3


def test_lines_of_one_price() -> None:
    """Two lines of one price are as many licenses as both; of one of them, as many as are left."""
    items = [{"price": {"id": "pri_1"}, "quantity": 2}, {"price": {"id": "pri_1"}, "quantity": 1}]
    bought, report = transaction(items=items), subscription(0, items=items)
    for shop in play("paddle", "pri_1", bought, report):
        assert (len(shop.licenses), shop.asked) == (3, [])
    for shop in play("paddle", "pri_1", bought, report, subscription(5, items=items[:1])):
        assert len(shop.valid) == 2


def test_events_of_subscriptions_that_no_list_has() -> None:
    """`subscription.imported`, and what comes later, are reports like the others."""
    next_ = {"starts_at": text(30), "ends_at": text(60)}
    imported = subscription(30, type_="imported", current_billing_period=next_, next_billed_at=text(60))
    for shop in play("paddle", "pri_1", transaction(), imported):
        assert shop.ends == [at(60) + GRACE]
    shop, *_ = play("paddle", "pri_1", transaction(), paddle("subscription.counted", 3, total=5))
    assert len(shop.valid) == 1


# --- Gumroad ----------------------------------------------------------------------------------

MEMBER = {"subscription_id": "sub_1==", "recurrence": "monthly"}
JOINED = shops.gumroad(**MEMBER)
MONTH = datetime(2026, 7, 15, 12, tzinfo=UTC)


def test_antiwork_gumroad_577() -> None:
    """A gift is a sale to its buyer and one for nothing to its receiver: one license (also its #774)."""
    gift = {"is_gift_receiver_purchase": "true", "gift_price": "2000", "gifter_email": "ann@example.com"}
    received = shops.gumroad(sale_id="sale_2==", email="bob@example.com", price="0", **gift)
    refund = shops.gumroad("refund", refunded="true")
    for shop in play("gumroad", "app", shops.gumroad(), received):
        assert (len(shop.licenses), shop.asked) == (1, [])
    for shop in play("gumroad", "app", shops.gumroad(), received, refund):
        assert shop.valid == []


@pytest.mark.parametrize("recurrence", ["monthly", "yearly"])
def test_tiliado_nuvolaplayer_461(recurrence: str) -> None:
    """A cancellation is dated to the end of what was paid, and can be taken back before."""
    end = MONTH if recurrence == "monthly" else datetime(2027, 6, 15, 12, tzinfo=UTC)
    fields = {"recurrence": recurrence}
    joined = shops.gumroad(**{**MEMBER, **fields})
    cancelled = shops.gumroad_subscription(
        "cancellation", cancelled_at=end.isoformat(), cancelled="true", **fields
    )
    for shop in play("gumroad", "app", joined, cancelled):
        assert shop.ends == [end]
    restarted = shops.gumroad_subscription("subscription_restarted", restarted_at=text(10), **fields)
    for shop in play("gumroad", "app", joined, cancelled, restarted):
        assert shop.ends == [end + GRACE]
    later = end + timedelta(days=20)
    again = shops.gumroad_subscription("cancellation", cancelled_at=later.isoformat(), **fields)
    renewed = shops.gumroad(
        sale_id="sale_2==", sale_timestamp=end.isoformat(), is_recurring_charge="true", **{**MEMBER, **fields}
    )
    for shop in play("gumroad", "app", joined, cancelled, restarted, renewed, again):
        assert shop.ends[0] is not None
        assert shop.ends[0] > end + timedelta(days=20)


def test_antiwork_gumroad_2885() -> None:
    """An ended membership that is restarted is charged again, under its own id: the same license."""
    ended = shops.gumroad_subscription("subscription_ended", ended_at=text(30), ended_reason="cancelled")
    restarted = shops.gumroad_subscription("subscription_restarted", restarted_at=text(50))
    charge = shops.gumroad(sale_id="sale_2==", sale_timestamp=text(50), is_recurring_charge="true", **MEMBER)
    for shop in play("gumroad", "app", JOINED, ended):
        assert shop.ends == [at(30)]
    for shop in play("gumroad", "app", JOINED, ended, restarted, charge):
        assert (len(shop.licenses), shop.asked) == (1, [])
        assert shop.ends == [datetime(2026, 9, 4, 12, tzinfo=UTC) + GRACE]


def test_antiwork_gumroad_7326() -> None:
    """A full refund takes the key, and one in part leaves it; of a renewal it takes the last month only."""
    for shop in play("gumroad", "app", shops.gumroad(), shops.gumroad("refund", refunded="true")):
        assert shop.valid == []
    charge = {"sale_id": "sale_2==", "sale_timestamp": text(30), "is_recurring_charge": "true", **MEMBER}
    renewed, refund = shops.gumroad(**charge), shops.gumroad("refund", refunded="true", **charge)
    for shop in play("gumroad", "app", JOINED, renewed, refund):
        assert shop.ends == [MONTH + GRACE]


@pytest.mark.parametrize("name", ["abcde", "photo-lab", "product_1=="])
def test_benaclejames_gumcord_5(name: str) -> None:
    """A product has a name in its address, another one of its own, and an id: each can be mapped.

    Also yuanqing/create-figma-plugin#155. The name in the address can change: the sale stays one.
    """
    fields = {"short_product_id": "abcde", "permalink": "photo-lab"}
    address = "https://ann.gumroad.com/l/photo-lab?layout=profile"
    bought = shops.gumroad(product_permalink=address, **fields)
    renamed = {"permalink": "photo", "product_permalink": "https://ann.gumroad.com/l/photo"}
    again = shops.gumroad(**{**fields, **renamed})
    for shop in play("gumroad", name, bought):
        assert len(shop.licenses) == 1
    shop, *_ = play("gumroad", name, bought)
    shop.receive(again, bought, again)
    assert (len(shop.valid), shop.asked) == (1, [])


def test_a_renamed_tier() -> None:
    """The vendor renames a tier, and Gumroad sends the sale again, or its refund: it was served."""
    bought = shops.gumroad(**{"variants[Tier]": "Pro"})
    renamed = shops.gumroad(**{"variants[Tier]": "Professionell 专业版 " + "x" * 200})
    refund = shops.gumroad("refund", refunded="true", **{"variants[Tier]": "Max"})
    shop, *_ = play("gumroad", "app:Pro", bought)
    shop.receive(renamed, bought)
    assert (len(shop.licenses), len(shop.valid), shop.asked) == (1, 1, [])
    shop.receive(refund)
    assert shop.valid == []


def test_antiwork_gumroad_6773() -> None:
    """A ping is sent again after an hour, or by the vendor, also beside a refund that came first."""
    for shop in play(
        "gumroad", "app", shops.gumroad(), shops.gumroad("refund", refunded="true"), shops.gumroad()
    ):
        assert (len(shop.licenses), shop.valid) in [(1, []), (0, [])]


def test_answers_of_buyers_among_the_fields() -> None:
    """A question of the vendor named like a field of Gumroad's: the buyer's answer decides nothing."""
    asked = {"quantity": "900", "refunded": "maybe", "email": "mallory@example.com"}
    body = shops.gumroad().decode()
    answers = "&".join(f"{name}={value}" for name, value in asked.items())
    again = "&".join(f"custom_fields[{name}]={value}" for name, value in asked.items())
    for form in (f"{body}&{answers}&{again}", f"{answers}&{body}&{again}", f"{again}&{answers}&{body}"):
        shop, *_ = play("gumroad", "app", form.encode())
        assert [each.email for each in shop.valid] == ["ann@example.com"]
