"""Shops edit what an order line points to: its article number, its product, the product itself.

A line stays what it is. What it was sold with is neither sold again, nor asked about again.
"""

from collections.abc import Callable
from typing import Any

import pytest

from harness import shops
from harness.earlier_sales import EarlierSale, EarlierSource, WaitingDelivery
from harness.sales import add, licenses, process, states
from harness.world import World
from licserver.domain.records import EnvironmentPolicy

Open = Callable[[EarlierSource], World]
WOO = "woocommerce"
BOTH = {"APP": "app", "OTHER": "other", "77": "other"}

line = shops.woo_line
NO_NUMBER = line(sku="")
OTHER = line(316, product_id=77, sku="OTHER")


def order(*lines: dict[str, Any], at: str = "2026-06-16T12:00:00", **fields: Any) -> bytes:
    """Make an order that was edited a day later."""
    return shops.woo(line_items=list(lines), date_modified_gmt=at, **fields)


def products(world: World) -> list[str]:
    """Return of which product each license is."""
    return sorted(license_.product_slug for license_ in licenses(world))


def mails(world: World) -> int:
    """Count the mails that are to be sent."""
    return len(world.services.mail.list_jobs().items)


EDITS = {
    "woocommerce/woocommerce#22527: an article number is added": ("93", NO_NUMBER, line(sku="APP")),
    "woocommerce/woocommerce#22527: an article number is removed": ("APP", line(), NO_NUMBER),
    "woocommerce/woocommerce#52682: an article number changes": ("APP", line(), line(sku="APP-2")),
    "the product becomes a variation of another": ("APP", line(), line(product_id=95, variation_id=96)),
    "the variation gets an article number": (
        "94",
        line(variation_id=94, sku=""),
        line(variation_id=94, sku="APP"),
    ),
    "the product is deleted": ("93", NO_NUMBER, line(product_id=0, sku=None)),
}
"""Case → what was stored of the position without its line's id, the line as it was, and as it is."""
edits = pytest.mark.parametrize(("stored", "before", "after"), EDITS.values(), ids=list(EDITS))


