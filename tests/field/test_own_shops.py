"""A vendor connects a shop of his own, and mistypes something."""

from typing import Any

import pytest

from harness import shops
from harness.contracts import GRACE, Vendor, mapped, text
from licserver.shops import standard
from licserver.shops.contract import Rules
from licserver.shops.reading import UnreadableDeliveryError

PURCHASE: dict[str, Any] = {"order_id": "1001", "external_id": "app"}
OF_SUBSCRIPTION: dict[str, Any] = {**PURCHASE, "subscription_id": "s-10"}


def read_error(type_: str, data: dict[str, Any]) -> str:
    """Return why a delivery cannot be read."""
    with pytest.raises(UnreadableDeliveryError) as problem:
        standard.read({}, shops.standard(type_, **data))
    return str(problem.value)


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        ({"quantitiy": 3}, "quantity"),
        ({"Quantity": 3}, "quantity"),
        ({"customer_mail": "ann@example.com"}, "customer_email"),
        ({"customerEmail": "ann@example.com"}, "customer_email"),
        ({"subscription_id": "s-10", "paid_trough": "2027-02-27"}, "paid_through"),
        ({"paid_through": "2027-02-27", "subscripton_id": "s-10"}, "subscription_id"),
        ({"paid_through": "2027-02-27", "subscription": "s-10"}, "subscription_id"),
        ({"totl": "90.00"}, "total"),
        ({"tests": True}, "test"),
        ({"qty": 5}, "quantity"),
        ({"seats": 5}, "quantity"),
        ({"email": "ann@example.com"}, "customer_email"),
        ({"subscription_id": "s-10", "current_period_end": "2027-02-27"}, "paid_through"),
        ({"test_mode": True}, "test"),
    ],
)
def test_a_misspelled_field_is_asked_about(data: dict[str, Any], meant: str) -> None:
    """It was left out in silence: one license instead of three, or one without an address or an end."""
    typo = next(name for name in data if name not in {"subscription_id", "paid_through"})
    assert read_error("purchase.completed", PURCHASE | data) == (
        f"data.{typo}: there is no such field; did you mean {meant}? If not, send {meant} as well"
    )


def test_a_name_of_another_system_is_proposed_for_a_field_that_is_needed() -> None:
    """Beside "Field required", its name is no puzzle."""
    assert read_error("purchase.completed", {"order_id": "1", "sku": "app"}).startswith(
        "data.sku: there is no such field; did you mean external_id? "
    )


def test_a_name_of_another_system_stops_nothing_where_it_decides_nothing() -> None:
    """A refund may name the customer and the product, and a renewal how many there are."""
    more: dict[str, Any] = {"email": "ann@example.com", "sku": "app", "qty": 5}
    assert standard.read({}, shops.standard("purchase.refunded", order_id="1", **more)).facts
    renewal = more | {"subscription_id": "s-1", "paid_through": "2027-02-27"}
    assert standard.read({}, shops.standard("subscription.renewed", **renewal)).facts


@pytest.mark.parametrize(
    "name",
    [
        *(
            "customer_id",
            "customer_name",
            "product_name",
            "price",
            "currency",
            "discount",
            "quality",
            "subtotal",
        ),
        *("paid_at", "order_number", "total_tax", "text", "note", "coupon", "数量", "a" * 10_000),
    ],
)
def test_a_new_field_of_a_shop_stops_no_sale(name: str) -> None:
    """Also one that resembles a field which the delivery has."""
    assert standard.read({}, shops.standard("purchase.completed", **PURCHASE, **{name: "1"})).facts
    both = {**PURCHASE, "quantity": 2, "quantities": 2}
    assert standard.read({}, shops.standard("purchase.completed", **both)).facts


def test_a_refund_that_does_not_say_how_much_revokes_nothing() -> None:
    """`ammount` was left out, and 5.00 of 90.00 revoked the whole order."""
    refund = {"order_id": "1001", "refund_id": "r1"}
    assert "did you mean amount?" in read_error("purchase.refunded", {**refund, "ammount": "5.00"})
    assert read_error("purchase.refunded", refund) == (
        "data.amount: Field required with refund_id; if all was refunded, send partial as false"
    )
    for name, meant in (("refund_amount", "amount"), ("is_partial", "partial")):
        assert f"did you mean {meant}?" in read_error("purchase.refunded", {"order_id": "1001", name: 5})
    for size in ({"amount": "5.00"}, {"partial": True}, {"partial": False}):
        assert standard.read({}, shops.standard("purchase.refunded", **refund, **size)).facts
    assert standard.read({}, shops.standard("purchase.refund_failed", **refund)).facts
    assert standard.read({}, shops.standard("purchase.refunded", order_id="1001")).facts


