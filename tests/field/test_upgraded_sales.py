"""What a version before facts has sold goes on as it was: nothing is sold twice, and nothing forgotten."""

from collections.abc import Callable

import pytest

from harness import shops
from harness.earlier_sales import EarlierSale, EarlierSource
from harness.sales import BOUGHT, REFUNDED, licenses, process, states
from harness.world import World
from licserver.domain.records import Actor, ActorKind

Open = Callable[[EarlierSource], World]
SOLD = {
    "stripe": [("pi_1", "plink_1")],
    "paddle": [("txn_1", "pri_1")] * 2,
    "lemonsqueezy": [("5", "11")],
    "woocommerce": [("727", "APP")],
    "standard": [("1042", "app")],
}
"""Kind → the orders and items under which licenses were stored."""

kinds = pytest.mark.parametrize("kind", SOLD)
REFUND, DISPUTE = "the order was refunded", "the payment was disputed"
DISPUTED = {"id": "dp_1", "payment_intent": "pi_1"}


def sold(kind: str, revoked: str | None = None) -> list[EarlierSale]:
    """Return what a shop had sold."""
    return [EarlierSale(*body, revoked=revoked) for body in SOLD[kind]]


def reasons(world: World) -> list[str | None]:
    """Return why licenses are revoked, the first first."""
    return [license_.revoked_reason for license_ in licenses(world)][::-1]


@pytest.mark.sampled(2)
@kinds
def test_an_order_that_is_delivered_again_issues_nothing(open_earlier: Open, kind: str) -> None:
    """Twice; then a refund finds its licenses."""
    world = open_earlier(EarlierSource(kind, sold(kind)))
    process(world, kind, BOUGHT[kind])
    process(world, kind, BOUGHT[kind] + b" ")
    assert (reasons(world), {*states(world, kind)}) == ([None] * len(SOLD[kind]), {"done"})
    assert world.services.mail.list_jobs().items == []
    process(world, kind, REFUNDED[kind])
    assert reasons(world) == [REFUND] * len(SOLD[kind])


@pytest.mark.sampled(2)
@kinds
def test_a_refund_needs_no_second_delivery_of_the_order(open_earlier: Open, kind: str) -> None:
    """The order is known by what was stored of it."""
    world = open_earlier(EarlierSource(kind, sold(kind)))
    process(world, kind, REFUNDED[kind])
    assert (reasons(world), {*states(world, kind)}) == ([REFUND] * len(SOLD[kind]), {"done"})


@pytest.mark.sampled(2)
@kinds
def test_what_was_refunded_stays_so(open_earlier: Open, kind: str) -> None:
    """Although the shop has not reported the refund as an object with an id."""
    (order, _), *_ = SOLD[kind]
    world = open_earlier(EarlierSource(kind, sold(kind, REFUND), orders={order: (2, 0)}))
    process(world, kind, BOUGHT[kind])
    assert reasons(world) == [REFUND] * len(SOLD[kind])


def test_a_subscription_of_an_old_api_version_has_one_license(open_earlier: Open) -> None:
    """Stripe did not say which of its invoices was the first one: all were stored as one order."""
    sale = EarlierSale("sub_1", "price_1", subscription="sub_1")
    world = open_earlier(EarlierSource("stripe", [sale], mapped={"price_1": "app"}))
    for number in range(2):
        invoice = shops.stripe_invoice("subscription", 1_784_116_800, new=False)
        process(world, "stripe", shops.stripe("invoice.paid", invoice, id_=f"evt_{number}"))
        assert (reasons(world), {*states(world, "stripe")}) == ([None], {"done"})


def test_what_a_person_has_reinstated_before_stays_valid(open_earlier: Open) -> None:
    """The order was refunded, and its license is not revoked: so a person has wanted it."""
    world = open_earlier(EarlierSource("standard", sold("standard"), orders={"1042": (2, 0)}))
    process(world, "standard", BOUGHT["standard"])
    assert reasons(world) == [None]


def test_what_a_person_has_revoked_before_stays_revoked(open_earlier: Open) -> None:
    """Also after the order is refunded, and the shop reports no refund any more."""
    world = open_earlier(EarlierSource("standard", sold("standard")))
    person = world.services.acting_as(Actor(ActorKind.CLI, "ann"))
    person.licenses.revoke(licenses(world)[0].id.hex(), "fraud")
    process(world, "standard", REFUNDED["standard"], BOUGHT["standard"])
    assert reasons(world) == ["fraud"]


def test_a_dispute_that_was_open_is_won(open_earlier: Open) -> None:
    """The report of the dispute itself takes the place of what was stored of it."""
    world = open_earlier(EarlierSource("stripe", sold("stripe", DISPUTE), orders={"pi_1": (0, 1)}))
    process(world, "stripe", BOUGHT["stripe"])
    assert reasons(world) == [DISPUTE]
    closed = shops.stripe("charge.dispute.closed", {**DISPUTED, "status": "won"}, id_="evt_9")
    process(world, "stripe", closed)
    assert reasons(world) == [None]
