"""A real browser: the system's chromium, driven by playwright, and what must be true of every page in it."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # it takes a quarter of a second, and the default selection has no browser
    from playwright.async_api import Browser, BrowserContext, Page

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MISSING = "there is no chromium here: nothing of the console was tried in a browser (apt install chromium)"

PHONE = {"width": 390, "height": 800}
DESK = {"width": 1200, "height": 800}

_AXE = Path(__file__).parents[1] / "vendored" / "axe.min.js"


@asynccontextmanager
async def browser() -> AsyncIterator["Browser"]:
    """Start chromium; it is ended with the block."""
    from playwright.async_api import async_playwright  # noqa: PLC0415 - as above

    async with async_playwright() as play:
        program = await play.chromium.launch(executable_path=PROGRAM)
        yield program
        await program.close()


class Visitor:
    """Drive one tab of a browser, and collect everything that goes wrong in its pages."""

    def __init__(self, context: "BrowserContext", page: "Page", url: str) -> None:
        self.context, self.page, self.url = context, page, url
        self.troubles: list[str] = []
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))
        page.on("console", self._note)

    def _note(self, message: Any) -> None:
        # Chromium logs a status of 4xx as well, and here it is expected.
        if message.type == "error" and "status of 4" not in message.text:
            self.troubles.append(message.text)

    async def open(self, path: str) -> None:
        """Open a page of the server."""
        await self.page.goto(self.url + path)

    async def sign_in(self, name: str, password: str) -> None:
        """Sign in on the page that is open, or on the overview's."""
        if not self.page.url.startswith(self.url):
            await self.open("/console")
        await self.page.get_by_label("Name").fill(name)
        await self.page.get_by_label("Password").fill(password)
        await self.page.get_by_role("button", name="Sign in").click()
        await self.page.wait_for_selector("header.top")

    async def publish(self, version: str, content: bytes, **more: str) -> None:
        """Send the form of the product's page that is open; `more` are fields, by label."""
        page = self.page
        await page.get_by_role("textbox", name="Version", exact=True).fill(version)
        await page.get_by_role("textbox", name="Changelog").fill("New.")
        form = page.locator("form[data-upload]")
        for label, value in more.items():
            await form.get_by_label(label).fill(value)
        file = {"name": "lab.zip", "mimeType": "application/zip", "buffer": content}
        await page.get_by_label("File", exact=True).set_input_files(file)  # type: ignore[arg-type] # playwright's own shape
        await page.get_by_role("button", name="Publish").click()

    async def text(self, selector: str) -> str:
        """What stands somewhere."""
        return " ".join((await self.page.inner_text(selector)).split())

    async def serious_findings(self) -> list[str]:
        """What axe holds against the page that is open: its serious and critical findings."""
        await self.page.evaluate(_axe())
        found = await self.page.evaluate("axe.run({resultTypes: ['violations']})")
        return [
            f"{rule['id']}: {rule['nodes'][0]['html']} {rule['nodes'][0].get('failureSummary', '')}"
            for rule in found["violations"]
            if rule["impact"] in {"serious", "critical"}
        ]

    async def is_too_wide(self) -> bool:
        """Whether the page has to be moved sideways to be read."""
        return bool(
            await self.page.evaluate(
                "document.documentElement.scrollWidth > document.documentElement.clientWidth"
            )
        )


@asynccontextmanager
async def visiting(program: "Browser", url: str, **context: Any) -> AsyncIterator[Visitor]:
    """Open a window; in the end, nothing may have gone wrong in any of its pages."""
    context.setdefault("viewport", DESK)
    window = await program.new_context(**context)
    window.set_default_timeout(15_000)
    visitor = Visitor(window, await window.new_page(), url)
    yield visitor
    await window.close()
    assert visitor.troubles == []


@cache
def _axe() -> str:
    return _AXE.read_text("utf-8")
