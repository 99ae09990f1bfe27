"""Deliveries that we did not write, up to a key that an app verifies.

A fake Stripe sends signed webhooks, Paddle's own SDK writes and verifies events, and WooCommerce has
documented an order.
"""

import asyncio
import json
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from harness import fake_stripe, shops
from harness.customer import eventually
from harness.world import MovableClock, World
from licclient import LicenseClient, LicenseRefusedError, Reason
from licserver.domain.records import EnvironmentPolicy
from licserver.services import LicenseFilter
from licserver.sources import SourceKind
from licserver.web.shop_apis import fetch_deliveries


class Shop:
    """A server with a source and a product, and an app that verifies what is issued."""

    def __init__(self, world: World, url: str, app: LicenseClient, kind: str) -> None:
        self.services, self.clock, self.kind = world.services, world.clock, kind
        self.address, self._app = f"{url}/events/in/{kind}", app

    def deliver(self, body: bytes, headers: dict[str, str]) -> str:
        """Deliver; return the status that the shop is given."""
        request = urllib.request.Request(self.address, body, headers)  # noqa: S310 - our own loopback address
        with urllib.request.urlopen(request) as response:  # noqa: S310 - the same
            return str(json.load(response)["status"])

    def key(self) -> str:
        """Wait for a license of two slots for Ann; return its key, once the app has verified it."""
        found = self.services.licenses.search
        eventually(lambda: found(LicenseFilter()).items)
        (license_,) = found(LicenseFilter()).items
        assert (license_.customer_email, license_.slots) == ("ann@example.com", 2)
        key = self.services.licenses.reveal(license_.id.hex())
        assert self._app.activate(key).product == "App"
        return key

    def refused(self, key: str) -> Reason:
        """Wait for the second delivery; return why the app is refused then."""
        done = self.services.sources.list_events
        eventually(
            lambda: [one.state for one in done(self.kind).items if one.state != "ignored"] == ["done"] * 2
        )
        self.clock.forward(minutes=1)  # it has stood still since the test began
        with pytest.raises(LicenseRefusedError) as refused:
            self._app.verify(key, force=True)
        return refused.value.reason


@pytest.fixture
def open_shop(
    make_world: Callable[..., World], clock: MovableClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Shop]]:
    """Make a `Shop` for an id of its product; what does not fake the time needs the real one."""
    clock.now = datetime.now(UTC)
    with ExitStack() as stack:

        def make(kind: str, external_id: str, **source: Any) -> Shop:
            monkeypatch.setenv("SHOP_SECRET", shops.SECRETS[kind])
            world = make_world()
            world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
            world.services.sources.add(kind, SourceKind(kind), "SHOP_SECRET", **source)
            world.services.sources.map(kind, external_id, "app", slots=2)
            server = stack.enter_context(world.serving())
            app = LicenseClient(server.url, state_dir=world.folder / "app", clock=clock)
            return Shop(world, server.url, stack.enter_context(app), kind)

        yield make


# --- Stripe -----------------------------------------------------------------------------------


@pytest.mark.slow
@fake_stripe.needed
def test_a_subscription_of_a_fake_stripe(open_shop: Callable[..., Shop]) -> None:
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
def test_what_a_fake_stripe_could_not_deliver_is_asked_for(open_shop: Callable[..., Shop]) -> None:
    """Its API lists the same events; asked again, it has nothing new."""
    shop = open_shop("stripe", "gold", is_test=True)

    async def sync(address: str) -> set[str]:
        found = fetch_deliveries(
            SourceKind.STRIPE, fake_stripe.KEY, shop.clock() - timedelta(days=1), address
        )
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


def test_a_sale_as_the_sdk_of_paddle_writes_it(open_shop: Callable[..., Shop]) -> None:
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


def test_an_order_with_all_fields_that_woocommerce_documents(open_shop: Callable[..., Shop]) -> None:
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
