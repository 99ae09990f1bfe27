"""What happens to the keys of Polar's customers, as its own vendors reported of Polar's keys."""

from typing import Any

import pytest

from harness import shops
from harness.sales import add, licenses, process, states
from harness.world import World
from licserver.domain.records import EnvironmentPolicy

pytestmark = pytest.mark.usefixtures("shop_secrets")


def paid(month: int, **fields: Any) -> list[bytes]:
    """Return a payment of a monthly subscription, and the report of its period."""
    at, end = f"2026-{month:02}-15T12:00:00Z", f"2026-{month + 1:02}-15T12:00:00Z"
    reason = "subscription_create" if month == 6 else "subscription_cycle"
    order = {"id": f"ord_{month}", "billing_reason": reason, "subscription_id": "sub_1", "created_at": at}
    period = shops.polar_subscription(current_period_start=at, current_period_end=end)
    return [
        shops.polar("subscription.updated", at, **period),
        shops.polar("order.paid", at, **{**shops.polar_order(**order), **fields}),
    ]


@pytest.fixture
def shop(world: World) -> World:
    """A vendor whose product is mapped."""
    world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(world, "polar")
    return world


def test_a_reissued_key_goes_on_with_its_subscription(shop: World) -> None:
    """The customer's key has leaked, and was replaced: polarsource/polar#9205."""
    process(shop, "polar", *paid(6))
    (first,) = licenses(shop)
    new, _ = shop.services.support.reissue(first.id.hex())
    process(shop, "polar", *paid(7))
    known = {license_.id: license_ for license_ in licenses(shop)}
    assert (len(known), {*states(shop, "polar")}) == (2, {"done"})
    assert known[first.id].revoked_at is not None
    assert known[new.id].revoked_at is None
    end = known[new.id].subscription_ended_at
    assert end is not None
    assert end.month == 8
    refunded = {"status": "refunded", "refunded_amount": 2_000}
    back = shops.polar("order.refunded", "2026-07-16T12:00:00Z", **shops.polar_order(**refunded))
    process(shop, "polar", back)  # of another order
    assert shop.services.licenses.get(new.id.hex()).revoked_at is None


def test_a_reissued_key_is_refunded(shop: World) -> None:
    """With the order of the first one, which stays replaced."""
    process(shop, "polar", shops.polar("order.paid", **shops.polar_order()))
    (first,) = licenses(shop)
    new, _ = shop.services.support.reissue(first.id.hex())
    refunded = shops.polar_order(status="refunded", refunded_amount=2_000)
    process(shop, "polar", shops.polar("order.refunded", "2026-06-20T12:00:00Z", **refunded))
    reasons = {license_.id: license_.revoked_reason or "" for license_ in licenses(shop)}
    assert reasons[new.id] == "the order was refunded"
    assert reasons[first.id].startswith("replaced by")


def test_a_changed_mapping_revives_no_refunded_key(shop: World) -> None:
    """The vendor changed a limit, and all refunded keys were valid again: polarsource/polar#5389."""
    refunded = shops.polar_order(status="refunded", refunded_amount=2_000)
    process(shop, "polar", shops.polar("order.paid", **shops.polar_order()))
    process(shop, "polar", shops.polar("order.refunded", "2026-06-20T12:00:00Z", **refunded))
    shop.services.sources.map("polar", "prod_1", "app", slots=99)
    process(shop, "polar", shops.polar("order.updated", "2026-06-21T12:00:00Z", **refunded))
    assert [license_.revoked_reason for license_ in licenses(shop)] == ["the order was refunded"]


def test_a_key_of_a_subscription_has_no_day_of_its_own(shop: World) -> None:
    """Nor after years, though the product is sold for a time as well: polarsource/polar#12876."""
    shop.services.sources.map("polar", "prod_1", "app", expires_in="30d")
    for month in range(6, 11):
        process(shop, "polar", *paid(month))
    (license_,) = licenses(shop)
    assert license_.expires_on is None
    assert license_.subscription_ended_at is not None
    assert (license_.subscription_ended_at.month, license_.subscription_ended_at.day) == (11, 22)
