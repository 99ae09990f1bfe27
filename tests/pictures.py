"""Make the pictures of the documentation: `nox -s pictures`. Look at each of them before you commit it."""

import asyncio
import io
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from PIL import Image

from harness import chromium
from harness.chromium import DESK, PHONE, Visitor, browser, visiting
from harness.console_shop import add_alice, stock_shop
from harness.world import MovableClock, World
from licserver.domain.decisions import generate_license_key
from licserver.services.backup_folder import BackupFolder

FOLDER = Path(__file__).parents[1] / "docs" / "images"
MAX_BYTES = 150_000

PICTURES = {
    # colours and window: what is shown there, by the name of its picture
    ("light", "desk"): {
        "console-audit": "audit",
        "console-overview": "overview",
        "console-licenses": "licenses",
        "console-license": "license",
        "console-customer": "customer",
        "console-overview-product": "overview of a product",
        "console-release": "rollout",
    },
    ("dark", "desk"): {"console-license-dark": "license"},
    ("light", "phone"): {"console-phone": "license"},
}
PARTS = {
    # page and heading: the part of a page that is shown, by the name of its picture
    "console-plans": ("product", "Plans"),
    "console-entitlements": ("license", "Terms"),
    "console-seats": ("seats", "Floating seats"),
    "console-rollout": ("rollout", "Rollout"),
    "console-channel": ("product", "Versions"),
    "console-license-file": ("license", "Slots"),
}
UNFOLDED = {"console-plans": "pro", "console-license-file": "License file for a machine without a network"}
WINDOWS = {"desk": DESK, "phone": PHONE}


async def _draw(visitor: Visitor, name: str, heading: str | None = None) -> None:
    """Take a picture of the page that is open, or of the part below a heading."""
    path, page = FOLDER / f"{name}.png", visitor.page
    if heading is None:
        taken = await page.screenshot(full_page="phone" not in name, animations="disabled")
    else:
        part = page.locator("section", has=page.get_by_role("heading", name=heading, exact=True))
        taken = await part.screenshot(animations="disabled")
    few = Image.open(io.BytesIO(taken)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    size = path.stat().st_size
    assert size < MAX_BYTES, f"{path.name} has {size} bytes"


async def _import(visitor: Visitor) -> None:
    """Upload an export of another system; its preview is shown."""
    names = ("lee@shop.example", "ann@studio.example", "kim@band.example")
    rows = "".join(f"{generate_license_key()},1,{name},Buyer\n" for name in names)
    head = "License Key,License Key Enabled?,Purchase Email,Buyer Name\n"
    content = f"{head}{rows},1,no key,\n".encode()
    await visitor.open("/console/imports")
    await visitor.page.get_by_label("Comes from").select_option("gumroad")
    await visitor.page.get_by_label("Products").fill("photo-lab")
    await visitor.page.get_by_label("Slots of lines").fill("2")
    file = {"name": "sales.csv", "mimeType": "text/csv", "buffer": content}
    await visitor.page.get_by_label("File", exact=True).set_input_files(file)  # type: ignore[arg-type]
    await _draw(visitor, "console-import")
    await visitor.page.get_by_role("button", name="Preview").click()
    await visitor.page.wait_for_url("**/preview*")


async def _account(visitor: Visitor, world: World, license_page: str) -> None:
    """Sign in as a customer whose people share seats."""
    licenses = world.services.licenses
    license_ = licenses.get(license_page.rpartition("/")[2])
    for activation in licenses.list_activations(license_.id.hex()).items[2:]:
        licenses.free_slot(license_.id.hex(), activation.environment)  # fewer, to fit into a picture
    await visitor.open("/account")
    await visitor.page.get_by_label("License key").fill(licenses.decrypt_key(license_))
    await visitor.page.get_by_role("button", name="Sign in").click()
    await visitor.page.get_by_role("heading", name="Seats in use").wait_for()
    await visitor.page.locator("summary").last.click()
    await _draw(visitor, "account-seats")


async def _back_up(visitor: Visitor, world: World) -> None:
    """Make two backups; the page shows both."""
    for _ in range(2):
        await visitor.open("/console/backups")
        await visitor.page.get_by_role("button", name="Make a backup").click()
        await visitor.page.get_by_text("The backup is being written").wait_for()
        world.services.context.threads.wait()
        for file in BackupFolder(world.services).list_files()[:1]:
            os.utime(file.path, (world.clock().timestamp(),) * 2)
        world.clock.forward(minutes=20)
    await visitor.open("/console/backups")
    usual = (
        "it => it.innerHTML = it.innerHTML.replaceAll(/[^ >]*data.backups/g, '/var/lib/licserver/backups')"
    )
    await visitor.page.locator("main").evaluate(usual)


async def main() -> None:
    """Stock a shop, and take a picture of each page."""
    assert chromium.PROGRAM, chromium.MISSING
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        look = {"account": True, "account_name": "Example Soft", "account_color": "#1a5fb4"}
        world = World(Path(folder), MovableClock(datetime(2026, 11, 10, 10, 30, tzinfo=UTC)), **look)
        with world.serving() as server:
            async with browser() as program:
                alice = add_alice(world)
                async with visiting(program, server.url) as visitor:
                    await visitor.sign_in(*alice)
                    await _draw(visitor, "console-first-start")
                pages = stock_shop(world)
                for (scheme, window), pictures in PICTURES.items():
                    size = WINDOWS[window]
                    async with visiting(program, server.url, color_scheme=scheme, viewport=size) as visitor:
                        await visitor.sign_in(*alice)
                        for name, page in pictures.items():
                            await visitor.open(pages[page])
                            await _draw(visitor, name)
                async with visiting(program, server.url, color_scheme="light", viewport=DESK) as visitor:
                    await visitor.sign_in(*alice)
                    for name, (page, heading) in PARTS.items():
                        await visitor.open(pages[page])
                        if name in UNFOLDED:
                            await visitor.page.get_by_text(UNFOLDED[name], exact=True).click()
                        await _draw(visitor, name, heading)
                    await _account(visitor, world, pages["seats"])
                    await visitor.open("/console")
                    await _import(visitor)
                    await _draw(visitor, "console-import-preview")
                    await _back_up(visitor, world)
                    await _draw(visitor, "console-backups")
        world.close()


if __name__ == "__main__":
    asyncio.run(main())
