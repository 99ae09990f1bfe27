"""What support does in the console (issue 6), by a browser without scripts; and what bad actors try."""

import asyncio
import contextlib
import csv
import html
import io
import re
from datetime import date

import pytest

from licserver.errors import StoreUnavailable
from licserver.model import Actor, ActorKind, LicenseTerms
from licserver.vendor import MAX_PAGE, AuditFilter

EVIL = '"><script>alert(1)</script><img src=x onerror=alert(2)>{{7*7}}{% raw %}'
CELL = "=cmd|' /C calc'!A0"


@pytest.fixture
def sold(world, activate):
    """A license of a customer on one machine; its key and its page."""
    key = world.key(slots=2, customer_email="jo@studio.example", note="Order 4711")
    activate(key, "a.example", "192.0.2.1")
    return key, f"/console/licenses/{world.vendor.vault.license_id(key).hex()}"


def said(world, page) -> list[tuple[str, str, str]]:
    """What the audit log holds of a license: who, by which way, and what; the latest first."""
    about = AuditFilter(object=("license", page.rpartition("/")[2]))
    return [
        (entry.actor.kind.value, entry.actor.name, entry.action) for entry in world.vendor.audit(about).items
    ]


def rows(text: str) -> list[list[str]]:
    """Read a file of CSV."""
    assert text.startswith("\ufeff")
    return list(csv.reader(io.StringIO(text[1:], newline="")))


async def test_a_first_start(world, alice):
    """An empty shop says what to do next, with the commands, and stops once it is done."""
    assert "What to do next" in alice.text
    assert "licserver release publish app 1.0.0" in alice.text
    assert "licserver license issue app" in alice.text
    world.publish("1.0")
    world.key()
    assert "What to do next" not in await alice.get("/console")


async def test_a_first_start_without_users(open_browser):
    """Who opens the console of a fresh server is told the command."""
    browser = await open_browser()
    assert "licserver user add" in await browser.get("/console")


async def test_max_activations(world, alice, sold, new_key):
    """Support finds the customer, sees why, frees the one slot that was meant; the log says who did it."""
    key, page = sold
    await alice.get("/console/licenses", params={"q": "jo@stu"})
    assert page in alice.text
    await alice.post("/console/licenses/find", q=key.lower())
    assert alice.path == page  # a whole key leads to its page, and stands in no address
    await alice.post("/console/licenses/find", q=new_key())
    assert (alice.status, "no such license" in alice.alert) == (422, True)
    await alice.post("/console/licenses/find", q="jo@stu", state="active")
    assert alice.path == "/console/licenses?q=jo@stu&state=active"
    await alice.get(page)
    assert "1 of 2" in await alice.get(page)
    world.key(customer_email="other@example.org")
    await alice.post(f"{page}/free", domain="a.example", ip="192.0.2.1")
    assert "The slot is free" in alice.told
    assert world.held(key) == []
    await alice.post(f"{page}/free", domain="a.example", ip="192.0.2.1")
    assert (alice.status, "not there any more" in alice.alert) == (422, True)
    assert said(world, page)[0] == ("user", "alice", "license.deactivate")


async def test_no_key_in_an_address(world, open_browser, alice, sold):
    """A page is asked for by an id: a key in the address is refused, does nothing and leads nowhere."""
    key, page = sold
    for path in (
        f"/console/licenses/{key}",
        f"/console/licenses/{key}/activations.csv",
        f"/console/licenses?q={key.lower()}",
        f"/console/licenses.csv?q={key}",
        f"/console/licenses?q=jo+{key[:20]}",
        f"/console/audit?license={key}",
    ):
        await alice.get(path, allow_redirects=False)
        assert (alice.status, key in alice.text) == (422, False), path
    for action in ("revoke", "reveal", "free"):
        await alice.get(page)
        await alice.post(f"/console/licenses/{key}/{action}", domain="a.example", ip="192.0.2.1")
        assert (alice.status, key in alice.text) == (422, False)
    await alice.get(page)
    await alice.post("/console/licenses/find", q=f"{key} x")
    assert (alice.status, "alone" in alice.alert, "CP-" in alice.path) == (422, True, False)
    stranger = await open_browser()
    await stranger.get(f"/console/licenses/{key}", allow_redirects=False)
    assert stranger.headers["Location"] == "/console/sign-in"
    assert world.vendor.license(key).revoked_at is None
    assert len(world.held(key)) == 1


