"""Covered versions and security releases where customers meet them: update checks, feeds, downloads."""

import json
from datetime import date

import pytest

from harness.admin import form
from harness.feeds import bearer, read_appcast
from licserver.domain.records import AfterSupport, SecurityNotice
from licserver.errors import InvalidInputError, NotFoundError

NOTICE = SecurityNotice("https://example.com/1", ("CVE-2026-1234",))
OVER = {"support_until": date(2026, 6, 15)}
"""Support ends today, and is over when the clock moves on."""


@pytest.fixture
def old(world, publish):
    """Publish 1.0 within the support period and 2.0 after it; return a key whose support is over."""
    world.services.products.change("app", has_support_policy=True, after_support=AfterSupport.COVERED)
    key = world.key(**OVER)
    publish("1.0")
    world.clock.forward(days=2)
    publish("2.0")
    return key


async def check(site, key, installed="0.9"):
    """Send an update check; return its status and what it offers."""
    query = {"license_key": key, "slug": "app", "current_version": installed, "domain": "a.example"}
    status, _, answer = await site.call("GET", "/api/v1/update-check", params=query)
    return status, answer


async def test_a_choice_of_the_vendor_holds_from_the_next_request_on(site, world, old):
    """In both directions; the link downloads."""
    status, answer = await check(site, old)
    assert (status, answer["version"], answer["latest_version"]) == (200, "1.0", "2.0")
    assert answer["updates_until"] == "2026-06-15"
    path, _, query = answer["download_url"].partition("?")
    status, _, _ = await site.call("GET", "/api/v1/update-download?" + query)
    assert (status, path.endswith("/api/v1/update-download")) == (200, True)
    world.services.products.change("app", after_support=AfterSupport.NONE)
    status, answer = await check(site, old)
    assert (status, answer["version"]) == (200, "2.0")
    assert not {"download_url", "updates_until", "latest_version"} & set(answer)


async def test_feeds_offer_what_is_covered(site, old):
    """Sparkle's list, Tauri's answer, and Velopack's package by its name."""
    status, _, answer = await site.call("GET", "/feeds/app/tauri/linux/x86_64/0.9", headers=bearer(old))
    assert (status, answer["version"]) == (200, "1.0.0")
    status, _, feed = await site.call("GET", "/feeds/app/appcast.xml", headers=bearer(old))
    assert status == 200
    _, items = read_appcast(feed)
    assert [item.version for item in items] == ["1.0"]


async def test_an_ended_license_downloads_the_fix(site, world, publish):
    """It is a 401 until the fix is published, and again once it is installed."""
    key = world.key(expires_on=date(2026, 6, 15))
    publish("1.0")
    world.clock.forward(days=2)
    assert (await check(site, key))[0] == 401
    publish("1.0.1", security=NOTICE)
    publish("2.0")
    status, answer = await check(site, key, "1.0")
    assert (status, answer["version"], answer["latest_version"]) == (200, "1.0.1", "2.0")
    assert answer["security"] == {"advisory": "https://example.com/1", "cves": ["CVE-2026-1234"]}
    status, _, _ = await site.call(
        "GET", "/api/v1/update-download?" + answer["download_url"].partition("?")[2]
    )
    assert status == 200
    assert (await check(site, key, "1.0.1"))[0] == 401
    world.services.licenses.revoke(key)
    assert (await check(site, key, "1.0"))[0] == 401


async def test_a_published_version_becomes_a_security_release(site, world, publish):
    """What it fixes is known a week later: from then on it is offered with all its files."""
    key = world.key(expires_on=date(2026, 6, 15))
    publish("1.0")
    publish("1.0.1")
    publish("1.0.1", platform="haiku", content=b"other")
    world.clock.forward(days=2)
    assert (await check(site, key))[0] == 401
    change = world.services.releases.set_security
    assert change("app", "1.0.1", NOTICE).security == NOTICE
    assert {file.security for file in world.services.releases.list_files("app", "1.0.1")} == {NOTICE}
    status, answer = await check(site, key)
    assert (status, answer["version"], answer["security"]["cves"]) == (200, "1.0.1", ["CVE-2026-1234"])
    change("app", "1.0.1", None)
    assert (await check(site, key))[0] == 401
    world.services.releases.withdraw("app", "1.0.1")
    with pytest.raises(InvalidInputError, match="is withdrawn"):
        change("app", "1.0.1", NOTICE)


