"""What a license can carry, as stories: the vendor in the console, the app, and its windows.

Nothing is read right after a click: texts are waited for, in the page and in the window.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from harness import chromium
from harness.chromium import Visitor, visiting
from harness.console_shop import add_alice
from harness.customer import eventually
from harness.hands import QtHands, TkHands
from harness.screen import Screen
from harness.shop import NAME, PRODUCT, SLUG
from harness.world import MovableClock, Server, World, utc
from licclient import Downloaded, LicclientError, LicenseClient, Source, Trust, Updates, explain
from licclient.dialogs._states import Action
from licclient.errors import NoSeatError, QuotaExceededError
from licclient.install import Installation
from licserver.domain.offers import bucket
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.secrets_file import format_signing_key, new_secrets

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING),
    pytest.mark.asyncio(loop_scope="module"),
]

NEW = "Pictures are saved when the disk is nearly full, too."
SIGNING = PrivateKey(b"\1" * 32)
Photograph = Callable[[str, str], None]
OpenApp = Callable[..., LicenseClient]


class QuickClock(MovableClock):
    """Is read by the threads of clients all the time, so that a jump is noticed at once."""

    worker_pause = 0.02


@pytest.fixture
def clock() -> MovableClock:
    """Noon of 2026-11-20, UTC."""
    return QuickClock(utc(2026, 11, 20, 12))


@pytest.fixture
def shop(make_world: Callable[..., World], clock: MovableClock) -> World:
    """A vendor with a product, two versions, a signing key and a customers' page."""
    keys = [format_signing_key(SigningKey(SIGNING, clock()))]
    world = make_world(account=True, secrets=json.dumps(new_secrets() | {"signing_keys": keys}))
    world.stock({"products": [PRODUCT], "licenses": []})
    return world


@pytest.fixture
def server(shop: World) -> Iterator[Server]:
    """Its server."""
    with shop.serving() as server:
        yield server


@pytest.fixture
def open_app(server: Server, clock: MovableClock, tmp_path: Path) -> Iterator[OpenApp]:
    """Opens the app of a computer, which has a state folder of its own."""
    with ExitStack() as stack:

        def open_one(domain: str = "home.example", **settings: Any) -> LicenseClient:
            about = {"product": NAME, "slug": SLUG, "version": "1.1.0", "domain": domain, "clock": clock}
            about["storage"] = tmp_path / f"state-{domain}"
            return stack.enter_context(LicenseClient(server.url, **{**about, **settings}))

        yield open_one


@asynccontextmanager
async def at_console(program: Browser, shop: World, server: Server) -> AsyncIterator[Visitor]:
    """Sign alice in, for a block; axe may find nothing serious on the last page."""
    async with visiting(program, server.url) as visitor:
        await visitor.sign_in(*add_alice(shop))
        yield visitor
        assert await visitor.serious_findings() == []


async def _wait_for_notice(page: Page, text: str) -> None:
    """Wait for the notice of a page."""
    await expect(page.get_by_role("status").first).to_contain_text(text)


async def _change_terms(visitor: Visitor, shop: World, key: str, label: str, text: str) -> None:
    """Change one field of a license's terms."""
    await visitor.open(_page_of(shop, key))
    await visitor.page.get_by_text("Change the terms").click()
    field = visitor.page.get_by_label(label, exact=True)
    match await field.evaluate("field => field.type"):
        case "select-one":
            await field.select_option(text)
        case "checkbox":
            await field.set_checked(bool(text))
        case _:
            await field.fill(text)
    await visitor.page.get_by_role("button", name="Change", exact=True).click()
    await _wait_for_notice(visitor.page, "The license is changed")


