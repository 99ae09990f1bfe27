"""The commands on sources of sales."""

import json
import os

import pytest

from harness import shops
from licserver.services.installation import open_services
from licserver.settings import Settings


@pytest.fixture
def shop(cli, monkeypatch):
    """A source with a mapped product."""
    monkeypatch.setenv("SHOP_SECRET", shops.SECRETS["woocommerce"])
    cli("product", "add", "app", "--name", "App")
    cli("source", "add", "shop", "--kind", "woocommerce", "--secret-env", "SHOP_SECRET")
    cli("source", "map", "shop", "93", "--product", "app", "--slots", "unlimited", "--expires-in", "1y")
    return cli


def test_a_secret_is_replaced_and_mappings_stay(shop, monkeypatch):
    """Two variables are accepted meanwhile; what is not named stays as it is."""
    monkeypatch.setenv("NEW_SECRET", "s" * 32)
    done = json.loads(shop("source", "change", "shop", "--secret-env", "NEW_SECRET,SHOP_SECRET", "--json"))
    assert done == {"name": "shop", "secret_env": "NEW_SECRET,SHOP_SECRET"}
    shop("source", "change", "shop", "--grace", "3d", "--refund", "any")
    (listed,) = json.loads(shop("source", "list", "--json"))
    assert (listed["secret_env"], listed["mapped"][:9]) == ("NEW_SECRET,SHOP_SECRET", "93 -> app")
    assert "nothing to change" in shop("source", "change", "shop", expect=2)
    assert "source list" in shop("source", "change", "other", "--grace", "3d", expect=2)


def test_sources_are_added_mapped_and_listed(shop, monkeypatch):
    """What was chosen is listed, with whether the secret is there."""
    shop("source", "map", "shop", "94", "--ignore")
    (listed,) = json.loads(shop("source", "list", "--json"))
    assert (listed["kind"], listed["mode"], listed["secret"]) == ("woocommerce", "live", "set")
    assert listed["mapped"] == "93 -> app (slots unlimited, expires in 1y), 94 -> nothing"
    monkeypatch.delenv("SHOP_SECRET")
    assert "missing" in shop("source", "list")
    shop("source", "unmap", "shop", "94")
    assert "unmapped" not in shop("source", "list")
    assert "removed shop" in shop("source", "remove", "shop")
    assert "no sources yet" in shop("source", "list")


def test_a_support_period_that_has_no_effect_is_named(shop):
    """The mapping is stored: the policy may follow, and then there is nothing to be said."""
    mapping = ("source", "map", "shop", "94", "--product", "app", "--support", "1y")
    assert "94 -> app (slots 1, support 1y)" in shop(*mapping)
    assert shop.errors == (
        "warning: the product app has no support policy, so the end of support has no effect; "
        "to use support periods: licserver product change app --support-policy\n"
    )
    shop("source", "map", "shop", "94", "--product", "app")
    assert shop.errors == ""
    shop("product", "change", "app", "--support-policy")
    shop(*mapping)
    assert shop.errors == ""


def test_options_that_cannot_be(shop):
    """Each is refused with a sentence."""
    assert "--product or --ignore" in shop("source", "map", "shop", "95", expect=2)
    assert "7d" in shop(
        "source", "add", "b", "--kind", "stripe", "--secret-env", "A", "--grace", "1w", expect=2
    )
    assert "source list" in shop("source", "events", "other", expect=2)


@pytest.mark.slow
def test_a_delivery_that_failed_is_listed_and_repeated(shop):
    """`source events` shows the reason, `source replay` lets the server try again."""
    services = open_services(Settings(data_dir=shop.folder))
    body = shops.woo(line_items=[shops.woo_line(product_id=95, sku="")])
    headers = {name.lower(): value for name, value in shops.sign("woocommerce", body, services.now()).items()}
    assert services.sources.receive("shop", headers, body).status == "accepted"
    (event,) = json.loads(shop("source", "events", "shop", "--json"))
    assert event["state"] == "waiting"
    with pytest.raises(Exception, match="95 is not mapped"):
        services.sales.process(event["id"])
    assert "95 is not mapped" in shop("source", "events", "shop", "--state", "dead")
    shop(
        "source",
        "map",
        "shop",
        "95",
        "--product",
        "app",
        "--lifetime",
        "--support",
        "1y",
        "--floating-seats",
        "5",
    )
    assert "99" in shop("source", "replay", "99", expect=2)
    assert "1 delivery again" in shop("source", "replay", str(event["id"]))
    assert "2 deliveries again" in shop("source", "replay", str(event["id"]), str(event["id"]))
    services.sales.process(event["id"])
    assert "issued 1 license of app" in shop("source", "events", "shop", "--state", "done")
    assert [license_.floating_seats for license_ in services.licenses.list_all()] == [5]
    assert "lifetime, support 1y, floating seats 5" in shop("source", "list")
    services.close()
    assert os.environ["SHOP_SECRET"] not in shop("audit", "--json")


def test_a_shop_of_ones_own_has_nothing_to_ask(shop, monkeypatch):
    """It was asked for the key of an API that it has not."""
    monkeypatch.setenv("OWN_SECRET", shops.SECRETS["standard"])
    shop("source", "add", "own", "--kind", "standard", "--secret-env", "OWN_SECRET")
    assert "let it deliver again" in shop("source", "sync", "own", "--since", "2026-01-01", expect=2)


def test_a_mapping_without_slots_is_named(shop):
    """No computer could use its licenses, as with `license issue`."""
    shop("source", "map", "shop", "94", "--product", "app", "--slots", "0")
    assert shop.errors == "warning: without slots no computer can use the licenses\n"
    shop("source", "map", "shop", "94", "--ignore", "--slots", "0")
    assert shop.errors == ""


@pytest.mark.parametrize(
    "url", ["https:/shop.example.com", "shop.example.com", "https://[", "ftp://a.example"]
)
def test_an_address_that_is_none_is_refused_at_once(shop, url):
    """It was stored, and the first sale that needed the shop's API waited for ever."""
    assert "must look like https://" in shop("source", "change", "shop", "--url", url, expect=2)


def test_an_address_that_would_get_the_key_unencrypted(shop):
    """It is refused when it is set, and not at the first `sync`; a shop on this machine may have it."""
    refused = shop("source", "change", "shop", "--url", "http://shop.example.com", expect=2)
    assert "must begin with https://, because the API key is sent to it" in refused
    for url in ("http://localhost:8080", "http://127.0.0.1/", "http://[::1]:80", "https://shop.example.com"):
        shop("source", "change", "shop", "--url", url)
