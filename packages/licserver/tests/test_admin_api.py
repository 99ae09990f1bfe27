"""The admin API: the vendor's operations for programs, behind tokens (issue 6)."""

import asyncio
import io
import json
from datetime import date
from typing import Any

import pytest
from yarl import URL

from licserver.model import Scope
from licserver.rules import has_key_shape, mask_key

ROOT = "/admin/api/v1"


class Api:
    """A program that has a token."""

    def __init__(self, site, text) -> None:
        self._site, self.text = site, text

    async def __call__(self, method: str, path: str, body: Any = None, **more: Any) -> tuple[int, Any]:
        """Call; returns the status and the body, read."""
        headers = {"Authorization": f"Bearer {self.text}", **more.pop("headers", {})}
        if body is not None:
            more["data"] = json.dumps(body)
            headers["Content-Type"] = "application/json"
        status, told, content = await self._site.call(method, ROOT + path, headers=headers, **more)
        if status >= 400:
            assert told["Content-Type"] == "application/problem+json"
            content = json.loads(content)
            assert {"type", "title", "status", "detail"} <= content.keys()
            assert content["status"] == status
        assert told["Cache-Control"] == "no-store"
        return status, content


@pytest.fixture
def api(site):
    """A program that may do everything."""
    return Api(site, site.world.vendor.add_token("shop", Scope.WRITE)[1])


@pytest.fixture
def reader(site):
    """A program that may only read."""
    return Api(site, site.world.vendor.add_token("reader", Scope.READ)[1])


BOUNDARY = {"Content-Type": "multipart/form-data; boundary=b"}


def form(**parts: Any) -> dict[str, Any]:
    """A form with a file, as curl writes it: what `call` takes."""
    written = []
    for name, value in parts.items():
        file_name, content = value if name == "file" else (None, value.encode())
        more = "" if file_name is None else '; filename="{}"'.format(file_name.replace("\\", "\\\\"))
        head = f'Content-Disposition: form-data; name="{name}"{more}'
        written.append(head.encode() + b"\r\n\r\n" + content)
    return {"data": raw_form(*written), "headers": BOUNDARY}


def raw_form(*parts: bytes) -> bytes:
    """A form as bytes."""
    return b"".join(b"--b\r\n" + part + b"\r\n" for part in parts) + b"--b--\r\n"


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
    assert has_key_shape(key)
    assert await site.verify(key, "a.example") == (
        200,
        {"valid": True, "product": "Pro", "expiry": None, "lifetime": False},
    )
    assert (await site.verify(key, "b.example"))[0] == 200
    assert (await site.verify(key, "c.example"))[0] == 403
    status, found = await api("GET", "/licenses", params={"q": "ann@sh", "state": "active"})
    assert [(one["id"], one["masked_key"], one["slots_used"]) for one in found["items"]] == [
        (id_, mask_key(key), 2)
    ]
    status, held = await api("GET", f"/licenses/{id_}/activations")
    assert [one["domain"] for one in held["items"]] == ["a.example", "b.example"]
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
    status, lines = await api("GET", "/audit", params={"actor_kind": "token", "actor_name": "shop"})
    assert [one["action"] for one in lines["items"]][::-1] == [
        *("product.add", "release.publish", "license.issue", "license.deactivate", "license.change"),
        *("license.reveal", "license.revoke", "license.reinstate"),
    ]
    assert key not in json.dumps(lines)
    status, lines = await api(
        "GET", "/audit", params={"object_kind": "license", "object_id": id_, "limit": "2"}
    )
    assert (len(lines["items"]), lines["next"] is None) == (2, False)


