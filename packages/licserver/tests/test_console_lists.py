"""Lists of the console: by the page, as CSV, the audit log; and what happens when the database is away."""

import asyncio
import contextlib
import html
import re
from datetime import date

import pytest

from harness.console_books import rows
from harness.engines import both_engines
from licserver.domain.records import Actor, ActorKind, LicenseTerms
from licserver.errors import StoreUnavailableError
from licserver.services.license_search import LicenseFilter
from licserver.services.lists import MAX_PAGE

CELL = "=cmd|' /C calc'!A0"


@both_engines
async def test_csv(world, alice, sold, activate):
    """Any list is a file, with what was searched for; nothing in it is a formula, and no key."""
    key, page = sold
    activate(key, "b.example", "192.0.2.2")
    world.services.licenses.change(key, note=CELL)
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
    list(world.services.licenses.issue_batches("app", LicenseTerms(), MAX_PAGE * 2 + 5))
    seen: list[str] = []
    path: str | None = "/console/licenses"
    while path:
        text = await alice.get(path)
        seen += re.findall(r'href="/console/licenses/([0-9a-f]{32})"', text)
        further = re.search(r'href="([^"]*after=[^"]*)"', text)
        path = html.unescape(further[1]) if further else None
    assert len(seen) == len(set(seen)) == MAX_PAGE * 2 + 5
    assert len(rows(await alice.get("/console/licenses.csv"))) == MAX_PAGE * 2 + 6


@pytest.mark.slow
async def test_many_licenses_at_once(world, alice):
    """Those that are ticked, or all that match, after a preview that names them; done once."""
    keys = [world.key(expires_on=date(2027, 1, day), customer_email=f"u{day}@x.example") for day in (1, 2, 3)]
    forever = world.key()
    text = await alice.get("/console/licenses?order=ending")
    assert ("3 licenses" in text, text.index("u1@") < text.index("u3@")) == (True, True)
    ids = [world.services.vault.license_id(key).hex() for key in keys]
    guard = {"csrf": alice.csrf, "once": alice.once}
    await alice.post("/console/licenses/bulk", **guard, do="extend")
    assert "Tick the licenses first" in alice.alert
    await alice.post("/console/licenses/bulk", **guard, do="extend", all="on")
    assert ("Extend 3 licenses?" in alice.text, "u2@x.example: active" in alice.text) == (True, True)
    for _ in range(2):
        await alice.post("/console/licenses/bulk", **guard, do="extend", ids=" ".join(ids), sure="yes")
    assert {world.services.licenses.get(key).expires_on.year for key in keys} == {2028}
    await alice.get("/console/licenses")
    await alice.post("/console/licenses/bulk", do="export", **{f"pick-{ids[0]}": "on"})
    assert len(rows(alice.text)) == 2
    await alice.get("/console/licenses")
    chosen = {"do": "revoke", "ids": f"{ids[0]} {ids[1]} nonsense"}
    await alice.post("/console/licenses/bulk", **chosen)
    assert 'name="reason"' in alice.text
    await alice.post("/console/licenses/bulk", **chosen, reason="Chargeback, batch 9", sure="yes")
    assert world.services.licenses.get(keys[0]).revoked_reason == "Chargeback, batch 9"
    assert len(world.services.licenses.search(LicenseFilter(query="chargeback")).items) == 2
    states = [world.services.licenses.get(key).revoked_at is None for key in (*keys, forever)]
    assert states == [False, False, True, True]


async def test_the_audit_log(world, alice, sold):
    """Who did what, by whichever way; with links, and narrowed to somebody or to one license."""
    key, page = sold
    world.services.licenses.revoke(key)
    await alice.get(page)
    await alice.post(f"{page}/reinstate")
    text = await alice.get("/console/audit")
    assert "Reinstated" in text
    assert "Revoked" in text
    mine = await alice.get("/console/audit?actor=alice")
    assert "Reinstated" in mine
    assert "<td>Revoked</td>" not in mine
    assert "Signed in" not in await alice.get(f"/console/audit?license={page.rpartition('/')[2]}")
    assert world.services.audit.list_page().items[0].actor.kind is ActorKind.USER


async def test_the_audit_log_by_way_of(world, alice, sold):
    """Narrowed to a way alone, to a name alone, or to both; and without either it is all."""
    _, page = sold
    await alice.get(page)
    await alice.post(f"{page}/reveal")
    world.services.acting_as(Actor(ActorKind.TOKEN, "alice")).products.add("other", "Other")
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
    list(world.services.licenses.issue_batches("app", LicenseTerms(), MAX_PAGE + 5))
    find = type(world.services.licenses).search

    def fail(services, which, cursor=None, limit=50):
        if cursor is not None:
            raise StoreUnavailableError("the database failed: away")
        return find(services, which, cursor, limit)

    monkeypatch.setattr(type(world.services.licenses), "search", fail)
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
    list(world.services.licenses.issue_batches("app", LicenseTerms(), MAX_PAGE * 2 + 5))
    find, read = type(world.services.licenses).search, []

    def watch(services, which, cursor=None, limit=50):
        read.append(cursor)
        return find(services, which, cursor, limit)

    monkeypatch.setattr(type(world.services.licenses), "search", watch)
    await alice.send("HEAD", "/console/licenses.csv")
    assert (alice.status, alice.headers["Content-Disposition"]) == (
        200,
        'attachment; filename="licenses.csv"',
    )
    assert read == [None]
    assert "Overview" in await alice.get("/console")


@pytest.mark.slow
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
    lines = [line for line in world.services.audit.list_page().items if line.actor.name == "alice"][::-1]
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
    """Those whose last day is within 30 days, and which they are."""
    for month, day, slots in [(6, 14, 1), (6, 15, 2), (7, 15, 3)]:
        world.key(expires_on=date(2026, month, day), slots=slots)
    world.key(expires_on=date(2026, 7, 16))
    world.services.licenses.revoke(world.key(expires_on=date(2026, 6, 20)))
    text = await alice.get("/console")
    assert re.search(r'class="figure">\s*2\s*<', text)
    link = re.search(r'href="(/console/licenses\?from[^"]*)"', text)
    assert link
    found = await alice.get(html.unescape(link[1]))
    assert "of 2" in found
    assert "of 3" in found


async def test_a_database_that_is_away(world, site, alice, monkeypatch):
    """The response is a page, and no traceback."""

    def fail(_services):
        raise StoreUnavailableError("the database failed: away")

    monkeypatch.setattr(type(world.services.products), "list_all", fail)
    await alice.get("/console/products")
    assert (alice.status, alice.alert) == (503, "The database is not available now; try again.")


async def test_a_fault_of_ours(world, site, alice, monkeypatch, caplog):
    """The response is a page without the cause; the log has all."""

    def fail(_services):
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(type(world.services.products), "list_all", fail)
    await alice.get("/console/products")
    assert (alice.status, "secret detail" in alice.text) == (500, False)
    assert "secret detail" in caplog.text
