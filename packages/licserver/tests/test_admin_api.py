"""The admin API: the vendor's operations for programs, behind tokens."""

import asyncio
import json
from datetime import date

import pytest

from harness.admin import BOUNDARY, ROOT, Api, form
from harness.engines import both_engines
from licserver.domain.decisions import is_license_key, mask_key
from licserver.domain.records import Scope
from licserver.web.admin.openapi import describe_api
from licserver.web.admin.operations import OPERATIONS


async def test_a_shop_sells_and_supports_through_the_api(api, site):
    """From the product to the revoked key; each step is in the audit log under the token's name."""
    status, product = await api("POST", "/products", {"slug": "pro", "name": "Pro", "environment": "domain"})
    assert (status, product["latest"]) == (201, None)
    status, release = await api(
        "POST",
        "/products/pro/releases",
        **form(version="1.0", changelog="<b>New</b><script>x</script>", file=("C:\\dir\\pro.zip", b"zip")),
    )
    assert (status, release["file_name"], release["size"], release["changelog"]) == (
        201,
        "pro.zip",
        3,
        "<b>New</b>",
    )
    assert (await api("GET", "/products/pro"))[1]["latest"] == "1.0"
    terms = {"product": "pro", "slots": 2, "customer_email": "ann@shop.example", "note": "order 17"}
    status, sold = await api("POST", "/licenses", terms)
    assert status == 201
    key, id_ = sold["license_key"], sold["id"]
    assert is_license_key(key)
    assert await site.verify(key, "a.example") == (
        200,
        {"valid": True, "product": "Pro", "expiry": None, "lifetime": False},
    )
    assert (await site.verify(key, "b.example"))[0] == 200
    assert (await site.verify(key, "c.example"))[0] == 403
    status, found = await api("GET", "/licenses", params={"q": "ann@sh", "state": "active"})
    assert [
        (license_["id"], license_["masked_key"], license_["slots_used"]) for license_ in found["items"]
    ] == [(id_, mask_key(key), 2)]
    status, held = await api("GET", f"/licenses/{id_}/activations")
    assert [license_["domain"] for license_ in held["items"]] == ["a.example", "b.example"]
    assert await api("POST", f"/licenses/{id_}/deactivate", {"environment": "a.example"}) == (
        200,
        {"freed": 1},
    )
    assert (await site.verify(key, "c.example"))[0] == 200
    status, changed = await api(
        "PATCH", f"/licenses/{id_}", {"slots": None, "expires_on": "2027-01-31", "note": None}
    )
    assert (status, changed["slots"], changed["expires_on"], changed["note"]) == (
        200,
        None,
        "2027-01-31",
        None,
    )
    assert changed["customer_email"] == "ann@shop.example"
    assert await api("POST", f"/licenses/{id_}/reveal") == (200, {"license_key": key})
    status, revoked = await api("POST", f"/licenses/{id_}/revoke", {"reason": "refund"})
    assert (revoked["state"], revoked["revoked_reason"]) == ("revoked", "refund")
    assert (await site.verify(key, "b.example"))[0] == 403
    assert (await api("POST", f"/licenses/{id_}/reinstate"))[1]["state"] == "active"
    assert (await api("POST", "/licenses/lookup", {"license_key": key}))[1]["id"] == id_
    once = {"Idempotency-Key": "mail-17"}
    status, new = await api("POST", f"/licenses/{id_}/reissue", headers=once)
    assert (status, new["slots"], new["customer_email"]) == (201, None, "ann@shop.example")
    assert (await api("POST", f"/licenses/{id_}/reissue", headers=once))[1] == new
    assert (await site.verify(new["license_key"], "b.example"))[0] == 200
    assert (await api("POST", f"/licenses/{id_}/reissue"))[0] == 409
    assert (await api("GET", f"/licenses/{id_}"))[1]["revoked_reason"] == f"replaced by {new['masked_key']}"
    status, lines = await api("GET", "/audit", params={"actor_kind": "token", "actor_name": "shop"})
    assert [line["action"] for line in lines["items"]][::-1] == [
        *("product.add", "release.publish", "license.issue", "license.deactivate", "license.change"),
        *("license.reveal", "license.revoke", "license.reinstate"),
        *("license.issue", "license.revoke", "license.reissue"),
    ]
    assert key not in json.dumps(lines)
    status, lines = await api(
        "GET", "/audit", params={"object_kind": "license", "object_id": id_, "limit": "2"}
    )
    assert (len(lines["items"]), lines["next"] is None) == (2, False)