async def test_releases_subscriptions_and_products_are_listed_and_changed(api, site):
    """The rest of the operations, each once."""
    world = site.world
    world.publish("1.0")
    world.publish("2.0")
    key = world.key(subscription_id="s/1", support_until=date(2026, 1, 1))
    assert (await api("PATCH", "/products/app", {"name": "App 2", "support_policy": True}))[1][
        "name"
    ] == "App 2"
    _, found = await api("GET", "/products/app/releases", params={"limit": "1"})
    assert [one["version"] for one in found["items"]] == ["2.0"]
    _, found = await api("GET", "/products/app/releases", params={"cursor": found["next"]})
    assert ([one["version"] for one in found["items"]], found["next"]) == (["1.0"], None)
    assert (await api("GET", "/products/app/releases/2.0/licenses"))[1]["items"] == []
    await api("PATCH", "/products/app", {"support_policy": False})
    assert len((await api("GET", "/products/app/releases/2.0/licenses"))[1]["items"]) == 1
    assert (await api("POST", "/products/app/releases/2.0/withdraw"))[1][
        "withdrawn_at"
    ] == "2026-06-15T12:00:00Z"
    assert (await api("GET", "/products/app/releases/1.0"))[1]["signed"] is False
    assert [one["slug"] for one in (await api("GET", "/products"))[1]["items"]] == ["app"]
    assert (await api("GET", "/subscriptions"))[1]["items"] == [
        {"id": "s/1", "licenses": 1, "ended_at": None}
    ]
    at = "2026-06-15T14:00:00+02:00"
    assert (await api("POST", "/subscriptions/s%2F1/end", {"at": at}))[1][
        "ended_at"
    ] == "2026-06-15T12:00:00Z"
    assert (await site.verify(key))[1]["reason"] == "License expired."
    assert (await api("POST", "/subscriptions/s%2F1/resume"))[1]["ended_at"] is None
    assert (await api("GET", "/subscriptions/s%2F1"))[0] == 200


async def test_a_creation_with_a_key_happens_once(api, site):
    """The same request gets the same answer, whatever became of the license; another one is a conflict."""
    again = {"Idempotency-Key": "order-17"}
    body = {"product": "app", "customer_email": "ann@shop.example"}
    answers = await asyncio.gather(*(api("POST", "/licenses", body, headers=again) for _ in range(5)))
    status, sold = answers[0]
    assert [one for one in answers if one != (201, sold)] == []
    await api("PATCH", f"/licenses/{sold['id']}", {"slots": 7})
    assert await api("POST", "/licenses", body, headers=again) == (201, sold)
    assert len(list(site.world.vendor.licenses())) == 1
    status, problem = await api("POST", "/licenses", {**body, "slots": 2}, headers=again)
    assert status == 409
    assert "another request" in problem["detail"]
    assert (await api("POST", "/products", {"slug": "pro", "name": "P"}, headers=again))[0] == 409
    for bad in ("", "x" * 256):
        assert (await api("POST", "/licenses", body, headers={"Idempotency-Key": bad}))[0] == 422
    other = Api(site, site.world.vendor.add_token("other", Scope.WRITE)[1])
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


async def test_who_shows_no_good_token_gets_nothing(site, api, reader):
    """None, another scheme, a changed, an expired, a revoked one: 401; and every operation is behind it."""
    vendor = site.world.vendor
    expired, revoked = (vendor.add_token(name, Scope.WRITE, date(2026, 6, 15))[1] for name in ("e", "r"))
    vendor.revoke_token("r")
    assert (await Api(site, expired)("GET", "/products"))[0] == 200
    site.world.clock.forward(days=1)
    for text in (expired, revoked, api.text[:-1] + "_", "", "é", "x" * 5000):
        assert (await Api(site, text)("GET", "/products"))[0] == 401
    basic = {"Authorization": f"Basic {api.text}"}
    status, headers, _ = await site.call("GET", f"{ROOT}/products", headers=basic)
    assert (status, headers["WWW-Authenticate"]) == (401, 'Bearer realm="licserver"')
    for path in (
        "/products",
        "/licenses",
        "/subscriptions",
        "/audit",
        "/licenses/lookup",
        "/products/x/releases",
    ):
        for method in ("GET", "POST"):
            assert (await site.call(method, ROOT + path))[0] in {401, 405}


async def test_a_token_that_may_read_changes_nothing(site, reader):
    """403 for whatever changes something, also for revealing a key; lists and lookups are fine."""
    key = site.world.key()
    id_ = site.world.vendor.license(key).id.hex()
    before = site.world.vendor.audit().items
    for method, path in (
        ("POST", "/products"),
        ("PATCH", "/products/app"),
        ("POST", "/products/app/releases"),
        ("POST", "/licenses"),
        ("PATCH", f"/licenses/{id_}"),
        *(("POST", f"/licenses/{id_}/{act}") for act in ("revoke", "reinstate", "reveal", "deactivate")),
        ("POST", "/subscriptions/s/end"),
        ("POST", "/subscriptions/s/resume"),
    ):
        assert (await reader(method, path, {}))[0] == 403, path
    assert site.world.vendor.audit().items == before
    _, found = await reader("GET", "/licenses")
    assert key not in json.dumps(found)
    assert (await reader("POST", "/licenses/lookup", {"license_key": key}))[0] == 200


