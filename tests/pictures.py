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
        "console-release": "release",
    },
    ("dark", "desk"): {"console-license-dark": "license"},
    ("light", "phone"): {"console-phone": "license"},
}
WINDOWS = {"desk": DESK, "phone": PHONE}


async def _draw(visitor: Visitor, name: str) -> None:
    path = FOLDER / f"{name}.png"
    taken = await visitor.page.screenshot(full_page="phone" not in name)
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


async def _back_up(visitor: Visitor, world: World) -> None:
    """Make two backups; the page shows both."""
    for _ in range(2):
        await visitor.open("/console/backups")
        await visitor.page.get_by_role("button", name="Make a backup").click()
        await visitor.page.get_by_text("The backup is being written").wait_for()
        world.services.context.background.wait()
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
        world = World(Path(folder), MovableClock(datetime(2026, 11, 10, 10, 30, tzinfo=UTC)))
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
                    await _import(visitor)
                    await _draw(visitor, "console-import-preview")
                    await _back_up(visitor, world)
                    await _draw(visitor, "console-backups")
        world.close()


if __name__ == "__main__":
    asyncio.run(main())
