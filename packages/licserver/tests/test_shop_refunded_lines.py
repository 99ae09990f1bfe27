"""A refund that names lines revokes the licenses of these, in whatever order the shop reports."""

import json
from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import shops
from harness.contracts import DAY, Vendor, at, mapped, play, text
from licserver.shops import woocommerce
from licserver.shops.contract import Fetch, Rules
from licserver.shops.desired import REFUNDED
from licserver.shops.facts import Fact, Line, Lines, Order, OrderState, Refund, RefundedLine, RefundState
from licserver.shops.reading import UnreadableDeliveryError
from licserver.shops.standard import read

PART = "order 727 was refunded in part, which revokes nothing"
WHICH = "; give the source an API key, so that the shop can be asked which lines it is"
REFUNDS = Fetch("refunds", "727", "order:727")


def woo_refund(
    line: int, quantity: Any, *, id_: int = 1, day: float = 1, amount: str = "5.00"
) -> dict[str, Any]:
    """Make a refund of a line, as WooCommerce's API has it."""
    named = {"id": 9, "key": "_refunded_item_id", "value": str(line)}
    item = {"id": 400 + id_, "product_id": 93, "quantity": quantity, "meta_data": [named]}
    date = {"date_created_gmt": text(day)[:-1]}
    return {"id": id_, "amount": amount, "reason": "", **date, "line_items": [item]}


def woo_order(*listed: int, day: float = 0, quantity: int = 3) -> bytes:
    """Make an order of two lines that lists refunds by their amounts."""
    lines = [shops.woo_line(315, quantity=quantity), shops.woo_line(316, product_id=94, sku="PRO")]
    refunds = [{"id": id_, "reason": "", "total": "-5.00"} for id_ in listed]
    modified = {"date_modified_gmt": text(day)[:-1]}
    return shops.woo("completed", line_items=lines, refunds=refunds, **modified)


def woo_facts(*refunds: dict[str, Any]) -> list[Fact]:
    """Read what WooCommerce's API lists of the order."""
    return list(woocommerce.read_fetched(REFUNDS, json.dumps(refunds).encode(), DAY))


def sell(*steps: bytes | list[Fact], vendor: Vendor | None = None) -> Vendor:
    """Return a vendor that takes deliveries and responses one after the other."""
    vendor = vendor or Vendor("woocommerce", mapped("APP", "PRO"))
    for step in steps:
        if isinstance(step, bytes):
            vendor.receive(step)
        else:
            vendor.take(step)
    return vendor


def valid(vendor: Vendor) -> Counter[str | None]:
    """Count the valid licenses by their lines."""
    return Counter(license_.key for license_ in vendor.valid)


# --- WooCommerce


@pytest.mark.parametrize(
    ("line", "quantity", "left"),
    [
        (315, -1, {"line:727/315": 2, "line:727/316": 1}),
        (315, -3, {"line:727/316": 1}),
        (315, -4, {"line:727/316": 1}),
        (316, -1, {"line:727/315": 3}),
    ],
)
def test_a_line_of_woocommerce(line: int, quantity: int, left: dict[str, int]) -> None:
    """The order lists the amount; its API names the line and the quantity."""
    for steps in permutations([woo_order(), woo_order(1, day=1), woo_facts(woo_refund(line, quantity))]):
        vendor = sell(*steps, *steps)
        assert (valid(vendor), vendor.asked, vendor.result.notes) == (left, [], ())
        assert {license_.revoked for license_ in vendor.licenses} <= {None, REFUNDED}


def test_the_last_licenses_of_a_line_are_revoked_whatever_is_in_use() -> None:
    """What is in use changes; which licenses were refunded does not."""
    vendor = sell(woo_order())
    vendor.licenses[2].in_use = 1
    sell(woo_order(1, day=1), woo_facts(woo_refund(315, -2)), vendor=vendor)
    numbers = [license_.number for license_ in vendor.valid if license_.key == "line:727/315"]
    vendor.licenses[0].in_use = 1
    vendor.reconcile()
    assert numbers == [license_.number for license_ in vendor.valid if license_.key == "line:727/315"] == [1]


