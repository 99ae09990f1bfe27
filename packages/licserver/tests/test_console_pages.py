"""What support does in the console, by a browser without scripts; and what bad actors try."""

import html
import json
import re
from datetime import date, timedelta

import pytest

from harness.console_books import EVIL, audit_log
from licserver.database.repositories.statistics import CountKey, add_counts
from licserver.domain.records import LicenseState
from licserver.services.context import CUSTOMER
from licserver.services.license_search import LicenseFilter
from licserver.web.console.formatting import FIELDS
from licserver.web.statistics import STATISTICS


async def test_a_first_start(world, alice):
    """An empty shop says what to do next, with the commands, and stops once it is done."""
    assert "What to do next" in alice.text
    assert "licserver release publish app 1.0.0" in alice.text
    assert "licserver license issue app" in alice.text
    world.publish("1.0")
    world.key()
    assert "What to do next" not in await alice.get("/console")


async def test_a_first_start_without_users(open_browser):
    """The console of a fresh server shows the command that adds a user."""
    browser = await open_browser()
    assert "licserver user add" in await browser.get("/console")


@pytest.mark.slow
async def test_max_activations(world, alice, sold, new_key, activate):
    """Support finds a license, frees one of two slots behind one address, and is named in the audit log."""
    key, page = sold
    activate(key, "b.example", "192.0.2.1")
    await alice.get("/console/licenses", params={"q": "jo@stu"})
    assert page in alice.text
    await alice.post("/console/licenses/find", q=key.lower())
    assert alice.path == page  # a whole key leads to its page, and stands in no address
    for pasted in (f"Hello, my key is {key}!", f"https://shop.example{page}", key[:-1] + "?", key[-13:]):
        await alice.post("/console/licenses/find", q=pasted)
        assert alice.path.partition("?")[0] == page, pasted
    await alice.post("/console/licenses/find", q=new_key())
    assert (alice.status, "no license has this key" in alice.alert.lower()) == (422, True)
    await alice.post("/console/licenses/find", q="jo@stu", state="active")
    assert alice.path == "/console/licenses?q=jo@stu&state=active"
    await alice.get(page)
    assert "2 of 2" in await alice.get(page)
    world.key(customer_email="other@example.org")
    await alice.post(f"{page}/free", domain="a.example", ip="192.0.2.1")
    assert "The slot is free" in alice.notice
    assert world.held(key) == [("b.example", "192.0.2.1")]
    await alice.post(f"{page}/free", domain="a.example", ip="192.0.2.1")
    assert (alice.status, "does not exist any more" in alice.alert) == (422, True)
    assert audit_log(world, page)[0] == ("user", "alice", "license.deactivate")


async def test_what_a_customer_repeats_is_counted_where_the_vendor_looks(world, alice, sold):
    """The audit log has the first of a day (D-296), the page all of them, and a day later none."""
    key, page = sold
    customer = world.services.acting_as(CUSTOMER)
    for _ in range(12):
        customer.licenses.reveal(key)
    world.services.licenses.reveal(key)  # the vendor's own are in the log, each
    assert "Revealed the key: 12" in await alice.get(page)
    license_ = world.services.licenses.get(key)
    assert world.services.audit.count_today(license_.id) == {"license.reveal": 12}
    world.clock.forward(days=1)
    assert world.services.audit.count_today(license_.id) == {}
    assert "Revealed the key: 12" not in await alice.get(page)


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
    await alice.post("/console/licenses/find", q=f"CP-XX{key[5:20]}")
    assert (alice.status, "No license" in alice.alert, "CP-" in alice.path) == (422, True, False)
    stranger = await open_browser()
    await stranger.get(f"/console/licenses/{key}", allow_redirects=False)
    assert stranger.headers["Location"] == "/console/sign-in"
    assert world.services.licenses.get(key).revoked_at is None
    assert len(world.held(key)) == 1


async def test_an_id_that_is_none(world, alice, sold):
    """Text that is not exactly an id names no license: 404, and nothing is changed."""
    key, page = sold
    id_ = page.rpartition("/")[2]
    for strange in (f"{id_}%0a", f"%0d%0a{id_}", f"{id_}%20", f"{id_.upper()}A", "x"):
        await alice.get(f"/console/licenses/{strange}")
        assert alice.status == 404, strange
        await alice.get(page)
        await alice.post(f"/console/licenses/{strange}/revoke")
        assert alice.status == 404, strange
    assert world.services.licenses.get(key).revoked_at is None


async def test_revoked_and_reinstated(world, site, alice, sold):
    """The very next verify knows of it, and the page says what customers hear."""
    key, page = sold
    await alice.get(page)
    await alice.post(f"{page}/revoke", reason="Refund, order 4711")
    assert "It is activated on 1 machine." in alice.text
    assert world.services.licenses.get(key).revoked_at is None  # it asks first
    await alice.post(f"{page}/revoke", reason="Refund, order 4711", sure="yes")
    assert "The license is revoked" in alice.notice
    assert "Reason: Refund, order 4711." in alice.text
    assert (await site.verify(key))[1]["reason"] == "License has been revoked."
    await alice.post(f"{page}/reinstate")
    assert (await site.verify(key))[0] == 200
    assert [line[2] for line in audit_log(world, page)][:2] == ["license.reinstate", "license.revoke"]