@pytest.mark.parametrize("strange", ["{id}%0a", "%0d%0a{id}", "{id}%20", "{ID}", "x", "{id}%00"])
async def test_an_id_that_is_none(world, alice, sold, strange):
    """What is not exactly an id names no license: nothing is done, and there is an answer."""
    key, page = sold
    license_id = page.rpartition("/")[2]
    path = "/console/licenses/" + strange.format(id=license_id, ID=license_id.upper() + "A")
    await alice.get(path)
    assert alice.status == 404
    await alice.get(page)
    await alice.post(f"{path}/revoke")
    assert alice.status == 404
    assert world.vendor.license(key).revoked_at is None


async def test_one_of_two_machines_behind_one_address(world, alice, sold, activate):
    """Freeing one leaves the other, though they share an address."""
    key, page = sold
    activate(key, "b.example", "192.0.2.1")
    await alice.get(page)
    await alice.post(f"{page}/free", domain="b.example", ip="192.0.2.1")
    assert world.held(key) == [("a.example", "192.0.2.1")]


async def test_revoked_and_reinstated(world, site, alice, sold):
    """The very next verify knows of it, and the page says what customers hear."""
    key, page = sold
    await alice.get(page)
    await alice.post(f"{page}/revoke", reason="Refund, order 4711")
    assert "The license is revoked" in alice.told
    assert "Reason: Refund, order 4711." in alice.text
    assert (await site.verify(key))[1]["reason"] == "License has been revoked."
    await alice.post(f"{page}/reinstate")
    assert (await site.verify(key))[0] == 200
    assert [line[2] for line in said(world, page)][:2] == ["license.reinstate", "license.revoke"]


async def test_terms_are_changed(world, alice, sold):
    """Slots, last day, support, address and note; what cannot be is said beside what was typed."""
    key, page = sold
    await alice.get(page)
    form = {
        "slots": "unlimited",
        "expires": "2027-01-31",
        "support": "",
        "email": "mia@example.org",
        "note": "Two\r\nlines",
    }
    await alice.post(f"{page}/change", **form)
    assert "The license is changed" in alice.told
    held = world.vendor.license(key)
    assert (held.slots, held.expires_on, held.support_until) == (None, date(2027, 1, 31), None)
    assert (held.customer_email, held.note) == ("mia@example.org", "Two\nlines")
    for name, typed in [
        ("slots", "many"),
        ("slots", "9" * 20),
        ("expires", "soon"),
        ("email", "nobody"),
        ("note", "\x07"),
    ]:
        await alice.post(f"{page}/change", **{**form, name: typed})
        assert (alice.status, bool(alice.alert)) == (422, True), name
        assert typed in alice.text
        assert "<details open>" in alice.text
    assert world.vendor.license(key) == held
    await alice.post(f"{page}/change", **{**form, "note": "長" * 2000})
    assert "The license is changed" in alice.told
    await alice.post(f"{page}/change", **{**form, "note": "x" * 100_000})
    assert alice.status == 413


async def test_two_who_change_terms_at_once(world, alice, sold):
    """What a form was not used for stays as somebody else made it; what both changed is asked again."""
    key, page = sold

    def hidden() -> dict[str, str]:
        found = re.findall(r'name="(was-\w+)" value="([^"]*)"', alice.text)
        return {name: html.unescape(value) for name, value in found}

    await alice.get(page)
    was = hidden()
    shown = {name.removeprefix("was-"): value for name, value in was.items()}
    assert shown == {
        "slots": "2",
        "expires": "",
        "support": "",
        "email": "jo@studio.example",
        "note": "Order 4711",
    }
    world.vendor.change(key, slots=5, note="Two\nlines")
    await alice.post(f"{page}/change", **was, **{**shown, "expires": "2027-01-31"})
    assert "The license is changed" in alice.told
    held = world.vendor.license(key)
    assert (held.slots, held.note, held.expires_on) == (5, "Two\nlines", date(2027, 1, 31))
    mine = {**shown, "slots": "9", "email": "mia@example.org"}
    await alice.post(f"{page}/change", **was, **mine)
    assert (alice.status, "somebody else" in alice.alert.lower(), "slots" in alice.alert) == (422, True, True)
    assert world.vendor.license(key) == held
    assert 'name="slots" inputmode="numeric" value="9"' in alice.text  # what was typed
    assert 'value="2027-01-31"' in alice.text  # and what was not, as it is by now
    mine = {**mine, "expires": "2027-01-31", "note": "Two\r\nlines"}
    await alice.post(f"{page}/change", **{**hidden(), **mine})  # after a look at it
    held = world.vendor.license(key)
    assert (held.slots, held.note, held.customer_email) == (9, "Two\nlines", "mia@example.org")


