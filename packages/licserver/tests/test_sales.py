"""Sales, from a signed delivery to a license: over a socket, through the queue, on both engines."""

import asyncio
import io
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from pathlib import Path

import pytest

from harness import shops
from harness.engines import both_engines
from harness.sales import BOUGHT, EXTERNAL, ORDER, REFUNDED, add, licenses, process, receive, states, work
from licserver.jobs.shop_apis import APIS
from licserver.services.license_search import LicenseFilter
from licserver.shops import ROWS, ShopKind

pytestmark = pytest.mark.usefixtures("shop_secrets")
kinds = pytest.mark.parametrize("kind", list(BOUGHT))


async def deliver(site, kind, body, delivery="msg_1", name=None):
    """Deliver over the socket; returns status and answer."""
    headers = shops.sign(kind, body, site.world.clock(), None, delivery)
    secret = headers.pop(":path-secret", "")  # of Gumroad, which signs nothing
    path = f"/events/in/{name or kind}" + (f"?secret={secret}" if secret else "")
    status, _, answer = await site.call("POST", path, data=body, headers=headers)
    return status, answer


async def finished(world, kind, count):
    """Wait until so many deliveries are finished."""
    async with asyncio.timeout(10):
        while sum(state != "waiting" for state in states(world, kind)) < count:  # noqa: ASYNC110 - in the database
            await asyncio.sleep(0.02)


@pytest.mark.sampled(2)
@kinds
async def test_a_sale_becomes_a_license_and_a_refund_ends_it(world, site, kind):
    """For every kind of shop: a purchase is a key that verifies; after the refund it does not."""
    add(world, kind)
    assert await deliver(site, kind, BOUGHT[kind]) == (200, {"status": "accepted"})
    await finished(world, kind, 1)
    found = licenses(world)
    assert len(found) == (2 if kind == "paddle" else 1)
    assert (found[0].slots, found[0].customer_email) == (3, "ann@example.com")
    key = world.services.licenses.reveal(found[0].id.hex())
    assert (await site.verify(key))[0] == 200
    by_order = world.services.licenses.search(LicenseFilter(query=ORDER[kind])).items
    assert found[0].id in {license_.id for license_ in by_order}
    assert await deliver(site, kind, REFUNDED[kind], "msg_2") == (200, {"status": "accepted"})
    await finished(world, kind, 2)
    assert (await site.verify(key))[0] == 403
    assert states(world, kind) == ["done", "done"]


async def test_what_is_not_accepted(world, site, monkeypatch):
    """A wrong signature, an unknown source and a source without secret are refused, and nothing is stored."""
    add(world, "standard")
    body = BOUGHT["standard"]
    forged = shops.sign("standard", body, world.clock(), "whsec_b3RoZXItc2VjcmV0LW9mLW91ci1zaG9wLWFnYWlu")
    status, _, answer = await site.call("POST", "/events/in/standard", data=body, headers=forged)
    assert (status, answer["error"]) == (401, "bad_signature")
    for name in ("other", "%FF", "a b"):
        assert (await deliver(site, "standard", body, name=name))[0] == 404
    monkeypatch.setenv("STANDARD_SECRET", "  ")
    assert (await deliver(site, "standard", body))[0] == 503
    assert (await site.call("POST", "/events/in/standard", data=io.BytesIO(b"x" * ((1 << 20) + 1))))[0] == 413
    assert (await site.call("GET", "/events/in/standard"))[0] == 405
    assert states(world, "standard") == []


async def test_nobody_without_the_secret_fills_the_log(make_world, open_site, caplog):
    """Refused deliveries are logged as often as an address may guess."""
    world = make_world(miss_limit=3)
    add(world, "standard")
    site = await open_site(world)
    statuses = [(await site.call("POST", "/events/in/standard", data=b"{}"))[0] for _ in range(8)]
    assert {*statuses} == {401, 429}
    assert sum("was refused" in line for line in caplog.messages) == statuses.count(401)


async def test_a_new_webhook_of_woocommerce_is_tested_unsigned(world, site):
    """WooCommerce switches off a webhook whose test is refused."""
    add(world, "woocommerce")
    status, _, answer = await site.call("POST", "/events/in/woocommerce", data=b"webhook_id=7")
    assert (status, answer["status"]) == (200, "ignored")
    assert states(world, "woocommerce") == []


@both_engines
def test_a_delivery_counts_once(world):
    """The same delivery again is a duplicate; another delivery of the same order issues nothing more."""
    add(world, "stripe")
    again = shops.stripe("checkout.session.async_payment_succeeded", shops.stripe_session(), id_="evt_9")
    assert [
        receive(world, "stripe", body).status for body in (BOUGHT["stripe"], BOUGHT["stripe"], again)
    ] == [
        "accepted",
        "duplicate",
        "accepted",
    ]
    work(world)
    assert len(licenses(world)) == 1
    assert states(world, "stripe") == ["done", "done"]


@both_engines
def test_two_workers_issue_a_license_once(world):
    """Processes that take the same job at the same moment, and those of one order, issue one license."""
    add(world, "standard")
    for number in range(6):
        receive(world, "standard", BOUGHT["standard"], f"msg_{number}")
    ids = [event.id for event in world.services.sources.list_events("standard").items] * 2
    start = threading.Barrier(4)

    def process(part):
        start.wait()
        for id_ in ids[part::4] + ids[::-1]:
            world.services.sales.process(id_)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(process, range(4)))
    assert len(licenses(world)) == 1


