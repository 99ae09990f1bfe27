"""What the admin API is sent by mistake or on purpose: nothing of it is done, and each response says why."""

import io

import pytest
from yarl import URL

from harness.admin import BOUNDARY, ROOT, Api, form, raw_form
from licserver.domain.records import Scope

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


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("name", "kept"), NAMES)
async def test_a_file_name_names_nothing_on_the_server(api, site, name, kept):
    """Folders are cut off, and what is left is sent to customers, never to the file system."""
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
    ("GET", "/products/%00", b"", 400),
    ("GET", "/products/app/releases/%2E%2e", b"", 400),
    ("GET", "/products/app%2freleases", b"", 400),
    ("GET", "/products/app/releases/1.0", b"", 404),
    ("GET", "/subscriptions/s%5c1", b"", 400),
    ("GET", "/subscriptions/%0a", b"", 422),
    ("GET", "/audit?object_kind=license", b"", 422),
    ("GET", "/audit?since=2026-06-15T12:00:00", b"", 422),
    ("GET", "/nothing", b"", 404),
    ("DELETE", "/products/app", b"", 405),
    ("POST", "/products/app/releases", b"no form", 422),
    ("POST", "/products/none/releases", b"no form", 404),
]


async def test_an_invalid_request_is_rejected_and_changes_nothing(api, site):
    """Malformed, oversized, half characters, names that are not there: a problem, and never a 5xx."""
    before = site.world.services.audit.list_page().items
    for method, path, body, expected in WRONG:
        url = URL(ROOT + path, encoded=True)
        headers = {"Authorization": f"Bearer {api.text}"}
        status, response_headers, content = await site.call(
            method, url, data=io.BytesIO(body), headers=headers
        )
        assert status == expected, (method, path, body[:80], content)
        assert response_headers["Content-Type"] == "application/problem+json"
    assert site.world.services.audit.list_page().items == before


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
    api = Api(site, site.world.services.tokens.create("shop", Scope.WRITE)[1])
    for body, expected in FORMS:
        status, content = await api("POST", "/products/app/releases", data=io.BytesIO(body), headers=BOUNDARY)
        assert status == expected, (body[:200], content)
        assert list((site.world.settings.data_dir / "uploads").iterdir()) == []
    assert len(site.world.services.releases.list_all("app")) == 1
