"""Reports about money that comes twice, late or back: tried on the licenses that follow."""

import json
from typing import Any

import pytest

from harness import shops
from harness.contracts import GRACE, at, play, text
from licserver.shops import SHOPS, ShopKind

MAKE: Any = shops  # called with fields of any type


# --- Stripe


def event(type_: str, days: float, **fields: Any) -> bytes:
    """Make an event of Stripe."""
    head = {"id": "evt", "object": "event", "type": type_, "created": int(at(days).timestamp())}
    return json.dumps({**head, "livemode": True, "data": {"object": fields}}).encode()


def invoice(number: int, start: float, paid: float, *, of: str = "1", reason: str = "cycle") -> bytes:
    """Make an invoice of 30 days, paid on some day."""
    period = {"start": int(at(start).timestamp()), "end": int(at(start + 30).timestamp())}
    item = {"subscription_item_details": {"subscription_item": f"si_{of}"}}
    price = {"price_details": {"price": "price_1", "product": "prod_1"}}
    line = {"period": period, "quantity": 1, "amount": 900, "pricing": price, "parent": item}
    return event(
        "invoice.paid",
        paid,
        id=f"in_{number}",
        billing_reason=f"subscription_{reason}",
        lines={"data": [line]},
        amount_paid=900,
        parent={"subscription_details": {"subscription": f"sub_{of}"}},
        status_transitions={"paid_at": int(at(paid).timestamp())},
    )


def subscription(days: float, status: str, *, of: str = "1", type_: str = "updated", **fields: Any) -> bytes:
    """Make a report of a subscription with its first period."""
    dates = {"current_period_start": int(at(0).timestamp()), "current_period_end": int(at(30).timestamp())}
    items = {"data": [{"id": f"si_{of}", "price": {"id": "price_1"}, "quantity": 1}]}
    body = {"id": f"sub_{of}", "status": status, "items": items, **dates, **fields}
    return event(f"customer.subscription.{type_}", days, **body)


FIRST = invoice(1, 0, 0, reason="create")
CANCELED = subscription(52, "canceled", type_="deleted", ended_at=int(at(52).timestamp()))


def test_andrei_tatar_node_red_contrib_smartnora_337() -> None:
    """An invoice is paid ten hours after Stripe ended the subscription (also hackerai-tech/hackerai#956)."""
    for vendor in play("stripe", "price_1", FIRST, CANCELED, invoice(2, 30, 52.4)):
        assert (vendor.ends, vendor.asked) == ([at(52)], ["LATE"])
        assert "in_2" in vendor.problems[0].text
    for vendor in play("stripe", "price_1", FIRST, invoice(2, 30, 51), CANCELED):
        assert (vendor.ends, vendor.asked) == ([at(52)], [])


def test_thinline_dynamic_solutions_thinlineradio_208() -> None:
    """A customer has two subscriptions (also keygen-sh/keygen-api#321), and the second one is ended."""
    second = invoice(2, 1, 1, of="2", reason="create")
    end = subscription(3, "canceled", of="2", type_="deleted", ended_at=int(at(3).timestamp()))
    for vendor in play("stripe", "price_1", FIRST, second, end):
        by_subscription = {license_.subscription_id: license_.ends_at for license_ in vendor.licenses}
        assert by_subscription == {"sub_1": at(30) + GRACE, "sub_2": at(3)}


def test_yusufipk_openframe_77() -> None:
    """A renewal fails for a subscription that was cancelled for the end of that period."""
    dates: dict[str, Any] = {
        "current_period_start": int(at(30).timestamp()),
        "current_period_end": int(at(60).timestamp()),
    }
    due = subscription(31, "past_due", cancel_at=int(at(60).timestamp()), cancel_at_period_end=True, **dates)
    for vendor in play("stripe", "price_1", FIRST, due):
        assert vendor.ends == [at(30) + GRACE]
    for vendor in play("stripe", "price_1", FIRST, due, invoice(2, 30, 40)):
        assert vendor.ends == [at(60)]


