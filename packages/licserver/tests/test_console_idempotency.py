"""A form that makes something is done once, and what was typed into it is not lost (D-130)."""

import asyncio
import html
import re

import pytest
from sqlalchemy import func, insert, select

from harness.console import Browser
from harness.engines import both_engines
from licserver.database.repositories.tokens import IdempotencyKey
from licserver.database.tables.access import idempotency_keys, tokens
from licserver.domain.records import ActorKind
from licserver.services.tokens import Response
from licserver.services.users import SESSION_TIME

ISSUE, ISSUED = "/console/licenses/issue", "/console/licenses/issue/new"
TERMS = {
    "product": "app",
    "slots": "3",
    "expires": "",
    "email": "jo@studio.example",
    "note": "Order <b>4711</b> \"&'",
}
PRODUCT = {"name": "Photo Lab", "slug": "photo-lab", "policy": "domain", "moves": "3"}


class Making:
    """A form: the page that has it, and how it is sent."""

    def __init__(self, page, act, fields, *, is_upload=False) -> None:
        self.page, self.act, self.fields, self.is_upload = page, act, fields, is_upload

    async def send(self, browser, **guard: str):
        """Send it once more, with the guard of the page that was opened."""
        if self.is_upload:
            return await browser.upload(self.act, {**guard, **self.fields})
        return await browser.post(self.act, **guard, **self.fields)

    def made(self, world):
        """Count what it makes."""
        services = world.services
        return (
            len(list(services.licenses.list_all())),
            len(services.products.list_all()),
            len(services.releases.list_all("app")),
        )


MAKINGS = {
    "license": Making(ISSUE, ISSUED, TERMS),
    "product": Making("/console/products", "/console/products/add", PRODUCT),
    "release": Making(
        "/console/products/app",
        "/console/products/app/releases",
        {"version": "1.0", "changelog": "First."},
        is_upload=True,
    ),
}


@pytest.fixture(params=MAKINGS)
def making(request):
    """Each form of the console that makes something."""
    return MAKINGS[request.param]


def guard(browser):
    """What the page that is open puts into its forms beside the fields."""
    return {"csrf": browser.csrf, "once": browser.once}


def landed(browser):
    """Where the form leads to: of new keys, the page that shows them has the link."""
    link = re.search(r'href="(/console/licenses/[0-9a-f]{32})"', browser.text)
    return link[1] if link and browser.path == ISSUED else browser.path.partition("?")[0]


def ways(world):
    """The actions in the log, the oldest first."""
    return [
        entry.action
        for entry in reversed(world.services.audit.list_page().items)
        if entry.actor.name == "alice"
    ]


@pytest.mark.sampled(1)
async def test_a_form_that_is_sent_twice_is_done_once(world, alice, making):
    """A browser that sends it again lands on the same page, which says why nothing more was made."""
    await alice.get(making.page)
    sent, before = guard(alice), making.made(world)
    await making.send(alice, **sent)
    first, notice = landed(alice), alice.notice
    assert (alice.status, notice != "") == (200, True), alice.text
    done = making.made(world)
    assert sum(done) == sum(before) + 1
    await making.send(alice, **sent)
    assert (alice.status, alice.path) == (200, f"{first}?done=once")
    assert "sent before and done once" in alice.notice
    assert making.made(world) == done
    assert len(ways(world)) == 2  # the sign-in, and this


@pytest.mark.sampled(1, "making")
@both_engines
async def test_a_double_click_at_two_servers(world, open_site, alice, making):
    """Sent six times at the same moment, to two servers: one is made, and all six land on it."""
    other = await open_site(world)
    await alice.get(making.page)
    sent, before = guard(alice), making.made(world)
    clicks = [Browser(alice.session, url) for url in (alice.url, other.url) for _ in range(3)]
    await asyncio.gather(*(making.send(click, **sent) for click in clicks))
    assert {click.status for click in clicks} == {200}, [click.alert for click in clicks]
    assert len({landed(click) for click in clicks}) == 1
    assert sum(making.made(world)) == sum(before) + 1
    assert len(ways(world)) == 2


async def test_a_form_with_something_else_in_it(world, alice):
    """Changed after it was done: the page says so, what was typed is there, and the next send does it."""
    await alice.get(ISSUE)
    sent = guard(alice)
    await alice.post(ISSUED, **sent, **TERMS)
    await alice.post(ISSUED, **sent, **{**TERMS, "email": "kim@studio.example"})
    assert (alice.status, "that was done, and this was not" in alice.alert) == (422, True)
    assert 'value="kim@studio.example"' in alice.text
    assert len(list(world.services.licenses.list_all())) == 1
    await alice.post(ISSUED, **{**TERMS, "email": "kim@studio.example"})
    assert alice.notice == "License issued."
    assert len(list(world.services.licenses.list_all())) == 2


async def test_a_form_without_an_id(world, alice):
    """A form from an older version's page is shown again with what was typed, and then done."""
    await alice.get(ISSUE)
    for once in ("", "short", "é" * 22, "x" * 23):
        await alice.post(ISSUED, once=once, **TERMS)
        assert (alice.status, "look it through, and send it again" in alice.alert) == (422, True), once
        assert 'value="jo@studio.example"' in alice.text
        assert not list(world.services.licenses.list_all())
    await alice.post(ISSUED, **TERMS)
    assert alice.notice == "License issued."


def typed_is_there(text, fields):
    """Whether a page shows all that was typed."""
    shown = html.unescape(text)
    return all(value in shown for value in fields.values())