@pytest.mark.slow
async def test_releases_subscriptions_and_products_are_listed_and_changed(api, site):
    """The rest of the operations, each once."""
    world = site.world
    world.publish("1.0")
    world.publish("2.0")
    key = world.key(subscription_id="s:1", support_until=date(2026, 1, 1))
    assert (await api("PATCH", "/products/app", {"name": "App 2", "support_policy": True}))[1][
        "name"
    ] == "App 2"
    _, found = await api("GET", "/products/app/releases", params={"limit": "1"})
    assert [license_["version"] for license_ in found["items"]] == ["2.0"]
    _, found = await api("GET", "/products/app/releases", params={"cursor": found["next"]})
    assert ([license_["version"] for license_ in found["items"]], found["next"]) == (["1.0"], None)
    assert (await api("GET", "/products/app/releases/2.0/licenses"))[1]["items"] == []
    await api("PATCH", "/products/app", {"support_policy": False})
    assert len((await api("GET", "/products/app/releases/2.0/licenses"))[1]["items"]) == 1
    assert (await api("POST", "/products/app/releases/2.0/withdraw"))[1][
        "withdrawn_at"
    ] == "2026-06-15T12:00:00Z"
    assert (await api("GET", "/products/app/releases/1.0"))[1]["signed"] is False
    assert [product["slug"] for product in (await api("GET", "/products"))[1]["items"]] == ["app"]
    assert (await api("GET", "/subscriptions"))[1]["items"] == [
        {"id": "s:1", "licenses": 1, "ended_at": None}
    ]
    at = "2026-06-15T14:00:00+02:00"
    assert (await api("POST", "/subscriptions/s:1/end", {"at": at}))[1]["ended_at"] == "2026-06-15T12:00:00Z"
    assert (await site.verify(key))[1]["reason"] == "License expired."
    assert (await api("POST", "/subscriptions/s:1/resume"))[1]["ended_at"] is None
    assert (await api("GET", "/subscriptions/s:1"))[0] == 200


@both_engines
async def test_a_creation_with_a_key_happens_once(api, site):
    """The same request gets the same answer, whatever became of the license; another one is a conflict."""
    again = {"Idempotency-Key": "order-17"}
    body = {"product": "app", "customer_email": "ann@shop.example"}
    answers = await asyncio.gather(*(api("POST", "/licenses", body, headers=again) for _ in range(5)))
    status, sold = answers[0]
    assert [answer for answer in answers if answer != (201, sold)] == []
    await api("PATCH", f"/licenses/{sold['id']}", {"slots": 7})
    assert await api("POST", "/licenses", body, headers=again) == (201, sold)
    assert len(list(site.world.services.licenses.list_all())) == 1
    status, problem = await api("POST", "/licenses", {**body, "slots": 2}, headers=again)
    assert status == 409
    assert "another request" in problem["detail"]
    assert (await api("POST", "/products", {"slug": "pro", "name": "P"}, headers=again))[0] == 409
    for bad in ("", "x" * 256):
        assert (await api("POST", "/licenses", body, headers={"Idempotency-Key": bad}))[0] == 422
    other = Api(site, site.world.services.tokens.create("other", Scope.WRITE)[1])
    assert (await other("POST", "/licenses", body, headers=again))[1]["id"] != sold["id"]


async def test_an_upload_with_a_key_happens_once(api):
    """Sent again because the answer got lost, it is the same release; without the key, a conflict."""
    again = {"Idempotency-Key": "build-1"}

    def build(content=b"zip", **more: str):
        sent = form(version="1.0", file=("app.zip", content))
        return {**sent, "headers": {**BOUNDARY, **more}}

    first = await api("POST", "/products/app/releases", **build(**again))
    assert first[0] == 201
    assert await api("POST", "/products/app/releases", **build(**again)) == first
    assert (await api("POST", "/products/app/releases", **build(b"zap", **again)))[0] == 409
    assert (await api("POST", "/products/app/releases", **build()))[0] == 409


