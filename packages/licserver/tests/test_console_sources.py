"""The console's pages about sales."""

import html
from datetime import timedelta

import pytest

from harness import sales, shops
from licserver.domain.records import Actor, ActorKind, Role
from licserver.errors import BuryJobError
from licserver.shops import ShopKind


@pytest.mark.slow
async def test_a_shop_from_its_form_to_a_license(world, alice, monkeypatch):
    """An owner adds a shop, sees the delivery that failed, maps its product and repeats it."""
    monkeypatch.setenv("SHOP_SECRET", shops.SECRETS["standard"])
    await alice.get("/console/sources")
    await alice.post("/console/sources/add", name="Shop", kind="standard", secret_env="SHOP_SECRET")
    assert "use lower-case letters" in alice.text
    await alice.post("/console/sources/add", name="shop", kind="no", secret_env="SHOP_SECRET")
    assert "Choose the shop" in alice.text
    await alice.post("/console/sources/add", name="shop", kind="standard", secret_env="SHOP_SECRET")
    assert alice.path.startswith("/console/sources/shop")
    body = shops.standard("purchase.completed", order_id="1", external_id="<b>pro</b>")
    headers = shops.sign("standard", body, world.clock())
    assert world.services.sources.receive("shop", headers, body).status == "accepted"
    (event,) = world.services.sources.list_events("shop").items
    with pytest.raises(BuryJobError):
        world.services.sales.process(event.id)
    assert "1 failed" in await alice.get("/console/sources")
    page = await alice.get("/console/sources/shop/events?state=dead")
    assert "&lt;b&gt;pro&lt;/b&gt; is not mapped" in page
    monkeypatch.setenv("SHOP_SECRET", "whsec_no-base64")
    assert "SHOP_SECRET holds no signing secret" in await alice.get("/console/sources/shop")
    await alice.post("/console/sources/shop/map", external_id="<b>pro</b>", product="app", slots="many")
    assert "whole number" in alice.text
    await alice.post("/console/sources/shop/map", external_id="<b>pro</b>", product="app", slots="unlimited")
    assert "<b>pro</b>" in html.unescape(alice.text)
    await alice.get("/console/sources/shop/events")
    await alice.post("/console/sources/shop/events/replay", event="x")
    assert alice.status == 422
    await alice.post("/console/sources/shop/events/replay", event=str(event.id))
    assert "processed again" in alice.text
    world.services.sales.process(event.id)
    assert "issued 1 license of app" in await alice.get("/console/sources/shop/events?state=done")
    await alice.get("/console/sources/shop")
    await alice.post("/console/sources/shop/unmap", external_id="<b>pro</b>")
    assert "Nothing is mapped yet" in alice.text


async def test_a_support_period_that_has_no_effect_is_named(world, alice):
    """Beside the mapping, until the product has a support policy."""
    services = world.services
    services.sources.add("shop", ShopKind.STANDARD, "SHOP_SECRET")
    services.sources.map("shop", "pro", "app", support="1y")
    assert "support 1y (no effect: the product has no support policy)" in await alice.get(
        "/console/sources/shop"
    )
    services.products.change("app", has_support_policy=True)
    page = await alice.get("/console/sources/shop")
    assert "support 1y" in page
    assert "no effect" not in page


async def test_support_looks_and_repeats_and_changes_nothing(world, users, open_browser):
    """Roles: support sees shops and repeats deliveries; who may only look does not see them."""
    world.services.sources.add("shop", ShopKind.STANDARD, "MISSING_SECRET")
    for role, seen, repeated in ((Role.SUPPORT, 200, 422), (Role.READ_ONLY, 403, 403)):
        users.users.add(role.value, "five words of another sentence", role)
        browser = await open_browser()
        await browser.sign_in(role.value, "five words of another sentence")
        for path in ("/console/sources", "/console/sources/shop", "/console/sources/shop/events"):
            page = await browser.get(path)
            assert (browser.status, "Add a shop" in page, "Map a product" in page) == (seen, False, False)
        await browser.get("/console/account")
        await browser.post("/console/sources/shop/map", external_id="a", product="app", slots="1")
        assert browser.status == 403
        await browser.post("/console/sources/shop/events/replay", event="99")
        assert browser.status == repeated


@pytest.fixture
def unmapped(world, monkeypatch):
    """A sale that waits for a person."""
    monkeypatch.setenv("STANDARD_SECRET", shops.SECRETS["standard"])
    sales.add(world, "standard", mapped=False)
    item = {"external_id": "app", "customer_email": "ann@example.com", "customer_language": "de"}
    sales.process(world, "standard", shops.standard("purchase.completed", order_id="5", **item))
    return world


async def test_a_license_issued_by_hand_settles_the_sale(unmapped, alice):
    """The form has note and customer; later reports issue nothing more, nor does a form sent again."""
    world = unmapped
    (problem,) = world.services.sale_problems.list_open().items
    assert f"/console/licenses/issue?sale={problem.id}" in await alice.get("/console/sales")
    page = await alice.get(f"/console/licenses/issue?sale={problem.id}")
    assert 'name="note"' in page
    assert "Order 5 (standard)" in page
    assert 'value="ann@example.com"' in page
    assert 'value="de"' in page
    form = {
        "sale": str(problem.id),
        "product": "app",
        "slots": "1",
        "count": "1",
        "note": "Order 5 (standard)",
    }
    await alice.post("/console/licenses/issue/new", **form)
    assert "License issued" in alice.text
    await sales.finish(world)
    assert world.services.sale_problems.list_open().items == []
    world.services.sources.map("standard", "app", "app")
    again = shops.standard("purchase.completed", order_id="5", external_id="app", customer_language="de")
    sales.process(world, "standard", again)
    assert [license_.note for license_ in world.services.licenses.list_all()] == ["Order 5 (standard)"]
    await alice.get(f"/console/licenses/issue?sale={problem.id}")
    await alice.post("/console/licenses/issue/new", **form)
    assert "needs no decision any more" in alice.text
    assert len([*world.services.licenses.list_all()]) == 1


