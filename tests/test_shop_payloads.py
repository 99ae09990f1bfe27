"""Deliveries that we did not write, up to a key that an app verifies.

A fake Stripe sends signed webhooks, Paddle's own SDK writes and verifies events, and WooCommerce has
documented an order.
"""

import asyncio
import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from standardwebhooks import Webhook

from harness import fake_stripe, shops
from harness.shop_app import Open
from harness.world import MovableClock
from licclient import Reason
from licserver.jobs.shop_apis import fetch_deliveries
from licserver.shops import ShopKind


@pytest.fixture(autouse=True)
def _now(clock: MovableClock) -> None:
    """What does not fake the time needs the real one."""
    clock.now = datetime.now(UTC)


# --- Stripe -----------------------------------------------------------------------------------


@fake_stripe.needed
def test_the_library_of_stripe_accepts_what_is_signed_here() -> None:
    """So what the server accepts in other tests is what Stripe would send."""
    import stripe  # noqa: PLC0415 - of the group `fakes`

    body, secret = shops.stripe("invoice.paid", {"id": "in_1"}), shops.SECRETS["stripe"]
    header = shops.sign("stripe", body, datetime.now(UTC))["Stripe-Signature"]
    assert stripe.WebhookSignature.verify_header(body.decode(), header, secret, tolerance=300)
    with pytest.raises(stripe.SignatureVerificationError):
        stripe.WebhookSignature.verify_header(body.decode() + " ", header, secret, tolerance=300)


@pytest.mark.slow
@fake_stripe.needed
def test_a_subscription_of_a_fake_stripe(open_shop: Open) -> None:
    """It signs and sends what it likes, in the shape of an old API version; the end ends the license."""
    shop = open_shop("stripe", "gold", is_test=True)
    with fake_stripe.running() as stripe:
        stripe.deliver_to(shop.address)
        subscription = stripe.subscribe("gold", "ann@example.com")
        key = shop.key()
        ended_at = shop.services.licenses.get(key).subscription_ended_at
        assert ended_at is not None
        assert ended_at - shop.clock() > timedelta(days=28 + 7 - 1)  # a month and the days of grace
        stripe.refund(subscription)
        assert shop.refused(key) is Reason.EXPIRED


@pytest.mark.slow
@fake_stripe.needed
def test_what_a_fake_stripe_could_not_deliver_is_asked_for(open_shop: Open) -> None:
    """Its API lists the same events; asked again, it has nothing new."""
    shop = open_shop("stripe", "gold", is_test=True)

    async def sync(address: str) -> set[str]:
        found = fetch_deliveries(ShopKind.STRIPE, fake_stripe.KEY, shop.clock() - timedelta(days=1), address)
        return {shop.services.sources.take("stripe", body).status async for body in found}

    with fake_stripe.running() as stripe:
        subscription = stripe.subscribe("gold", "ann@example.com")
        assert "accepted" in asyncio.run(sync(stripe.address))
        key = shop.key()
        stripe.refund(subscription)
        assert "accepted" in asyncio.run(sync(stripe.address))
        assert shop.refused(key) is Reason.EXPIRED
        assert "accepted" not in asyncio.run(sync(stripe.address))


# --- Paddle -----------------------------------------------------------------------------------

_AT = "2026-11-20T12:00:00Z"
_PRICE = {
    "id": "pri_01h",
    "product_id": "pro_01h",
    "description": "Yearly",
    "unit_price": {"amount": "900", "currency_code": "EUR"},
    "quantity": {"minimum": 1, "maximum": 10},
    "status": "active",
    "tax_mode": "account_setting",
}
_TRANSACTION = {
    "id": "txn_01h",
    "status": "completed",
    "customer_id": "ctm_01h",
    "custom_data": {"email": "ann@example.com"},
    "currency_code": "EUR",
    "origin": "web",
    "collection_mode": "automatic",
    "items": [{"price": _PRICE, "quantity": 1}],
    "created_at": _AT,
    "billed_at": _AT,
}
_ADJUSTMENT = {
    "id": "adj_01h",
    "action": "refund",
    "type": "full",
    "transaction_id": "txn_01h",
    "customer_id": "ctm_01h",
    "reason": "fraud",
    "currency_code": "EUR",
    "status": "approved",
    "created_at": _AT,
}


def write_with_sdk(type_: str, data: Any) -> tuple[bytes, dict[str, str]]:
    """Write and sign an event with Paddle's SDK, whose own verifier accepts it."""
    from paddle_billing.Json import PayloadEncoder  # noqa: PLC0415 - hundreds of modules, for this test alone
    from paddle_billing.Notifications import PaddleSignature, Secret, Verifier  # noqa: PLC0415 - the same

    event = {"event_id": f"evt_{type_}", "event_type": type_, "occurred_at": _AT, "data": data}
    body = json.dumps(event, cls=PayloadEncoder)
    seconds, secret = int(datetime.now(UTC).timestamp()), shops.SECRETS["paddle"]
    signature = PaddleSignature.calculate_hmac(secret, f"{seconds}:{body}".encode()).hexdigest()
    headers = {PaddleSignature().HEADER: f"ts={seconds};h1={signature}"}
    assert Verifier(300).verify(SimpleNamespace(headers=headers, body=body.encode()), Secret(secret))
    return body.encode(), headers


