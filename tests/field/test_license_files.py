"""A license file lasts as long as its contract: nobody can take it back."""

import json
from base64 import b32encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from hashlib import sha256

import pytest

from harness import shops
from harness.sales import add, licenses, process
from harness.world import World
from licserver.domain.offline_files import MAX_DAYS, UNKNOWN_PERIOD
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.security.secrets_file import format_signing_key, new_secrets

STANDARD, GRACE = "standard", timedelta(days=7)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
_CONTENT = b"\2computer\0app\x001.0"
REQUEST = "REQ-" + b32encode(_CONTENT + sha256(_CONTENT).digest()[:3]).decode().rstrip("=")


@pytest.fixture
def shop(make_world: Callable[..., World], shop_secrets: None) -> World:
    """A vendor who signs, with a mapped product of a shop."""
    keys = [format_signing_key(SigningKey(PrivateKey(b"\1" * 32), NOON))]
    vendor = make_world(secrets=json.dumps(new_secrets() | {"signing_keys": keys}), account=True)
    vendor.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(vendor, STANDARD)
    vendor.services.sources.map(STANDARD, shops_id(vendor), "app", slots=2)
    return vendor


def shops_id(world: World) -> str:
    """The product's id in the shop."""
    return world.services.sources.list_mappings(STANDARD)[0].external_id


def report(world: World, type_: str, paid_through: datetime | None = None, **data: str) -> None:
    """Let the shop report something about the subscription, now."""
    if paid_through is not None:
        data["paid_through"] = paid_through.isoformat()
    process(
        world, STANDARD, shops.standard(type_, world.clock().isoformat(), subscription_id="sub_1", **data)
    )
    world.clock.forward(seconds=1)


def buy(world: World, paid_through: datetime | None) -> None:
    """Buy a subscription."""
    report(world, "purchase.completed", paid_through, order_id="1", external_id=shops_id(world))


def file_end_of(world: World, days: int = 365) -> datetime:
    """Make a file for as long as customers can; return its end."""
    (license_,) = licenses(world)
    return world.services.offline_files.issue(license_.id.hex(), REQUEST, days).ends_at


MONTH = timedelta(days=30)


@pytest.mark.parametrize("days", [365, MAX_DAYS])
def test_a_monthly_subscriber_has_a_file_for_a_month(shop: World, days: int) -> None:
    """It ends with what is paid for and the grace, after each renewal, change and cancellation."""
    paid = NOON + MONTH
    buy(shop, paid)
    assert file_end_of(shop, days) == paid + GRACE
    shop.clock.now = paid - timedelta(hours=1)
    assert file_end_of(shop, days) == paid + GRACE
    paid += MONTH
    report(shop, "subscription.renewed", paid)
    assert file_end_of(shop, days) == paid + GRACE
    yearly = shop.clock() + timedelta(days=365)
    report(shop, "subscription.renewed", yearly)
    assert file_end_of(shop, MAX_DAYS) == yearly + GRACE
    report(shop, "subscription.cancelled", yearly)
    assert file_end_of(shop, MAX_DAYS) == yearly


def test_a_subscription_without_a_known_end_has_a_file_for_a_month_and_a_week(shop: World) -> None:
    """Billed by the vendor: 38 days, or to the end that the vendor has set; after it, none at all."""
    services = shop.services
    license_, _ = services.licenses.issue("app", LicenseTerms(subscription_id="own", slots=2))
    assert file_end_of(shop) == shop.clock() + UNKNOWN_PERIOD
    assert file_end_of(shop, 10) == shop.clock() + timedelta(days=10)
    services.subscriptions.end("own", shop.clock() + timedelta(days=365))
    assert file_end_of(shop, MAX_DAYS) == shop.clock() + timedelta(days=365)
    services.subscriptions.resume("own")
    assert file_end_of(shop) == shop.clock() + UNKNOWN_PERIOD
    services.licenses.change(license_.id.hex(), lifetime=True)
    assert file_end_of(shop) == shop.clock() + timedelta(days=365)


def test_a_file_after_a_renewal_takes_no_other_slot(shop: World) -> None:
    """By the same request, while the former one is still valid."""
    for month in range(1, 4):
        paid = NOON + month * MONTH
        if month == 1:
            buy(shop, paid)
        else:
            shop.clock.now = paid - MONTH + timedelta(hours=1)
            report(shop, "subscription.renewed", paid)
        assert file_end_of(shop) == paid + GRACE
        (license_,) = licenses(shop)
        assert license_.slots_used == 1


@pytest.mark.usefixtures("suspicious")
def test_a_clock_that_is_ahead_makes_no_longer_file(shop: World) -> None:
    """Its days begin with the latest instant that is certain."""
    shop.services.licenses.issue("app", LicenseTerms(slots=2))
    begin = shop.clock()
    shop.services.context.settled_now()
    shop.clock.forward(days=300)
    assert file_end_of(shop) == begin + timedelta(days=365)
