"""Which license is which item: keys, numbers, and how items are matched with what was sold."""

from datetime import UTC, datetime, timedelta

import pytest

from licserver.shops.contract import Issued
from licserver.shops.facts import Line, Lines, Order, OrderReason, OrderState
from licserver.shops.items import Matching, match_items, share_items
from licserver.shops.orders import OrderFacts
from licserver.shops.subscriptions import SubscriptionFacts
from licserver.shops.units import (
    FEWER,
    REPLACED,
    Unit,
    escape,
    find_base_key,
    find_last_item,
    is_assigned,
    make_line_key,
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
    matching = Matching(SUBSCRIPTION, Lines(subscription_id="s", reported_at=AT, lines=items), left)
    match_items([matching], lambda _: product)
    return {unit.key: unit.sold for unit in units if unit.key in matching.taken}, matching.items


def test_keys() -> None:
    """A product is named after an at sign, which no id has."""
    assert escape("a@b%c") == "a%40b%25c"
    assert find_base_key("line:5/1@suite") == "line:5/1"
    assert make_line_key(sold_by(), "1@x") == "line:5/1%40x"
    assert make_line_key(sold_by(), None) == "line:5/"


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


def test_what_was_sold_counts_before_another_license_of_the_product() -> None:
    """By what its licenses are for, and of a line that has none yet by what it sold."""
    first, current = (
        Unit(f"line:5/{sold}", sold=sold, order=sold_by(), issued=[issued(1, f"line:5/{sold}", item=sold)])
        for sold in "ba"
    )
    assert match([first, current], item("a"), product="app")[0] == {"line:5/a": "a"}
    new = Unit("line:5/c", sold="c", order=sold_by())
    assert match([first, new], item("c"), product="app")[0] == {"line:5/c": "c"}


def test_a_line_without_a_license_is_known_by_its_product() -> None:
    """As if its license had been issued before the item was known."""
    order, products = sold_by(), {"x": "suite", "y": "app", "b": "app"}
    units = [Unit(f"line:5/{sold}", (sold,), sold, 1, order) for sold in "xy"]
    listing = Lines(subscription_id="s", reported_at=AT, lines=(item("b"),))
    matching = Matching(SUBSCRIPTION, listing, units)
    match_items([matching], lambda line: products.get(line.external_ids[0]))
    assert (matching.taken, matching.items) == ({"line:5/y"}, [])
    assert [unit.key for unit in matching.earlier] == ["line:5/x"]


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


@pytest.mark.parametrize(
    ("unit", "listed", "is_matched"),
    [
        (Unit("line:5/1", ids=("a", "group"), sold="a"), Line(None, ("b", "group"), "b", 1), True),
        (Unit("line:5/1", ids=("x",), sold="a"), Line(None, ("b", "a"), "b", 1), True),
        (Unit("line:5/1", ids=("x",), sold="a"), Line(None, ("b", "c"), "b", 1), False),
    ],
)
def test_an_item_of_the_same_group_is_what_was_sold(unit: Unit, listed: Line, is_matched: bool) -> None:
    """A variation of one product, of two units that no better rule matches; without one it is new."""
    other = Unit("line:5/2", ids=("y",), sold="y", order=sold_by(OrderReason.RENEWAL))
    unit.order = sold_by(OrderReason.RENEWAL)
    assert (match([unit, other], listed)[0] == {"line:5/1": "b"}) is is_matched


# --- several purchases of what became one item

LISTED = AT + timedelta(days=10)


def bought(id_: str, quantity: int | None, *, day: float = 0, sold: str = "a", **more: object) -> Unit:
    """Return what an order has sold on a day."""
    order = Order(id=id_, reported_at=AT + timedelta(days=day), state=OrderState.PAID)
    return Unit(f"line:{id_}/{sold}", (sold,), sold, quantity, OrderFacts({id_}, order), **more)


def share(units: list[Unit], *items: Line, as_of: datetime | None = LISTED) -> tuple[list[Line], list[Unit]]:
    """Return the items for what is left, and that."""
    left, reported_at = [*units], LISTED if as_of is None else LISTED + timedelta(days=30)
    listing = Lines(subscription_id="s", reported_at=reported_at, as_of=as_of, lines=items)
    return share_items(left, listing, SUBSCRIPTION), left


@pytest.mark.parametrize(
    ("listed", "kept", "shared"),
    [
        (3, 2, 1),
        (2, 2, 0),  # the second was given up
        (1, 1, 0),
        (5, 4, 1),  # what was added belongs to the first
        (0, 0, 0),
    ],
)
def test_two_purchases_are_as_many_as_the_item_has(listed: int, kept: int, shared: int) -> None:
    """The first keeps its licenses as long as it can, then the second."""
    first, second = bought("1", 2), bought("2", 1, day=5)
    assert share([first, second], item("a", quantity=listed)) == ([item("a", quantity=kept)], [first])
    assert (second.quantity, second.subscription, second.is_item) == (shared, SUBSCRIPTION, True)


def test_three_purchases_share_one_after_the_other() -> None:
    """What the second has is missing for the third."""
    units = [bought("1", 1), bought("2", 2), bought("3", 3)]
    assert share(units, item("a", quantity=4)) == ([item("a", quantity=1)], units[:1])
    assert [unit.quantity for unit in units] == [1, 2, 1]


@pytest.mark.parametrize(
    ("as_of", "is_more"), [(LISTED, True), (None, True), (LISTED + timedelta(days=1), False)]
)
def test_a_purchase_after_the_shop_has_counted_is_more(as_of: datetime | None, is_more: bool) -> None:
    """It keeps its quantity, and belongs to the subscription; at the instant of the listing it is counted."""
    first, later = bought("1", 2), bought("2", 1, day=11)
    assert share([first, later], item("a", quantity=2), as_of=as_of) == ([item("a", quantity=2)], [first])
    assert (later.quantity, later.is_item) == ((1, False) if is_more else (0, True))
    assert later.subscription is SUBSCRIPTION


@pytest.mark.parametrize(
    "units",
    [
        [bought("1", 2)],
        [bought("1", 2), bought("2", None)],
        [bought("1", 2), bought("2", 1, is_item=True)],
        [bought("1", 2), Unit("item:i", sold="a", quantity=1)],
        [bought("1", 2), Unit("line:5/a", sold="a", quantity=1, order=sold_by(OrderReason.RENEWAL))],
    ],
)
def test_nothing_is_shared_with_what_is_no_other_purchase(units: list[Unit]) -> None:
    """An item of a subscription, a renewal, a line of unknown quantity; nor is an unknown number."""
    assert share(units, item("a", quantity=1)) == ([item("a", quantity=1)], units)
    two = [bought("1", 2), bought("2", 1)]
    assert share(two, item("a", quantity=None)) == ([item("a", quantity=None)], two)


def test_a_later_purchase_stands_before_others() -> None:
    """Those after it in the list were counted all the same."""
    first, later, other = bought("1", 2), bought("2", 1, day=11), bought("3", 1)
    assert share([first, later, other], item("a", quantity=3)) == ([item("a", quantity=2)], [first])
    assert [(unit.quantity, unit.is_item) for unit in (later, other)] == [(1, False), (1, True)]


def test_two_lines_of_an_order_are_one_purchase() -> None:
    """They are matched with items one by one."""
    first = bought("1", 2)
    second = Unit("line:1/b", ("a",), "a", 1, first.order)
    assert share([first, second], item("a", quantity=2)) == ([item("a", quantity=2)], [first, second])


def test_an_item_is_shared_by_what_was_sold_as_it_unless_it_is_the_only_one() -> None:
    """Another plan of all purchases is one item."""
    first, second, other = bought("1", 1), bought("2", 1), bought("3", 1, sold="b")
    items = [item("b", quantity=1), item("a", quantity=2)]
    assert share([first, other, second], *items) == ([items[0], item("a", quantity=1)], [first, other])
    first, second = bought("1", 1), bought("2", 1)
    assert share([first, second], item("c", quantity=2)) == ([item("c", quantity=1)], [first])
    assert second.sold == "c"
