"""Channels of releases: who names one is offered its releases as well (D-227)."""

import json

import pytest

from harness import engines
from harness.admin import form
from licserver.database.hot_path.store import BatchStore
from licserver.database.hot_path.updates import UpdateQuery
from licserver.domain.records import Rollout
from licserver.errors import InvalidInputError

engine_name = engines.engine_name
WINDOWS = "windows-x86_64"


@pytest.fixture
def publish(world, tmp_path):
    """Publish a file."""

    def publish(version, channel="", platform=""):
        file = tmp_path / "app.zip"
        file.write_bytes(b"")
        return world.services.releases.publish("app", version, file, channel=channel, platform=platform)

    return publish


def offers(world, queries, channels=()):
    """What a license with these channels is offered for each query of channels and platform."""
    key = world.services.vault.license_id(world.key(channels=channels))
    store = BatchStore(world.services.database)
    try:
        found = store.find_updates([UpdateQuery(key, "app", platform, names) for names, platform in queries])
    finally:
        store.close()
    return [product.latest and (product.latest.version, product.latest.channel) for _, product in found]


@engines.both_engines
def test_the_app_or_the_license_names_channels(world, publish):
    """In one batch; promoting and withdrawing count at the next update check."""
    publish("1.0")
    publish("2.0", "beta")
    publish("2.1", "beta", WINDOWS)
    queries = [((), ""), (("beta",), ""), (("beta",), WINDOWS), (("nightly",), "")]
    stable, beta = ("1.0", "stable"), ("2.0", "beta")
    assert offers(world, queries) == [stable, beta, ("2.1", "beta"), stable]
    assert offers(world, queries[:2], ("beta",)) == [beta, beta]
    world.services.releases.promote("app", "2.0")
    assert offers(world, queries) == [
        ("2.0", "stable"),
        ("2.0", "stable"),
        ("2.1", "beta"),
        ("2.0", "stable"),
    ]
    world.services.releases.withdraw("app", "2.0")
    assert offers(world, queries[:2]) == [stable, stable]


def test_a_running_server_sees_each_change_with_the_next_update_check(world, publish):
    """It keeps what it has read of products: whatever changes one must be counted."""
    publish("1.0")
    key = world.services.vault.license_id(world.key())
    store, changes = BatchStore(world.services.database), world.services

    def offered():
        return store.find_updates([UpdateQuery(key, "app")])[0][1]

    assert (offered().name, offered().minimum_version, offered().latest.version) == ("App", None, "1.0")
    changes.products.change("app", name="Renamed", minimum_version="0.9")
    assert (offered().name, offered().minimum_version) == ("Renamed", "0.9")
    publish("1.1", "beta")
    assert offered().latest.version == "1.0"
    changes.releases.promote("app", "1.1")
    assert offered().latest.version == "1.1"
    newest = changes.releases.list_all("app")[-1]
    changes.repositories.releases.set_rollout(newest, Rollout("7d", world.clock()))
    assert offered().latest.rollout.plan == "7d"
    assert [release.version for release in offered().candidates] == ["1.1", "1.0"]
    changes.repositories.releases.renew_manifest(newest, "anew", world.clock())
    assert offered().latest.manifest == "anew"
    changes.releases.withdraw("app", "1.1")
    assert [release.version for release in offered().candidates] == ["1.0"]
    store.close()


def test_only_a_channel_has_a_release(world, publish):
    """Who does not name it is offered nothing, and the product has no latest version."""
    publish("1.0", "beta")
    assert offers(world, [((), ""), (("beta",), "")]) == [None, ("1.0", "beta")]
    assert world.services.products.get("app").latest is None


def test_a_version_is_in_one_channel(world, publish):
    """A further file joins its version, and a withdrawn version stays where it is."""
    publish("2.0", "beta")
    assert publish("2.0", platform=WINDOWS).channel == "beta"
    with pytest.raises(InvalidInputError, match="already; to move it: licserver release promote"):
        publish("2.0", "nightly", "haiku")
    assert world.services.releases.promote("app", "2.0").channel == "stable"
    assert {release.channel for release in world.services.releases.list_files("app", "2.0")} == {"stable"}
    world.services.releases.withdraw("app", "2.0")
    with pytest.raises(InvalidInputError, match="withdrawn"):
        world.services.releases.promote("app", "2.0", "beta")


