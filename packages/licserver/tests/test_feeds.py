"""Feeds for other updaters: who is offered what, with a license and without (D-213, D-221)."""

import json
from base64 import b64decode, b64encode
from datetime import UTC, date, datetime
from urllib.parse import quote, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from hypothesis import given
from hypothesis import strategies as st

from harness.engines import both_engines
from harness.feeds import GROUPS, bearer, read_appcast, sparkle_chooses, tauri_verifies
from licserver.domain.offers import ListedRelease, bucket
from licserver.domain.records import Artifact, Release
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.feeds import format_appcast, parse_call, read_license
from licserver.protocol.file_signatures import PUBLIC_KEY_FORMS, FileSignatures

KEY = PrivateKey(b"1" * 32)
CONTENT = b"an installer\n" * 100
TAURI = "/feeds/app/tauri/linux/x86_64/"


async def check(site, key=None, installed="1.0", path=TAURI, **query: str):
    """Ask as Tauri's updater does; returns the status and the answer."""
    headers = {} if key is None else bearer(key)
    status, _, answer = await site.call("GET", path + installed, headers=headers, params=query)
    return status, answer


async def versions(site, key=None, **query: str):
    """The version that is offered; None for nothing."""
    status, answer = await check(site, key, **query)
    assert status in {200, 204}
    return answer["version"] if status == 200 else None


# --- Tauri --------------------------------------------------------------------------------------


async def test_tauri_is_offered_what_it_can_verify(site, world, publish, tmp_path):
    """The answer has the fields of its documentation; file, signature and version belong together."""
    key = world.key()
    publish("1.5b1", channel="beta")
    publish("1.4")
    status, answer = await check(site, key)
    assert (status, set(answer)) == (200, {"version", "notes", "pub_date", "url", "signature"})
    assert (answer["version"], answer["pub_date"]) == ("1.4.0", "2026-06-15T12:00:00Z")
    link = urlsplit(answer["url"])
    status, headers, content = await site.call("GET", f"{link.path}?{link.query}", headers=bearer(key))
    assert (status, content) == (200, CONTENT)
    assert "app-1.4.AppImage" in headers["Content-Disposition"]
    public = PUBLIC_KEY_FORMS["tauri"](KEY.public)
    assert tauri_verifies(tmp_path, content, answer["signature"], public)["version"] == "1.4.0"


async def test_nothing_newer_is_204(site, world, publish):
    """And so is a release that Tauri could not use: unsigned, or without a semantic version."""
    key = world.key()
    assert await check(site, key) == (204, b"")  # nothing is published
    publish("1.4")
    assert [(await check(site, key, version))[0] for version in ("1.4.0", "2.0.0", "1.3.9")] == [
        204,
        204,
        200,
    ]
    assert (await check(site, key, "nightly"))[0] == 200  # Tauri compares by itself as well
    publish("1.5.post1")
    assert (await check(site, key))[0] == 204
    publish("1.6", is_signed=False)
    assert (await check(site, key))[0] == 204


@pytest.mark.sampled(2, "version")
@pytest.mark.parametrize(
    ("path", "query", "version"),
    [
        ("linux/x86_64/1.0", {}, "1.2.0"),
        ("darwin/aarch64/1.0", {}, "1.3.0"),
        ("windows/x86_64/1.0", {}, "1.1.0"),
        ("windows/i686/1.0", {}, "1.1.0"),
        ("linux-deb/x86_64/1.0", {}, "1.4.0"),
        ("linux/x86_64/1.0", {"platform": "linux-deb"}, "1.4.0"),
        ("linux/x86_64/1.0", {"platform": "no/name"}, "1.1.0"),
    ],
)
async def test_a_platform_has_its_own_file(site, world, publish, path, query, version):
    """By the names of Tauri, or by one that the app has chosen."""
    key = world.key()
    publish("1.1")
    publish("1.2", platform="linux-x86_64")
    publish("1.3", platform="macos-arm64")
    publish("1.4", platform="linux-deb")
    status, answer = await check(site, key, path, "/feeds/app/tauri/", **query)
    assert (status, answer["version"]) == (200, version)


# --- Sparkle ------------------------------------------------------------------------------------

APPCAST = "/feeds/app/appcast.xml"


async def appcast(site, key=None, agent: str = "Photo Lab/1.0 Sparkle/2.6.4", **query: str):
    """Read the appcast as Sparkle does."""
    headers = {"User-Agent": agent, **({} if key is None else bearer(key))}
    status, answered, document = await site.call("GET", APPCAST, headers=headers, params=query)
    assert (status, answered["Content-Type"]) == (200, "application/rss+xml")
    return read_appcast(document)[1]