def _zip(version: str) -> bytes:
    """Pack an app of one file."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as packed:
        packed.writestr("photo-lab", f"#!/bin/sh\necho {version}\n")
    return raw.getvalue()


def _page_of(shop: World, key: str) -> str:
    return f"/console/licenses/{shop.services.licenses.get(key).id.hex()}"


async def test_a_plan_is_sold_used_and_changed(
    shop: World, server: Server, open_app: OpenApp, program: Browser
) -> None:
    """What the app may do follows the plan; the app says why it does not, and the console what is used."""
    key, app = shop.new_key(SLUG), open_app()
    app.activate(key)
    export = app.licensed("export", otherwise=lambda problem: explain(problem, "en"))(lambda: "exported")
    assert export() == "Your license does not include this feature."
    async with at_console(program, shop, server) as visitor:
        page = visitor.page
        await visitor.open(f"/console/products/{SLUG}")
        await page.get_by_text("Add a plan").click()
        await page.get_by_role("textbox", name="Name", exact=True).fill("pro")
        await page.get_by_role("textbox", name="Entitlements", exact=True).fill("export\nexports=2/month")
        await page.get_by_role("button", name="Add", exact=True).click()
        await _wait_for_notice(page, "The plan is saved")
        await _change_terms(visitor, shop, key, "Plan", "pro")
        app.verify(force=True)
        assert (export(), app.uses.consume("exports"), app.uses.consume("exports")) == ("exported", 1, 0)
        with pytest.raises(QuotaExceededError) as used_up:
            app.uses.consume("exports")
        assert explain(used_up.value, "en").startswith(
            "You have used all that your license includes for now."
        )
        await page.reload()
        await expect(page.get_by_text("2 of 2, again from")).to_be_visible()
        await visitor.open(f"/console/products/{SLUG}")
        await page.get_by_text("pro", exact=True).click()
        await page.get_by_role("textbox", name="Entitlements of pro").fill("exports=3/month")
        await page.get_by_role("button", name="Save", exact=True).click()
        await _wait_for_notice(page, "The plan is saved")
        app.verify(force=True)
        assert export() == "Your license does not include this feature."
        assert app.uses.consume("exports") == 0


@pytest.mark.parametrize("hands", ["tk"], indirect=True)
async def test_an_important_version_reaches_some_first(
    shop: World,
    server: Server,
    open_app: OpenApp,
    program: Browser,
    hands: TkHands,
    screen: Screen,
    photograph: Photograph,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Its share is small; who runs an old version or asks gets it, and the console shows who went back."""
    key = shop.new_key(SLUG, slots=2)
    later = next(name for name in map("pc-{}.example".format, range(99)) if bucket(SLUG, "1.2.0", name) > 0.1)
    old, other = (
        open_app("old.example", version="1.0.0", updates=Updates(report_rollbacks=True)),
        open_app(later),
    )
    for app in (old, other):
        app.activate(key)
    async with at_console(program, shop, server) as visitor:
        page = visitor.page
        await visitor.open(f"/console/products/{SLUG}")
        await visitor.publish("1.2.0", _zip("1.2.0"), Rollout="10%", Important="1.1", Changelog=NEW)
        await _wait_for_notice(page, "The version is published")

        assert not other.check_for_update()
        update = other.check_for_update(force=True).update
        assert update is not None
        assert (update.version, update.is_critical) == ("1.2.0", False)
        update = old.check_for_update().update
        assert update is not None
        assert update.is_critical
        hands.open(hands.kit.UpdateDialog(old, update, tmp_path / "new", hands.parent, language="en"))
        assert hands.heading() == "Photo Lab 1.2.0 is available"
        assert hands.message() == "This is an important update. Please install it soon."
        assert sorted(hands.buttons()) == ["Download", "Later"]
        photograph(screen.wait_for("Software update"), "important-tk-en")
        hands.enter()
        hands.until(lambda: hands.message() == "✓\u00a0Downloaded and verified.")
        hands.enter()
        hands.until(lambda: not hands.is_open())

        installed = Installation(tmp_path / "Photo Lab")
        first = tmp_path / "first.zip"
        first.write_bytes(_zip("1.0.0"))
        digest = hashlib.sha256(first.read_bytes()).hexdigest()
        installed.apply(Downloaded(first, first.stat().st_size, digest, "1.0.0", is_verified=True))
        started = installed.apply(hands.dialog.file)
        assert installed.roll_back() is not None
        monkeypatch.setattr("sys.argv", [str(started.folder / "photo-lab")])
        assert old.check_for_update(force=True)
        await page.reload()
        rollout = page.locator("section", has=page.get_by_role("heading", name="Rollout"))
        await expect(rollout).to_contain_text("1 installation, as their apps report")
        await page.get_by_role("button", name="Pause").click()
        await _wait_for_notice(page, "The rollout is changed")
        await expect(rollout).to_contain_text("10%, paused")


