"""Which license is which item: keys, numbers, and how items are matched with what was sold."""

from datetime import UTC, datetime

import pytest

from licserver.shops.contract import Issued
from licserver.shops.facts import Line, Order, OrderReason, OrderState
from licserver.shops.orders import OrderFacts
from licserver.shops.subscriptions import SubscriptionFacts
from licserver.shops.units import (
    FEWER,
    REPLACED,
    Unit,
    escape,
    find_base_key,
    find_last_item,
    find_numbers,
    is_assigned,
    make_line_key,
    match_items,
)

AT = datetime(2026, 6, 15, 12, tzinfo=UTC)
SUBSCRIPTION = SubscriptionFacts("s")


def sold_by(reason: OrderReason = OrderReason.PURCHASE) -> OrderFacts:
    """Return an order."""
    return OrderFacts({"5"}, Order(id="5", reported_at=AT, state=OrderState.PAID, reason=reason))


def issued(number: int, key: str | None = "line:5/1", **more: object) -> Issued:
    """Return a license."""
    return Issued(f"license {number}".encode(), "app", key=key, number=number)._replace(**more)


def item(sold: str | None, id_: str | None = None, quantity: int | None = 1) -> Line:
    """Return an item of a subscription."""
    return Line(id_, (sold,) if sold else (), sold, quantity)


def match(
    units: list[Unit], *items: Line, product: str | None = None
) -> tuple[dict[str, str | None], list[Line]]:
    """Return what each unit sells then, and the items without one."""
    left = [*units]
    open_ = match_items(left, items, SUBSCRIPTION, lambda _: product)
    return {unit.key: unit.sold for unit in units if unit not in left}, open_


def test_keys() -> None:
    """A product is named after an at sign, which no id has."""
    assert escape("a@b%c") == "a%40b%25c"
    assert find_base_key("line:5/1@suite") == "line:5/1"
    assert make_line_key(sold_by(), "1@x") == "line:5/1%40x"
    assert make_line_key(sold_by(), None) == "line:5/"


def test_numbers() -> None:
    """Licenses with a key keep theirs; others get the next free one."""
    licenses = [issued(1, None), issued(2, None), issued(1, "line:5/1", license_id=b"z"), issued(3)]
    assert find_numbers(licenses) == {b"z": 1, b"license 3": 3, b"license 1": 2, b"license 2": 4}


def test_items_without_ids_add_up() -> None:
    """Those of one product; not those with ids, or of no product."""
    two = [item("a", None, 2), item("a", None, 3)]
    assert match([], *two)[1] == [item("a", None, 5)]
    assert match([], item("a", "1"), item("a", "2"))[1] == [item("a", "1"), item("a", "2")]
    assert match([], item(None), item(None))[1] == [item(None), item(None)]


def test_an_item_is_matched_by_the_best_that_fits() -> None:
    """Its id, then what its licenses are for, then what was sold; valid ones first."""
    order = sold_by()
    by_id, current, first = (
        Unit("item:i", sold="x", order=order, issued=[issued(1)]),
        Unit("line:5/1", sold="x", order=order, issued=[issued(2, item="a")]),
        Unit("line:5/2", sold="a", order=order, issued=[issued(3, item="b")]),
    )
    assert match([first, current, by_id], item("a", "i"))[0] == {"item:i": "a"}
    assert match([Unit("line:5/2", sold="a", order=order), current], item("a"))[0] == {"line:5/1": "a"}
    assert match([Unit("line:5/0", sold="b", order=order), first], item("a"))[0] == {"line:5/2": "a"}
    gone = Unit("line:5/3", sold="a", order=order, issued=[issued(4, item="a", revoked_reason=FEWER)])
    valid = Unit("line:5/4", sold="a", order=order, issued=[issued(5, item="a")])
    assert match([gone, valid], item("a"))[0] == {"line:5/4": "a"}
    assert match([gone], item("a"))[0] == {"line:5/3": "a"}


def test_licenses_that_were_removed_are_not_revived_beside_valid_ones() -> None:
    """By what is sold, by the product of the licenses, and by an id that both share."""
    order = sold_by()

    def pair(sold: str) -> list[Unit]:
        removed = issued(1, item=sold, revoked_reason=FEWER)
        valid = issued(2, "line:5/2", item=sold)
        units = [
            Unit("line:5/1", issued=[removed], order=order),
            Unit("line:5/2", issued=[valid], order=order),
        ]
        for unit in units:
            unit.sold, unit.ids = sold, (sold, "group")
        return units

    assert match(pair("a"), item("a"))[0] == {"line:5/2": "a"}
    assert match(pair("a"), item("b"), product="app")[0] == {"line:5/2": "b"}
    shared = Line(None, ("b", "group"), "b", 1)
    assert match(pair("a"), shared)[0] == {"line:5/2": "b"}


def test_an_item_without_a_product_matches_none_of_two() -> None:
    """Two units without a product are not the same for it."""
    units = [Unit(f"line:5/{place}", order=sold_by(), issued=[issued(1)]) for place in (1, 2)]
    assert match(units, item(None))[0] == {}


@pytest.mark.parametrize(
    ("reason", "count", "keys"),
    [
        (OrderReason.PURCHASE, 1, ["line:5/0"]),  # alone, it is the subscription's
        (OrderReason.PURCHASE, 2, []),  # beside others, what was issued as not of it is not
        (OrderReason.RENEWAL, 1, []),
    ],
)
def test_another_plan(reason: OrderReason, count: int, keys: list[str]) -> None:
    """An item that fits nothing is what was sold before, if that is known to be of the subscription."""
    units = [
        Unit(
            f"line:5/{number}",
            sold=f"x{number}",
            order=sold_by(reason),
            issued=[issued(1, f"line:5/{number}")],
        )
        for number in range(count)
    ]
    matched, open_ = match(units, item("b"))
    assert ([*matched], len(open_)) == (keys, 0 if keys else 1)
    if keys:
        assert units[0].subscription is SUBSCRIPTION


def test_what_is_assigned() -> None:
    """Licenses with a key of a line, for this subscription."""
    for license_, expected in (
        (issued(1, subscription_id="s"), True),
        (issued(1, subscription_id="t"), False),
        (issued(1, None, subscription_id="s"), False),
        (issued(1), False),
    ):
        assert is_assigned(Unit("line:5/1", issued=[license_]), SUBSCRIPTION) is expected


def test_the_last_item() -> None:
    """Of the latest license that was not replaced and has one."""
    licenses = [issued(1, item="a"), issued(2, item="b", revoked_reason=REPLACED), issued(3, item=None)]
    assert find_last_item(licenses) == "a"
    assert find_last_item([]) is None
