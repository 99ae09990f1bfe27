"""The console's pages about sales."""

import html

import pytest

from harness import shops
from licserver.domain.records import Role
from licserver.errors import BuryJobError
from licserver.sources import SourceKind


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
    assert "not mapped: &lt;b&gt;pro" in page
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


async def test_support_looks_and_repeats_and_changes_nothing(world, users, open_browser):
    """Roles: support sees shops and repeats deliveries; who may only look does not see them."""
    world.services.sources.add("shop", SourceKind.STANDARD, "MISSING_SECRET")
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