def test_a_refund_that_was_deleted() -> None:
    """A later report of the order does not list it: all are valid again."""
    vendor = sell(woo_order(), woo_order(1, day=1), woo_facts(woo_refund(315, -2)))
    assert len(vendor.valid) == 2
    sell(woo_order(day=2), vendor=vendor)
    assert (len(vendor.valid), len(vendor.licenses)) == (4, 4)
    late = sell(woo_order(1, day=1), woo_facts(woo_refund(315, -2)), woo_order(day=2))
    assert len(late.valid) == len(late.licenses) == 4


@pytest.mark.parametrize("status", ["refunded", "completed"])
def test_a_refund_that_was_deleted_and_then_all_is_refunded(status: str) -> None:
    """A day of payment after a refund that is known does not mean that it was paid again."""
    amounts = [{"id": 2, "total": "-5.00"}, {"id": 3, "total": "-30.00"}]
    dates = {"date_paid_gmt": text(2.5)[:-1], "date_modified_gmt": text(3)[:-1]}
    refunded = shops.woo(status, line_items=[shops.woo_line(315, quantity=3)], refunds=amounts, **dates)
    deleted = woo_order(1, 2, day=1), woo_facts(woo_refund(315, -1)), woo_order(2, day=2)
    vendor = sell(woo_order(), *deleted, woo_facts(woo_refund(315, 0, id_=2, day=1)), refunded)
    assert (vendor.valid, vendor.asked) == ([], [])


def test_a_refund_that_is_newer_than_the_order() -> None:
    """Its report may not list it yet."""
    vendor = sell(woo_order(), woo_facts(woo_refund(316, -1, day=0.001)))
    assert valid(vendor) == {"line:727/315": 3}


def test_all_lines_are_refunded_and_shipping_is_not() -> None:
    """All that was bought is all, whatever was paid beside it."""
    refunds = woo_facts(woo_refund(315, -3), woo_refund(316, -1, id_=2))
    vendor = sell(woo_order(), woo_order(1, 2, day=1), refunds)
    assert (vendor.valid, vendor.asked, vendor.result.notes) == ([], [], ())
    never = sell(refunds, woo_order(1, 2, day=1))
    assert (never.licenses, never.result.nothing) == ([], f"no license of order 727: {REFUNDED}")


@pytest.mark.parametrize("quantity", [0, None, "1", 0.5])
def test_an_amount_alone_revokes_nothing(quantity: Any) -> None:
    """A discount after the purchase; nor does a refund of no line."""
    nameless = woo_refund(315, -1) | {"line_items": [{"quantity": -1, "meta_data": []}]}
    for refund in (woo_refund(315, quantity), nameless, woo_refund(0, -1)):
        vendor = sell(woo_order(), woo_order(1, day=1), woo_facts(refund))
        assert (len(vendor.valid), vendor.asked, vendor.result.notes) == (4, [], (PART,))
        assert vendor.result.fetches == ()


AMOUNT = "a refund of order {} names an amount and no quantity, so it revokes nothing"


def test_an_amount_beside_a_refunded_line_says_that_it_revokes_nothing() -> None:
    """Of WooCommerce, Paddle and a shop of one's own; the delivery had "nothing to change"."""
    first, second = woo_refund(315, -1), woo_refund(316, 0, id_=2, day=2)
    vendor = sell(woo_order(), woo_order(1, day=1), woo_facts(first))
    assert vendor.result.notes == ()
    sell(woo_order(1, 2, day=2), woo_facts(first, second), vendor=vendor)
    assert (len(vendor.valid), vendor.result.notes) == (3, (AMOUNT.format("727"),))
    for vendor in play(
        "standard",
        "a",
        purchase("a", quantity=3, total=30),
        refund_of(external_id="a", quantity=1, refund_id="r"),
        refund_of(amount=5, refund_id="q"),
    ):
        assert (len(vendor.valid), vendor.result.notes) == (2, (AMOUNT.format("1"),))