def test_harvard_lil_perma_2941() -> None:
    """A customer cancels, and subscribes anew while the first one is still paid."""
    cancelled = subscription(10, "active", cancel_at=int(at(30).timestamp()), cancel_at_period_end=True)
    again = invoice(2, 12, 12, of="2", reason="create")
    for vendor in play("stripe", "price_1", FIRST, cancelled, again):
        assert {license_.ends_at for license_ in vendor.valid} == {at(30), at(42) + GRACE}


# --- WooCommerce


def test_wpexpertsio_license_manager_for_woocommerce_118() -> None:
    """An order goes back to processing, on hold and to completed again (also michelve/slm-plus#24)."""
    bodies = [
        shops.woo(status, date_modified_gmt=text(day)[:-1], date_paid_gmt=text(0)[:-1])
        for day, status in enumerate(("completed", "processing", "on-hold", "completed"))
    ]
    for vendor in play("woocommerce", "APP", *bodies):
        assert len(vendor.licenses) == len(vendor.valid) == 1


def test_woocommerce_woocommerce_ios_6627() -> None:
    """A refunded order is set to processing by hand: its money is still with the customer."""
    refunds = [{"id": 1, "total": "-29.35"}]
    bodies = [
        shops.woo("completed"),
        shops.woo("refunded", date_modified_gmt=text(1)[:-1], refunds=refunds),
        shops.woo("processing", date_modified_gmt=text(2)[:-1], refunds=refunds),
    ]
    for vendor in play("woocommerce", "APP", *bodies):
        assert (vendor.valid, vendor.asked) == ([], [])


REFUNDED_PRO = {"quantity": -1, "meta_data": [{"key": "_refunded_item_id", "value": "316"}]}


def test_woocommerce_woocommerce_subscriptions_cancel_on_refund_1() -> None:
    """One of two lines is refunded; the order does not say which (also woocommerce/woocommerce#67008)."""
    lines = [MAKE.woo_line(), MAKE.woo_line(316, product_id=94, sku="PRO")]
    bought = shops.woo("completed", line_items=lines)
    part = {"line_items": lines, "refunds": [{"id": 1, "total": "-10.00"}]}
    refunded = shops.woo("completed", date_modified_gmt=text(1)[:-1], **part)
    for vendor in play("woocommerce", "APP PRO", bought, refunded):
        assert len(vendor.valid) == 2
        (note,) = vendor.result.notes
        assert note.startswith(
            "order 727 was refunded in part, which revokes nothing; give the source an API key"
        )
        fetched = [
            {"id": 1, "date_created_gmt": text(1)[:-1], "amount": "10.00", "line_items": [REFUNDED_PRO]}
        ]
        (fetch,) = vendor.result.fetches
        vendor.take(SHOPS[ShopKind.WOOCOMMERCE].read_fetched(fetch, json.dumps(fetched).encode(), at(1)))
        assert [license_.item for license_ in vendor.valid] == ["93"]


def test_awesomemotive_easy_digital_downloads_9754() -> None:
    """A subscription is renewed a month before its end: the paid year is added to the end."""
    first = shops.woo("completed", date_paid_gmt=text(0)[:-1])
    known = shops.woo_subscription()
    early = MAKE.woo_renewal(
        800, date_paid_gmt=text(335)[:-1], date_modified_gmt=text(335)[:-1], status="completed"
    )
    moved = shops.woo_subscription(date_modified_gmt=text(335.001)[:-1], next_payment_date_gmt=text(730)[:-1])
    for vendor in play("woocommerce", "APP", first, known, early, moved):
        assert (len(vendor.valid), vendor.ends) == (1, [at(730) + GRACE])


# --- a shop of one's own


def sale(type_: str, days: float, **data: Any) -> bytes:
    """Make a report of an own shop."""
    return shops.standard(type_, text(days), **data)


BOUGHT = sale(
    "purchase.completed", 0, order_id="1", external_id="app", subscription_id="s", paid_through=text(365)
)


def renewed(order: str, days: float, end: float) -> bytes:
    """Make a renewal."""
    paid = {"subscription_id": "s", "paid_through": text(end)}
    return sale("subscription.renewed", days, order_id=order, **paid)