@pytest.mark.slow
async def test_sparkle_is_offered_what_it_can_verify(site, world, publish):
    """An item with the signature of the very bytes that its link leads to; what is unsigned is not listed."""
    key = world.key()
    assert await appcast(site, key) == []
    changelog = "<p>Faster & <b>smaller</b></p>"
    publish("1.4", name="Photo Lab.dmg", platform="macos", changelog=changelog, critical_below="1.2")
    (item,) = await appcast(site, key)
    assert (item.version, item.title, item.critical_below) == ("1.4", "App 1.4", "1.2")
    assert item.notes == ("html", "<p>Faster &amp; <b>smaller</b></p>")
    assert (item.published, item.channel, item.interval) == (world.clock(), None, None)
    link = urlsplit(item.url)
    status, headers, content = await site.call("GET", f"{link.path}?{link.query}", headers=bearer(key))
    assert (status, content, item.length) == (200, CONTENT, len(CONTENT))
    assert "Photo Lab.dmg" in headers["Content-Disposition"]  # Sparkle unpacks by its ending
    public = b64decode(PUBLIC_KEY_FORMS["sparkle"](KEY.public))
    Ed25519PublicKey.from_public_bytes(public).verify(item.signature, content)
    publish("1.5", platform="macos-arm64", changelog="Plain & simple")
    (item,) = await appcast(site, key, platform="macos-arm64")
    assert (item.version, item.notes) == ("1.5", ("plain-text", "Plain & simple"))
    publish("1.6", platform="macos", is_signed=False)
    assert await appcast(site, key) == []


@pytest.mark.slow
async def test_sparkle_chooses_by_channel(site, world, publish):
    """By `allowedChannels` of the app; what license or address name needs no such method."""
    publish("1.4")
    publish("1.5b1", channel="beta")
    publish("1.3", channel="old")
    world.services.products.change("app", public_feed=True)
    for key in (None, world.key()):
        items = await appcast(site, key)
        assert [(release.version, release.channel) for release in items] == [("1.4", None), ("1.5b1", "beta")]
        chosen = [sparkle_chooses(items, world.clock(), 6, channels=allowed) for allowed in ((), ("beta",))]
        assert chosen == ["1.4", "1.5b1"]
    for items in (await appcast(site, channels="beta"), await appcast(site, world.key(channels=("beta",)))):
        assert [(release.version, release.channel) for release in items] == [("1.5b1", None)]


async def test_winsparkle_gets_nothing_that_it_must_not_choose(site, world, publish):
    """It knows neither channels nor groups, and takes the highest version of the list (D-392)."""
    world.services.products.change("app", public_feed=True)
    publish("1.4")
    publish("1.5", rollout="7d")
    publish("1.6b1", channel="beta")
    agent = "Photo Lab/1.0 WinSparkle/0.9.3 (Win64)"
    assert [item.version for item in await appcast(site)] == ["1.5", "1.4", "1.6b1"]
    assert [item.version for item in await appcast(site, agent=agent)] == ["1.4"]
    assert [item.version for item in await appcast(site, agent=agent, channels="beta")] == ["1.6b1"]
    world.clock.forward(days=8)
    assert [item.version for item in await appcast(site, agent=agent)] == ["1.5"]


@pytest.mark.slow
async def test_even_growth_is_left_to_sparkle(site, world, publish):
    """Without a name the app chooses by its group: one seventh at once, all before the plan's end."""
    world.services.products.change("app", public_feed=True)
    publish("1.4")
    publish("1.5", rollout="7d", critical_below="0.9")

    async def reached(**more: str):
        items = await appcast(site)
        return [sparkle_chooses(items, world.clock(), group, **more) for group in range(GROUPS)]

    assert await reached() == ["1.5"] + 6 * ["1.4"]
    assert await reached(installed="0.8") == 7 * ["1.5"]
    world.clock.forward(days=2)
    assert await reached() == 3 * ["1.5"] + 4 * ["1.4"]
    world.services.rollouts.change("app", "1.5", paused=True)
    assert await reached() == 7 * ["1.4"]  # a pause is not for Sparkle to see
    world.clock.forward(days=5)
    world.services.rollouts.change("app", "1.5", paused=False)
    assert await reached() == 3 * ["1.5"] + 4 * ["1.4"]
    world.clock.forward(days=4)
    assert await reached() == 7 * ["1.5"]
    world.clock.forward(days=1)
    assert [(offered.version, offered.interval) for offered in await appcast(site)] == [("1.5", None)]


