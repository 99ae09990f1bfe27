"""The console in a real browser: with and without scripts, by keyboard, on a phone, in the dark."""

import asyncio
import re
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from playwright.async_api import Browser, expect

from harness import chromium
from harness.chromium import DESK, PHONE, Visitor, visiting
from harness.console_shop import EVIL, add_alice, stock_long_names, stock_shop
from harness.world import Server, World
from licserver.domain.decisions import generate_license_key
from licserver.services.license_search import LicenseFilter

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING),
    pytest.mark.asyncio(loop_scope="module"),
]


class Shop(NamedTuple):
    """A running server with something to see.

    Args:
        world: Its records.
        server: The server.
        pages: Addresses by name.
        alice: Name and password of a user.
    """

    world: World
    server: Server
    pages: dict[str, str]
    alice: tuple[str, str]


@pytest.fixture
def shop(world: World) -> Iterator[Shop]:
    """A shop with a history, serving."""
    pages, alice = stock_shop(world), add_alice(world)
    with world.serving() as server:
        yield Shop(world, server, pages, alice)


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", DESK), ("dark", PHONE)], ids=["light-desk", "dark-phone"]
)
async def test_every_page_for_everybody(
    shop: Shop, program: Browser, scheme: str, size: dict[str, int]
) -> None:
    """On each page axe finds nothing serious, nothing is wider than the window, and nothing fails."""
    async with visiting(program, shop.server.url, color_scheme=scheme, viewport=size) as visitor:
        await visitor.open("/console")
        found = {"sign-in": await visitor.serious_findings()}
        await visitor.sign_in(*shop.alice)
        for name, path in shop.pages.items():
            await visitor.open(path)
            for summary in await visitor.page.locator("summary").all():
                await summary.click()  # what is folded counts as well
            found[name] = await visitor.serious_findings()
            if await visitor.is_too_wide():
                found[name].append("wider than the window")
        assert {name: findings for name, findings in found.items() if findings} == {}


@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
async def test_names_of_any_length(shop: Shop, program: Browser, size: dict[str, int]) -> None:
    """One long word for a name, an address or a version hides nothing: nothing gets wider by it."""
    async with visiting(program, shop.server.url, viewport=size) as visitor:
        await visitor.sign_in(*shop.alice)
        found = {}
        for name, path in stock_long_names(shop.world).items():
            await visitor.open(path)
            found[name] = await visitor.serious_findings()
            if await visitor.is_too_wide():
                found[name].append("wider than the window")
            if await visitor.page.evaluate(_HIDES_A_COLUMN):
                found[name].append("a list has to be moved sideways")
        assert {name: findings for name, findings in found.items() if findings} == {}


_HIDES_A_COLUMN = (
    "[...document.querySelectorAll('.wide:not(details *)')].some(it => it.scrollWidth > it.clientWidth)"
)


async def test_a_list_on_a_phone_shows_whose_and_in_what_state(shop: Shop, program: Browser) -> None:
    """What support looks for is in sight: the product with its state beside it, and the customer below."""
    async with visiting(program, shop.server.url, viewport=PHONE) as visitor:
        await visitor.sign_in(*shop.alice)
        await visitor.open("/console/licenses?q=jo@studio")
        row = visitor.page.locator("#results tbody tr")
        product, state = row.get_by_role("link", name="Photo Lab"), row.locator(".state")
        for part in (product, state, row.get_by_text("jo@studio.example")):
            await expect(part).to_be_in_viewport(ratio=1)
        boxes = [await part.bounding_box() for part in (product, state)]
        tops = [box["y"] for box in boxes if box is not None]
        assert max(tops) - min(tops) < 12