async def test_terms_are_changed(world, alice, sold):
    """Slots, last day, support, address and note; what is invalid is reported beside what was typed."""
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
    assert "The license is changed" in alice.notice
    held = world.services.licenses.get(key)
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
    assert world.services.licenses.get(key) == held
    await alice.post(f"{page}/change", **{**form, "note": "長" * 2000})
    assert "The license is changed" in alice.notice
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
    assert shown == dict.fromkeys((field.name for field in FIELDS), "") | {
        "slots": "2",
        "email": "jo@studio.example",
        "note": "Order 4711",
    }
    world.services.licenses.change(key, slots=5, note="Two\nlines")
    await alice.post(f"{page}/change", **was, **{**shown, "expires": "2027-01-31"})
    assert "The license is changed" in alice.notice
    held = world.services.licenses.get(key)
    assert (held.slots, held.note, held.expires_on) == (5, "Two\nlines", date(2027, 1, 31))
    mine = {**shown, "slots": "9", "email": "mia@example.org"}
    await alice.post(f"{page}/change", **was, **mine)
    assert (alice.status, "another user" in alice.alert.lower(), "slots" in alice.alert) == (422, True, True)
    assert world.services.licenses.get(key) == held
    assert 'name="slots" inputmode="numeric" value="9"' in alice.text  # what was typed
    assert 'value="2027-01-31"' in alice.text  # and what was not, as it is by now
    mine = {**mine, "expires": "2027-01-31", "note": "Two\r\nlines"}
    await alice.post(f"{page}/change", **{**hidden(), **mine})  # after a look at it
    held = world.services.licenses.get(key)
    assert (held.slots, held.note, held.customer_email) == (9, "Two\nlines", "mia@example.org")


async def test_the_allow_list(world, site, alice, sold):
    """What is put on it is valid without a slot, until it is taken off."""
    key, page = sold
    await alice.get(page)
    await alice.post(f"{page}/allow", entry="*.Corp.example")
    assert world.services.licenses.get(key).allowed == ("*.corp.example",)
    await alice.post(f"{page}/allow", entry="10.0.0.0/99")
    assert alice.status == 422
    await alice.post(f"{page}/disallow", entry="*.corp.example")
    assert world.services.licenses.get(key).allowed == ()
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
    assert audit_log(world, page)[0] == ("user", "alice", "license.reveal")
    assert key not in await alice.get(page)


@pytest.mark.slow
async def test_renewal_and_another_key(world, site, alice):
    """A year more for each click of a fresh page, another slot, and a new key for the lost one."""
    key = world.key(
        expires_on=date(2024, 2, 29), support_until=date(2027, 2, 28), customer_email="jo@x.example"
    )
    page = f"/console/licenses/{world.services.vault.license_id(key).hex()}"
    for action in ("extend", "extend", "slot"):
        assert "Extend to" in await alice.get(page)
        guard = {"csrf": alice.csrf, "once": alice.once, "do": action}
        for _ in range(2):
            await alice.post(f"{page}/{action}", **guard)
    found = world.services.licenses.get(key)
    assert (found.expires_on, found.support_until, found.slots) == (date(2028, 6, 15), date(2029, 2, 28), 2)
    await alice.get(page)
    guard = {"csrf": alice.csrf, "once": alice.once}
    await alice.post(f"{page}/reissue", **guard)
    assert "shown once" in alice.text
    await alice.post(f"{page}/reissue", **guard, sure="yes")
    new = world.services.licenses.search(LicenseFilter("jo@x.example", state=LicenseState.ACTIVE)).items[0]
    assert world.services.licenses.decrypt_key(new) in alice.text
    assert (new.slots, new.expires_on) == (2, date(2028, 6, 15))
    await alice.post(f"{page}/reissue", **guard, sure="yes")
    assert alice.path == f"/console/licenses/{new.id.hex()}?done=once"