@pytest.mark.sampled(1)
async def test_a_form_of_an_earlier_session(world, alice, making):
    """Left open over a sign-out: nothing is done, all that was typed is shown, and the next send does it."""
    await alice.get(making.page)
    sent, before = guard(alice), making.made(world)
    await alice.post("/console/sign-out")
    await alice.sign_in()
    await making.send(alice, **sent)
    assert (alice.status, "earlier session" in alice.alert) == (403, True)
    assert typed_is_there(alice.text, making.fields)
    assert making.made(world) == before
    await making.send(alice, **guard(alice))
    assert alice.status == 200
    assert sum(making.made(world)) == sum(before) + 1


@pytest.mark.parametrize("making", [MAKINGS["license"], MAKINGS["product"]], ids=["license", "product"])
async def test_a_form_whose_session_has_ended(world, alice, making):
    """Left open over night: it is handed back, and after a sign-in in another window it is shown and done."""
    await alice.get(making.page)
    sent, before = guard(alice), making.made(world)
    end_session(world, alice)
    await making.send(alice, **sent)
    assert (alice.status, "What you typed is not lost" in alice.alert) == (401, True)
    held = {
        name: html.unescape(value)
        for name, value in re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', alice.text)
    }
    assert held == {**sent, **making.fields}
    assert f'action="{making.act}"' in alice.text
    assert "<b>4711" not in alice.text
    window = Browser(alice.session, alice.url)
    await window.sign_in()
    await alice.post(making.act, **held)
    assert (alice.status, typed_is_there(alice.text, making.fields)) == (403, True)
    assert making.made(world) == before
    await making.send(alice, **guard(alice))
    assert alice.status == 200
    assert sum(making.made(world)) == sum(before) + 1


async def test_an_upload_whose_session_has_ended(world, alice):
    """It is not read: the message goes into the form, which stays in the page, and can be sent again."""
    making = MAKINGS["release"]
    await alice.get(making.page)
    sent = guard(alice)
    end_session(world, alice)
    alice.session.headers["HX-Request"] = "true"
    await making.send(alice, **sent)
    assert (alice.status, alice.alert) == (
        401,
        "You are signed out, and nothing was done. Sign in in another window, then send this form again.",
    )
    assert alice.headers["HX-Retarget"] == "form[data-upload] .progress-text"
    del alice.session.headers["HX-Request"]
    await Browser(alice.session, alice.url).sign_in()
    await making.send(alice, **sent)
    assert (alice.status, typed_is_there(alice.text, making.fields)) == (403, True)
    assert making.made(world) == (0, 1, 0)
    await making.send(alice, **guard(alice))
    assert alice.notice == "The version is published."


def end_session(world, browser):
    """Let a session's time pass, here and in the browser."""
    world.clock.forward(seconds=SESSION_TIME.total_seconds() + 1)
    browser.session.cookie_jar.clear()


async def test_an_answer_that_got_lost_with_its_session(world, alice):
    """Sent and done, the answer lost, the session over: what is shown again is still the same form."""
    await alice.get(ISSUE)
    sent = guard(alice)
    await alice.post(ISSUED, **sent, **TERMS)
    await alice.post("/console/sign-out")
    await alice.sign_in()
    await alice.post(ISSUED, **sent, **TERMS)
    assert alice.status == 403
    await alice.post(ISSUED, **TERMS)
    assert "done once" in alice.notice
    assert len(list(world.services.licenses.list_all())) == 1


async def test_a_strangers_form_is_not_handed_back(open_browser, alice):
    """From another site, or without the looks of ours: the sign-in, and nothing of what was sent."""
    stranger = await open_browser()
    await alice.get(ISSUE)
    for csrf, origin in (("", None), ("short", None), (alice.csrf, "https://evil.example")):
        await stranger.post(ISSUED, csrf=csrf, origin=origin, **TERMS)
        assert "jo@studio.example" not in stranger.text
        assert "Name <input" in stranger.text
        await alice.upload(
            "/console/products/app/releases", {"csrf": csrf, "changelog": "Stray."}, origin=origin
        )
        assert (alice.status, "Stray." in alice.text) == (403, False)


@both_engines
def test_whose_a_receipt_is(world):
    """A user's and a token's with the same number and key are two; a user's go with the user."""
    services = world.services
    services.users.add("ann", "four words of a sentence")
    services.users.add("ben", "four words of a sentence")
    ann, ben = (services.users.get(name).id for name in ("ann", "ben"))
    row = {"name": "shop", "token_hash": b"h", "scope": "write", "created_at": world.clock()}
    with services.database.writing() as connection:
        connection.execute(insert(tokens).values(id=ann, **row))
    mine = IdempotencyKey(ActorKind.USER, ann, "k", b"d" * 32)
    others = [mine._replace(owner_id=ben), mine._replace(by=ActorKind.TOKEN)]
    answers = {form: Response(303, b"%d" % at) for at, form in enumerate([mine, *others])}
    for name_, answer in answers.items():
        services.idempotency.record(name_, answer)
    assert {answer_: services.idempotency.find(answer_) for answer_ in answers} == answers
    services.users.remove("ann")
    assert services.idempotency.find(mine) is None
    assert [services.idempotency.find(other_answer) for other_answer in others] == [
        answers[other_answer] for other_answer in others
    ]
    world.clock.forward(days=1, seconds=1)
    assert services.retention.sweep().answers == 2
    with services.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(idempotency_keys)) == 0