async def test_support_without_a_mouse(shop: Shop, program: Browser) -> None:
    """From the sign-in to the freed slot by keyboard alone, the focus always in sight."""
    async with visiting(program, shop.server.url) as visitor:
        page = visitor.page
        await visitor.open("/console")
        name, password = shop.alice
        await expect(page.get_by_label("Name")).to_be_focused()
        await page.keyboard.type(name)
        await page.keyboard.press("Tab")
        await page.keyboard.type(password)
        await page.keyboard.press("Enter")
        await page.wait_for_selector("header.top")
        await page.keyboard.press("Tab")
        await expect(page.get_by_text("Skip to the content")).to_be_focused()
        await expect(page.get_by_text("Skip to the content")).to_be_in_viewport()
        await page.keyboard.press("Enter")
        await expect(page.locator("#main")).to_be_focused()
        await page.keyboard.press("Tab")
        await page.keyboard.type("jo@stu")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/licenses?q=jo%40stu*")
        await _tab_to(visitor, "Photo Lab")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/console/licenses/*")
        await _tab_to(visitor, "Free the slot of jo.example at 192.0.2.9")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("status").first).to_contain_text("The slot is free")


async def _tab_to(visitor: Visitor, label: str) -> None:
    """Press Tab until something has the focus, which must then be seen to have it."""
    for _ in range(60):
        await visitor.page.keyboard.press("Tab")
        here = visitor.page.locator(":focus")
        named = await here.evaluate("it => it.getAttribute('aria-label') || it.innerText || ''")
        drawn = await here.evaluate(
            "it => { const s = getComputedStyle(it); return s.outlineStyle + s.outlineWidth + s.boxShadow; }"
        )
        assert drawn != "none0pxnone", f"nobody sees that {named!r} has the focus"
        if named.strip().startswith(label):
            return
    raise AssertionError(f"no way to {label!r} by keyboard")


async def test_everything_essential_without_javascript(shop: Shop, program: Browser) -> None:
    """Search, a freed slot, changed terms, the key, an upload and the sign-out."""
    async with visiting(program, shop.server.url, java_script_enabled=False) as visitor:
        page = visitor.page
        await visitor.sign_in(*shop.alice)
        await page.get_by_label("Find a license").fill("jo@studio")
        await page.get_by_role("button", name="Find").click()
        await page.get_by_role("link", name="Photo Lab").click()
        await page.get_by_role("button", name="Free the slot of jo.example").click()
        assert "The slot is free" in await visitor.text("[role=status]")
        await page.get_by_text("Change the terms").click()
        await page.get_by_role("textbox", name="Slots").fill("5")
        await page.get_by_role("button", name="Change", exact=True).click()
        await expect(page.locator(".big-slots")).to_contain_text("1 of 5")
        await page.get_by_role("button", name="Reveal the key").click()
        assert re.fullmatch(r"CP(-[A-Z0-9]{6}){5}", await visitor.text("output.key"))
        await visitor.open(shop.pages["product"])
        await visitor.publish("1.5.0", b"zip")
        assert "The version is published" in await visitor.text("[role=status]")
        await page.get_by_role("button", name="Sign out").click()
        await expect(page.get_by_role("status").first).to_contain_text("You are signed out")


async def _type_terms(visitor: Visitor) -> None:
    await visitor.open("/console/licenses/issue")
    await visitor.page.get_by_label("Customer’s email address").fill("kim@studio.example")
    await visitor.page.get_by_label("Note").fill("Two words")


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
async def test_a_double_click_issues_one_license(shop: Shop, program: Browser, *, scripts: bool) -> None:
    """And ends on its page, whichever of the two answers the browser waits for."""
    async with visiting(program, shop.server.url, java_script_enabled=scripts) as visitor:
        page = visitor.page
        await visitor.sign_in(*shop.alice)
        await _type_terms(visitor)
        button = page.get_by_role("button", name="Issue", exact=True)
        await button.scroll_into_view_if_needed()
        place = await button.bounding_box()
        assert place is not None
        with shop.world.services.transaction():  # while somebody else writes, the first click is not answered
            for _ in range(2):
                async with page.expect_request("**/issue/new"):
                    await page.mouse.click(place["x"] + 5, place["y"] + 5)
        await page.wait_for_url(re.compile("/issue/new|/console/licenses/[0-9a-f]{32}"))
        (issued,) = shop.world.services.licenses.search(LicenseFilter(query="kim@studio.example")).items
        assert issued.id.hex() in page.url + await page.content()


MAILS: dict[str, list[str | re.Pattern[str]]] = {
    "My second laptop is refused. Key: {masked}": ["Add a slot"],
    "mia@example.org": [re.compile("^CP-"), "Reveal the key", "Copy"],
    "sub_17": [re.compile("^CP-"), re.compile("^Extend to")],
}
"""What is pasted from a mail, and what is clicked after "Find"."""


@pytest.mark.parametrize("mail", MAILS)
async def test_a_mail_takes_four_clicks(shop: Shop, program: Browser, mail: str) -> None:
    """A refused laptop, a lost key, a subscription that was charged: each is solved in the console."""
    license_id = shop.pages["license"].rpartition("/")[2]
    masked = shop.world.services.licenses.get(license_id).masked_key
    async with visiting(program, shop.server.url) as visitor:
        page = visitor.page
        await visitor.context.grant_permissions(["clipboard-read", "clipboard-write"])
        await visitor.sign_in(*shop.alice)
        await page.get_by_label("Find a license").fill(mail.format(masked=masked).rpartition(": ")[2])
        for clicked in ["Find", *MAILS[mail]]:
            if isinstance(clicked, re.Pattern) and "CP-" in clicked.pattern:
                await page.locator("#results tbody th a").click()
            else:
                await page.get_by_role("button", name=clicked).click()
            await page.wait_for_load_state()
        solved = re.compile("one more slot|Copied\\.|The license is extended")
        await page.get_by_text(solved).first.wait_for()
        assert len(MAILS[mail]) < 4