async def test_the_allow_list(world, site, alice, sold):
    """What is put on it is valid without a slot, until it is taken off."""
    key, page = sold
    await alice.get(page)
    await alice.post(f"{page}/allow", entry="*.Corp.example")
    assert world.vendor.license(key).allowed == ("*.corp.example",)
    await alice.post(f"{page}/allow", entry="10.0.0.0/99")
    assert alice.status == 422
    await alice.post(f"{page}/disallow", entry="*.corp.example")
    assert world.vendor.license(key).allowed == ()
    await alice.post(f"{page}/disallow", entry="*.corp.example")
    assert alice.status == 422


async def test_a_key_is_revealed_once(world, alice, sold):
    """Nowhere but in the answer to the button, and the log says who saw it."""
    key, page = sold
    for path in ("/console", "/console/licenses", page, "/console/audit", "/console/licenses.csv"):
        assert key not in await alice.get(path)
    await alice.get(page)
    assert key in await alice.post(f"{page}/reveal")
    assert alice.headers["Cache-Control"] == "no-store"
    assert said(world, page)[0] == ("user", "alice", "license.reveal")
    assert key not in await alice.get(page)


async def test_a_license_is_issued(world, alice):
    """For a customer who called; what cannot be is said."""
    await alice.get("/console/licenses/issue")
    form = {"product": "app", "slots": "3", "expires": "2027-01-31", "email": "jo@studio.example", "note": ""}
    await alice.post("/console/licenses/issue/new", **{**form, "slots": "-1"})
    assert alice.status == 422
    await alice.post("/console/licenses/issue/new", **form)
    assert "The license is issued" in alice.told
    (found,) = world.vendor.find_licenses().items
    assert (found.slots, found.customer_email) == (3, "jo@studio.example")


async def test_products(world, alice):
    """Added and renamed; a slug that cannot be is said, with what was typed still there."""
    await alice.get("/console/products")
    await alice.post("/console/products/add", name="Photo Lab", slug="Photo Lab", policy="domain")
    assert (alice.status, "is no slug" in alice.alert, 'value="Photo Lab"' in alice.text) == (422, True, True)
    await alice.post(
        "/console/products/add", name="Photo Lab", slug="photo-lab", policy="domain", support="on"
    )
    assert world.vendor.product("photo-lab").has_support_policy
    await alice.post("/console/products/photo-lab/rename", name="Photo Lab 2")
    assert world.vendor.product("photo-lab").name == "Photo Lab 2"
    for path in (
        "/console/products/nothing",
        "/console/licenses/" + "0" * 32,
        "/console/licenses/x",
        "/console/products/app/releases/9",
    ):
        await alice.get(path)
        assert alice.status == 404, path


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("app.zip", "app.zip"),
        ("../../../etc/cron.d/x", "x"),
        ("..\\..\\x.exe", "x.exe"),
        ("/etc/passwd", "passwd"),
    ],
)
async def test_an_upload(world, site, alice, sent, kept):
    """A version is published from a browser, under a name without a path, and nothing stays behind."""
    await alice.get("/console/products/app")
    form = {"csrf": alice.csrf, "version": "1.0", "changelog": "First.\r\nSecond."}
    content = bytes(range(256)) * 20_000
    await alice.upload("/console/products/app/releases", form, name=sent, content=content)
    assert "The version is published" in alice.told, alice.text
    release = world.vendor.release("app", "1.0")
    assert (release.artifact.file_name, release.artifact.size, release.changelog) == (
        kept,
        len(content),
        "First.\nSecond.",
    )
    assert not list((world.settings.data_dir / "uploads").iterdir())
    assert not list(world.folder.parent.glob("**/passwd"))
    link = await site.link(world.key())
    assert (await site.call("GET", link))[2] == content