@pytest.mark.slow
async def test_a_named_installation_gets_what_the_rollout_gives_it(site, world, publish):
    """By its domain or license the server decides, as in update checks; steps reach nobody else."""
    world.services.products.change("app", public_feed=True)
    publish("1.4")
    publish("1.5", rollout="50%,100%@5d")
    publish("1.6b1", rollout="50%", channel="beta")
    homes = sorted((f"home-{number}" for number in range(20)), key=lambda name: bucket("app", "1.5", name))
    found = [
        [offered.version for offered in await appcast(site, domain=home, channels="none")] for home in homes
    ]
    assert [version[0] for version in found] == ["1.5"] * found.index(found[-1]) + ["1.4"] * (
        20 - found.index(found[-1])
    )
    assert {"1.6b1" in version for version in found} == {True, False}
    assert [offered.version for offered in await appcast(site)] == ["1.4"]
    assert [offered.version for offered in await appcast(site, manual="1")] == ["1.5", "1.6b1"]
    assert {offered.interval for home in homes for offered in await appcast(site, domain=home)} == {None}


@pytest.mark.slow
async def test_an_appcast_without_a_right_to_it(site, world, publish, new_key):
    """Refusals are those of an update check; after support the list is empty."""
    publish("1.4")
    assert (await site.call("GET", APPCAST))[0] == 401
    assert (await site.call("GET", APPCAST, headers=bearer(new_key())))[0] == 401
    world.services.products.change("app", has_support_policy=True)
    assert await appcast(site, world.key(support_until=date(2026, 1, 1))) == []
    world.services.products.change("app", public_feed=True)
    world.services.releases.withdraw("app", "1.4")
    assert await appcast(site) == []


@given(st.text(), st.text(), st.text())
def test_any_text_is_xml(name, changelog, link):
    """Characters that XML has not are replaced; nothing is read as an element."""
    signatures = FileSignatures(b64encode(b"s" * 64).decode(), "").document
    now = datetime(2026, 6, 15, 12, tzinfo=UTC)
    file = Artifact("a", 1, b"")
    release = Release(1, 1, "1.0", changelog, now, file, file_signatures=signatures)
    document = format_appcast(name, [(ListedRelease(release), f"https://example.com/{quote(link)}")])
    title, (item,) = read_appcast(document)
    assert (title == name.replace("\r\n", "\n").replace("\r", "\n")) or not name.isprintable()
    assert item.version == "1.0"


# --- who is offered what ------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_license_is_judged_as_in_an_update_check(site, world, publish, new_key):
    """Unknown, revoked, expired, of another product; and after its support nothing is offered."""
    world.services.products.change("app", has_support_policy=True)
    world.product("other")
    publish("1.4")
    revoked = world.key()
    world.services.licenses.revoke(revoked)
    day = world.clock().date()
    cases = {
        new_key(): (401, "invalid_license"),
        "x": (401, "invalid_license"),
        revoked: (401, "invalid_license"),
        world.key(expires_on=day.replace(day=1)): (401, "license_expired"),
        world.key("other"): (403, "product_mismatch"),
    }
    for key, (status, error) in cases.items():
        found, answer = await check(site, key)
        assert (found, answer["error"]) == (status, error)
    assert (await check(site, world.key(), path="/feeds/none/tauri/linux/x86_64/"))[0] == 404
    assert (await check(site, world.key(support_until=day.replace(day=1))))[0] == 204
    assert (await check(site, world.key(support_until=day)))[0] == 200


@pytest.mark.slow
@both_engines
async def test_without_a_license_only_a_public_feed_answers(site, world, publish):
    """The setting is off by default; unknown products are answered like those without a public feed."""
    publish("1.4")
    refused = await check(site)
    assert (refused[0], refused[1]["error"]) == (401, "license_required")
    assert await check(site, path="/feeds/none/tauri/linux/x86_64/") == refused
    world.services.products.change("app", public_feed=True)
    status, answer = await check(site)
    link = urlsplit(answer["url"])
    assert (status, "license=&" in link.query) == (200, True)
    assert (await site.call("GET", f"{link.path}?{link.query}"))[2] == CONTENT
    revoked = world.key()
    world.services.licenses.revoke(revoked)
    assert (await check(site, revoked))[0] == 401  # what is sent counts
    world.services.releases.withdraw("app", "1.4")
    assert (await site.call("GET", f"{link.path}?{link.query}"))[0] == 404
    assert await check(site) == (204, b"")


