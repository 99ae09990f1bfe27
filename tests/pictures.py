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

PICTURES = {
    # colours and window: what is shown there, by the name of its picture
    ("light", "desk"): {
        "console-audit": "audit",
        "console-overview": "overview",
        "console-licenses": "licenses",
        "console-license": "license",
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
        world.close()


if __name__ == "__main__":
    asyncio.run(main())