@pytest.mark.sampled(2, "stored")
@edits
def test_an_edited_line_is_sold_once(
    world: World, shop_secrets: None, stored: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Whatever of it changes; also as the API lists it."""
    world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(world, WOO)
    for external_id in ("93", "94"):
        world.services.sources.map(WOO, external_id, "app")
    process(world, WOO, order(before), order(after))
    assert (len(licenses(world)), states(world, WOO)) == (1, ["done", "done"])


@pytest.mark.sampled(2, "stored")
@edits
def test_an_edited_line_of_an_earlier_order_is_sold_once(
    open_earlier: Open,
    sync: Callable[..., str],
    stored: str,
    before: dict[str, Any],
    after: dict[str, Any],
) -> None:
    """By delivery and by `source sync`, which doubled five orders and mailed all of them."""
    sales = [EarlierSale(f"{number}", stored) for number in range(1, 6)]
    world = open_earlier(EarlierSource(WOO, sales, mapped={"APP": "app", "93": "app", "94": "app"}))
    sync(world, [order(after, id=number) for number in range(1, 6)])
    process(world, WOO, *(order(after, id=number, status="completed") for number in range(1, 6)))
    assert (len(licenses(world)), set(states(world, WOO)), mails(world)) == (5, {"done"}, 0)


def test_an_order_that_was_served_is_never_not_mapped_again(open_earlier: Open) -> None:
    """Its article number was mapped, and the new one is not."""
    world = open_earlier(EarlierSource(WOO, [EarlierSale("727", "APP")], mapped={"APP": "app"}))
    process(world, WOO, order(line(sku="NEW")), order(line(sku="NEWER"), status="completed"))
    assert (products(world), states(world, WOO)) == (["app"], ["done", "done"])


def test_what_an_order_still_waits_for_is_served(open_earlier: Open) -> None:
    """One of two positions was not mapped: the other one is not sold again, by whichever delivery."""
    waiting = WaitingDelivery("727", [(["APP", "93"], 1), (["OTHER", "77"], 1)])
    world = open_earlier(EarlierSource(WOO, [EarlierSale("727", "APP")], [waiting], {"APP": "app"}))
    edited = order(line(sku="APP-2"), OTHER)
    process(world, WOO, edited)
    assert (products(world), states(world, WOO)) == (["app"], ["dead", "dead"])
    for external_id, slug in BOTH.items():
        world.services.sources.map(WOO, external_id, slug)
    for event in world.services.sources.list_events(WOO).items:
        world.services.sources.replay(event.id)
    process(world, WOO, order(line(sku="APP-2"), OTHER, status="processing"))
    assert (products(world), states(world, WOO)) == (["app", "other"], ["done"] * 3)


def test_what_waited_is_served_by_the_delivery_that_waited(open_earlier: Open) -> None:
    """As the version before would have done it; what is delivered afterwards sells nothing more."""
    waiting = WaitingDelivery("727", [(["APP", "93"], 1), (["OTHER", "77"], 1)])
    world = open_earlier(EarlierSource(WOO, [EarlierSale("727", "APP")], [waiting], BOTH))
    (event,) = world.services.sources.list_events(WOO).items
    world.services.sources.replay(event.id)
    edited = [line(sku=""), {**OTHER, "sku": "X"}]
    process(world, WOO, order(*edited), order(*edited, status="processing"))
    assert (products(world), states(world, WOO)) == (["app", "other"], ["done"] * 3)


POSITIONS = {
    "by variation before product": (
        [("93", 1, "app"), ("94", 1, "other")],
        [line(1, sku=""), line(2, variation_id=94, sku="")],
        (["app", "other"], "done"),
    ),
    "by product before article number": (  # another product has the article number now
        [("93", 1, "app")],
        [line(1, product_id=77, sku="93"), line(2, sku="")],
        (["app", "other"], "done"),
    ),
    "two lines of one product are one": (
        [("APP", 3, "app")],
        [line(1, quantity=2), line(2)],
        (["app"] * 3, "done"),
    ),
    "a line is added to an order": ([("APP", 1, "app")], [line(1), line(2)], (["app"] * 2, "done")),
    "fewer of a line are left": ([("APP", 2, "app")], [line(1), OTHER], (["app", "app", "other"], "done")),
    "by product of the license": (
        [("OLD", 1, "app")],
        [OTHER, line(1)],
        (["app", "other"], "done"),
    ),
    "by quantity": (
        [("OLD", 2, "app"), ("OLDER", 1, "app")],
        [line(1, product_id=1, sku="X"), line(2, product_id=2, sku="Y", quantity=2)],
        (["app"] * 3, "done"),
    ),
    "nothing fits": ([("OLD", 2, "app")], [line(1, product_id=1, sku="X")], (["app"] * 2, "dead")),
    "two may be it": (
        [("OLD", 1, "app")],
        [line(1, product_id=1, sku="X"), line(2, product_id=2, sku="Y")],
        (["app"], "dead"),
    ),
    "a mapped one may be it": ([("OLD", 2, "app")], [OTHER], (["app"] * 2, "dead")),
}
"""Case → what was sold of an order, its lines today, and the products of all licenses and the state."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("sold", "lines", "expected"), POSITIONS.values(), ids=list(POSITIONS))
def test_how_earlier_licenses_are_matched(
    open_earlier: Open, sold: list[tuple[str, int, str]], lines: list[dict[str, Any]], expected: Any
) -> None:
    """Delivered twice, what was matched stays so; only what matches nothing waits for a person."""
    sales = [EarlierSale("727", item, slug) for item, count, slug in sold for _ in range(count)]
    world = open_earlier(EarlierSource(WOO, sales, mapped=BOTH))
    process(world, WOO, order(*lines, status="processing"))
    assert (products(world), states(world, WOO)) == (expected[0], [expected[1]])
    process(world, WOO, order(*lines, status="completed"))
    assert (products(world), states(world, WOO)) == (expected[0], [expected[1]] * 2)