def test_an_api_key_that_is_not_set_is_named() -> None:
    """Of a source that has one, it was the wrong advice to give it one."""
    rules = Rules(timedelta(days=7), unset_key="WOO_KEY")
    vendor = sell(
        woo_order(), woo_order(1, day=1), vendor=Vendor("woocommerce", mapped("APP", "PRO"), rules=rules)
    )
    unset = "; set WOO_KEY, which the server does not have, to the API key, so that the shop can be asked"
    assert vendor.result.notes == (f"{PART}{unset} which lines it is",)


def test_the_shop_is_asked_for_the_lines_of_a_refund_once() -> None:
    """By its amount alone it revokes nothing, and the delivery says what is missing."""
    vendor = sell(woo_order(), woo_order(1, day=1))
    assert (vendor.result.fetches, vendor.result.notes) == ((REFUNDS,), (PART + WHICH,))
    sell(woo_facts(woo_refund(315, -1)), vendor=vendor)
    assert vendor.result.fetches == ()
    assert sell(woo_order()).result.fetches == ()
    partial = Vendor(
        "woocommerce", mapped("APP", "PRO"), rules=Rules(vendor.rules.grace, revokes_partial_refunds=True)
    )
    assert sell(woo_order(), woo_order(1, day=1), vendor=partial).result.fetches == ()
    path = woocommerce.fetch_path(REFUNDS)
    assert path == "wp-json/wc/v3/orders/727/refunds?per_page=100"
    assert woocommerce.fetch_path(Fetch("refunds", "7/../8", "order:7")) is None


def test_what_is_paid_does_not_wait_for_the_lines_of_a_refund() -> None:
    """It waits for what decides how many are bought, and of what."""
    assert not REFUNDS.is_needed
    kinds = ("lines", "customer", "payment", "subscription")
    assert all(Fetch(kind, "727", "order:727").is_needed for kind in kinds)


def test_a_refund_of_more_than_a_thousand_leaves_what_can_be_issued() -> None:
    """What is asked about is what is still paid."""
    refund = woo_facts(woo_refund(315, -1_500))
    vendor = sell(refund, woo_order(1, day=1, quantity=2_000))
    assert valid(vendor) == {"line:727/315": 500, "line:727/316": 1}
    many = sell(woo_facts(woo_refund(315, -500)), woo_order(1, day=1, quantity=2_000))
    assert (len(many.valid), many.asked) == (1, ["MANY"])
    assert "1500 of" in many.problems[0].text


def test_a_changed_quantity_and_a_refund_are_counted_apart() -> None:
    """Three of five were paid, and one of these was refunded."""
    vendor = sell(woo_order(quantity=5), woo_order(1, day=1, quantity=3), woo_facts(woo_refund(315, -1)))
    reasons = Counter(license_.revoked for license_ in vendor.licenses if license_.key == "line:727/315")
    assert reasons == {None: 2, REFUNDED: 1, "fewer are paid than were issued": 2}


# --- others


def test_an_item_of_paddle() -> None:
    """An adjustment names the line of the transaction; one in part is an amount, and says so."""
    items = [{"price": {"id": name}, "quantity": 2} for name in ("pri_1", "pri_2")]
    names = [{"id": f"txnitm_{number}", "price_id": f"pri_{number}"} for number in (1, 2)]
    details = {"totals": {"grand_total": "40"}, "line_items": names}
    bought = shops.paddle("transaction.completed", shops.paddle_transaction(items=items, details=details))
    head = {"id": "adj_1", "action": "refund", "status": "approved", "transaction_id": "txn_1"}
    for type_, prices in (("full", ["pri_1"]), ("partial", ["pri_1", "pri_2"])):
        item = {"id": "adjitm_1", "item_id": "txnitm_2", "type": type_}
        refund = shops.paddle("adjustment.updated", {**head, "items": [item], "totals": {"total": "10"}})
        for vendor in play("paddle", "pri_1 pri_2", bought, refund):
            assert valid(vendor) == {f"line:txn_1/{price}": 2 for price in prices}
    parts = [
        {**head, "id": f"adj_{name}", "items": [{"item_id": name, "type": type_}], "totals": {"total": "10"}}
        for name, type_ in (("txnitm_1", "partial"), ("txnitm_2", "full"))
    ]
    for vendor in play(
        "paddle", "pri_1 pri_2", bought, *(shops.paddle("adjustment.updated", part) for part in parts)
    ):
        assert (len(vendor.valid), vendor.result.notes) == (2, (AMOUNT.format("txn_1"),))