async def test_uploads_that_cannot_be(world, alice):
    """A version that is there, no file, no form, a part that breaks off: said, and nothing stays behind."""
    world.publish("1.0")
    path = "/console/products/app/releases"
    await alice.get("/console/products/app")
    form = {"csrf": alice.csrf, "version": "1.0", "changelog": EVIL}
    await alice.upload(path, form)
    assert (alice.status, "already" in alice.alert) == (422, True)
    assert html.escape(EVIL, quote=False) in alice.text.replace("&#34;", '"')  # typed text is not lost
    for name in ("..", "", "x" * 300):
        await alice.upload(path, {**form, "version": "2.0"}, name=name)
        assert (alice.status, "file's name must be" in alice.alert) == (422, True), name
        assert 'value="2.0"' in alice.text  # what was typed is not lost
    await alice.upload(path, {**form, "version": "2.0", "changelog": "x" * 900_000})
    assert (alice.status, "longer than" in alice.alert) == (422, True)
    await alice.upload(path, {**form, "version": "2.0", "changelog": "x" * 1_048_540})
    assert (alice.status, "more than" in alice.alert) == (422, True)
    for body in (b"--b\r\nnonsense", b'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n', b""):
        headers = {"Content-Type": "multipart/form-data; boundary=b", "Origin": alice.url}
        await alice.send("POST", path, data=body, headers=headers)
        assert alice.status in {403, 422}, alice.text
        await alice.get("/console/products/app")
    await alice.post(path, version="2.0")
    assert alice.status == 422
    assert [release.version for release in world.vendor.releases("app")] == ["1.0"]
    assert not list((world.settings.data_dir / "uploads").iterdir())


async def test_a_file_before_the_form_is_not_read(world, alice):
    """Whose form it is must be known before a byte of the file goes to the disk."""
    await alice.get("/console/products/app")
    body = (
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.zip"\r\n\r\nzip\r\n'
        b'--b\r\nContent-Disposition: form-data; name="csrf"\r\n\r\n' + alice.csrf.encode() + b"\r\n--b--\r\n"
    )
    headers = {"Content-Type": "multipart/form-data; boundary=b", "Origin": alice.url}
    await alice.send("POST", "/console/products/app/releases", data=body, headers=headers)
    assert alice.status == 403
    assert not list((world.settings.data_dir / "uploads").iterdir())


async def test_a_release_page(world, alice):
    """The changelog as customers see it, who gets the file, and what withdrawing does."""
    world.product("supported", has_support_policy=True)
    world.publish("1.0", slug="supported", changelog="<h3>New</h3><script>alert(1)</script>")
    good, late = (world.key("supported", customer_email=f"{name}@example.org", support_until=until)
                  for name, until in [("good", None), ("late", date(2026, 6, 14))])  # fmt: skip
    page = "/console/products/supported/releases/1.0"
    text = await alice.get(page)
    assert "<h3>New</h3>" in text
    assert "alert(1)" not in text
    assert "good@example.org" in text
    assert "late@example.org" not in text
    assert [row[4] for row in rows(await alice.get(f"{page}/downloads.csv"))[1:]] == ["good@example.org"]
    await alice.get(page)
    await alice.post(f"{page}/withdraw")
    assert "Nobody." in alice.text
    assert world.vendor.release("supported", "1.0").withdrawn_at == world.clock()
    assert good != late


async def test_script_in_every_field(world, site, alice):
    """Whatever is typed anywhere is text everywhere: on every page, in every complaint, in the log."""
    product, key = (
        world.vendor.change_product("app", name=EVIL),
        world.key(note=EVIL, customer_email="<b>@x.example"),
    )
    page = f"/console/licenses/{world.vendor.vault.license_id(key).hex()}"
    world.publish("1.0", name='"><script>alert(1)</script>.zip', changelog="<b>ok</b>")
    await alice.get(page)
    await alice.post(f"{page}/revoke", reason=EVIL)
    for path, form in [
        (f"{page}/change", {"slots": EVIL, "note": EVIL, "email": EVIL, "expires": EVIL}),
        (f"{page}/allow", {"entry": EVIL}),
        (f"{page}/free", {"domain": EVIL, "ip": EVIL}),
        ("/console/products/add", {"name": EVIL, "slug": EVIL, "policy": EVIL}),
        ("/console/licenses/issue/new", {"product": EVIL, "slots": EVIL, "note": EVIL, "email": EVIL}),
    ]:
        await alice.post(path, **form)
        assert alice.status in {404, 422}, (path, alice.text)
        assert_harmless(alice.text)
        await alice.get(page)
    below = ("", "/licenses", "/licenses/issue", "/products", f"/products/{product.slug}", "/audit")
    for path in (page, "/console/products/app/releases/1.0", *(f"/console{one}" for one in below)):
        assert_harmless(await alice.get(path))
        assert alice.status == 200
    for query in (
        {"q": EVIL},
        {"q": EVIL, "product": EVIL},
        {"state": EVIL, "from": EVIL},
        {"after": EVIL},
        {"done": EVIL},
    ):
        assert_harmless(await alice.get("/console/licenses", params=query))
        assert alice.status in {200, 404, 422}
    for query in ({"actor": EVIL, "kind": EVIL}, {"license": EVIL}, {"after": EVIL}):
        assert_harmless(await alice.get("/console/audit", params=query))
        assert alice.status in {200, 404, 422}


