"""Two subscriptions of one order are treated alike: neither their numbers nor the order of reports decide."""

from itertools import permutations
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import shops
from harness.contracts import GRACE, Vendor, at, mapped, text
from licserver.shops.contract import Answer

PRODUCTS = {"p1": 93, "p2": 94, "p3": 95, "p4": 96, "free": 97}
MAPPED = {
    **mapped("p1", "p4", product="app"),
    **mapped("p2", product="suite"),
    **mapped("p3", product="extra"),
    **mapped("free", product=None),
}


class Listing(NamedTuple):
    """What a subscription consists of, as the first known report has it."""

    items: tuple[str, ...]
    day: float = 0.01
    paid_until: float = 30


def line(id_: int, name: str) -> dict[str, Any]:
    """Make a line of an order, or an item of a subscription."""
    return shops.woo_line(id_, product_id=PRODUCTS[name], sku=name)


def sell(*names: str) -> bytes:
    """Make an order that is paid; it does not say which line is of which subscription."""
    lines = [line(number, name) for number, name in enumerate(names, 1)]
    return shops.woo("processing", date_paid_gmt=text(0)[:-1], line_items=lines)


def report(id_: int, listing: Listing) -> bytes:
    """Make the report of a subscription of that order."""
    return shops.woo_subscription(
        id=id_,
        date_modified_gmt=text(listing.day)[:-1],
        next_payment_date_gmt=text(listing.paid_until)[:-1],
        line_items=[line(10 * id_ + place, name) for place, name in enumerate(listing.items)],
    )


def receive(*bodies: bytes) -> Vendor:
    """Return a vendor that has got deliveries, each twice."""
    vendor = Vendor("woocommerce", MAPPED)
    vendor.receive(*bodies, *bodies)
    return vendor


def count(vendor: Vendor) -> list[tuple[str, str]]:
    """Return the valid licenses by product and end."""
    return sorted((license_.terms.product, f"{license_.ends_at}") for license_ in vendor.valid)


def until(day: float) -> str:
    """Return the end of what was paid until a day."""
    return f"{at(day) + GRACE}"


FIRST, SECOND = Listing(("p1",)), Listing(("p3",), 3, 60)


@pytest.mark.parametrize("ids", [(900, 901), (901, 900)])
def test_another_plan_of_one_of_two_subscriptions(ids: tuple[int, int]) -> None:
    """Whether it takes the place of the line that is left over, a person decides, whatever its number is."""
    for bodies in permutations((sell("p1", "p2"), report(ids[0], FIRST), report(ids[1], SECOND))):
        vendor = receive(*bodies)
        assert ("app", until(30)) in count(vendor)
        assert all(license_.terms.product != "extra" for license_ in vendor.valid)
        (problem,) = (asked for asked in vendor.problems if asked.about == f"subscription:{ids[1]}")
        assert problem.text.endswith("the place of p2 or 94; follow the change, or issue a license by hand")
        vendor.answers[problem.id] = Answer.FOLLOW
        vendor.reconcile()
        assert count(vendor) == [("app", until(30)), ("extra", until(60))]
        assert vendor.asked == []


@pytest.mark.parametrize("ids", [(900, 901), (901, 900)])
def test_two_subscriptions_of_a_product(ids: tuple[int, int]) -> None:
    """Each has a license that ends with itself, also where the order has sold only one line of it."""
    listings = Listing(("p1",)), Listing(("p1",), 0.02, 60)
    for names in (("p1",), ("p1", "p1")):
        for bodies in permutations((sell(*names), *map(report, ids, listings))):
            vendor = receive(*bodies)
            assert (count(vendor), vendor.asked) == ([("app", until(30)), ("app", until(60))], [])
            assert [license_.ends_at for license_ in vendor.licenses if license_.revoked] == []
            for license_ in vendor.valid:
                paid_until = dict(zip(ids, (30, 60), strict=True))[int(license_.subscription_id or 0)]
                assert license_.ends_at == at(paid_until) + GRACE


def test_a_line_that_either_subscription_may_have_had() -> None:
    """Both are named."""
    later = Listing(("p1",), 3), Listing(("p4",), 3, 60)
    vendor = receive(*map(report, (901, 900), later), sell("p1", "p4", "p2"))
    (problem,) = vendor.problems
    assert "or was of subscription 900 or 901 before that was changed" in problem.text


