"""Quantities as shops report them: fractions, uses, and more than a person buys at once.

An order with such a line was unreadable as a whole: the customer got no key, and the vendor was not asked.
Reports: woocommerce/woocommerce#52198, XiaoFaye/WooCommerce.NET#286, better-auth/better-auth#8926.
"""

from typing import Any

import pytest

from harness import shops
from harness.contracts import Vendor, at, mapped
from harness.sales import EXTERNAL

NOT_WHOLE: list[Any] = [1.5, "0.250", -1, "many", "٣", 1e400]
FABRIC: dict[str, Any] = {"product_id": 7, "variation_id": 0, "sku": "FABRIC"}


def sell(kind: str, quantity: Any) -> bytes:
    """Return a purchase of a quantity."""
    match kind:
        case "stripe":
            fields: dict[str, Any] = {"payment_link": None, "metadata": {"licserver_item": "plink_1"}}
            line = {"id": "li_1", "price": {"id": "price_1", "product": "prod_1"}, "quantity": quantity}
            fields["line_items"] = {"data": [line], "has_more": False}
            return shops.stripe("checkout.session.completed", shops.stripe_session(**fields))
        case "paddle":
            items = [{"price": {"id": "pri_1", "product_id": "pro_1"}, "quantity": quantity}]
            return shops.paddle("transaction.completed", shops.paddle_transaction(items=items))
        case "lemonsqueezy":
            item = {"variant_id": 11, "product_id": 7, "quantity": quantity}
            return shops.lemon("order_created", "5", shops.lemon_order(first_order_item=item))
        case "woocommerce":
            return shops.woo(line_items=[shops.woo_line(quantity=quantity)])
        case "polar":
            return shops.polar("order.paid", **shops.polar_order(seats=quantity))
        case "dodo":
            cart = [{"product_id": "pdt_1", "quantity": quantity}]
            return shops.dodo("payment.succeeded", **shops.dodo_payment(product_cart=cart))
        case _:
            return shops.gumroad(quantity=str(quantity))


@pytest.mark.parametrize("kind", [kind for kind in EXTERNAL if kind != "standard"])
@pytest.mark.parametrize("quantity", [*NOT_WHOLE, 0, 1_001, 10**6, 10**30], ids=str)
def test_a_purchase_of_an_odd_quantity(kind: str, quantity: Any) -> None:
    """Nothing is assumed: a person is asked how many there were, or to issue so many; of none, no one is."""
    vendor = Vendor(kind, mapped(EXTERNAL[kind]))
    vendor.receive(sell(kind, quantity))
    wanted = ["QUANTITY"] if quantity in NOT_WHOLE else ["MANY"] if quantity else []
    assert (vendor.licenses, vendor.asked) == ([], wanted)


@pytest.mark.parametrize("quantity", [*NOT_WHOLE, 0, None, 1_001, 10**30], ids=str)
def test_fabric_by_the_metre_beside_a_license(quantity: Any) -> None:
    """WooCommerce reports fractions if a plug-in sells them; the license of the same order is issued."""
    vendor = Vendor("woocommerce", {**mapped("APP"), **mapped("FABRIC", product=None)})
    vendor.receive(
        shops.woo(line_items=[{"id": 1, **FABRIC, "quantity": quantity}, shops.woo_line(quantity=1)])
    )
    assert (len(vendor.valid), vendor.asked) == (1, [])


def test_an_invoice_with_a_line_for_each_tier_of_a_price() -> None:
    """Stripe's graduated prices: five seats at one amount and three at another are eight, once."""
    end = int(at(30).timestamp())
    invoice = shops.stripe_invoice("subscription_create", end)
    (seat,) = invoice["lines"]["data"]
    seat["parent"] = {"subscription_item_details": {"subscription_item": "si_1"}}
    invoice["lines"]["data"] = [{**seat, "id": "il_1", "quantity": 5}, {**seat, "id": "il_2", "quantity": 3}]
    vendor = Vendor("stripe", mapped("price_1"))
    for number in range(3):
        vendor.receive(shops.stripe("invoice.paid", invoice, id_=f"evt_{number}"))
        assert (len(vendor.licenses), vendor.asked) == (8, [])


def test_uses_beside_a_subscription() -> None:
    """Stripe counts uses as the quantity of a line of their own: the time that was paid is extended."""
    vendor = Vendor("stripe", {**mapped("price_1"), **mapped("price_uses", product=None)})
    end = int(at(30).timestamp())
    vendor.receive(shops.stripe("invoice.paid", shops.stripe_invoice("subscription_create", end)))
    (before,) = vendor.ends
    later = shops.stripe_invoice("subscription_cycle", int(at(60).timestamp()))
    uses = {"pricing": {"price_details": {"price": "price_uses", "product": "prod_uses"}}}
    later["lines"]["data"].append({**later["lines"]["data"][0], **uses, "quantity": 150_000})
    vendor.receive(shops.stripe("invoice.paid", later, id_="evt_2"))
    (after,) = vendor.ends
    assert before is not None
    assert after is not None
    assert (after - before).days == 30
    assert vendor.asked == []


def test_seats_of_a_subscription_that_cannot_be_read() -> None:
    """Its licenses stay as they are: without seats a subscription is for one, and these are not known."""
    vendor = Vendor("polar", mapped("prod_1"))
    first = shops.polar_order(billing_reason="subscription_create", subscription_id="sub_1", seats=3)
    active = shops.polar("subscription.active", **shops.polar_subscription(seats=3))
    vendor.receive(active, shops.polar("order.paid", **first))
    assert len(vendor.valid) == 3
    at_ = "2026-06-16T12:00:00Z"
    vendor.receive(shops.polar("subscription.updated", at_, **shops.polar_subscription(seats="many")))
    assert (len(vendor.valid), vendor.asked) == (3, [])
