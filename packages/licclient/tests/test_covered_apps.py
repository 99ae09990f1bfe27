"""Covered versions and security releases as an app meets them (D-320 to D-323)."""

import pickle
from dataclasses import replace
from datetime import date, timedelta

import pytest
from stage.flavours import both
from stage.flows import planned

from licclient import ClientSettings, LicenseClient, LicenseState, Source, Trust, explain
from licclient._core.records import read_update_check, record_name, write_update_check
from licclient.errors import LicenseRefusedError
from licclient.testing import MemoryStorage

SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.4")
ADVISORY = "https://notes.example/advisories/1"
CVES = ["CVE-2026-1234"]


@pytest.fixture
def make(license_service):
    """Make a client of the app, on one computer."""
    return lambda **options: license_service.client(SETTINGS, **options)


@pytest.fixture
def today(license_clock):
    """The service's day."""
    return lambda: license_clock().date()


@pytest.fixture
def covered(license_service, license_clock, today):
    """A license whose updates ended before 3.0 was published."""
    license_service.issue("Notes", slug="notes", updates_until=today(), activated=True)
    license_service.publish("1.9", slug="notes", content=b"1.9")
    license_clock.move(days=2)
    license_service.publish("3.0", slug="notes", content=b"3.0")
    return license_service


@both
async def test_the_newest_covered_version_is_offered_and_downloaded(flavour, drive, covered, today, tmp_path):
    """With the name of what there is beyond it; from memory as well."""
    construct = covered.client if flavour is LicenseClient else covered.async_client
    client = drive(construct(SETTINGS))
    until = today() - timedelta(days=2)
    assert (await client.verify()).updates_until == until
    for _ in range(2):
        check = await client.check_for_update()
        update = pickle.loads(pickle.dumps(check.update))  # noqa: S301 - our own
        assert (update.version, update.is_covered, update.latest_version) == ("1.9", True, "3.0")
        assert update.updates_until == until
        assert check.latest_version == "3.0"
        assert "The newest is 3.0, which the license does not cover." in check.message
    assert (await client.download(update, tmp_path)).path.read_bytes() == b"1.9"
    assert (await client.status()).updates_days_left == -2


def test_with_the_covered_version_installed_nothing_is_offered(make, covered):
    """The result names the newest version and what to do; from memory as well."""
    client = make(version="1.9")
    for _ in range(2):
        check = client.check_for_update()
        assert (check.update, check.latest_version, check.is_ahead) == (None, "3.0", False)
        assert check.message == (
            "The license covers version 1.9. The newest is 3.0: renew the license to get it."
        )
    check = make(version="2.0").check_for_update(force=True)  # installed before the license was changed
    assert (check.latest_version, check.is_ahead) == ("3.0", False)
    check = make(version="3.0").check_for_update(force=True)
    assert (check.latest_version, check.is_ahead) == ("3.0", True)
    assert check.message == (
        "Version 3.0 is newer than 1.9, which the license covers. Renew the license to get later versions."
    )
    assert explain(check, language="en").startswith("Your license covers no later versions.")


def test_without_a_covered_version_the_newest_is_named(license_service, license_clock, make, today):
    """Nothing can be downloaded, as for a product without covered versions."""
    key = license_service.issue("Notes", slug="notes", updates_until=today(), activated=True)
    license_clock.move(days=2)
    license_service.publish("3.0", slug="notes")
    client = make()
    for _ in range(2):
        check = client.check_for_update()
        assert (check.update, check.latest_version) == (None, "3.0")
        assert check.message == "The support period is over, so no newer version is offered."
    license_service.renew(key, updates_until=today())
    check = client.check_for_update(force=True)
    assert (check.update.version, check.update.is_covered, check.latest_version) == ("3.0", False, None)
    license_service.renew(key)
    license_service.end_support(key)
    assert client.check_for_update(force=True).latest_version == "3.0"
    assert make(version="3.0").check_for_update(force=True).latest_version is None


def test_the_end_of_updates_is_moved_for_tests(license_service, make, today):
    """By `end_support` for a license with covered versions."""
    key = license_service.issue("Notes", slug="notes", updates_until=date(2099, 1, 1), activated=True)
    license_service.end_support(key)
    assert make().verify().updates_until == today() - timedelta(days=1)