def purchase(product: str, **fields: Any) -> bytes:
    """Make the purchase of a product in a shop of one's own."""
    return shops.standard("purchase.completed", order_id="1", external_id=product, **fields)


def refund_of(at_: float = 1, **fields: Any) -> bytes:
    """Make a refund in a shop of one's own."""
    return shops.standard("purchase.refunded", text(at_), order_id="1", **fields)


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({}, {}),
        ({"external_id": "a"}, {"line:1/b": 1}),
        ({"external_id": "a", "quantity": 2, "refund_id": "r"}, {"line:1/a": 1, "line:1/b": 1}),
        ({"external_id": "a", "quantity": 3, "amount": 9, "refund_id": "r"}, {"line:1/b": 1}),
        ({"external_id": "a", "amount": 9, "refund_id": "r"}, {"line:1/a": 3, "line:1/b": 1}),
        ({"external_id": "a", "partial": True, "refund_id": "r"}, {"line:1/a": 3, "line:1/b": 1}),
        ({"external_id": "a", "partial": False, "refund_id": "r"}, {}),
        ({"external_id": "b", "refund_id": "r"}, {"line:1/a": 3}),
    ],
)
def test_a_product_of_an_own_shop(fields: dict[str, Any], left: dict[str, int]) -> None:
    """A refund that names a product is of that product; an amount or a part stays one."""
    bodies = (purchase("a", quantity=3, total=50), purchase("b", total=50), refund_of(**fields))
    for vendor in play("standard", "a b", *bodies):
        assert (valid(vendor), vendor.asked) == (left, [])


def test_a_refunded_product_that_fails_or_is_not_known() -> None:
    """It takes effect no more; of a product that was not bought a person is asked."""
    failed = shops.standard("purchase.refund_failed", text(2), order_id="1", external_id="a")
    for vendor in play("standard", "a b", purchase("a"), purchase("b"), refund_of(external_id="a"), failed):
        assert (len(vendor.valid), vendor.asked) == (2, [])
    for vendor in play("standard", "a b", purchase("a"), refund_of(external_id="x")):
        assert (len(vendor.valid), vendor.asked) == (1, ["REFUND"])


def failure_of(at_: float = 2, **fields: Any) -> bytes:
    """Make a failed refund in a shop of one's own."""
    return shops.standard("purchase.refund_failed", text(at_), order_id="1", **fields)


FAILED_PARTS = [{"external_id": "a", "quantity": 2}, {"external_id": "b"}]


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        (FAILED_PARTS, {"refund_id": "r"}),
        (FAILED_PARTS[:1], {"refund_id": "r"}),
        ([{"line_id": "a"}], {"refund_id": "r"}),
        ([{"external_id": "a"}, {"external_id": "b"}], {}),
    ],
)
def test_a_refund_of_lines_that_fails_by_its_id(parts: list[dict[str, Any]], named: dict[str, Any]) -> None:
    """All of its parts fail, in whatever order; one that is reported again later holds."""
    lines = [{"line_id": "a"}, {"line_id": "b"}] if "line_id" in parts[0] else [{}, {}]
    bought = purchase("a", quantity=3, **lines[0]), purchase("b", **lines[1])
    made = [refund_of(**named, **part) for part in parts]
    for vendor in play("standard", "a b", *bought, *made, failure_of(**named)):
        assert (len(vendor.valid), vendor.asked) == (4, [])
    again = refund_of(3, **named, **parts[0])
    for vendor in play("standard", "a b", *bought, failure_of(**named), again):
        assert (len(vendor.valid) < 4, vendor.asked) == (True, [])