@both_engines
async def test_what_must_be_unique_is_made_once_by_all_who_ask_at_once(api, site):
    """A product, a version: a second request with the same key gets the response to the first."""
    again = {"Idempotency-Key": "first-day"}
    product = {"slug": "pro", "name": "Pro"}
    made = await asyncio.gather(*(api("POST", "/products", product, headers=again) for _ in range(6)))
    assert [made_license for made_license in made if made_license != made[0] or made_license[0] != 201] == []
    sent = form(version="1.0", file=("pro.zip", b"zip"))
    sent = {**sent, "headers": {**sent.get("headers", {}), **BOUNDARY, "Idempotency-Key": "build-1"}}
    built = await asyncio.gather(*(api("POST", "/products/pro/releases", **sent) for _ in range(6)))
    assert [
        built_license for built_license in built if built_license != built[0] or built_license[0] != 201
    ] == []
    log = [entry.action for entry in site.world.services.audit.list_page().items]
    assert (log.count("product.add"), log.count("release.publish")) == (2, 1)  # `app` is there before


@both_engines
async def test_without_a_database_it_says_so(api, meddler):
    """503 and when to come again, as a problem."""
    meddler.do("ALTER TABLE products RENAME TO away")
    try:
        status, problem = await api("GET", "/products")
    finally:
        meddler.do("ALTER TABLE away RENAME TO products")
    assert (status, problem["title"]) == (503, "Service Unavailable")
    assert "sqlite" not in problem["detail"].lower()


async def test_with_an_address_of_its_own_it_is_not_at_the_public_one(make_world, open_site):
    """What need not face the internet does not."""
    site = await open_site(make_world(admin_listen="127.0.0.1:0"))
    text = site.world.services.tokens.create("shop", Scope.READ)[1]
    status, headers, _ = await site.call(
        "GET", f"{ROOT}/products", headers={"Authorization": f"Bearer {text}"}
    )
    assert (status, headers["Content-Type"]) == (404, "application/json")


async def test_a_change_is_what_was_sent_and_nothing_else(api, site):
    """An empty one changes nothing; null is refused where nothing can be taken away, in words of our own."""
    before = (await api("GET", "/products/app"))[1]
    assert await api("PATCH", "/products/app", {}) == (200, before)
    for field in ("name", "environment", "support_policy"):
        status, problem = await api("PATCH", "/products/app", {field: None})
        assert (status, list(problem["errors"])) == (422, [field])
    status, problem = await api("GET", "/licenses", params={"expires_from": "1.2.2027"})
    assert (status, problem["errors"]) == (422, {"expires_from": ["must be a date like 2027-01-31"]})
    status, problem = await api("GET", "/audit", params={"object_kind": "license"})
    assert (status, problem["detail"]) == (422, "object_kind and object_id must be given together.")


async def test_each_post_that_changes_something_may_be_repeated(api, site):
    """With an Idempotency-Key it is done once; one that reads ignores it."""
    world = site.world
    key = world.key(slots=3)
    license_ = world.services.licenses.get(key)
    for domain in ("a.example", "b.example"):
        assert (await site.verify(key, domain))[0] == 200
    path, again = f"/licenses/{license_.id.hex()}/deactivate", {"Idempotency-Key": "free-17"}
    body = {"environment": "a.example"}
    assert await api("POST", path, body, headers=again) == (200, {"freed": 1})
    assert (await site.verify(key, "a.example"))[0] == 200
    assert await api("POST", path, body, headers=again) == (200, {"freed": 1})
    assert world.services.licenses.get(key).slots_used == 2
    status, problem = await api("POST", path, {"environment": "b.example"}, headers=again)
    assert (status, "Idempotency-Key" in problem["detail"]) == (409, True)
    assert (await api("POST", path, body, headers={"Idempotency-Key": ""}))[0] == 422
    document = describe_api()["paths"]
    for operation in OPERATIONS:
        described = document[f"{ROOT}{operation.path}"][operation.method.lower()]
        names = [parameter["name"] for parameter in described["parameters"] if parameter["in"] == "header"]
        takes = operation.method == "POST" and operation.scope is Scope.WRITE and not operation.is_slow
        assert names == (["Idempotency-Key"] if takes else [])
