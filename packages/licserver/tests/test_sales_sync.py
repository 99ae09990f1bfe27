"""Asking a shop's API for what was not delivered, against a server that answers as the shop documents it."""

import base64
import json
import socket
from contextlib import closing
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from harness import shops
from licserver.errors import InvalidInputError
from licserver.jobs import shop_apis
from licserver.jobs.shops import register_sales
from licserver.jobs.worker import SCHEDULE, JobWorker
from licserver.shops import ShopKind

PADDLE_KEY = "pdl_sdbx_apikey_01secret"
SINCE = datetime(2026, 6, 1, tzinfo=UTC)


def make_events(make, count=150):
    """Make events of a shop."""
    return [json.loads(make(number)) for number in range(count)]


STRIPE = make_events(
    lambda n: shops.stripe(
        "checkout.session.completed", shops.stripe_session(payment_intent=f"pi_{n}"), id_=f"evt_{n:03}"
    )
)
PADDLE = make_events(
    lambda n: shops.paddle(
        "transaction.completed", shops.paddle_transaction(id=f"txn_{n}"), id_=f"evt_{n:03}"
    )
)
GUMROAD = {
    "id": "sale_1==",
    "created_at": "2026-06-15T12:00:00Z",
    "product_id": "app",
    "email": "ann@example.com",
    "price": 2000,
    "quantity": 1,
}
ANSWERS = {
    "/customers/ctm_1": {"data": {"id": "ctm_1", "email": "ann@example.com"}},
    "/customers/ctm_2": {"error": {"code": "not_found"}},
    "/wp-json/wc/v3/subscriptions": [],
    "/wp-json/wc/v3/orders": [json.loads(shops.woo("processing"))],
    "/v1/orders": {"data": [{"type": "orders", "id": "5", "attributes": shops.lemon_order()}]},
    "/v1/subscriptions": {"data": []},
    "/odd/v1/events": {"data": [{"object": "event"}]},
    "/v1/subscriptions/": {"items": []},
    "/v1/orders/": {"items": [json.loads(shops.polar("order.paid", **shops.polar_order()))["data"]]},
    "/subscriptions": {"items": []},
    "/payments": {
        "items": [{"payment_id": "pay_1", "status": "succeeded", "created_at": "2026-06-15T12:00:00Z"}]
    },
    "/payments/pay_1": json.loads(shops.dodo("payment.succeeded", **shops.dodo_payment()))["data"],
    "/wp-json/wc/v3/orders/727/refunds": [
        {
            "id": 1,
            "date_created_gmt": "2026-06-15T12:00:00",
            "amount": "5.00",
            "line_items": [{"quantity": -1, "meta_data": [{"key": "_refunded_item_id", "value": "315"}]}],
        }
    ],
    "/v2/sales": {"success": True, "sales": [GUMROAD], "next_page_key": None},
}


@pytest.fixture
async def shop(monkeypatch):
    """An API with 150 events, a page at a time: its address, and what it was asked."""
    for kind, secret in shops.SECRETS.items():
        monkeypatch.setenv(f"{kind.upper()}_SECRET", secret)
    requests = []

    async def answer(request):
        requests.append(request)
        query = request.query
        match request.path, request.headers["Authorization"]:
            case "/v1/events", "Bearer sk_1":
                found = [event for event in STRIPE if event["id"] > query.get("starting_after", "")]
                return web.json_response({"object": "list", "data": found[: int(query["limit"])]})
            case "/events", _ if query["from"] == "2026-06-01T00:00:00.000Z":
                found = [event for event in PADDLE if event["event_id"] > query.get("after", "")]
                return web.json_response({"data": found[: int(query["per_page"])], "meta": {}})
            case "/broken/v1/events", _:
                return web.Response(text="<html>")
            case path, _ if path in ANSWERS:
                return web.json_response(ANSWERS[path])
            case _:
                return web.Response(status=401)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    async with TestServer(app) as server:
        address = str(server.make_url("/")).rstrip("/")
        sandbox = shop_apis.APIS[ShopKind.PADDLE]._replace(test_address=address)
        monkeypatch.setitem(shop_apis.APIS, ShopKind.PADDLE, sandbox)
        yield address, requests


async def take_all(world, kind, key, address):
    """Take what the API reports; returns the statuses."""
    found = shop_apis.fetch_deliveries(ShopKind(kind), key, SINCE, address)
    return [world.services.sources.take(kind, body).status async for body in found]


def add(world, kind, external_id, *, is_test=False):
    """Add a shop."""
    world.services.sources.add(kind, ShopKind(kind), f"{kind.upper()}_SECRET", is_test=is_test)
    world.services.sources.map(kind, external_id, "app")