@pytest.mark.slow
async def test_a_license_may_come_in_the_query_or_as_a_password(site, world, publish):
    """For apps whose updater sends no headers of their own."""
    key = world.key()
    publish("1.4")
    assert (await check(site, license_key=key))[0] == 200
    basic = b64encode(f"license:{key}".encode()).decode()
    status, _, _ = await site.call("GET", f"{TAURI}1.0", headers={"Authorization": f"Basic {basic}"})
    assert status == 200


async def test_channels_of_app_and_license(site, world, publish):
    """As in an update check: both add up."""
    publish("1.4")
    publish("1.5b1", channel="beta")
    assert await versions(site, world.key()) == "1.4.0"
    assert await versions(site, world.key(), channels="beta") == "1.5.0-beta.1"
    assert await versions(site, world.key(channels=("beta",))) == "1.5.0-beta.1"
    world.services.products.change("app", public_feed=True)
    assert [await versions(site), await versions(site, channels="beta")] == ["1.4.0", "1.5.0-beta.1"]


async def test_a_rollout_reaches_installations_licenses_and_then_the_rest(site, world, publish):
    """Who names no installation is one with all copies of the license; who has none is last (D-221)."""
    world.services.products.change("app", public_feed=True)
    keys = [world.key() for _ in range(20)]
    publish("1.4")
    publish("1.5", rollout="50%,100%@5d")
    homes = sorted((f"home-{number}" for number in range(20)), key=lambda name: bucket("app", "1.5", name))
    assert [await versions(site, keys[0], domain=home) for home in (homes[0], homes[-1])] == [
        "1.5.0",
        "1.4.0",
    ]
    assert [await versions(site, domain=home) for home in (homes[0], homes[-1])] == ["1.5.0", "1.4.0"]
    assert await versions(site, domain="no domain\x00") == "1.4.0"
    by_license = [await versions(site, key) for key in keys]
    assert set(by_license) == {"1.4.0", "1.5.0"}
    assert [await versions(site, key) for key in keys] == by_license
    assert [await versions(site), await versions(site, manual="1")] == ["1.4.0", "1.5.0"]
    world.clock.forward(days=5)
    assert {await versions(site), *[await versions(site, key) for key in keys]} == {"1.5.0"}


async def test_an_important_version_says_so(site, world, publish):
    """At once, for installed versions below the limit; in a field that only the raw answer has."""
    key = world.key()
    publish("1.4")
    publish("1.5", rollout="1%", critical_below="1.3")
    status, answer = await check(site, key, "1.2.0")
    assert (status, answer["version"], answer["critical"]) == (200, "1.5.0", True)


@pytest.mark.slow
async def test_update_checks_of_feeds_count_as_adoption(site, world, publish):
    """With the installed version, if it is one."""
    key = world.key()
    publish("1.4")
    await check(site, key, "1.4.0")
    await check(site, key, "nightly")
    await site.stop()
    status = world.services.rollouts.get("app", "1.4")
    assert (status.checks, status.checks_of_all) == (1, 1)


async def test_guessing_is_limited(open_site, make_world, new_key):
    """As in update checks."""
    site = await open_site(make_world(miss_limit=2))
    assert [(await check(site, new_key()))[0] for _ in range(3)] == [401, 429, 429]


# --- requests -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("authorization", "query", "key"),
    [
        ("", {}, ""),
        ("", {"license_key": "K"}, "K"),
        ("Bearer A", {"license_key": "K"}, "A"),
        ("bearer  A ", {}, "A"),
        ("Bearer ", {"license_key": "K"}, "K"),
        ("Digest A", {"license_key": "K"}, "K"),
        ("Basic " + b64encode(b"license:A:B").decode(), {}, "A:B"),
        ("Basic " + b64encode(b"license").decode(), {}, ""),
        ("Basic " + b64encode(b"\xff:A").decode(), {}, ""),
        ("Basic ?", {}, ""),
    ],
)
def test_where_a_license_comes_from(authorization, query, key):
    """A header goes before the query."""
    assert read_license(authorization, query) == key


@given(st.text(), st.text(), st.text(), st.text())
def test_any_request_can_be_parsed(authorization, query, platform, version):
    """What cannot be used counts as not sent."""
    call = parse_call("app", authorization, query, platform, version=version)
    assert json.dumps([call.platform, call.domain, call.channels])
