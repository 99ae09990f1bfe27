"""Fixtures of the cross-package tests."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from harness import chromium
from harness.flavours import opened
from harness.screen import Screen
from harness.shop import PRODUCT, SLUG, Open
from harness.world import MovableClock, Server, World, utc
from licclient import LicenseClient

if TYPE_CHECKING:
    from playwright.async_api import Browser

BIGGEST_PICTURE = 100_000  # bytes


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly that there was no browser; skips are easily overlooked."""
    if chromium.PROGRAM is None:
        terminalreporter.section("no browser", sep="!", red=True, bold=True)
        terminalreporter.line(chromium.MISSING, red=True, bold=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def program() -> AsyncIterator["Browser"]:
    """One chromium for a module's tests; each opens a window of its own."""
    async with chromium.browser() as running:
        yield running


@pytest.fixture
def photograph(screen: Screen, tmp_path: Path) -> Callable[[str, str], None]:
    """Takes pictures for the documentation, and looks whether there is anything on them."""
    folder = Path(os.environ.get("LICENSING_PICTURES") or tmp_path)

    def take(window: str, name: str) -> None:
        file = folder / f"{name}.png"
        screen.photograph(window, file)
        taken = file.read_bytes()
        assert taken.startswith(b"\x89PNG")
        assert 2_000 < len(taken) < BIGGEST_PICTURE, len(taken)

    return take


@pytest.fixture
def clock() -> MovableClock:
    """A clock that stands at noon of 2026-11-20, UTC."""
    return MovableClock(utc(2026, 11, 20, 12))


@pytest.fixture
def make_world(
    tmp_path: Path, clock: MovableClock, make_database_url: Callable[..., str | None]
) -> Iterator[Callable[..., World]]:
    """Makes vendors, on either engine; all are closed at the end."""
    worlds: list[World] = []

    def make(**settings: Any) -> World:
        settings.setdefault("database_url", make_database_url())
        worlds.append(World(tmp_path / f"world-{len(worlds)}", clock, **settings))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(request: pytest.FixtureRequest, make_world: Callable[..., World]) -> World:
    """One vendor with default settings; as indirect parameter: settings."""
    return make_world(**getattr(request, "param", {}))


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the client's retries follow each other at once."""
    monkeypatch.setattr("licclient._core.pace.RETRY_SECONDS", 0.001)


@pytest.fixture
def engine_name(request: pytest.FixtureRequest) -> str:
    """SQLite; with `both_engines` PostgreSQL as well."""
    return str(getattr(request, "param", "sqlite"))


@pytest.fixture
def flavour(request: pytest.FixtureRequest) -> str:
    """Which of the two clients is used: the synchronous one; with `both_flavours` the other as well."""
    return str(getattr(request, "param", "sync"))


@pytest.fixture
def shop(world: World) -> World:
    """A vendor with one product and two versions."""
    world.stock({"products": [PRODUCT], "licenses": []})
    return world


@pytest.fixture
def server(shop: World) -> Iterator[Server]:
    """The shop's server, running."""
    with shop.serving() as server:
        yield server


@pytest.fixture
def open_client(flavour: str, server: Server, tmp_path: Path, clock: MovableClock) -> Iterator[Open]:
    """Opens clients of the flavour; by default with one state folder each."""
    with ExitStack() as stack:
        count = 0

        def open_one(**settings: Any) -> LicenseClient:
            nonlocal count
            count += 1
            state = {"storage": tmp_path / f"state-{count}", "clock": clock}
            app = {"slug": SLUG, "version": "1.0.0"}
            return stack.enter_context(opened(flavour, server.url, **{**state, **app, **settings}))

        yield open_one