def test_what_is_left_over_of_two_plans() -> None:
    """A person decides for the first; then the second was added."""
    vendor = receive(sell("p1", "p2"), report(900, Listing(("p1",))), report(901, Listing(("p3", "p4"), 3)))
    assert vendor.asked == ["UNCLEAR", "UNCLEAR"]
    vendor.answers[vendor.problems[0].id] = Answer.FOLLOW
    vendor.reconcile()
    assert (sorted(product for product, _ in count(vendor)), vendor.asked) == (["app", "app", "extra"], [])


def test_a_question_is_not_answered_by_a_second_report() -> None:
    """An item that its order has not sold is asked about as long as a person has not decided."""
    for bodies in permutations((sell("p1", "p2"), report(900, Listing(("p1", "p3"))))):
        vendor = receive(*bodies)
        (problem,) = (asked for asked in vendor.problems if asked.about == "subscription:900")
        assert problem.text.endswith("the place of p2 or 94; follow the change, or issue a license by hand")
        assert all(license_.terms.product != "extra" for license_ in vendor.valid)


def dodo(day: float, status: str, product: str, quantity: int, add_ons: tuple[str, ...] = ()) -> bytes:
    """Make the report of a subscription of Dodo Payments."""
    dates = {"previous_billing_date": text(0), "next_billing_date": text(30), "cancelled_at": text(day)}
    items = [{"addon_id": name, "quantity": 1} for name in add_ons]
    fields = {"product_id": product, "quantity": quantity, "addons": items, **dates}
    return shops.dodo("subscription.updated", text(day), **shops.dodo_subscription(status, **fields))


def dispute(day: float, status: str) -> bytes:
    """Make a dispute of its payment."""
    names = {"dispute_id": "dp_1", "payment_id": "pay_1", "dispute_status": status}
    return shops.dodo(f"dispute.{status}", text(day), **names)


def test_another_product_of_a_payment_that_is_disputed() -> None:
    """No license takes the place of one that is not paid: that is revoked for the dispute."""
    vendor = Vendor("dodo", MAPPED)
    payment = shops.dodo_payment(subscription_id="sub_1", product_cart=None)
    vendor.receive(shops.dodo("payment.succeeded", text(0), **payment), dodo(0.1, "active", "p1", 1))
    vendor.receive(dispute(1, "dispute_opened"), dodo(2, "active", "p2", 1))
    assert [license_.revoked for license_ in vendor.licenses] == ["the payment was disputed"]
    vendor.receive(dispute(3, "dispute_won"))
    assert [license_.revoked for license_ in vendor.licenses] == ["another product is paid instead", None]
    assert [license_.terms.product for license_ in vendor.valid] == ["suite"]


def test_other_products_after_the_end() -> None:
    """Which of several removed items another product was before, does not change from report to report."""
    vendor = Vendor("dodo", MAPPED)
    payment = shops.dodo_payment(subscription_id="sub_1", product_cart=None)
    vendor.receive(
        shops.dodo("payment.succeeded", text(0), **payment),
        dodo(0.1, "active", "p1", 2, ("p4",)),
        dispute(1, "dispute_opened"),
        dodo(2, "cancelled", "p3", 2, ("p2", "p4")),
        dodo(3, "expired", "p3", 1),
    )
    assert vendor.valid == []


names = st.sampled_from(sorted(PRODUCTS))
listings = st.builds(
    Listing,
    # What issues no license leaves that of before as it is: whose it is, nothing says then.
    st.lists(names.filter("free".__ne__), min_size=1, max_size=2, unique=True).map(tuple),
    st.sampled_from([0.01, 0.2, 3]),
    st.just(30),
)


@settings(max_examples=30)  # the random shops play more
@given(
    st.lists(names, min_size=1, max_size=3),
    listings,
    listings,
    st.permutations("oxy"),
    st.permutations("oxy"),
)
def test_whatever_an_order_has_sold(
    sold: list[str], x: Listing, y: Listing, order: list[str], other: list[str]
) -> None:
    """The numbers are no matter; the order of deliveries neither, or a person is asked."""
    y = y._replace(day=y.day + 0.001, paid_until=60)
    vendors = list[Vendor]()
    for ids, sequence in (((900, 901), order), ((901, 900), order), ((900, 901), other)):
        bodies = {"o": sell(*sold), "x": report(ids[0], x), "y": report(ids[1], y)}
        vendors.append(receive(*(bodies[name] for name in sequence)))
    results = [(count(vendor), vendor.asked) for vendor in vendors]
    assert results[0] == results[1]
    assert results[0][0] == results[2][0] or results[0][1] or results[2][1]