@pytest.mark.parametrize("scripts", [True, False], ids=["scripts", "no-scripts"])
async def test_an_import_and_a_backup(shop: Shop, program: Browser, *, scripts: bool) -> None:
    """A file is previewed and imported, and a backup appears; axe finds nothing serious on the way."""
    async with visiting(program, shop.server.url, java_script_enabled=scripts) as visitor:
        page = visitor.page
        await visitor.sign_in(*shop.alice)
        await page.get_by_role("link", name="Import", exact=True).click()
        await page.get_by_label("Comes from").select_option("gumroad")
        await page.get_by_label("Products").fill("photo-lab")
        await page.get_by_label("Slots of lines").fill("2")
        await page.get_by_label("Last day of lines without an end").fill("never")
        await page.get_by_label("Last day of support of lines without one").fill("never")
        sales = (
            "License Key,License Key Enabled?,Product ID,Quantity,Recurrence,Recurring Charge?,"
            "Fully Refunded?,Access Revoked?,Disputed?,Dispute Won?,Purchase Email\n"
            "{},1,p1,1,,0,0,0,0,0,lee@shop.example\n{},1,p1,1,,0,0,0,0,0,ann@shop.example\n"
        )
        keys = [generate_license_key() for _ in range(2)]
        file = {"name": "sales.csv", "mimeType": "text/csv", "buffer": sales.format(*keys).encode()}
        await page.get_by_label("File", exact=True).set_input_files(file)  # type: ignore[arg-type] # playwright's own shape
        await page.get_by_role("button", name="Preview").click()
        await expect(page.get_by_role("heading", level=1)).to_have_text("Import sales.csv?")
        assert keys[0] not in await page.content()
        found = await visitor.serious_findings() if scripts else []
        await page.get_by_role("button", name="Import").click()
        await expect(page.get_by_role("status").first).to_contain_text("Imported: 2 new licenses")
        assert shop.world.services.licenses.get(keys[0]).customer_email == "lee@shop.example"
        await page.get_by_role("link", name="Backups").click()
        await page.get_by_role("button", name="Make a backup").click()
        await expect(page.get_by_role("status").first).to_contain_text("is being written")
        shop.world.services.context.threads.wait()
        if not scripts:  # else the page follows by itself
            await page.goto(f"{shop.server.url}/console/backups")
        await expect(page.locator("#backups [role=status]")).to_contain_text("done")
        assert found + (await visitor.serious_findings() if scripts else []) == []
        assert not await visitor.is_too_wide()


async def test_a_form_that_was_left_open_over_night(shop: Shop, program: Browser) -> None:
    """It is handed back, and after a sign-in in another window it is shown as it was, and done."""
    async with visiting(program, shop.server.url) as visitor:
        page = visitor.page
        await visitor.sign_in(*shop.alice)
        await _type_terms(visitor)
        shop.world.clock.forward(hours=13)
        await page.get_by_role("button", name="Issue", exact=True).click()
        assert "What you typed is not lost" in await visitor.text("[role=alert]")
        assert await visitor.serious_findings() == []
        async with visitor.context.expect_page() as opening:
            await page.get_by_role("link", name="Sign in in another window").click()
        window = Visitor(visitor.context, await opening.value, visitor.url)
        await window.page.wait_for_url("**/sign-in")
        await window.sign_in(*shop.alice)
        await page.get_by_role("button", name="Continue").click()
        await expect(page.get_by_role("alert").first).to_contain_text("Look it through")
        await expect(page.get_by_label("Note")).to_have_value("Two words")
        await page.get_by_role("button", name="Issue", exact=True).click()
        assert "License issued" in await visitor.text("p[role=status]")
        assert window.troubles == []


