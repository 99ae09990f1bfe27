"""The second factor in a real browser: enrolment, sign-in with a code and with a recovery code."""

import re
from collections.abc import Callable

import pytest
from playwright.async_api import Browser, expect

from harness import chromium
from harness.chromium import DESK, PHONE, Visitor, visiting
from harness.console_shop import add_alice
from harness.second_factor import App
from harness.world import World

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(chromium.PROGRAM is None, reason=chromium.MISSING),
    pytest.mark.asyncio(loop_scope="module"),
]


async def _check(visitor: Visitor) -> None:
    """Require that axe finds nothing serious, and that the page fits the window."""
    assert await visitor.serious_findings() == []
    assert not await visitor.is_too_wide()


async def _type_password(visitor: Visitor, name: str, password: str) -> None:
    await visitor.open("/console")
    await visitor.page.get_by_label("Name").fill(name)
    await visitor.page.get_by_label("Password").fill(password)
    await visitor.page.get_by_role("button", name="Sign in").click()


async def _type_code(visitor: Visitor, code: str) -> None:
    await visitor.page.get_by_label("Code").fill(code)
    await visitor.page.get_by_role("button", name="Sign in").click()


@pytest.mark.parametrize("required", [False, True], ids=["chosen", "required"])
@pytest.mark.parametrize(
    ("scheme", "size"), [("light", DESK), ("dark", PHONE)], ids=["light-desk", "dark-phone"]
)
async def test_from_enrolment_to_recovery_code(
    make_world: Callable[..., World], program: Browser, scheme: str, size: dict[str, int], *, required: bool
) -> None:
    """A user sets it up, signs out, signs in with a code, and after losing the phone with a recovery code.

    The base URL is https, the browser at http://127.0.0.1 as through a tunnel: it keeps the Secure cookie.
    """
    world = make_world(base_url="https://licenses.example", second_factor_required=required)
    alice = add_alice(world)
    with world.serving() as server:
        async with visiting(program, server.url, color_scheme=scheme, viewport=size) as visitor:
            page = visitor.page
            await _type_password(visitor, *alice)
            if not required:
                await visitor.open("/console/account")
                await page.get_by_role("link", name="Set up a second factor").click()
            await page.wait_for_url("**/second-factor")
            await _check(visitor)
            await page.get_by_label("Your password").fill(alice[1])
            await page.get_by_role("button", name="Continue").click()
            await expect(page.locator("svg.qr")).to_be_visible()
            await _check(visitor)
            app = App(await visitor.text("#secret"))
            await page.get_by_label("Code").fill(app.code(world.clock()))
            await page.get_by_role("button", name="Confirm").click()
            await expect(page.get_by_role("status")).to_contain_text("is set up")
            await _check(visitor)
            codes = await page.locator(".codes li").all_inner_texts()
            await page.get_by_role("button", name="I have kept them").click()
            await page.wait_for_url("**/console")
            cookies = {cookie["name"]: cookie.get("secure") for cookie in await visitor.context.cookies()}
            assert cookies == {"__Host-licserver": True}

            await page.get_by_role("button", name="Sign out").click()
            world.clock.forward(seconds=30)
            await _type_password(visitor, *alice)
            await expect(page.get_by_label("Code")).to_be_focused()
            await _check(visitor)
            await _type_code(visitor, "000000")
            await expect(page.get_by_role("alert")).to_contain_text("wrong")
            await _type_code(visitor, app.code(world.clock()))
            await page.wait_for_selector("header.top")

            await page.get_by_role("button", name="Sign out").click()
            await _type_password(visitor, *alice)
            await _type_code(visitor, codes[0])
            await page.wait_for_selector("header.top")
            await visitor.open("/console/account")
            await expect(page.get_by_text(re.compile("9 of 10 recovery codes are left"))).to_be_visible()
            await _check(visitor)
            await page.get_by_role("link", name="Remove it").click()
            await _check(visitor)