def assert_harmless(text: str) -> None:
    """No script but the two files, no handler, and no template that was run."""
    assert len(re.findall(r"<script", text)) == 2, text
    assert not re.search(r"<img src=x", text)
    assert not re.search(r"<[^>]* on\w+=", re.sub(r'"[^"]*"', '""', text))
    assert "49{%" not in text


async def test_csv(world, alice, sold, activate):
    """Any list is a file, with what was searched for; nothing in it is a formula, and no key."""
    key, page = sold
    activate(key, "b.example", "192.0.2.2")
    world.vendor.change(key, note=CELL)
    world.key(customer_email="mia@example.org")
    header, *found = rows(await alice.get("/console/licenses.csv?q=jo"))
    assert [row[header.index("note")] for row in found] == [f"'{CELL}"]
    assert alice.headers["Content-Disposition"] == 'attachment; filename="licenses.csv"'
    assert len(rows(await alice.get("/console/licenses.csv"))) == 3
    assert [row[0] for row in rows(await alice.get(f"{page}/activations.csv"))[1:]] == [
        "a.example",
        "b.example",
    ]
    assert rows(await alice.get("/console/products.csv"))[1][:2] == ["app", "App"]
    world.publish("1.0")
    assert rows(await alice.get("/console/products/app/releases.csv"))[1][0] == "1.0"
    assert rows(await alice.get("/console/audit.csv?actor=alice"))[-1][1:4] == [
        "user",
        "alice",
        "user.sign_in",
    ]
    await alice.get("/console/licenses.csv?q=" + "x" * 500)
    assert alice.status == 422


async def test_a_long_list(world, alice):
    """Pages follow each other without a gap, and a file holds all of them."""
    list(world.vendor.issue("app", LicenseTerms(), MAX_PAGE * 2 + 5))
    seen: list[str] = []
    path: str | None = "/console/licenses"
    while path:
        text = await alice.get(path)
        seen += re.findall(r'href="/console/licenses/([0-9a-f]{32})"', text)
        further = re.search(r'href="([^"]*after=[^"]*)"', text)
        path = html.unescape(further[1]) if further else None
    assert len(seen) == len(set(seen)) == MAX_PAGE * 2 + 5
    assert len(rows(await alice.get("/console/licenses.csv"))) == MAX_PAGE * 2 + 6


async def test_the_audit_log(world, alice, sold):
    """Who did what, by whichever way; with links, and narrowed to somebody or to one license."""
    key, page = sold
    world.vendor.revoke(key)
    await alice.get(page)
    await alice.post(f"{page}/reinstate")
    text = await alice.get("/console/audit")
    assert "Reinstated" in text
    assert "Revoked" in text
    mine = await alice.get("/console/audit?actor=alice")
    assert "Reinstated" in mine
    assert "<td>Revoked</td>" not in mine
    assert "Signed in" not in await alice.get(f"/console/audit?license={page.rpartition('/')[2]}")
    assert world.vendor.audit().items[0].actor.kind is ActorKind.USER


async def test_the_audit_log_by_way_of(world, alice, sold):
    """Narrowed to a way alone, to a name alone, or to both; and without either it is all."""
    _, page = sold
    await alice.get(page)
    await alice.post(f"{page}/reveal")
    world.vendor.acting_as(Actor(ActorKind.TOKEN, "alice")).add_product("other", "Other")
    for query, seen in [
        ("", {"user", "token", "system"}),
        ("?kind=user", {"user"}),
        ("?kind=token", {"token"}),
        ("?kind=system", {"system"}),
        ("?kind=cli", set()),
        ("?actor=alice", {"user", "token"}),
        ("?actor=alice&kind=token", {"token"}),
        ("?kind=strange", {"user", "token", "system"}),
    ]:
        found = rows(await alice.get(f"/console/audit.csv{query}"))[1:]
        assert {row[1] for row in found} == seen, query
    text = await alice.get("/console/audit?kind=system")
    assert '<option value="">Any</option>' in text
    assert '<option value="system" selected>' in text