async def test_who_guesses_tokens_is_turned_away(make_world, open_site):
    """As who guesses keys is: 429 after so many; who has a good one is not kept out."""
    site = await open_site(make_world(miss_limit=3))
    good = Api(site, site.world.vendor.add_token("shop", Scope.READ)[1])
    statuses = [(await Api(site, f"lsv_{n}")("GET", "/products"))[0] for n in range(5)]
    assert statuses == [401, 401, 401, 429, 429]
    assert (await good("GET", "/products"))[0] == 200


SCRIPT = '<script>alert("x")</script>'


async def test_script_is_text_wherever_it_is_put(api, site):
    """It is kept and given back as it came, as JSON that no browser renders."""
    status, sold = await api(
        "POST",
        "/licenses",
        {"product": "app", "note": SCRIPT, "subscription": SCRIPT, "customer_email": f"{SCRIPT}@x"},
    )
    assert (status, sold["note"], sold["subscription"]) == (201, SCRIPT, SCRIPT)
    assert (await api("POST", f"/licenses/{sold['id']}/revoke", {"reason": SCRIPT}))[1][
        "revoked_reason"
    ] == SCRIPT
    assert (await api("POST", "/products", {"slug": SCRIPT, "name": SCRIPT}))[0] == 422
    assert (await api("POST", "/products", {"slug": "x", "name": SCRIPT}))[1]["name"] == SCRIPT
    upload = form(version="1.0", changelog=SCRIPT + "<p>ok</p>", file=(f"{SCRIPT}.zip", b"zip"))
    status, release = await api("POST", "/products/app/releases", **upload)
    assert (release["changelog"], release["file_name"]) == ("<p>ok</p>", "script>.zip")
    headers = (await site.call("GET", f"{ROOT}/licenses", headers={"Authorization": f"Bearer {api.text}"}))[1]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Type"] == "application/json"


NAMES = [
    ("../../etc/passwd", "passwd"),
    ("..\\..\\boot.ini", "boot.ini"),
    ("/abs/app.zip", "app.zip"),
    ("..", None),
    ("a/", None),
    ("", None),
    ("a\x00b.zip", None),
    ("x" * 201, None),
    ("ä ö.zip", "ä ö.zip"),
]


@pytest.mark.parametrize(("name", "kept"), NAMES)
async def test_a_file_name_names_nothing_on_the_server(api, site, name, kept):
    """Folders are cut off, and what is left is told to customers, never to the file system."""
    status, release = await api("POST", "/products/app/releases", **form(version="1.0", file=(name, b"zip")))
    assert (status, release.get("file_name")) == ((201, kept) if kept else (422, None))
    stored = [path for path in site.world.settings.data_dir.rglob("*") if path.is_file()]
    assert {path.parent.parent.name for path in stored if path.read_bytes() == b"zip"} == (
        {"artifacts"} if kept else set()
    )
    assert list((site.world.settings.data_dir / "uploads").iterdir()) == []