async def test_search_as_you_type(shop: Shop, program: Browser) -> None:
    """The list follows what is typed, and the address what is searched, without a new page."""
    async with visiting(program, shop.server.url) as visitor:
        page = visitor.page
        await visitor.sign_in(*shop.alice)
        await visitor.open(shop.pages["licenses"])
        await page.evaluate("window.same = true")
        await expect(page.locator("#results tbody tr")).to_have_count(5)
        await page.locator("#q").press_sequentially("jo@studio", delay=20)
        await expect(page.locator("#results tbody tr")).to_have_count(1)
        await expect(page.locator("#results")).to_contain_text("jo@studio.example")
        await page.wait_for_url("**q=jo%40studio*")
        await expect(page.locator("#q")).to_be_focused()
        await page.locator("#q").fill("")
        await expect(page.locator("#results tbody tr")).to_have_count(5)
        await page.get_by_label("State").select_option("revoked")
        await expect(page.locator("#results")).to_contain_text("sam@example.net")
        await expect(page.locator("#results tbody tr")).to_have_count(1)
        assert await page.evaluate("window.same")
        (license_,) = shop.world.services.licenses.search(LicenseFilter("mia@example.org")).items
        key = shop.world.services.licenses.decrypt_key(license_)
        await page.get_by_label("State").select_option("")
        await expect(page.locator("#results tbody tr")).to_have_count(5)
        urls: list[str] = []
        page.on("request", lambda request: urls.append(request.url))
        await page.locator("#q").fill(key)
        await page.wait_for_url(f"**/console/licenses/{license_.id.hex()}")
        assert not [url for url in urls if key[:9] in url]  # a key is sent in no address


async def test_an_upload_shows_how_far_it_is(shop: Shop, program: Browser) -> None:
    """The bar fills while the file is sent; in the end the new version is there, and a refusal is shown."""
    async with visiting(program, shop.server.url) as visitor:
        page = visitor.page
        await visitor.sign_in(*shop.alice)
        await visitor.open(shop.pages["product"])
        await page.evaluate(
            "window.seen = []; document.addEventListener('htmx:xhr:progress', () => "
            "seen.push(document.querySelector('progress').value,"
            " document.querySelector('.progress-text').textContent))"
        )
        await visitor.publish("1.4.0", b"z" * 3_000_000)
        await expect(page.get_by_role("alert")).to_contain_text("already")
        seen = await page.evaluate("window.seen")
        assert 100 in seen
        assert any("sent" in str(text).lower() for text in seen)
        await expect(page.get_by_role("textbox", name="Changelog")).to_have_value("New.")
        await visitor.publish("1.5.0", b"zip")
        await expect(page.get_by_role("status").first).to_contain_text("The version is published")
        await expect(page).to_have_url(re.compile(r"/releases/1\.5\.0\?done=published$"))


async def test_script_in_every_text_field(shop: Shop, program: Browser) -> None:
    """A real browser shows it as what was typed: no dialog, no error, no request for a picture."""
    world = shop.world
    world.services.products.change("photo-lab", name=EVIL)
    key = world.new_key("photo-lab", customer_email="x&'y@evil.example", note=EVIL)
    world.services.licenses.revoke(key, EVIL)
    evil = f"/console/licenses/{world.services.vault.license_id(key).hex()}"
    async with visiting(program, shop.server.url) as visitor:
        await visitor.sign_in(*shop.alice)
        for path in (
            *shop.pages.values(),
            evil,
            f"/console/licenses?q={'%22%3E%3Cscript%3Ealert(1)%3C/script%3E'}",
        ):
            await visitor.open(path)
            assert await visitor.page.locator("img[src=x]").count() == 0
        await visitor.open(evil)
        assert EVIL in await visitor.page.inner_text("h1")


async def test_no_frame_around_it(shop: Shop, program: Browser) -> None:
    """A page that draws the console into itself, to have its buttons clicked, gets nothing."""
    async with visiting(program, shop.server.url) as visitor:
        await visitor.sign_in(*shop.alice)
        await visitor.page.goto("about:blank")
        frame = f'<iframe src="{shop.server.url}/console"></iframe>'
        await visitor.page.set_content(frame)
        await asyncio.sleep(0)
        inner = visitor.page.frames[1]
        await visitor.page.wait_for_function("document.querySelector('iframe').contentDocument === null")
        assert await inner.locator("header.top").count() == 0
        visitor.troubles.clear()  # chromium says why


async def test_what_a_browser_keeps(shop: Shop, program: Browser) -> None:
    """No page in the cache or in the storage of the browser, and no cookie that a script could read."""
    async with visiting(program, shop.server.url) as visitor:
        await visitor.sign_in(*shop.alice)
        await visitor.open(shop.pages["licenses"])
        await visitor.page.locator("#q").fill("jo")
        await visitor.page.wait_for_url("**q=jo*")
        held = await visitor.page.evaluate(
            "[localStorage.length, Object.keys(sessionStorage), document.cookie]"
        )
        # where the page is, as the browser's own history knows it
        assert held == [0, ["htmx-current-path-for-history"], ""]