@pytest.mark.slow
def test_a_sale_as_the_sdk_of_paddle_writes_it(open_shop: Open) -> None:
    """Its entities choose the names and forms of the fields, and it signs; a refund revokes."""
    from paddle_billing.Notifications.Entities import Simulations  # noqa: PLC0415 - as above

    shop = open_shop("paddle", "pri_01h")
    body, headers = write_with_sdk("transaction.completed", Simulations.Transaction.from_dict(_TRANSACTION))
    assert shop.deliver(body, headers) == "accepted"
    key = shop.key()
    body, headers = write_with_sdk("adjustment.updated", Simulations.Adjustment.from_dict(_ADJUSTMENT))
    assert shop.deliver(body, headers) == "accepted"
    assert shop.refused(key) is Reason.REVOKED


# --- WooCommerce ------------------------------------------------------------------------------

_ORDER: dict[str, Any] = json.loads("""{
  "id": 727, "parent_id": 0, "number": "727", "order_key": "wc_order_58d2", "created_via": "checkout",
  "version": "9.4.2", "status": "processing", "currency": "EUR", "prices_include_tax": false,
  "date_created": "2026-11-20T13:00:00", "date_created_gmt": "2026-11-20T12:00:00",
  "date_modified": "2026-11-20T13:00:00", "date_modified_gmt": "2026-11-20T12:00:00",
  "date_paid": "2026-11-20T13:00:00", "date_paid_gmt": "2026-11-20T12:00:00",
  "date_completed": null, "date_completed_gmt": null,
  "discount_total": "0.00", "discount_tax": "0.00", "shipping_total": "0.00", "shipping_tax": "0.00",
  "cart_tax": "0.00", "total": "9.00", "total_tax": "0.00", "cart_hash": "",
  "customer_id": 26, "customer_ip_address": "", "customer_user_agent": "", "customer_note": "",
  "billing": {"first_name": "Ann", "last_name": "Example", "company": "", "address_1": "Main Street 1",
    "address_2": "", "city": "Berlin", "state": "", "postcode": "10115", "country": "DE",
    "email": "ann@example.com", "phone": "030 1234"},
  "shipping": {"first_name": "", "last_name": "", "company": "", "address_1": "", "address_2": "",
    "city": "", "state": "", "postcode": "", "country": ""},
  "payment_method": "bacs", "payment_method_title": "Transfer", "transaction_id": "",
  "meta_data": [{"id": 13106, "key": "_download_permissions_granted", "value": "yes"}],
  "line_items": [{"id": 315, "name": "App", "product_id": 93, "variation_id": 0, "quantity": 1,
    "tax_class": "", "subtotal": "9.00", "subtotal_tax": "0.00", "total": "9.00", "total_tax": "0.00",
    "taxes": [], "meta_data": [{"id": 2095, "key": "seats", "value": "2"}], "sku": "", "price": 9}],
  "tax_lines": [], "shipping_lines": [], "fee_lines": [], "coupon_lines": [], "refunds": [],
  "_links": {"self": [{"href": "https://shop.example/wp-json/wc/v3/orders/727"}]}
}""")


def test_an_order_with_all_fields_that_woocommerce_documents(open_shop: Open) -> None:
    """Amounts are texts, ids are numbers, times have no zone; refunds of all that was paid revoke."""
    shop = open_shop("woocommerce", "93")

    def deliver(order: dict[str, Any], topic: str) -> str:
        body = json.dumps(order).encode()
        resource, _, event = topic.partition(".")
        described = {"X-WC-Webhook-Source": "https://shop.example/", "X-WC-Webhook-Topic": topic}
        described |= {"X-WC-Webhook-Resource": resource, "X-WC-Webhook-Event": event}
        described |= {"X-WC-Webhook-ID": "142", "X-WC-Webhook-Delivery-ID": "7c5f"}
        return shop.deliver(body, {**described, **shops.sign("woocommerce", body, shop.clock())})

    assert deliver(_ORDER, "order.created") == "accepted"
    key = shop.key()
    refunds = [{"id": 726, "reason": "", "total": "-4.00"}, {"id": 725, "reason": "", "total": "-5.00"}]
    assert deliver({**_ORDER, "refunds": refunds}, "order.updated") == "accepted"
    assert shop.refused(key) is Reason.REVOKED


# --- Standard Webhooks ------------------------------------------------------------------------

VECTOR = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


def test_the_vector_of_standard_webhooks(open_shop: Open, clock: MovableClock) -> None:
    """Its body is no sale, and changes nothing; with its secret, the published library signs a sale."""
    clock.now = datetime.fromtimestamp(1614265330, UTC)
    shop = open_shop("standard", "my-app", secret=VECTOR)
    vector = {"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330"}
    vector["webhook-signature"] = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert shop.deliver(b'{"test": 2432232314}', vector) == "ignored"

    def deliver(id_: str, type_: str, **data: str) -> str:
        body, at = shops.standard(type_, shop.clock().isoformat(), **data), shop.clock()
        headers = {"webhook-id": id_, "webhook-timestamp": str(int(at.timestamp()))}
        signature = Webhook(VECTOR).sign(id_, at, body.decode())
        return shop.deliver(body, {**headers, "webhook-signature": signature})

    bought = {"order_id": "1042", "external_id": "my-app", "customer_email": "ann@example.com"}
    assert deliver("msg_1", "purchase.completed", **bought) == "accepted"
    key = shop.key()
    assert deliver("msg_2", "purchase.refunded", order_id="1042") == "accepted"
    assert shop.refused(key) is Reason.REVOKED