@pytest.mark.parametrize("after", list(AfterSupport))
async def test_velopack_downloads_the_fix(site, world, publish, after):
    """The package is requested without the installed version: each line has its fix, and no other."""
    world.services.products.change("app", has_support_policy=True, after_support=after)
    ended, over = world.key(expires_on=date(2026, 6, 15)), world.key(**OVER)
    world.clock.forward(days=2)
    for version, notice in (("1.0.1", NOTICE), ("2.0.0", None), ("2.0.1", NOTICE), ("2.1.0", None)):
        publish(version, name=f"A-{version}-full.nupkg", content=version.encode(), security=notice)
    for key, refused in ((ended, 401), (over, 404)):
        feed = "/feeds/app/velopack/releases.win.json?localVersion=1.0.0"
        status, _, answer = await site.call("GET", feed, headers=bearer(key))
        assert (status, [asset["FileName"] for asset in answer["Assets"]]) == (200, ["A-1.0.1-full.nupkg"])
        for version in ("1.0.1", "2.0.1"):
            package = f"/feeds/app/velopack/A-{version}-full.nupkg"
            assert (await site.call("GET", package, headers=bearer(key)))[::2] == (200, version.encode())
        for version in ("2.0.0", "2.1.0"):
            package = f"/feeds/app/velopack/A-{version}-full.nupkg"
            assert (await site.call("GET", package, headers=bearer(key)))[0] in (404, refused), version
    world.services.licenses.revoke(ended)
    package = "/feeds/app/velopack/A-1.0.1-full.nupkg"
    assert (await site.call("GET", package, headers=bearer(ended)))[0] == 401


def test_all_files_of_a_version_are_one_security_release(publish, world):
    """A further file inherits it, and with another notice it is refused."""
    publish("1.0", security=NOTICE)
    assert publish("1.0", platform="windows-x86_64", content=b"other").security == NOTICE
    publish("2.0")
    with pytest.raises(InvalidInputError, match=r"to change it: licserver release security app 2\.0$"):
        publish("2.0", platform="windows-x86_64", content=b"other", security=NOTICE)


def test_a_version_may_have_been_published_elsewhere_before(world, publish):
    """A shop that moves in has sold support periods for its versions; a mistyped day is refused."""
    release = publish("0.9", published_on=date(2024, 3, 1))
    assert release.published_at.isoformat() == "2024-03-01T00:00:00+00:00"
    for day in (date(2026, 6, 16), date(1, 1, 1)):  # of year 1 an update check could not be read
        with pytest.raises(InvalidInputError, match=f"from 1980-01-01 to today in UTC, not on {day}"):
            publish("1.0", published_on=day)


def test_who_may_download_a_release(world, publish):
    """Of a security release all but revoked licenses and trials that are over; of others by their period."""
    world.services.products.change("app", has_support_policy=True, after_support=AfterSupport.COVERED)
    covered, expired, trial, revoked = (
        world.key(**OVER),
        world.key(expires_on=date(2026, 6, 15)),
        world.key(expires_on=date(2026, 6, 15), trial=True),
        world.key(),
    )
    world.services.licenses.revoke(revoked)
    publish("1.0")
    world.clock.forward(days=2)
    publish("1.0.1", security=NOTICE)
    publish("2.0")

    def entitled(version):
        found = {license_.id for license_ in world.services.licenses.list_entitled("app", version).items}
        keys = {"covered": covered, "expired": expired, "trial": trial, "revoked": revoked}
        return {name for name, key in keys.items() if world.services.vault.license_id(key) in found}

    assert entitled("1.0.1") == {"covered", "expired"}
    assert (entitled("1.0"), entitled("2.0")) == ({"covered"}, set())
    world.services.products.change("app", after_support=AfterSupport.NONE)
    assert entitled("1.0") == set()


async def test_the_audience_of_a_fix_is_listed(site, world):
    """Each computer with an older version, and each whose app reported none: it was taken for nobody."""
    keys = [world.key(customer_email=f"{name}@example.com") for name in ("ann", "bob", "cid")]
    for key, version in zip(keys, ("1.0", "1.0.1", None), strict=True):
        machine = {} if version is None else {"label": "Anna's laptop", "app_version": version}
        body = {"license_key": key, "domain": "a.example", "ip": "192.0.2.1", **machine}
        status, _, _ = await site.call("POST", "/api/v1/licenses/verify", json=body)
        assert status == 200
    for version in ("1.0", "1.0.1"):
        world.publish(version)
    listed = list(world.services.licenses.list_below("app", "1.0.1"))
    assert {license_.customer_email: activation.label for license_, activation in listed} == {
        "ann@example.com": "Anna's laptop",
        "cid@example.com": None,
    }
    ((license_, _),) = world.services.licenses.list_below("app", "1.0.1", reported_only=True)
    assert license_.customer_email == "ann@example.com"
    with pytest.raises(InvalidInputError, match="is not a PEP 440 version"):
        list(world.services.licenses.list_below("app", "nightly"))
    with pytest.raises(NotFoundError, match=r"there is no version '9\.9' of app"):  # a typo mails everybody
        list(world.services.licenses.list_below("app", "9.9"))