def test_products_that_need_no_license(world):
    """A product that is mapped to nothing issues nothing, and what is mapped beside it is issued."""
    add(world, "woocommerce")
    world.services.sources.map("woocommerce", "94", None)
    lines = [shops.woo_line(1, product_id=94, sku=""), shops.woo_line(2, quantity=2)]
    receive(world, "woocommerce", shops.woo(line_items=lines))
    work(world)
    assert (len(licenses(world)), states(world, "woocommerce")) == (2, ["done"])


@both_engines
def test_terms_come_from_the_mapping(world):
    """Last day and end of support count from the day of purchase, however late it is delivered."""
    add(world, "standard", mapped=False)
    world.services.sources.map("standard", "app", "app", slots=None, expires_in="1y", support="6m")
    world.clock.forward(days=40)
    process(world, "standard", BOUGHT["standard"])
    (found,) = licenses(world)
    assert (found.slots, found.expires_on) == (None, date(2027, 6, 15))
    assert (found.support_until, found.note) == (date(2026, 12, 15), "Order 1042 (standard)")


@both_engines
def test_a_subscription_ends_unless_it_is_renewed(world):
    """It is paid through a date and grace; a renewal may come first; an earlier one undoes no end."""
    add(world, "standard", mapped=False, grace_days=3)
    world.services.sources.map("standard", "app", "app", expires_in="1y")
    renewed = {"subscription_id": "s1", "paid_through": "2026-08-15T12:00:00Z"}
    bought = {"order_id": "1", "external_id": "app", "subscription_id": "s1"}
    first = shops.standard("purchase.completed", **bought, paid_through="2026-07-15T12:00:00Z")
    process(world, "standard", shops.standard("subscription.renewed", **renewed), first)
    (found,) = licenses(world)
    assert found.subscription_ended_at == world.clock() + timedelta(days=64)
    assert (found.subscription_id, found.expires_on) == ("s1", None)
    late = shops.standard("subscription.renewed", **renewed | {"paid_through": "2026-09-15T12:00:00Z"})
    world.clock.forward(seconds=1)
    ended = shops.standard("subscription.ended", "2026-06-15T12:00:01Z", subscription_id="s1")
    process(world, "standard", ended, late)
    assert licenses(world)[0].subscription_ended_at == world.clock()


def test_the_report_of_an_end_says_whether_it_has_come(world):
    """An end that is awaited, one that was announced, and one that has come."""
    add(world, "standard", mapped=False)
    world.services.sources.map("standard", "app", "app")
    bought = {"order_id": "1", "external_id": "app", "subscription_id": "s1"}
    first = shops.standard("purchase.completed", **bought, paid_through="2026-07-15T12:00:00Z")
    process(world, "standard", first)
    process(world, "standard", shops.standard("subscription.ended", subscription_id="s1"))
    reasons = [event.reason for event in world.services.sources.list_events("standard").items]
    assert reasons == [
        "the subscription ended 2026-06-15 12:00 UTC",
        "issued 1 license of app; the subscription ends 2026-07-22 12:00 UTC if not renewed",
    ]


@both_engines
def test_an_order_and_its_subscription_are_linked(world):
    """Lemon Squeezy reports both; the license is linked whichever comes first."""
    add(world, "lemonsqueezy")
    subscription = shops.lemon("subscription_created", "9", shops.lemon_subscription("active"))
    process(world, "lemonsqueezy", BOUGHT["lemonsqueezy"], subscription)
    (found,) = licenses(world)
    assert (found.subscription_id, found.subscription_ended_at) == ("9", world.clock() + timedelta(days=37))


def test_a_dispute_that_was_won(world):
    """Licenses are revoked during a dispute and come back."""
    add(world, "stripe")
    dispute = {"payment_intent": "pi_1", "status": "needs_response"}
    opened = shops.stripe("charge.dispute.created", dispute, id_="evt_2")
    process(world, "stripe", BOUGHT["stripe"], opened)
    (found,) = licenses(world)
    assert found.revoked_reason == "the payment was disputed"
    process(world, "stripe", shops.stripe("charge.dispute.closed", dispute | {"status": "won"}, id_="evt_3"))
    assert licenses(world)[0].revoked_at is None


def test_a_refund_finds_the_key_that_replaced_another(world):
    """A license with a new key belongs to the order of the old one."""
    add(world, "standard")
    process(world, "standard", BOUGHT["standard"])
    new, _ = world.services.support.reissue(licenses(world)[0].id.hex())
    process(world, "standard", REFUNDED["standard"])
    assert world.services.licenses.get(new.id.hex()).revoked_reason == "the order was refunded"


def test_a_refund_before_its_purchase(world):
    """Nothing is issued for what is not paid any more; once the dispute is won, it is."""
    add(world, "standard")
    process(world, "standard", REFUNDED["standard"])
    process(world, "standard", BOUGHT["standard"])
    assert (licenses(world), states(world, "standard")[-1]) == ([], "done")


def test_a_mistyped_address_does_not_prevent_a_license(world):
    """A shop checks addresses in its own way."""
    add(world, "standard")
    body = shops.standard("purchase.completed", order_id="1", external_id="app", customer_email="ann at home")
    process(world, "standard", body)
    assert [license_.customer_email for license_ in licenses(world)] == [None]


def test_each_shop_is_wherever_shops_are_listed():
    """In the tests of all shops, in the documentation, and in `source sync` if it has an API."""
    kinds = {kind.value for kind in ShopKind}
    assert ROWS.keys() == set(ShopKind)
    for table in (shops.SECRETS, EXTERNAL, BOUGHT, REFUNDED, ORDER):
        assert table.keys() == kinds
    page = (Path(__file__).parents[3] / "docs/server/sales.md").read_text("utf-8")
    assert [kind for kind in kinds if f"`{kind}`" not in page] == []
    assert set(ShopKind) - APIS.keys() == {ShopKind.STANDARD}  # the vendor's own shop