async def test_a_license_is_issued(world, alice):
    """For a customer who called; what is invalid is reported."""
    await alice.get("/console/licenses/issue")
    form = {"product": "app", "slots": "3", "expires": "2027-01-31", "email": "jo@studio.example", "note": ""}
    await alice.post("/console/licenses/issue/new", **{**form, "slots": "-1"})
    assert alice.status == 422
    await alice.post("/console/licenses/issue/new", **form)
    assert "License issued" in alice.notice
    (found,) = world.services.licenses.search().items
    assert world.services.licenses.decrypt_key(found) in alice.text
    assert (found.slots, found.customer_email) == (3, "jo@studio.example")
    await alice.get("/console/licenses/issue")  # opened again, the same input is another license
    await alice.post("/console/licenses/issue/new", **form)
    more = {"count": "3", "lifetime": "on", "expires": "", "subscription": "s-1", "support": "2027-01-31"}
    await alice.get("/console/licenses/issue")
    await alice.post("/console/licenses/issue/new", **{**form, **more, "count": "1001"})
    assert (alice.status, 'value="1001"' in alice.text) == (422, True)
    await alice.get("/console/licenses/issue")
    await alice.post("/console/licenses/issue/new", **{**form, **more})
    assert "3 licenses issued" in alice.notice
    terms = [
        (license_.lifetime, license_.subscription_id, license_.slots)
        for license_ in world.services.licenses.search().items
    ]
    assert sorted(terms, key=str) == [(False, None, 3)] * 2 + [(True, "s-1", 3)] * 3


async def test_script_in_every_field(world, site, alice):
    """Whatever is typed anywhere is text everywhere: on every page, in every complaint, in the log."""
    product, key = (
        world.services.products.change("app", name=EVIL),
        world.key(note=EVIL, customer_email="a&'b@x.example"),
    )
    page = f"/console/licenses/{world.services.vault.license_id(key).hex()}"
    world.publish("1.0", name='"><script>alert(1)</script>.zip', changelog="<b>ok</b>")
    await alice.get(page)
    await alice.post(f"{page}/revoke", reason=EVIL)
    assert_harmless(alice.text)
    await alice.post(f"{page}/revoke", reason=EVIL, sure="yes")
    for path, form in [
        (f"{page}/change", {"slots": EVIL, "note": EVIL, "email": EVIL, "expires": EVIL}),
        (f"{page}/allow", {"entry": EVIL}),
        (f"{page}/free", {"domain": EVIL, "ip": EVIL}),
        ("/console/products/add", {"name": EVIL, "slug": EVIL, "policy": EVIL}),
        ("/console/licenses/issue/new", {"product": EVIL, "slots": EVIL, "note": EVIL, "email": EVIL}),
    ]:
        await alice.get("/console/licenses/issue")
        await alice.post(path, **form)
        assert alice.status in {404, 422}, (path, alice.text)
        assert "outdated" not in alice.alert  # it got as far as what was typed
        assert_harmless(alice.text)
        await alice.get(page)
    below = ("", "/licenses", "/licenses/issue", "/products", f"/products/{product.slug}", "/audit")
    for path in (page, "/console/products/app/releases/1.0", *(f"/console{part}" for part in below)):
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


async def test_the_api_reference(alice, open_browser):
    """Every endpoint has a summary and examples, and both documents can be downloaded by who is signed in."""
    page = html.unescape(await alice.get("/console/api"))
    assert "POST /api/v1/licenses/verify" in page
    assert "POST /admin/api/v1/licenses/{id}/revoke" in page
    assert '"customer_email": "anna@example.com"' in page
    for name in ("openapi.json", "openapi-admin.json"):
        assert json.loads(await alice.get(f"/console/api/{name}"))["openapi"] == "3.1.0"
    stranger = await open_browser()
    assert "Sign in" in await stranger.get("/console/api/openapi.json")


async def test_the_overview_compares_periods(world, alice):
    """Seven days beside the seven before; a number that is no choice is the usual one."""
    today = world.clock().date()
    for back, calls in ((1, 3), (8, 2)):
        counts = {CountKey("verify", "", "valid"): calls}
        add_counts(world.services.database, today - timedelta(days=back), counts)
    assert "50 % more than in the 7 days before" in await alice.get("/console?days=7")
    assert "in 30 days" in await alice.get("/console?days=x")


async def test_the_overview_of_one_product(world, alice, site):
    """Its calls, versions, refusals and licenses, and what belongs to none is only in the overview of all."""
    world.product("other")
    world.publish("1.0")
    for slug in ("app", "other"):
        key = world.key(slug, expires_on=world.clock().date() + timedelta(days=9))
        await site.verify(key, "a.example")
        await site.verify(key, f"{slug}-2.example")
    await site.check(world.key(), current_version="0.9")
    await site.verify("CP-nonsense")
    await site.app[STATISTICS].flush()
    every = await alice.get("/console?days=7")
    of_one = await alice.get("/console?days=7&product=app")
    sums = [re.findall(r'<p class="sum">(\d+) ', page) for page in (every, of_one)]
    assert sums == [["5", "2", "1"], ["2", "1", "1"]]
    assert [page.count("All slots were in use") for page in (every, of_one)] == [2, 1]
    assert [re.search(r'"figure">(\d)', page)[1] for page in (every, of_one)] == ["2", "1"]
    assert "2 licenses" in of_one
    assert 'href="/console?days=30&amp;product=app"' in of_one
    assert ">other<" not in await alice.get("/console?product=other&days=x")
    assert "Only " not in await alice.get("/console?product=nothing")