async def test_a_file_that_breaks_off(world, alice, monkeypatch, caplog):
    """When the database fails in the middle of a list, the file ends broken: no page is written into it."""
    list(world.vendor.issue("app", LicenseTerms(), MAX_PAGE + 5))
    find = type(world.vendor).find_licenses

    def fail(vendor, which, cursor=None, limit=50):
        if cursor is not None:
            raise StoreUnavailable("the database failed: away")
        return find(vendor, which, cursor, limit)

    monkeypatch.setattr(type(world.vendor), "find_licenses", fail)
    host, port = alice.url.removeprefix("http://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET /console/licenses.csv HTTP/1.1\r\nHost: x\r\nCookie: licserver={alice.token}\r\n\r\n".encode()
    )
    content = b""
    with contextlib.suppress(ConnectionError):
        while some := await reader.read(65536):
            content += some
    writer.close()
    assert content.startswith(b"HTTP/1.1 200 OK")
    assert content.count(b"HTTP/1.1") == 1
    assert b"<html" not in content
    assert not content.endswith(b"0\r\n\r\n")
    assert "licenses.csv broke off: the database failed: away" in caplog.text


async def test_the_head_of_a_file(world, alice, monkeypatch):
    """Asking for a list's headers reads its first page, and not all of it."""
    list(world.vendor.issue("app", LicenseTerms(), MAX_PAGE * 2 + 5))
    find, read = type(world.vendor).find_licenses, []

    def watch(vendor, which, cursor=None, limit=50):
        read.append(cursor)
        return find(vendor, which, cursor, limit)

    monkeypatch.setattr(type(world.vendor), "find_licenses", watch)
    await alice.send("HEAD", "/console/licenses.csv")
    assert (alice.status, alice.headers["Content-Disposition"]) == (
        200,
        'attachment; filename="licenses.csv"',
    )
    assert read == [None]
    assert "Overview" in await alice.get("/console")


async def test_who_takes_data_away_is_noted(world, alice, sold):
    """A file of a list, and signing out: the log says who it was, and nothing of what was searched for."""
    _, page = sold
    for path in (
        "/console/licenses.csv?q=jo@studio&state=active",
        "/console/audit.csv",
        "/console/products.csv",
    ):
        await alice.send("HEAD", path)
        await alice.get(path)
    await alice.get(f"{page}/activations.csv")
    await alice.get("/console/licenses.csv?q=" + "x" * 500)  # which is refused
    await alice.get("/console")
    await alice.post("/console/sign-out")
    lines = [line for line in world.vendor.audit().items if line.actor.name == "alice"][::-1]
    assert [(line.action, line.object_kind, line.object_id) for line in lines] == [
        ("user.sign_in", "user", "alice"),
        ("list.export", "list", "licenses"),
        ("list.export", "list", "audit"),
        ("list.export", "list", "products"),
        ("list.export", "license", page.rpartition("/")[2]),
        ("user.sign_out", "user", "alice"),
    ]
    assert lines[1].details == {"list": "licenses", "narrowed_by": ["q", "state"]}


async def test_keys_running_out(world, alice):
    """Those whose last day is still to come this month, and which they are."""
    for day, slots in [(14, 1), (15, 2), (30, 3)]:
        world.key(expires_on=date(2026, 6, day), slots=slots)
    world.key(expires_on=date(2026, 7, 1))
    world.vendor.revoke(world.key(expires_on=date(2026, 6, 20)))
    text = await alice.get("/console")
    assert re.search(r'class="figure">\s*2\s*<', text)
    link = re.search(r'href="(/console/licenses\?from[^"]*)"', text)
    assert link
    found = await alice.get(html.unescape(link[1]))
    assert "of 2" in found
    assert "of 3" in found


async def test_a_database_that_is_away(world, site, alice, monkeypatch):
    """Is told as a page, and no traceback."""

    def fail(_vendor):
        raise StoreUnavailable("the database failed: away")

    monkeypatch.setattr(type(world.vendor), "products", fail)
    await alice.get("/console/products")
    assert (alice.status, alice.alert) == (503, "The database cannot be reached; try again.")


async def test_a_fault_of_ours(world, site, alice, monkeypatch, caplog):
    """Is told as a page without a word of it; the log has all."""

    def fail(_vendor):
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(type(world.vendor), "products", fail)
    await alice.get("/console/products")
    assert (alice.status, "secret detail" in alice.text) == (500, False)
    assert "secret detail" in caplog.text
