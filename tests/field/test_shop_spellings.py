"""How shops write values, and what they leave out: whatever a delivery has, it is read alike or refused.

Fields become null, texts become numbers and the reverse, time zones are left out, and fields come that nobody
knows. Reports: paddle-python/dj-paddle#39, laravel/cashier-paddle#75, woocommerce/woocommerce#9513.
"""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlencode

import pytest

from harness import sales, shops
from licserver.shops import SHOPS, ShopKind
from licserver.shops.facts import Fact
from licserver.shops.reading import UnreadableDeliveryError

MAKE: Any = shops
NOON = 1_781_524_800

BODIES: dict[str, tuple[str, bytes]] = {
    **{f"{kind} bought": (kind, body) for kind, body in sales.BOUGHT.items()},
    **{f"{kind} refunded": (kind, body) for kind, body in sales.REFUNDED.items()},
    "stripe invoice": (
        "stripe",
        MAKE.stripe("invoice.paid", MAKE.stripe_invoice("subscription_cycle", NOON + 86_400)),
    ),
    "stripe old invoice": (
        "stripe",
        MAKE.stripe("invoice.paid", MAKE.stripe_invoice("subscription_cycle", NOON + 86_400, new=False)),
    ),
    "lemonsqueezy subscription": (
        "lemonsqueezy",
        MAKE.lemon(
            "subscription_created",
            "77",
            MAKE.lemon_subscription("active", variant_id=11, pause={"mode": "void", "resumes_at": None}),
        ),
    ),
    "woocommerce subscription": ("woocommerce", MAKE.woo_subscription(billing={"email": "ann@example.com"})),
    "woocommerce renewal": ("woocommerce", MAKE.woo_renewal(900, date_paid_gmt="2026-06-15T12:00:00")),
    "polar subscription": ("polar", MAKE.polar("subscription.active", **MAKE.polar_subscription())),
    "dodo subscription": ("dodo", MAKE.dodo("subscription.active", **MAKE.dodo_subscription())),
    "gumroad membership": (
        "gumroad",
        MAKE.gumroad(subscription_id="sub_1==", recurrence="monthly", is_recurring_charge="true"),
    ),
    "gumroad ended": (
        "gumroad",
        MAKE.gumroad_subscription("subscription_ended", ended_at="2026-06-16T12:00:00Z"),
    ),
}
Place = tuple[str | int, ...]


def load(body: bytes) -> Any:
    """Return what a body contains; of a form, as JSON would have it."""
    return json.loads(body) if body.startswith(b"{") else dict(parse_qsl(body.decode()))


def dump(content: Any, like: bytes) -> bytes:
    """Write it as the shop does."""
    return json.dumps(content).encode() if like.startswith(b"{") else urlencode(content).encode()


def leaves(content: Any, place: Place = ()) -> Iterator[tuple[Place, Any]]:
    """Return the places of all values, also of objects."""
    inner: Any = ()
    if isinstance(content, dict):
        inner = content.items()
    elif isinstance(content, list):
        inner = enumerate(content)
    for name, value in inner:
        yield (*place, name), value
        yield from leaves(value, (*place, name))


def change(body: bytes, place: Place, make: Callable[[Any, Any], None]) -> bytes:
    """Return a body with a change at a place; `make` gets what it is in and the name there."""
    content = load(body)
    inner = content
    for name in place[:-1]:
        inner = inner[name]
    make(inner, place[-1])
    return dump(content, body)


def read(kind: str, body: bytes) -> tuple[Fact, ...] | None:
    """Return the facts of a body; None if it cannot be read."""
    try:
        return SHOPS[ShopKind(kind)].read({"webhook-id": "m"}, body).facts
    except UnreadableDeliveryError:
        return None


def remove(inner: Any, name: Any) -> None:
    """Remove a member."""
    del inner[name]


def put(value: Any) -> Callable[[Any, Any], None]:
    """Return what puts a value."""

    def make(inner: Any, name: Any) -> None:
        inner[name] = value

    return make


@pytest.mark.parametrize("name", BODIES)
def test_null_and_empty_are_absent(name: str) -> None:
    """A field that is null, empty or no date is read as if it were not there."""
    kind, body = BODIES[name]
    for place, _ in leaves(load(body)):
        absent = read(kind, change(body, place, remove))
        empty: list[Any] = [""] if not body.startswith(b"{") else [None, "", "0000-00-00 00:00:00"]
        for value in empty:
            assert read(kind, change(body, place, put(value))) == absent, (place, value)


@pytest.mark.parametrize("name", BODIES)
def test_numbers_are_texts_and_texts_numbers(name: str) -> None:
    """``"3"`` is 3, and an id may be either."""
    kind, body = BODIES[name]
    expected = read(kind, body)
    if not body.startswith(b"{"):
        return
    for place, value in leaves(load(body)):
        if isinstance(value, int | float) and not isinstance(value, bool):
            assert read(kind, change(body, place, put(str(value)))) == expected, place
        elif isinstance(value, str) and value.isdecimal():
            assert read(kind, change(body, place, put(int(value)))) == expected, place


@pytest.mark.parametrize("name", BODIES)
def test_times_without_a_zone_are_utc(name: str) -> None:
    """Each shop writes UTC; some deliveries leave out that it is."""
    kind, body = BODIES[name]
    expected = read(kind, body)
    for place, value in leaves(load(body)):
        if isinstance(value, str) and value.endswith("Z") and value[4:5] == "-":
            for other in (value[:-1], value[:-1] + "+00:00", value[:-1].replace("T", " ")):
                assert read(kind, change(body, place, put(other))) == expected, (place, other)


@pytest.mark.parametrize("name", BODIES)
def test_what_nobody_knows_changes_nothing(name: str) -> None:
    """New fields, in any object, of any type."""
    kind, body = BODIES[name]
    expected = read(kind, body)
    if not body.startswith(b"{"):
        assert read(kind, body + "&new=1&new[a][]=2&größe=專業版".encode()) == expected
        return
    values: list[Any] = [{"a": [None]}, "專業版" * 1_000, None, 1e400, [[]]]
    for place, value in leaves(load(body)):
        for new in values if isinstance(value, dict) else ():
            assert read(kind, change(body, place, put({**value, "new": new}))) == expected