def test_a_line_of_which_the_refund_of_an_amount_fails() -> None:
    """Whether all of that has failed is not known, and it still counts: a person is asked."""
    bought = purchase("a", quantity=3, total=50), purchase("b", total=50)
    made = {"amount": 9, "refund_id": "r"}
    failed = {"external_id": "a", "refund_id": "r"}
    for vendor in play("standard", "a b", *bought, refund_of(**made), failure_of(**failed)):
        assert (len(vendor.valid), vendor.asked) == (4, ["REFUND"])
    for vendor in play("standard", "a b", *bought, refund_of(**made), failure_of(0.5, **failed)):
        assert vendor.asked == []


def test_how_many_of_a_product_are_refunded_needs_an_id() -> None:
    """Two refunds of one each could not be added up."""
    with pytest.raises(
        UnreadableDeliveryError, match=r"data\.refund_id: Field required with amount, partial"
    ):
        read({}, refund_of(external_id="a", quantity=1))
    assert read({}, refund_of(quantity=1)).facts  # of no product: as before


def test_a_product_of_a_subscription() -> None:
    """All of it is refunded: it ends. A part changes nothing, and the delivery says so."""
    bought = purchase("a", subscription_id="s", paid_through=text(30), quantity=2)
    for vendor in play("standard", "a", bought, refund_of(external_id="a")):
        assert vendor.valid == []
    for vendor in play("standard", "a", bought, refund_of(external_id="a", quantity=1, refund_id="r")):
        assert len(vendor.valid) == 2
        assert vendor.result.notes == ("order 1 was refunded in part, which revokes nothing",)


# --- any order


@dataclass
class Bought:
    """A line with its refunds: of so many each, None of all."""

    quantity: int
    refunds: list[tuple[int | None, bool]] = field(default_factory=list)  # and whether it holds

    @property
    def left(self) -> int:
        """How many are still paid."""
        held = [self.quantity if count is None else count for count, holds in self.refunds if holds]
        return max(0, self.quantity - sum(held))


COUNTS = st.one_of(st.none(), st.integers(1, 3))
BOUGHT = st.builds(Bought, st.integers(1, 4), st.lists(st.tuples(COUNTS, st.booleans()), max_size=3))


@given(st.lists(BOUGHT, min_size=1, max_size=3), st.data())
def test_any_refunds_in_any_order(bought: list[Bought], data: st.DataObject) -> None:
    """What is valid is what was bought without what was given back, after all has arrived twice."""
    lines = tuple(
        Line(str(place), (f"p{place}",), f"p{place}", item.quantity) for place, item in enumerate(bought)
    )
    facts: list[Fact] = [
        Order(id="5", reported_at=DAY, state=OrderState.PAID, paid_at=DAY),
        Lines(order_id="5", reported_at=DAY, lines=lines),
    ]
    for place, item in enumerate(bought):
        for number, (count, holds) in enumerate(item.refunds):
            part = (RefundedLine(str(place), count),)
            states = [RefundState.MADE] if holds else [RefundState.MADE, RefundState.VOID]
            facts += [
                Refund(
                    id=f"{place}-{number}",
                    reported_at=at(1 + day),
                    state=state,
                    orders=("5",),
                    is_full=False,
                    lines=part,
                )
                for day, state in enumerate(states)
            ]
    vendor = Vendor("standard", mapped(*(f"p{place}" for place in range(len(bought)))))
    for fact in (*data.draw(st.permutations(facts)), *data.draw(st.permutations(facts))):
        vendor.take([fact])
    expected = {f"line:5/{place}": item.left for place, item in enumerate(bought) if item.left}
    assert valid(vendor) == expected
    for place, item in enumerate(bought):
        issued = [license_ for license_ in vendor.licenses if license_.key == f"line:5/{place}"]
        assert len(issued) <= item.quantity
