"""Shops deliver in any order; what a license is must not depend on it."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import permutations

import pytest

from harness import shops
from harness.earlier_sales import EarlierSale, EarlierSource
from harness.sales import add, licenses, process, states
from harness.world import World
from licserver.domain.records import Actor, ActorKind, EnvironmentPolicy

LEMON = "lemonsqueezy"
ORDER = shops.lemon("order_created", "5", shops.lemon_order())
SUBSCRIPTION = shops.lemon("subscription_created", "77", shops.lemon_subscription("active"))
RENEWED = shops.lemon(
    "subscription_updated",
    "77",
    shops.lemon_subscription("active", updated_at="2026-07-15T12:00:00Z", renews_at="2026-08-15T12:00:00Z"),
)
END = datetime(2026, 8, 15, 12, tzinfo=UTC) + timedelta(days=7)


@pytest.fixture
def shop(world: World, shop_secrets: None) -> World:
    """A vendor whose keys last a year, but those of subscriptions."""
    world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(world, LEMON)
    world.services.sources.map(LEMON, "11", "app", expires_in="1y")
    return world


def ends(world: World) -> list[tuple[date | None, datetime | None]]:
    """Return for each license on which day and with what its subscription it ends."""
    return [(license_.expires_on, license_.subscription_ended_at) for license_ in licenses(world)]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("bodies", list(permutations([ORDER, SUBSCRIPTION, RENEWED])))
def test_a_subscriber_who_pays_is_not_locked_out(shop: World, bodies: tuple[bytes, ...]) -> None:
    """Lemon Squeezy sends the order before its subscription: `--expires-in` ended the license."""
    for body in bodies:
        process(shop, LEMON, body)
    assert (ends(shop), states(shop, LEMON)) == ([(None, END)], ["done"] * 3)


def test_an_order_without_a_subscription_ends_as_it_is_mapped(shop: World) -> None:
    """Also while the report of its subscription does not say to when it is paid."""
    unpaid = shops.lemon_subscription("active", renews_at=None)
    process(shop, LEMON, ORDER, shops.lemon("subscription_created", "77", unpaid))
    assert ends(shop) == [(date(2027, 6, 15), None)]


def test_a_subscription_without_a_paid_time_before_its_order(shop: World) -> None:
    """A missing value makes no license without an end."""
    unpaid = shops.lemon_subscription("active", renews_at=None)
    process(shop, LEMON, shops.lemon("subscription_created", "77", unpaid), ORDER)
    assert ends(shop) == [(date(2027, 6, 15), None)]
    process(shop, LEMON, RENEWED)
    assert ends(shop) == [(None, END)]


@pytest.mark.parametrize("is_linked", [True, False])
def test_earlier_licenses_are_mended_by_the_next_report(
    open_earlier: Callable[[EarlierSource], World], is_linked: bool
) -> None:
    """Those of a version that kept the day, whether or not the subscription had been reported."""
    sold = EarlierSale("5", "11", expires_on=date(2027, 6, 15), subscription="77" if is_linked else None)
    known = [{"subscription_id": "77", "paid_through": "2026-07-15 12:00:00.000000"}]
    world = open_earlier(
        EarlierSource(LEMON, [sold], expires_in="1y", subscriptions=known if is_linked else [])
    )
    process(world, LEMON, RENEWED)
    assert (ends(world), states(world, LEMON)) == ([(None, END)], ["done"])


def test_a_day_that_a_person_has_chosen_stays(shop: World) -> None:
    """Before the subscription is known, and after."""
    process(shop, LEMON, ORDER)
    person = shop.services.acting_as(Actor(ActorKind.CLI, "ann"))
    person.licenses.change(licenses(shop)[0].id.hex(), expires_on=date(2026, 9, 1))
    process(shop, LEMON, SUBSCRIPTION, RENEWED)
    assert ends(shop) == [(date(2026, 9, 1), END)]