@pytest.mark.slow
async def test_all_pages_are_read_and_what_is_known_is_a_duplicate(world, shop):
    """Stripe's events since a day, each stored once however often it is asked for."""
    address, requests = shop
    add(world, "stripe", "plink_1")
    assert await take_all(world, "stripe", "sk_1", address) == ["accepted"] * 150
    assert await take_all(world, "stripe", "sk_1", address) == ["duplicate"] * 150
    assert [parse_qs(urlsplit(str(request.rel_url)).query)["created[gte]"] for request in requests] == [
        ["1780272000"]
    ] * 4


@pytest.mark.slow
async def test_events_of_paddle_are_read_by_their_ids(world, shop):
    """Those of types that change a license, from the sandbox because of the key."""
    _, requests = shop
    add(world, "paddle", "pri_1", is_test=True)
    assert await take_all(world, "paddle", PADDLE_KEY, None) == ["accepted"] * 150
    queries = [request.rel_url.query for request in requests]
    assert [query.get("after") for query in queries] == [None, "evt_099"]
    assert {request.headers["Authorization"] for request in requests} == {f"Bearer {PADDLE_KEY}"}
    assert "transaction.completed" in queries[0]["event_type"].split(",")


async def work(world, source="paddle"):
    """Process what waits, as the background does; returns states and reasons."""
    worker = JobWorker(world.repositories, world.clock)
    register_sales(worker, world.services)
    for job in world.repositories.queue.claim("sale", world.clock(), timedelta(minutes=1), 10):
        await worker._run(job)
    return [(event.state, event.reason or "") for event in world.services.sources.list_events(source).items]


@pytest.mark.sampled(2, "fields", "is_test", "email")
@pytest.mark.parametrize(
    ("fields", "is_test", "email"),
    [
        ({"customer_id": "ctm_1", "custom_data": None}, True, "ann@example.com"),
        ({"customer_id": "ctm_1", "custom_data": {"email": "bob@example.com"}}, True, "bob@example.com"),
        ({"customer_id": "ctm_1", "custom_data": None}, False, None),  # not of the sandbox
        ({"customer_id": "ctm_1/../x", "custom_data": None}, True, None),
    ],
)
async def test_the_email_of_a_customer_of_paddle_is_looked_up(make_world, shop, fields, is_test, email):
    """Where the purchase does not contain it, and the key is of the same mode as the source."""
    world = make_world(paddle_api_key=PADDLE_KEY)
    add(world, "paddle", "pri_1", is_test=is_test)
    body = shops.paddle("transaction.completed", shops.paddle_transaction(**fields))
    world.services.sources.take("paddle", body)
    assert [state for state, _ in await work(world)] == ["done"]
    assert {license_.customer_email for license_ in world.services.licenses.list_all()} == {email}
    assert len(shop[1]) == (email == "ann@example.com")


async def test_the_lines_of_a_refund_of_woocommerce_are_asked_for(make_world, shop, monkeypatch):
    """Once: the order itself lists only the amount."""
    address, requests = shop
    monkeypatch.setenv("WOO_KEY", "ck_1:cs_1")
    world = make_world()
    world.services.sources.add(
        "woocommerce", ShopKind.WOOCOMMERCE, "WOOCOMMERCE_SECRET", key_env="WOO_KEY", url=address
    )
    world.services.sources.map("woocommerce", "APP", "app")
    world.services.sources.take("woocommerce", shops.woo(line_items=[shops.woo_line(quantity=2)]))
    assert [state for state, _ in await work(world, "woocommerce")] == ["done"]
    listed = {"line_items": [shops.woo_line(quantity=2)], "refunds": [{"id": 1, "total": "-5.00"}]}
    for second in (1, 2):
        modified = {"date_modified_gmt": f"2026-06-15T12:00:0{second}"}
        world.services.sources.take("woocommerce", shops.woo(**modified, **listed))
        await work(world, "woocommerce")
    reasons = [license_.revoked_reason for license_ in world.services.licenses.list_all()]
    assert sorted(map(str, reasons)) == ["None", "the order was refunded"]
    assert [str(request.rel_url) for request in requests] == [
        "/wp-json/wc/v3/orders/727/refunds?per_page=100"
    ]