@pytest.mark.parametrize(("partial", "valid"), [(True, 1), (False, 0)])
def test_a_refund_of_an_order_without_a_total_names_what_to_do(partial: bool, valid: int) -> None:
    """It named no next step; what it names now settles it."""
    vendor = Vendor("standard", mapped("app"), Rules(GRACE, has_api=False))
    refund = {"order_id": "1001", "refund_id": "r1", "amount": "5.00"}
    vendor.receive(
        shops.standard("purchase.completed", **PURCHASE), shops.standard("purchase.refunded", **refund)
    )
    (problem,) = vendor.problems
    assert problem.text == (
        "order 1001 was refunded, and it is not known whether in part or all; send the refund again with "
        "`partial` in place of `amount`, and a later `timestamp`; or revoke its licenses by hand if it was "
        "all, or leave it"
    )
    again = {"order_id": "1001", "refund_id": "r1", "partial": partial}
    vendor.receive(shops.standard("purchase.refunded", text(1), **again))
    assert (len(vendor.valid), vendor.problems) == (valid, [])


def test_a_paid_time_of_no_subscription_is_no_license_without_an_end() -> None:
    """The subscription's name is what ends a license."""
    assert read_error("purchase.completed", {**PURCHASE, "paid_through": "2027-02-27"}) == (
        "data.subscription_id: Field required with paid_through; without it the license has no end"
    )


@pytest.mark.parametrize(
    ("type_", "hint"),
    [
        ("purchase.complete", "did you mean purchase.completed?"),
        ("purchases.completed", "did you mean purchase.completed?"),
        ("subscription.cancelled_now", "did you mean subscription.cancelled?"),
        ("subscriptions.updated", "use one of purchase.completed, "),
        ("subscription.updated", "use one of purchase.completed, "),
        ("purchase.created", "use one of purchase.completed, "),
    ],
)
def test_a_misspelled_type_is_asked_about(type_: str, hint: str) -> None:
    """It was ignored with 200, and the sale was lost."""
    assert read_error(type_, PURCHASE).startswith(f"type: there is no {type_}; {hint}")


def test_a_delivery_with_data_and_without_a_type_is_asked_about() -> None:
    """Its field `tpye` made it one of another sender."""
    with pytest.raises(UnreadableDeliveryError, match=r"^type: Field required$"):
        standard.read({}, b'{"tpye": "purchase.completed", "data": {"order_id": "1001"}}')


def test_a_type_of_another_sender_is_ignored() -> None:
    """It may share the address."""
    for type_ in ("invoice.paid", "customer.created", "ping"):
        delivery = standard.read({}, shops.standard(type_))
        assert (delivery.facts, delivery.reason[:26]) == ((), "the type must be one of pu")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"paid_through": "27.02.2027"},
            "data.paid_through: write a date and time like 2026-06-15T12:00:00Z",
        ),
        ({"paid_through": "2027-02-30"}, "data.paid_through: day"),
        ({"paid_through": {"day": 1}}, "data.paid_through: write a date and time like 2026-06-15T12:00:00Z"),
        ({"quantity": "three"}, "data.quantity: Input should be a valid integer"),
        ({"total": "90,00"}, "data.total: Input should be a valid decimal"),
        ({"test": "perhaps"}, "data.test: Input should be a valid boolean"),
    ],
)
def test_a_value_that_cannot_be_read_is_named_as_it_was_sent(fields: dict[str, Any], message: str) -> None:
    """It was `data.paid_through.function-after[to_utc(), datetime]: …`."""
    error = read_error("purchase.completed", OF_SUBSCRIPTION | fields)
    assert error.startswith(message)
    assert "function" not in error
    assert "27.02.2027" not in error


def test_a_refund_of_all_may_have_fields_of_the_shop() -> None:
    """Only a name that speaks of a share is taken for a typo."""
    delivery = standard.read({}, shops.standard("purchase.refunded", order_id="1001", comment="by phone"))
    assert delivery.facts