def test_state_of_earlier_versions_is_read(make, covered):
    """They wrote no such members, and ignore them."""
    client = make()
    update = client.check_for_update().update
    document = covered.storage.load(record_name("update", SETTINGS.base_url, covered.storage.key, "notes"))
    added = {"latest_version", "updates_until", "security"}
    assert added & document["listing"].keys() == {"latest_version", "updates_until"}
    earlier = {field: value for field, value in document["listing"].items() if field not in added}
    record = read_update_check(document | {"listing": earlier})
    assert record.listing.version == update.version
    assert write_update_check(record)["listing"] == earlier


# --- security releases ------------------------------------------------------------------------


@both
async def test_an_expired_license_gets_the_security_release_alone(flavour, drive, license_service, tmp_path):
    """The license goes on being refused; the fix is found, shown and downloaded."""
    construct = license_service.client if flavour is LicenseClient else license_service.async_client
    key = license_service.issue("Notes", slug="notes", activated=True)
    client = drive(construct(SETTINGS))
    await client.verify()
    license_service.expire(key)
    license_service.publish("2.0", slug="notes")
    check = await client.check_for_update(force=True)
    assert (check.update, check.error.reason) == (None, "expired")
    license_service.publish(
        "1.4.3", slug="notes", security=True, advisory=ADVISORY, cves=CVES, rolled_out=False, content=b"fix"
    )
    with pytest.raises(LicenseRefusedError):
        await client.verify(force=True)
    for force in (True, False):
        update = (await client.check_for_update(force=force)).update
        assert (update.version, update.latest_version) == ("1.4.3", "2.0")
        assert (update.is_security, update.advisory, update.cves) == (True, ADVISORY, tuple(CVES))
    status = await client.status()
    assert (status.state, status.update) == (LicenseState.REFUSED, update)
    assert (await client.download(update, tmp_path)).path.read_bytes() == b"fix"


def test_a_revoked_license_and_a_trial_that_ended_get_none(license_service, make):
    """They are refused as before."""
    license_service.publish("1.4.3", slug="notes", security=True)
    license_service.offer_trials("Notes", slug="notes", days=3)
    client = make()
    client.start_trial()
    assert client.check_for_update().update.is_security
    license_service.expire("CP-TEST00-TEST00-TEST00-TEST00-000001")
    assert client.check_for_update(force=True).error.reason == "expired"
    revoked = license_service.issue("Notes", slug="notes")
    license_service.revoke(revoked)
    assert client.check_for_update(revoked).error is not None


@pytest.mark.parametrize(
    ("installed", "offered"),
    [
        ("1.4", "1.4.3"),  # of its own line, beside 2.0.1
        ("1.4.3", None),
        ("2.0", "2.0.1"),
        ("0.9", "2.0.1"),  # without a line: the highest
        ("Spring", None),
    ],
)
def test_the_line_of_the_installed_version_comes_first(license_service, installed, offered):
    """For a license whose support is over."""
    key = license_service.issue("Notes", slug="notes")
    license_service.end_support(key)
    for version, is_security in (("1.4.3", True), ("2.0.1", True), ("3.0", False)):
        license_service.publish(version, slug="notes", security=is_security)
    client = license_service.client(SETTINGS, version=installed, storage=MemoryStorage())
    update = client.check_for_update(key).update
    assert (update and update.version) == offered


def test_a_covered_version_that_has_the_fix_is_offered_instead(license_service, make):
    """It is the higher one."""
    license_service.publish("1.4.3", slug="notes", security=True)
    license_service.publish("1.5", slug="notes")
    license_service.issue("Notes", slug="notes", activated=True)
    update = make().check_for_update().update
    assert (update.version, update.is_security) == ("1.5", False)


@both
async def test_a_worker_finds_the_fix_for_an_expired_license(
    flavour, drive, license_service, license_clock, eventually, monkeypatch
):
    """A license that ends while the app runs is no reason to leave a vulnerability (D-321)."""
    construct = license_service.client if flavour is LicenseClient else license_service.async_client
    app, updates = construct(SETTINGS), []
    key = license_service.issue("Notes", slug="notes", activated=True)
    worker = app.start(on_update=updates.append)
    try:
        await eventually(lambda: license_service.count("update-check") == 1)
        await planned(monkeypatch, eventually, 8)  # asked is not yet answered
        license_service.expire(key)
        license_service.publish("1.4.3", slug="notes", security=True)
        license_clock.move(days=2)
        await eventually(lambda: [update.version for update in updates] == ["1.4.3"])
        assert (await drive(app).status()).state is LicenseState.REFUSED
    finally:
        stopped = worker.stop()
        if stopped is not None:
            await stopped