def test_the_command_publishes_it(cli, tmp_path):
    """What belongs to no security release is refused; a product's choice is listed."""
    file = tmp_path / "app.zip"
    file.write_bytes(b"zip")
    cli("product", "add", "app", "--name", "App")
    cli("release", "publish", "app", "1.0", str(file), "--security", "--cve", "CVE-2026-1234")
    assert json.loads(cli("release", "list", "app", "--json"))[0]["security"] is True
    problem = cli("release", "publish", "app", "1.1", str(file), "--cve", "CVE-2026-1234", expect=2)
    assert "are for security releases only" in problem
    shown = json.loads(
        cli("release", "security", "app", "1.0", "--advisory", "https://example.com/1", "--json")
    )
    assert (shown["advisory"], shown["cves"]) == ("https://example.com/1", ["CVE-2026-1234"])
    assert json.loads(cli("release", "security", "app", "1.0", "--json")) == shown
    assert json.loads(cli("release", "security", "app", "1.0", "--unset", "--json"))["security"] is False
    problem = cli("release", "security", "app", "1.0", "--unset", "--cve", "CVE-2026-1234", expect=2)
    assert "are for security releases only" in problem
    nobody = "no app has reported a version below 1.0"
    cli("release", "security", "app", "1.0", "--set")
    problem = cli("release", "withdraw", "app", "1.0", expect=2)
    assert "installations below it are offered no fix any more" in problem
    cli("release", "publish", "app", "1.0.1", str(file), "--security")
    cli("release", "withdraw", "app", "1.0")
    cli("release", "withdraw", "app", "1.0.1", "--force")
    assert cli("release", "audience", "app", "1.0", "--reported") == f"{nobody}\n"
    assert f"{nobody}, and each that has a slot" in cli("release", "audience", "app", "1.0")
    cli("product", "change", "app", "--after-support", "covered")
    assert json.loads(cli("product", "list", "--json"))[0]["after_support"] == "covered"


async def test_the_admin_api_publishes_it(api):
    """What its form cannot mean is refused: a release cannot be made a security release later."""
    path, file = "/products/app/releases", ("app.zip", b"zip")
    for name, text in (("security", "True"), ("security", "1"), ("published_on", "20240301")):
        status, problem = await api("POST", path, **form(version="1.5", file=file, **{name: text}))
        assert (status, name in problem["detail"].lower(), text in problem["detail"]) == (422, True, True)
    fields = {"security": "true", "cves": "CVE-2026-1234, CVE-2026-1235", "published_on": "2024-03-01"}
    status, release = await api("POST", path, **form(version="1.5", file=file, **fields))
    assert (status, release["published_at"]) == (201, "2024-03-01T00:00:00Z")
    assert release["security"] == {"advisory": None, "cves": ["CVE-2026-1234", "CVE-2026-1235"]}
    _, plain = await api("POST", path, **form(version="1.6", file=file, security="false"))
    assert plain["security"] is None
    body = {"security": True, "cves": ["cve-2026-1234"]}
    _, fixed = await api("POST", f"{path}/1.6/security", json=body)
    assert fixed["security"] == {"advisory": None, "cves": ["CVE-2026-1234"]}
    assert (await api("POST", f"{path}/1.6/security", json={"cves": []}))[0] == 422
    _, plain = await api("POST", f"{path}/1.6/security", json={"security": False})
    assert plain["security"] is None


async def test_the_console_changes_it(alice, publish):
    """On the page of the version; what was typed wrongly is shown again."""
    publish("1.0", security=NOTICE)
    page = "/console/products/app/releases/1.0"
    await alice.get(page)
    assert 'value="CVE-2026-1234"' in alice.text
    await alice.post(f"{page}/security", security="on", advisory="", cves="CVE-2026-99")
    assert "is not a CVE id" in alice.text
    assert 'value="CVE-2026-99"' in alice.text
    await alice.post(f"{page}/security", security="on", advisory="", cves="CVE-2026-1235")
    assert "The security notice is changed" in alice.text
    await alice.post(f"{page}/withdraw")
    assert "installations below it are offered no fix any more" in alice.text
    await alice.post(f"{page}/security", advisory="", cves="")
    assert "offered to every key" not in alice.text
