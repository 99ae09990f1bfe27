"""The customer's page in a real browser: on a phone, in the dark, in six languages, without scripts."""

from collections.abc import Callable

import pytest
from playwright.async_api import Browser, expect

from harness import chromium
from harness.chromium import DESK, PHONE, visiting
from harness.world import World
from licserver.domain.languages import LANGUAGES
from licserver.domain.records import Environment, LicenseTerms
from licserver.web.account.pages import load_texts

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", DESK), ("dark", PHONE)], ids=["light-desk", "dark-phone"]
)
async def test_a_customer_moves_to_another_computer(
    make_world: Callable[..., World], program: Browser, scheme: str, size: dict[str, int]
) -> None:
    """From the key to the freed slot: axe finds nothing serious, and nothing is wider than the window."""
    world = make_world(account=True, account_name="Example Soft", account_color="#ffe066")
    world.services.products.add("app", "Photo Lab")
    sold, key = world.services.licenses.issue("app", LicenseTerms(slots=2))
    world.activate(sold.id, Environment("studio-" + "x" * 80, "192.0.2.1"))
    with world.serving() as server:
        async with visiting(
            program,
            server.url,
            color_scheme=scheme,
            viewport=size,
            permissions=["clipboard-read", "clipboard-write"],
        ) as visitor:
            page, found = visitor.page, dict[str, list[str]]()

            async def look(name: str) -> None:
                found[name] = await visitor.serious_findings()
                if await visitor.is_too_wide():
                    found[name].append("wider than the window")

            await visitor.open("/account")
            await look("sign-in")
            await page.get_by_label("License key").fill(key)
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("button", name="Show the whole key").click()
            await expect(page.get_by_text(key)).to_be_visible()
            await page.get_by_role("button", name="Copy").click()
            await expect(page.get_by_text("Copied.")).to_be_visible()
            assert await page.evaluate("navigator.clipboard.readText()") == key
            for language in LANGUAGES:
                await visitor.open(f"/account?lang={language}")
                await page.locator("summary").click()
                await look(language)
                await expect(page.locator("h1")).to_have_text(load_texts(language)("title"))
            await page.get_by_role("link", name="English").click()
            await page.locator("summary").click()
            await page.get_by_role("button", name="Remove").click()
            await expect(page.get_by_role("status").first).to_contain_text("The computer is removed.")
            assert {name: text for name, text in found.items() if text} == {}
        assert world.repositories.licenses.list_activations(sold.id) == []


async def test_everything_works_without_scripts(make_world: Callable[..., World], program: Browser) -> None:
    """Signing in, seeing the key, freeing a slot and signing out are forms."""
    world = make_world(account=True)
    world.services.products.add("app", "Photo Lab")
    sold, key = world.services.licenses.issue("app", LicenseTerms())
    world.activate(sold.id, Environment("studio", "192.0.2.1"))
    with world.serving() as server:
        async with visiting(program, server.url, java_script_enabled=False, viewport=PHONE) as visitor:
            page = visitor.page
            await visitor.open("/account")
            await page.get_by_label("License key").fill(key)
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_role("button", name="Show the whole key").click()
            await expect(page.get_by_text(key)).to_be_visible()
            await expect(page.get_by_role("button", name="Copy")).to_be_hidden()
            await page.locator("summary").click()
            await page.get_by_role("button", name="Remove").click()
            await expect(page.get_by_role("status").first).to_contain_text("The computer is removed.")
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_role("status")).to_have_text("You are signed out.")
