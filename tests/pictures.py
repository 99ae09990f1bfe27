"""Make the pictures of the documentation: `nox -s pictures`. Look at each of them before you commit it."""

import asyncio
import io
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

FOLDER = Path(__file__).parents[1] / "docs" / "images"
MAX_BYTES = 150_000

PICTURES = [
    # name, page, colours, window
    ("console-overview", "overview", "light", DESK),
    ("console-licenses", "licenses", "light", DESK),
    ("console-license", "license", "light", DESK),
    ("console-license-dark", "license", "dark", DESK),
    ("console-release", "release", "light", DESK),
    ("console-audit", "audit", "light", DESK),
    ("console-phone", "license", "light", PHONE),
]


async def _draw(visitor: Visitor, name: str) -> None:
    path = FOLDER / f"{name}.png"
    taken = await visitor.page.screenshot(full_page="phone" not in name)
    few = Image.open(io.BytesIO(taken)).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    few.save(path, optimize=True)
    size = path.stat().st_size
    assert size < MAX_BYTES, f"{path.name} has {size} bytes"


async def main() -> None:
    """Stock a shop, and take a picture of each page."""
    assert chromium.PROGRAM, chromium.MISSING
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), MovableClock(datetime(2026, 11, 10, 10, 30, tzinfo=UTC)))
        with world.serving() as server:
            async with browser() as program:
                async with visiting(program, server.url) as visitor:
                    world.vendor.add_user("first", "a first start in words")
                    await visitor.sign_in("first", "a first start in words")
                    await _draw(visitor, "console-first-start")
                world.vendor.remove_user("first")
                pages, alice = stock_shop(world), add_alice(world)
                for name, page, scheme, window in PICTURES:
                    async with visiting(program, server.url, color_scheme=scheme, viewport=window) as visitor:
                        await visitor.sign_in(*alice)
                        await visitor.open(pages[page])
                        await _draw(visitor, name)
        world.close()


if __name__ == "__main__":
    asyncio.run(main())