@pytest.mark.parametrize("name", ["Beta", "a b", "", "x" * 41])
def test_a_name_is_checked(world, publish, name):
    """Of a release, and of a license."""
    publish("1.0")
    with pytest.raises(InvalidInputError, match="not a valid channel"):
        world.services.releases.promote("app", "1.0", name)
    with pytest.raises(InvalidInputError, match="not a valid channel"):
        world.key(channels=(name,))


@pytest.mark.slow
@engines.sqlite_only
def test_the_command_line_promotes(cli, tmp_path):
    """A version is published into a channel, listed with it and moved; licenses and products have options."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    cli("product", "add", "app", "--name", "App")
    output = cli("release", "publish", "app", "2.0b1", str(file), "--channel", "beta")
    assert "2.0b1 is in the channel beta: apps and licenses with this channel are offered it" in output
    assert cli("release", "promote", "app", "2.0b1") == "app 2.0b1 is in the channel stable\n"
    assert json.loads(cli("release", "list", "app", "--json"))[0]["channel"] == "stable"
    key = cli("license", "issue", "app", "--channels", "beta,nightly").strip()
    assert json.loads(cli("license", "show", key, "--json"))["channels"] == ["beta", "nightly"]
    cli("license", "change", key, "--channels", "")
    assert json.loads(cli("license", "show", key, "--json"))["channels"] == []
    cli("product", "change", "app", "--minimum-version", "1.4")
    assert json.loads(cli("product", "list", "--json"))[0]["minimum_version"] == "1.4"
    assert "is not a PEP 440 version" in cli("product", "change", "app", "--minimum-version", "x", expect=2)
    assert "warning:" not in cli.errors
    cli("product", "change", "app", "--minimum-version", "14")
    assert "warning: No version that app offers is as high as 14: all apps show" in cli.errors
    cli("product", "change", "app", "--customer-moves", "4")
    assert "warning:" not in cli.errors
    cli("product", "change", "app", "--minimum-version", "")
    assert "warning:" not in cli.errors
    assert json.loads(cli("product", "list", "--json"))[0]["minimum_version"] is None


@engines.sqlite_only
async def test_the_admin_api_promotes(api):
    """The form has a channel, and a product a lowest version, which null removes."""
    sent = form(version="2.0", channel="beta", file=("app.zip", b"zip"))
    status, release = await api("POST", "/products/app/releases", **sent)
    assert (status, release["channel"], "channel beta" in release["audience"]) == (201, "beta", True)
    status, release = await api("POST", "/products/app/releases/2.0/promote", {})
    assert (status, release["channel"]) == (200, "stable")
    assert (await api("POST", "/products/app/releases/2.0/promote", {"channel": "A"}))[0] == 422
    for sent, stored in [("1.4", "1.4"), (None, None)]:
        status, product = await api("PATCH", "/products/app", {"minimum_version": sent})
        assert (status, product["minimum_version"]) == (200, stored)
    assert (await api("PATCH", "/products/app", {"minimum_version": "x"}))[0] == 422


@engines.sqlite_only
async def test_the_console_promotes(world, alice):
    """The channel is typed beside the file, shown, and changed on the version's page."""
    await alice.get("/console/products/app")
    path = "/console/products/app/releases"
    await alice.upload(path, {"csrf": alice.csrf, "version": "2.0", "changelog": "", "channel": "beta"})
    assert "2.0 is in the channel beta" in alice.text
    await alice.post(f"{path}/2.0/promote", channel="")
    assert "The channel of the version is changed." in alice.text
    assert world.services.products.get("app").latest.version == "2.0"
    await alice.get("/console/products/app")
    await alice.post("/console/products/app/rules", policy="strict", moves="3", minimum="1.4")
    assert world.services.products.get("app").minimum_version == "1.4"
    await alice.post("/console/products/app/rules", policy="strict", moves="3", minimum="14")
    assert "No version that app offers is as high as 14" in alice.text
    assert world.services.products.get("app").minimum_version == "1.4"
    await alice.post("/console/products/app/rules", policy="strict", moves="3", minimum="14", sure="yes")
    assert world.services.products.get("app").minimum_version == "14"
    await alice.post("/console/products/app/rules", policy="strict", moves="4", minimum="14")
    assert world.services.products.get("app").customer_moves == 4