WRONG = [
    ("POST", "/products", b"{", 422),
    ("POST", "/products", b"[]", 422),
    ("POST", "/products", b"\xff", 422),
    ("POST", "/products", b'{"slug": "a\\u0000", "name": "x"}', 422),
    ("POST", "/products", b'{"slug": "a", "name": "\\ud800"}', 422),
    ("POST", "/products", b'{"slug": "a", "name": "b", "more": 1}', 422),
    ("POST", "/products", b'{"slug": "app", "name": "b"}', 409),
    ("POST", "/licenses", b'{"product": "none"}', 404),
    ("POST", "/licenses", b'{"product": "app", "slots": true}', 422),
    ("POST", "/licenses", b'{"product": "app", "slots": 99999999999}', 422),
    ("POST", "/licenses", b'{"product": "app", "lifetime": true, "expires_on": "2027-01-01"}', 422),
    ("POST", "/licenses", b'{"product": "app", "expires_on": "soon"}', 422),
    ("POST", "/licenses", b'{"product": "app", "note": "a\\u0000"}', 422),
    ("POST", "/licenses", b'{"product": "app", "note": "%s"}' % (b"x" * 2001), 422),
    ("POST", "/licenses", b'{"product": "app", "allowed": ["10.0.0.0/99"]}', 422),
    ("POST", "/licenses", b'{"note": "%s"}' % (b"x" * (1 << 20)), 413),
    ("GET", "/licenses?limit=0", b"", 422),
    ("GET", "/licenses?limit=1&limit=2", b"", 422),
    ("GET", "/licenses?cursor=x", b"", 422),
    ("GET", "/licenses?q=%00", b"", 422),
    ("GET", "/licenses?product=%00", b"", 404),
    ("GET", "/licenses?state=lost", b"", 422),
    ("GET", "/licenses?more=1", b"", 422),
    ("GET", "/licenses?q=CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA", b"", 422),
    ("GET", "/licenses/CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA", b"", 404),
    ("GET", "/licenses/" + "0" * 32, b"", 404),
    ("GET", "/products/%00", b"", 404),
    ("GET", "/products/app/releases/%00", b"", 422),
    ("GET", "/products/app/releases/1.0", b"", 404),
    ("GET", "/subscriptions/%00", b"", 422),
    ("GET", "/audit?object_kind=license", b"", 422),
    ("GET", "/audit?since=2026-06-15T12:00:00", b"", 422),
    ("GET", "/nothing", b"", 404),
    ("DELETE", "/products/app", b"", 405),
    ("POST", "/products/app/releases", b"no form", 422),
    ("POST", "/products/none/releases", b"no form", 404),
]


async def test_what_cannot_be_is_told_and_changes_nothing(api, site):
    """Malformed, oversized, half characters, names that are not there: a problem, and never a 5xx."""
    before = site.world.vendor.audit().items
    for method, path, body, expected in WRONG:
        url = URL(ROOT + path, encoded=True)
        headers = {"Authorization": f"Bearer {api.text}"}
        status, told, content = await site.call(method, url, data=io.BytesIO(body), headers=headers)
        assert status == expected, (method, path, body[:80], content)
        assert told["Content-Type"] == "application/problem+json"
    assert site.world.vendor.audit().items == before


FILE = b'Content-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\nzip'
VERSION = b'Content-Disposition: form-data; name="version"\r\n\r\n1.0'
FORMS = [
    (raw_form(VERSION), 422),
    (raw_form(FILE), 422),
    (raw_form(VERSION, FILE, FILE), 422),
    (raw_form(VERSION, VERSION, FILE), 422),
    (raw_form(FILE, VERSION.replace(b"version", b"secret")), 422),
    (raw_form(VERSION.replace(b"1.0", b"\xff"), FILE), 422),
    (raw_form(VERSION.replace(b"1.0", b"x" * (2 << 20)), FILE), 413),
    (raw_form(VERSION, FILE + b"z" * 5000), 413),
    (raw_form(VERSION, b"\r\n\r\nno headers"), 422),
    (b"--b\r\n", 422),
    (b"", 422),
    (raw_form(VERSION, FILE)[:-20], 422),
    (raw_form(FILE, VERSION.replace(b"version", b"manifest"), VERSION), 422),
    (raw_form(FILE, VERSION), 201),
]


async def test_a_broken_form_publishes_nothing(make_world, open_site):
    """Cut off, twice, too large, of unknown parts: refused, and nothing is left on the disk."""
    site = await open_site(make_world(upload_limit=4000))
    api = Api(site, site.world.vendor.add_token("shop", Scope.WRITE)[1])
    for body, expected in FORMS:
        status, told = await api("POST", "/products/app/releases", data=io.BytesIO(body), headers=BOUNDARY)
        assert status == expected, (body[:200], told)
        assert list((site.world.settings.data_dir / "uploads").iterdir()) == []
    assert len(site.world.vendor.releases("app")) == 1


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
    text = site.world.vendor.add_token("shop", Scope.READ)[1]
    status, headers, _ = await site.call(
        "GET", f"{ROOT}/products", headers={"Authorization": f"Bearer {text}"}
    )
    assert (status, headers["Content-Type"]) == (404, "application/json")
