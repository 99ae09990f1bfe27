"""Fixtures of what was reported in public."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta

import pytest

from harness.commands import Cli
from harness.earlier_sales import EarlierSource, write_earlier
from harness.sales import work
from harness.shop_lists import serving_lists
from harness.world import World


@pytest.fixture
def open_earlier(
    make_world: Callable[..., World], shop_secrets: None
) -> Iterator[Callable[[EarlierSource], World]]:
    """Open a vendor whose database an earlier version wrote, and `licserver db upgrade` upgraded."""
    with ExitStack() as stack:

        def make(source: EarlierSource) -> World:
            earlier = make_world()
            write_earlier(earlier, source)
            mail = {"mail_host": "mail.example", "mail_sender": "shop@example.com"}
            world = World(earlier.folder, earlier.clock, **mail)
            stack.callback(world.close)
            return world

        yield make


@pytest.fixture
def sync(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run `licserver source sync` against a WooCommerce shop with orders, and process what it has found."""

    def run(world: World, orders: Sequence[bytes], subscriptions: Sequence[bytes] | None = None) -> str:
        lists = {"wp-json/wc/v3/orders": [json.loads(order) for order in orders]}
        if subscriptions is not None:
            lists["wp-json/wc/v3/subscriptions"] = [
                json.loads(subscription) for subscription in subscriptions
            ]
        monkeypatch.setenv("WOO_KEY", "ck_1:cs_1")
        command = Cli(world.folder / "data", monkeypatch, capsys)
        with serving_lists(lists) as address:
            arguments = ("--since", "2026-01-01", "--key-env", "WOO_KEY", "--url", address)
            printed = command("source", "sync", "woocommerce", *arguments)
        world.clock.now = max(world.clock(), datetime.now(UTC) + timedelta(seconds=1))  # the command's clock
        work(world)
        return printed

    return run