def test_a_security_release_cannot_be_skipped(license_service, make):
    """It can be postponed; neither a choice of before nor an unreadable one hides it."""
    license_service.issue("Notes", slug="notes", activated=True)
    license_service.publish("1.4.3", slug="notes", security=True)
    client = make()
    update = client.check_for_update().update
    client.skip_update(replace(update, is_security=False))
    assert client.is_skipped(replace(update, is_security=False))
    assert not client.is_skipped(update)


def test_a_signed_license_has_the_end_of_updates(license_service, make, today):
    """It is part of what was signed, online and from memory; so it is in a license file (D-62)."""
    key = license_service.issue("Notes", slug="notes", updates_until=today(), activated=True)
    client = make(trust=Trust(public_keys=["ed25519:" + "A" * 43]))
    for force in (True, False):
        license_ = client.verify(force=force)
        assert (license_.updates_until, license_.is_authenticated) == (today(), True)
    file = license_service.issue_file(key, client.license_file.request())
    client.license_file.install(file)
    status = client.status()
    assert (status.source, status.updates_until, status.updates_days_left) == (Source.FILE, today(), 0)


@pytest.mark.parametrize(
    "release",
    [
        {"security": True, "advisory": "http://notes.example"},
        {"security": True, "cves": ["2026-1234"]},
        {"security": True, "cves": [1]},
        {"advisory": ADVISORY},
        {"cves": CVES},
    ],
)
def test_a_release_that_a_client_would_not_read_is_a_slip_of_the_test(license_service, release):
    """It is an error where it is published."""
    with pytest.raises(ValueError, match=r"advisory|cves"):
        license_service.publish("2.0", **release)


# --- pinned release keys (D-322) ------------------------------------------------------------------

PINNED = Trust(release_keys=["ed25519:" + "A" * 43])  # the fake service puts its own in its place


def test_with_pinned_keys_a_covered_version_is_offered_beside_another_license(covered, make, tmp_path):
    """On a computer that was offered the newest one; from memory and for a download as well."""
    newest = covered.issue("Notes", slug="notes")
    client = make(trust=PINNED)
    assert client.check_for_update(newest).update.version == "3.0"
    for _ in range(2):
        update = client.check_for_update().update
        assert (update.version, update.is_covered, update.is_authenticated) == ("1.9", True, True)
    assert client.download(update, tmp_path).path.read_bytes() == b"1.9"
    covered.clock.move(hours=2)  # the link has run out: a fresh one is requested
    assert client.download(update, tmp_path).path.read_bytes() == b"1.9"
    assert client.check_for_update(newest).update.version == "3.0"


@pytest.mark.parametrize("installed", ["1.9", "1.9.1", "2.0"])
def test_a_covered_version_is_never_a_step_back(covered, make, installed):
    """At or below the installed version nothing is offered, by an expired license neither."""
    assert make(trust=PINNED, version=installed).check_for_update().update is None
    covered.publish("1.9", slug="notes", security=True)
    covered.expire(covered.storage.key)
    check = make(trust=PINNED, version=installed).check_for_update(force=True)
    assert check.update is None


def test_with_pinned_keys_the_fix_of_an_older_line_is_offered(license_service, make, tmp_path):
    """After the newest version was offered, and not installed, and the license has ended."""
    key = license_service.issue("Notes", slug="notes", activated=True)
    license_service.publish("2.0", slug="notes")
    client = make(trust=PINNED)
    assert client.check_for_update().update.version == "2.0"
    license_service.expire(key)
    license_service.publish("1.4.3", slug="notes", security=True, content=b"fix")
    update = client.check_for_update(force=True).update
    assert (update.version, update.is_authenticated) == ("1.4.3", True)
    assert client.download(update, tmp_path).path.read_bytes() == b"fix"
