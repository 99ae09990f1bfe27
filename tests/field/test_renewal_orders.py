"""WooCommerce Subscriptions renews a subscription by an order of its own: it extends, and sells nothing."""

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

import pytest

from harness import shops
from harness.earlier_sales import EarlierSale, EarlierSource
from harness.sales import add, licenses, process, states
from harness.world import World
from licserver.domain.records import EnvironmentPolicy, LicenseTerms

Open = Callable[[EarlierSource], World]
WOO, GRACE = "woocommerce", timedelta(days=7)
FIRST = shops.woo("processing", created_via="checkout")
CREATED = shops.woo_subscription()
PAID = "2027-06-15T13:00:00"
RENEWAL = shops.woo_renewal(801, date_paid_gmt=PAID, date_modified_gmt=PAID)
RENEWED = shops.woo_subscription(date_modified_gmt=PAID, next_payment_date_gmt="2028-06-15T12:00:00")
EXTENDED = (None, datetime(2028, 6, 15, 13, tzinfo=UTC) + GRACE)
"""A year from the payment of the renewal, which is an hour later than the shop reports the next one."""


@pytest.fixture
def shop(world: World, shop_secrets: None) -> World:
    """A vendor with a mapped product."""
    world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(world, WOO)
    return world


def ends(world: World) -> list[tuple[date | None, datetime | None]]:
    """Return for each license, the first first, on which day and with what its subscription it ends."""
    return [(license_.expires_on, license_.subscription_ended_at) for license_ in licenses(world)][::-1]


def reasons(world: World) -> str:
    """Return the reasons of all deliveries."""
    return "\n".join(event.reason or "" for event in world.services.sources.list_events(WOO).items)


DELIVERIES = {
    "as they happen": [FIRST, CREATED, RENEWAL, RENEWED],
    "the subscription first": [CREATED, FIRST, RENEWAL, RENEWED],
    "the renewal last": [FIRST, CREATED, RENEWED, RENEWAL],
    "without the second report": [FIRST, CREATED, RENEWAL],
    "the renewal twice": [FIRST, CREATED, RENEWAL, shops.woo_renewal(801, date_paid_gmt=PAID)],
}


@pytest.mark.sampled(2, "expires_in")
@pytest.mark.parametrize("expires_in", ["1y", "2y", None])
@pytest.mark.parametrize("bodies", DELIVERIES.values(), ids=list(DELIVERIES))
def test_wpexpertsio_license_manager_for_woocommerce_165(
    shop: World, bodies: list[bytes], expires_in: str | None
) -> None:
    """A renewal extends the license of its subscription by the period of that, whatever is mapped."""
    shop.services.sources.map(WOO, "APP", "app", expires_in=expires_in)
    process(shop, WOO, *bodies)
    assert (ends(shop), set(states(shop, WOO))) == ([EXTENDED], {"done"})


@pytest.mark.slow
def test_license_wp_license_wp_29_renewals_of_earlier_sales(
    open_earlier: Open, sync: Callable[..., str]
) -> None:
    """One renewal had issued a key of its own: the next one extends both, and mails nobody."""
    sold = [EarlierSale("727", "APP", expires_on=date(2026, 6, 15)), EarlierSale("801", "APP")]
    world = open_earlier(EarlierSource(WOO, sold, expires_in="1y"))
    earlier = shops.woo_renewal(801, date_paid_gmt="2026-06-15T12:00:00")
    assert sync(world, [FIRST, earlier, shops.woo_renewal(802, date_paid_gmt=PAID)], [CREATED])
    assert (ends(world), set(states(world, WOO))) == ([EXTENDED] * 2, {"done"})
    assert world.services.mail.list_jobs().items == []
    process(world, WOO, RENEWED, shops.woo_renewal(802, date_paid_gmt=PAID, total="29.350"))
    assert (ends(world), set(states(world, WOO))) == ([EXTENDED] * 2, {"done"})


def test_a_renewal_of_a_subscription_that_is_not_known_waits(shop: World) -> None:
    """It makes no key, and asks; the report of the subscription is what it waited for."""
    process(shop, WOO, FIRST, RENEWAL)
    assert (len(licenses(shop)), states(shop, WOO)) == (1, ["done", "dead"])
    assert "subscription 900 was paid, and its purchase is not known; use `licserver source sync`" in reasons(
        shop
    )
    process(shop, WOO, CREATED)
    process(shop, WOO)
    assert (ends(shop), set(states(shop, WOO))) == ([EXTENDED], {"done"})


