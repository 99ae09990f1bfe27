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
    assert "removed shop" in shop("source", "remove", "shop", "--yes")
    assert "no sources yet" in shop("source", "list")


def test_all_settings_of_a_source_are_shown(shop, monkeypatch):
    """Nothing else shows them; of a secret or a key, only the variable and whether it is set."""
    api = ("--key-env", "WOO_KEY", "--url", "https://shop.example.com", "--renewal-field", "_renews")
    shop("source", "change", "shop", "--grace", "3d", "--refund", "any", "--changes", "ask", *api)
    shop("source", "change", "shop", "--state", "wc-shipped=paid", "--state", "lost=failed")
    shown = json.loads(shop("source", "show", "shop", "--json"))
    assert shown.pop("created_at").endswith("Z")
    assert shown == {
        "name": "shop",
        "kind": "woocommerce",
        "mode": "live",
        "path": "/events/in/shop",
        "secret_env": "SHOP_SECRET",
        "secret": "set",
        "tolerance": 300,
        "grace_days": 3,
        "refund": "any",
        "changes": "ask",
        "states": {"lost": "failed", "shipped": "paid"},
        "renewal_field": "_renews",
        "key_env": "WOO_KEY",
        "api_key": "missing",
        "url": "https://shop.example.com",
        "mappings": 1,
    }
    monkeypatch.setenv("WOO_KEY", "ck_1:cs_1")
    text = shop("source", "show", "shop")
    assert "api key        set\n" in text
    assert "states         lost=failed\n               shipped=paid\n" in text
    assert "ck_1" not in text
    assert "no such source" in shop("source", "show", "other", expect=2)


def test_the_api_key_of_a_setting_is_shown(shop, monkeypatch):
    """Paddle's key may be in a setting; a source without a variable or a setting shows no state."""
    shop("source", "add", "pad", "--kind", "paddle", "--secret-env", "PAD_SECRET")
    assert json.loads(shop("source", "show", "pad", "--json"))["api_key"] is None
    monkeypatch.setenv("LICSERVER_PADDLE_API_KEY", "pdl_live_apikey_x")
    shown = json.loads(shop("source", "show", "pad", "--json"))
    assert (shown["key_env"], shown["api_key"], shown["secret"]) == (None, "set", "missing")


def test_a_state_is_the_same_with_and_without_the_prefix_of_woocommerce(shop):
    """Its pages show wc-shipped, and it delivers shipped; other shops may have such a name."""
    shop("source", "change", "shop", "--state", "wc-shipped=paid")
    assert json.loads(shop("source", "show", "shop", "--json"))["states"] == {"shipped": "paid"}
    shop("source", "change", "shop", "--state", "wc-shipped=")
    assert json.loads(shop("source", "show", "shop", "--json"))["states"] == {}
    other = ("--kind", "standard", "--secret-env", "A", "--state", "wc-shipped=paid")
    shop("source", "add", "own", *other)
    assert json.loads(shop("source", "show", "own", "--json"))["states"] == {"wc-shipped": "paid"}
    assert "write it like shipped=paid" in shop("source", "change", "shop", "--state", "shipped", expect=2)


def test_removing_a_source_is_asked_about(shop):
    """Its mappings and deliveries go with it."""
    error = shop("source", "remove", "shop", expect=2)
    assert (
        "removing a source deletes its mappings and deliveries, and there is no terminal to ask; add --yes"
        in error
    )
    assert "no such source" in shop("source", "remove", "other", expect=2)
    assert "shop" in shop("source", "list")
    assert "removed shop" in shop("source", "remove", "shop", "--yes")


def test_what_has_not_happened_yet_is_not_asked_for(shop, monkeypatch):
    """A day ahead is a slip; the shop would report nothing, and that looked like success."""
    monkeypatch.setenv("WOO_KEY", "ck_1:cs_1")
    sync = ("source", "sync", "shop", "--key-env", "WOO_KEY", "--url", "http://127.0.0.1:9", "--since")
    assert "2099-01-01 has not come yet; name a day that has passed" in shop(*sync, "2099-01-01", expect=2)


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