async def test_terms_are_taken_over_and_chosen(unmapped, alice):
    """From the mapping into the form; and with one click into the mapping."""
    world = unmapped
    (problem,) = world.services.sale_problems.list_open().items
    await alice.get("/console/sales")
    terms = {
        "slots": "unlimited",
        "expires_in": "1y",
        "support": "",
        "plan": "",
        "seats": "4",
        "quantity": "",
    }
    await alice.post("/console/sales/map", problem=str(problem.id), external_id="app", product="app", **terms)
    await sales.finish(world)
    (license_,) = world.services.licenses.list_all()
    assert (license_.slots, license_.floating_seats, license_.expires_on is None) == (None, 4, False)
    page = await alice.get(f"/console/licenses/issue?sale={problem.id}")
    assert 'value="unlimited"' in page
    assert "selected" in page


async def test_the_page_of_a_shop_shows_its_settings(world, alice, monkeypatch):
    """All that the command line can set; of an API key only its variable."""
    monkeypatch.setenv("WOO_KEY", "ck_1:cs_1")
    options = {"states": {"shipped": "paid"}, "renewal_field": "_renews", "key_env": "WOO_KEY"}
    url = "https://shop.example.com"
    world.services.sources.add(
        "shop", ShopKind.WOOCOMMERCE, "A_SECRET", tolerance=77, grace_days=3, url=url, **options
    )
    page = await alice.get("/console/sources/shop")
    for text in ("A_SECRET</span>, not set", "77 seconds", "3 days", "shipped means paid", "_renews", url):
        assert text in page
    assert "WOO_KEY</span>, set" in page
    assert "ck_1" not in page


async def test_a_change_is_followed_and_not_mapped(world, alice, monkeypatch):
    """The form with one slot and no plan stood above the right button, to replace the mapping."""
    monkeypatch.setenv("STANDARD_SECRET", shops.SECRETS["standard"])
    sales.add(world, "standard", changes="ask")
    world.services.sources.map("standard", "pro", "app", slots=9)
    bought = {
        "order_id": "5",
        "external_id": "app",
        "subscription_id": "s",
        "customer_email": "ann@example.com",
    }
    paid = shops.standard("purchase.completed", **bought, paid_through="2026-07-15T12:00:00Z")
    changed = shops.standard(
        "subscription.changed", "2026-06-15T12:00:01Z", subscription_id="s", external_id="pro"
    )
    sales.process(world, "standard", paid, changed)
    (problem,) = world.services.sale_problems.list_open().items
    page = await alice.get("/console/sales")
    assert (problem.kind, "Do what the shop reports" in page) == ("change", True)
    assert "Map and go on" not in page
    assert "Issue a license by hand" in page


async def test_a_quantity_that_is_not_known_keeps_the_mapping(world, alice, monkeypatch):
    """The form has the terms that are mapped, so that only the quantity is to be added."""
    monkeypatch.setenv("STRIPE_SECRET", shops.SECRETS["stripe"])
    sales.add(world, "stripe", mapped=False)
    world.services.sources.map("stripe", "plink_1", "app", slots=7, expires_in="2y", floating_seats=4)
    sales.process(world, "stripe", sales.BOUGHT["stripe"])
    assert [problem.kind for problem in world.services.sale_problems.list_open().items] == [
        "quantity not known"
    ]
    page = await alice.get("/console/sales")
    assert '<option value="app" selected>' in page
    for name, value in (("slots", "7"), ("expires_in", "2y"), ("seats", "4")):
        assert f'name="{name}" value="{value}"' in page


@pytest.fixture
def subscribed(world, monkeypatch):
    """A license of a subscription; it comes before the server, which would process the delivery as well."""
    monkeypatch.setenv("STANDARD_SECRET", shops.SECRETS["standard"])
    sales.add(world, "standard")
    bought = {"order_id": "5", "external_id": "app", "subscription_id": "s"}
    paid = shops.standard("purchase.completed", **bought, paid_through="2026-07-15T12:00:00Z")
    sales.process(world, "standard", paid)
    (license_,) = world.services.licenses.list_all()
    return license_


async def test_the_page_of_a_license_names_what_was_kept_and_by_whom(subscribed, world, alice):
    """A revocation that was taken back, and the end of a subscription."""
    license_ = subscribed
    page = f"/console/licenses/{license_.id.hex()}"
    assert "Changed by hand" not in await alice.get(page)
    person = world.services.acting_as(Actor(ActorKind.USER, "bea"))
    person.subscriptions.end("s", license_.subscription_ended_at - timedelta(days=2))
    text = await alice.get(page)
    assert (
        "The shop would have set end of the subscription: 2026-07-22 12:00 UTC; bea has changed that on"
        in text
    )