@pytest.mark.parametrize("meta", [[], [{"id": 5, "key": "_subscription_renewal", "value": "gone"}]])
def test_a_renewal_that_names_no_subscription_waits(shop: World, meta: list[dict[str, object]]) -> None:
    """And makes no key, however often it is replayed."""
    process(shop, WOO, FIRST, CREATED, shops.woo_renewal(801, meta_data=meta))
    (waiting,) = shop.services.sources.list_events(WOO, "dead").items
    assert "order 801 renews a subscription that it does not name; use `licserver source sync`" in reasons(
        shop
    )
    shop.services.sources.replay(waiting.id)
    process(shop, WOO)
    assert (len(licenses(shop)), states(shop, WOO)) == (1, ["done", "done", "dead"])


def test_a_subscription_whose_period_is_not_known(shop: World) -> None:
    """A license that a person has issued for it: extended by what is mapped, else a person has to look."""
    shop.services.licenses.issue("app", LicenseTerms(subscription_id="900"))
    process(shop, WOO, RENEWAL)
    assert (ends(shop), states(shop, WOO)) == ([(None, None)], ["done"])
    assert "subscription 900 was paid, whose licenses have no end" in reasons(shop)
    shop.services.subscriptions.end("900", EXTENDED[1])
    process(shop, WOO, shops.woo_renewal(802, date_paid_gmt=PAID))
    assert "subscription 900 was paid for a time that is not known" in reasons(shop)
    shop.services.sources.map(WOO, "93", "app", expires_in="1y")
    shop.services.sources.unmap(WOO, "APP")
    process(shop, WOO, shops.woo_renewal(803, date_paid_gmt=PAID))
    process(shop, WOO)  # what waited
    assert (ends(shop), states(shop, WOO)) == ([EXTENDED], ["done"] * 3)


def test_a_renewal_of_what_issues_no_license(shop: World) -> None:
    """Coffee every month needs nobody to look at it."""
    shop.services.sources.map(WOO, "APP", None)
    process(shop, WOO, FIRST, RENEWAL)
    assert (ends(shop), states(shop, WOO)) == ([], ["done", "done"])


def test_a_refund_of_a_renewal_revokes_nothing(shop: World) -> None:
    """What was bought first was paid, and the shop reports an end of the subscription by itself."""
    refunded = shops.woo_renewal(801, date_paid_gmt=PAID, status="refunded")
    process(shop, WOO, FIRST, CREATED, RENEWAL, refunded)
    assert (ends(shop), set(states(shop, WOO))) == ([EXTENDED], {"done"})
    assert licenses(shop)[0].revoked_at is None


@pytest.mark.sampled(2, "status", "end")
@pytest.mark.parametrize(
    ("status", "end"),
    [
        ("pending-cancel", datetime(2027, 6, 15, 12, tzinfo=UTC)),
        ("cancelled", datetime(2027, 6, 15, 12, tzinfo=UTC)),
        ("expired", datetime(2027, 6, 15, 12, tzinfo=UTC)),
        ("on-hold", datetime(2027, 6, 15, 12, tzinfo=UTC) + GRACE),
    ],
)
def test_a_subscription_that_is_not_renewed_ends(shop: World, status: str, end: datetime) -> None:
    """With what is paid; one that is unpaid after the grace."""
    over = {"next_payment_date_gmt": "", "end_date_gmt": "2027-06-15T12:00:00"}
    process(shop, WOO, FIRST, CREATED, shops.woo_subscription(status, date_modified_gmt=PAID, **over))
    assert ends(shop) == [(None, end)]


def test_a_renewal_that_stripe_does_not_tell_from_a_purchase(world: World, shop_secrets: None) -> None:
    """With an API version of before 2018 the first invoice is as each later one: it issues a key once."""
    world.services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
    add(world, "stripe")
    world.services.sources.map("stripe", "price_1", "app")
    for number in range(3):
        invoice = shops.stripe_invoice("subscription", 1_784_116_800 + number * 2_592_000, new=False)
        process(world, "stripe", shops.stripe("invoice.paid", invoice, id_=f"evt_{number}"))
    assert (len(licenses(world)), states(world, "stripe")) == (1, ["done"] * 3)


def test_a_shop_without_subscriptions_is_read_as_before(shop: World, sync: Callable[..., str]) -> None:
    """Its API has no such list."""
    assert "1 accepted" in sync(shop, [FIRST])
    assert "1 duplicate" in sync(shop, [FIRST], [])
    assert ends(shop) == [(None, None)]