@pytest.mark.parametrize("hands", ["qt"], indirect=True)
async def test_a_computer_without_a_network(
    shop: World,
    server: Server,
    open_app: OpenApp,
    program: Browser,
    hands: QtHands,
    clock: MovableClock,
    tmp_path: Path,
) -> None:
    """The window says what helps; support pastes the request, and the file that comes back holds."""

    def fail(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no network")

    key = shop.new_key(SLUG)
    app = open_app(trust=Trust(public_keys=[SIGNING.public.text]), transport=httpx.MockTransport(fail))
    hands.open(hands.kit.ActivationDialog(app, hands.parent, language="en"))
    hands.paste(key)
    hands.enter()
    hands.until(lambda: hands.message().endswith("ask support for a license file."))
    assert "could not be reached" in hands.message()
    hands.escape()
    hands.until(lambda: not hands.is_open())
    async with at_console(program, shop, server) as visitor:
        page = visitor.page
        await visitor.open(_page_of(shop, key))
        await page.get_by_text("License file for a machine without a network").click()
        await page.get_by_label("Request").fill(app.license_file.request())
        await page.get_by_label("Valid for days").fill("30")
        async with page.expect_download() as coming:
            await page.get_by_role("button", name="Download the license file").click()
        file = tmp_path / "stick.lic"
        await (await coming.value).save_as(file)
        app.license_file.install(file)
        assert app.verify().source is Source.FILE
        await page.reload()
        await expect(page.get_by_text("License file until")).to_be_visible()
    clock.forward(days=29)
    assert (app.verify().source, app.require().product) == (Source.FILE, NAME)
    assert explain(app.status(), "en") == "Licensed."


async def test_two_seats_for_three_people(
    shop: World, server: Server, open_app: OpenApp, program: Browser, clock: MovableClock
) -> None:
    """The third waits until support takes a seat back, and the first until the customer does."""
    key = shop.new_key(SLUG, slots=None, floating_seats=2)
    lost: list[LicclientError] = []
    apps = [open_app(f"pc-{number}", label=f"Desk {number}") for number in (1, 2, 3)]
    first, second = (app.seats.take(key, on_lost=lost.append) for app in apps[:2])
    with pytest.raises(NoSeatError) as full:
        apps[2].seats.take(key, on_lost=lost.append)
    assert explain(full.value, "en").startswith("All seats of this license are in use (2).")
    async with at_console(program, shop, server) as visitor:
        page = visitor.page
        await visitor.open(_page_of(shop, key))
        seats = page.locator("section", has=page.get_by_role("heading", name="Floating seats"))
        await expect(seats).to_contain_text("2 of 2")
        await page.get_by_role("button", name="Take back the seat of Desk 1").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Take back the seat of Desk 1?")
        await page.get_by_role("button", name="Take back", exact=True).click()
        await _wait_for_notice(page, "The seat is taken back")
        third = apps[2].seats.take(key, on_lost=lost.append)
        assert third.is_held
        clock.forward(seconds=45)  # each is renewed, or not
        eventually(lambda: lost)
        assert explain(lost[0], "en").startswith("The seat of this computer was taken back. Please save")
        assert not first.is_held
        await page.reload()
        await expect(seats).to_contain_text("Desk 3")
        await expect(seats).not_to_contain_text("Desk 1")
    async with visiting(program, server.url) as visitor:
        page = visitor.page
        await visitor.open("/account")
        await page.get_by_label("License key").fill(key)
        await page.get_by_role("button", name="Sign in").click()
        held = page.get_by_role("listitem").filter(has_text="Desk 2")
        await held.locator("summary").click()
        await page.get_by_role("button", name="Take back this seat: Desk 2").click()
        await _wait_for_notice(page, "The seat is taken back.")
        assert await visitor.serious_findings() == []
    assert first.take().is_held
    clock.forward(seconds=45)
    eventually(lambda: len(lost) == 2)
    assert [seat.is_held for seat in (first, second, third)] == [True, False, True]


async def test_back_from_the_beta(shop: World, server: Server, open_app: OpenApp, program: Browser) -> None:
    """A tester who returns keeps what is installed, sees that, and gets the next stable version."""
    key = shop.new_key(SLUG)
    open_app().activate(key)
    async with at_console(program, shop, server) as visitor:
        product = f"/console/products/{SLUG}"
        await visitor.open(product)
        await visitor.publish("2.0b1", b"zip of the beta", **{"New channel": "beta"})
        await _wait_for_notice(visitor.page, "The version is published")
        assert not open_app().check_for_update(force=True)
        await _change_terms(visitor, shop, key, "beta", "yes")
        update = open_app().check_for_update(force=True).update
        assert update is not None
        assert update.version == "2.0b1"

        tester = open_app(version="2.0b1")
        await _change_terms(visitor, shop, key, "beta", "")
        check = tester.check_for_update(force=True)
        assert not check
        assert explain(check, "en") == (
            "This version is newer than the one that is offered now. The next newer one will be offered."
        )
        await visitor.open(product)
        await visitor.publish("2.0", b"zip of the stable version")
        await _wait_for_notice(visitor.page, "The version is published")
        update = tester.check_for_update(force=True).update
        assert update is not None
        assert update.version == "2.0"


@pytest.mark.parametrize("hands", ["tk"], indirect=True)
async def test_a_trial_is_started_in_the_window_and_bought(
    shop: World,
    server: Server,
    open_app: OpenApp,
    program: Browser,
    hands: TkHands,
    screen: Screen,
    photograph: Photograph,
    monkeypatch: pytest.MonkeyPatch,
    clock: MovableClock,
) -> None:
    """The vendor offers trials; support finds the one that was started, and makes a license of it."""
    monkeypatch.setattr("licclient._trials.flow.read_machine_id", lambda: "4f8a1c0e9b2d47d3")
    app = open_app()
    async with at_console(program, shop, server) as visitor:
        page = visitor.page
        await visitor.open(f"/console/products/{SLUG}")
        await page.get_by_label("Days of a trial").fill("14")
        rules = page.locator("section", has=page.get_by_role("heading", name="Machines and updates"))
        await rules.get_by_role("button", name="Change").click()
        await _wait_for_notice(page, "The product is changed")

        hands.open(hands.kit.ActivationDialog(app, hands.parent, trial=True, language="en"))
        assert sorted(hands.buttons()) == ["Activate", "Not now", "Start trial"]
        photograph(screen.wait_for("Activate Photo Lab"), "trial-tk-en")
        hands.click(Action.SKIP)
        hands.until(lambda: hands.message() == "✓\u00a0The trial ends on Dec 4, 2026.")
        hands.enter()
        hands.until(lambda: not hands.is_open())
        assert app.require().is_trial

        await visitor.open("/console/licenses?trial=yes")
        await page.locator("#results tbody th a").click()
        await page.get_by_role("button", name="Convert to a purchased license").click()
        await _wait_for_notice(page, "The trial is a purchased license now")
        clock.forward(days=2)
        found = app.verify()
        assert (found.is_trial, found.expiry) == (False, None)