async def test_lines_of_a_refund_that_the_shop_does_not_report_hold_up_no_customer(
    make_world, shop, monkeypatch
):
    """What is paid is issued; the shop is asked again by the schedule, and the delivery says why it waits."""
    monkeypatch.setenv("WOO_KEY", "ck_1:cs_1")
    path = "/wp-json/wc/v3/orders/727/refunds"
    refunds = ANSWERS[path]
    monkeypatch.delitem(ANSWERS, path)
    world = make_world()
    world.services.sources.add(
        "woocommerce", ShopKind.WOOCOMMERCE, "WOOCOMMERCE_SECRET", key_env="WOO_KEY", url=shop[0]
    )
    world.services.sources.map("woocommerce", "APP", "app")
    listed = {"line_items": [shops.woo_line(quantity=2)], "refunds": [{"id": 1, "total": "-5.00"}]}
    world.services.sources.take("woocommerce", shops.woo(**listed))
    for _ in SCHEDULE:
        ((state, reason),) = await work(world, "woocommerce")
        assert (state, "answered 401" in reason) == ("waiting", True)
        licenses = list(world.services.licenses.list_all())
        assert [license_.revoked_reason for license_ in licenses] == [None, None]
        world.clock.now += timedelta(days=1)
    ((state, reason),) = await work(world, "woocommerce")
    assert (state, "answered 401" in reason) == ("dead", True)
    monkeypatch.setitem(ANSWERS, path, refunds)
    (event,) = world.services.sources.list_events("woocommerce").items
    world.services.sources.replay(event.id)
    assert await work(world, "woocommerce") == [("done", "revoked 1 license: the order was refunded")]


@pytest.mark.parametrize(
    ("customer", "message"), [("ctm_3", "127.0.0.1 answered 401"), ("ctm_2", "about customer")]
)
async def test_a_sale_waits_while_paddle_does_not_name_the_customer(make_world, shop, customer, message):
    """The key would reach nobody: it is tried again, with the reason in the list of deliveries."""
    world = make_world(paddle_api_key=PADDLE_KEY)
    add(world, "paddle", "pri_1", is_test=True)
    sold = shops.paddle_transaction(customer_id=customer, custom_data=None)
    world.services.sources.take("paddle", shops.paddle("transaction.completed", sold))
    ((state, reason),) = await work(world)
    assert (state, message in reason) == ("waiting", True)
    assert list(world.services.licenses.list_all()) == []


@pytest.mark.parametrize(
    ("kind", "external_id"),
    [
        ("woocommerce", "APP"),
        ("lemonsqueezy", "11"),
        ("polar", "prod_1"),
        ("dodo", "pdt_1"),
        ("gumroad", "app"),
    ],
)
async def test_orders_of_a_shop_become_deliveries(world, shop, kind, external_id):
    """An order of a list is read as the one of a webhook."""
    address, requests = shop
    add(world, kind, external_id)
    assert await take_all(world, kind, "ck_1:cs_1", address) == ["accepted"]
    expected = (
        f"Basic {base64.b64encode(b'ck_1:cs_1').decode()}" if kind == "woocommerce" else "Bearer ck_1:cs_1"
    )
    assert requests[0].headers["Authorization"] == expected


@pytest.mark.parametrize(
    ("kind", "key", "path", "message"),
    [
        ("stripe", "sk_2", "", "answered 401"),
        ("stripe", "sk_1", "/broken", "is not JSON"),
        ("stripe", "sk_1", "/odd", "is not a list"),
        ("woocommerce", "ck_1:cs_1", None, "--url"),
        ("standard", "key", "", "deliver again"),
        ("stripe", "sk_\u20ac", "", "ASCII"),
        ("stripe", "sk_1\nX: y", "", "one line"),
    ],
)
async def test_what_goes_wrong_is_reported_without_the_key(shop, kind, key, path, message):
    """A wrong key, something that is not the API, a kind that cannot be asked."""
    address = None if path is None else shop[0] + path
    with pytest.raises(InvalidInputError, match=message) as problem:
        [delivery async for delivery in shop_apis.fetch_deliveries(ShopKind(kind), key, SINCE, address)]
    assert key not in str(problem.value) or key == "key"


async def test_a_shop_that_cannot_be_reached_is_asked_again_later():
    """No connection is no fault of the key."""
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(InvalidInputError, match=r"127\.0\.0\.1 cannot be reached .*; try again later"):
        [delivery async for delivery in shop_apis.fetch_deliveries(ShopKind.STRIPE, "sk_1", SINCE, address)]


@pytest.mark.parametrize(
    "address", ["http://[", "shop.example.com", "https://shop.example.com:x", "file:///etc"]
)
async def test_an_address_that_is_none(address):
    """What was mistyped is reported, and is no traceback."""
    with pytest.raises(InvalidInputError):
        [
            delivery
            async for delivery in shop_apis.fetch_deliveries(ShopKind.WOOCOMMERCE, "a:b", SINCE, address)
        ]