def test_awesomemotive_easy_digital_downloads_3703() -> None:
    """Renewed twice by accident, and the second one is refunded: a year less, and not revoked."""
    renewals = [renewed("2", 360, 730), renewed("3", 361, 1095)]
    for vendor in play("standard", "app", BOUGHT, *renewals):
        assert vendor.ends == [at(1095) + GRACE]
    refund = sale("purchase.refunded", 362, order_id="3")
    for vendor in play("standard", "app", BOUGHT, *renewals, refund):
        assert (vendor.ends, vendor.asked) == ([at(730) + GRACE], [])


@pytest.mark.parametrize("later", [0, 1])
def test_razorpay_razorpay_edd_18(later: float) -> None:
    """The page of thanks and the webhook both report the sale, of the same second or a little later."""
    sold = {"order_id": "1", "external_id": "app", "customer_email": "ann@example.com"}
    both = [sale("purchase.completed", 0, **sold), sale("purchase.completed", later / 86_400, **sold)]
    for vendor in play("standard", "app", *both):
        assert len(vendor.licenses) == 1


def test_likecoin_oice_server_98() -> None:
    """A cancelled and ended subscription is renewed by the customer."""
    cancelled = sale("subscription.cancelled", 300, subscription_id="s", paid_through=text(365))
    ended = sale("subscription.ended", 365, subscription_id="s")
    for vendor in play("standard", "app", BOUGHT, cancelled, ended, renewed("2", 400, 765)):
        assert (vendor.ends, vendor.asked) == ([at(765) + GRACE], [])


# --- Lemon Squeezy

LEMON_ORDER = shops.lemon("order_created", "5", MAKE.lemon_order(created_at=text(0), updated_at=text(0)))


def lemon(days: float, status: str = "active", variant: int = 11, **fields: Any) -> bytes:
    """Make a report of the subscription of that order, whose first month is paid."""
    dates = {"updated_at": text(days), "renews_at": text(30), "ends_at": None}
    known = {"variant_id": variant, "product_id": 7, "first_subscription_item": {"quantity": 1}}
    attributes = MAKE.lemon_subscription(status, **{**known, **dates, **fields})
    return shops.lemon("subscription_updated", "77", attributes)


def test_lmsqueezy_lemonsqueezy_js_121() -> None:
    """The payment of an upgrade fails amid a month that was paid, and the shop reports it as past due."""
    due = lemon(10, "past_due", 12)
    for vendor in play("lemonsqueezy", "11 12", LEMON_ORDER, lemon(0), due):
        assert (vendor.ends, vendor.asked) == ([at(10) + GRACE], [])  # the rest of the month is not reported
    for vendor in play("lemonsqueezy", "11 12", LEMON_ORDER, lemon(0), due, lemon(13, variant=12)):
        assert vendor.ends == [at(30) + GRACE]
    expired = lemon(12, "expired", 12, ends_at=text(12))
    for vendor in play("lemonsqueezy", "11 12", LEMON_ORDER, lemon(0), due, expired):
        assert vendor.ends == [at(12)]


@pytest.mark.parametrize("mapped", ["11 12 13", "product:7"])
def test_siege_perilous_tableslayer_158(mapped: str) -> None:
    """A month, a year and a lifetime are variants of a product, and a customer goes from one to the next."""
    yearly = lemon(5, variant=12, renews_at=text(370))
    for vendor in play("lemonsqueezy", mapped, LEMON_ORDER, lemon(0), yearly):
        assert (vendor.ends, vendor.asked) == ([at(370) + GRACE], [])
    item = {"variant_id": 13, "product_id": 7, "quantity": 1}
    dates = {"created_at": text(12), "updated_at": text(12)}
    lifetime = shops.lemon("order_created", "6", MAKE.lemon_order(first_order_item=item, **dates))
    cancelled = lemon(13, "cancelled", ends_at=text(30))
    for vendor in play("lemonsqueezy", mapped, LEMON_ORDER, lemon(0), lifetime, cancelled):
        assert sorted(vendor.ends, key=str) == [at(30), None]
        assert vendor.asked == []
