"""Covered versions and security releases, as values: protocol, records, results (D-320 to D-323)."""

import json
from dataclasses import asdict, replace
from datetime import UTC, date, datetime, timedelta

import pytest

from licclient import ClientSettings, LicenseState, Source, Update
from licclient._core.model import CachedLicense, Outage, Reason, Verified
from licclient._core.policy import end_update_check, from_cache, latest_uncovered
from licclient._core.records import (
    read_cached_license,
    read_update_check,
    write_cached_license,
    write_update_check,
)
from licclient._core.responses import Reply, read_update, read_verify
from licclient._core.settings import read_settings
from licclient._core.status import Outcome, evaluate_status, is_expired
from licclient._core.update_model import Listing, UpdateCheckRecord
from licclient.errors import LicenseRefusedError, ServiceUnavailableError

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEY = "CP-AAAAAA-AAAAAA-AAAAAA-AAAAAA-AAAAAA"
SETTINGS = read_settings(ClientSettings("https://licenses.example.com", slug="notes", version="1.4"))
ADVISORY = "https://notes.example/advisories/1"
VERIFIED = {"valid": True, "product": "Notes", "expiry": None, "lifetime": True}
OFFER = {
    "name": "Notes",
    "slug": "notes",
    "version": "1.9",
    "download_url": "https://licenses.example.com/f",
    "sections": {"changelog": "Faster."},
    "last_updated": "2026-11-20 10:11:12",
}
NOTICE = {"advisory": ADVISORY, "cves": ["CVE-2026-1234", "CVE-2026-12345"]}


def verified(**members: object) -> Verified:
    """A successful verify with further members."""
    read = read_verify(Reply(200, json.dumps(VERIFIED | members).encode()), KEY)
    assert isinstance(read, Verified)
    return read


def listing(**members: object) -> Listing:
    """An answered update check with further members."""
    read = read_update(Reply(200, json.dumps(OFFER | members).encode()), SETTINGS, "notes", KEY)
    assert isinstance(read, Listing)
    return read


def test_what_a_license_covers_is_read():
    """From both answers."""
    assert verified(updates_until="2027-01-31").updates_until == date(2027, 1, 31)
    offer = listing(updates_until="2027-01-31", latest_version="3.0", security=NOTICE)
    assert (offer.updates_until, offer.latest_version) == (date(2027, 1, 31), "3.0")
    assert (offer.is_security, offer.advisory, offer.cves) == (True, ADVISORY, tuple(NOTICE["cves"]))


@pytest.mark.parametrize("value", [None, "2027-02-30", "31.1.2027", 20270131, [], "2027-01-31T00:00:00Z"])
def test_a_date_that_cannot_be_read_is_left_out(value):
    """The license and the update are there all the same (D-320)."""
    assert verified(updates_until=value) == verified()
    assert listing(updates_until=value) == listing()


@pytest.mark.parametrize("value", [None, "1.9", "1.9.0", "1.8", "newest", "", 3, ["3.0"], "9" * 300])
def test_a_newest_version_that_is_none_is_left_out(value):
    """It is named only if it is above the offered one."""
    assert latest_uncovered(listing(latest_version=value)) is None
    assert latest_uncovered(listing(latest_version="1.9.1")) == "1.9.1"


@pytest.mark.parametrize("value", [None, True, "CVE-2026-1234", ["CVE-2026-1234"], 1])
def test_a_notice_that_is_no_object_is_left_out(value):
    """Other services may use the name for something else."""
    assert listing(security=value) == listing()


@pytest.mark.parametrize(
    "advisory",
    [
        None,
        "http://notes.example/1",
        "javascript:alert(1)",
        "https://",
        "https://notes.example/1 2",
        "https://user@notes.example/1",
        f"{ADVISORY}{'1' * 2000}",
        ["https://notes.example"],
    ],
)
def test_an_advisory_that_no_browser_should_open_is_left_out(advisory):
    """It is a security release in any case."""
    offer = listing(security={"advisory": advisory, "cves": "CVE-2026-1234"})
    assert (offer.is_security, offer.advisory, offer.cves) == (True, None, ())


def test_only_ids_are_read_as_such():
    """A hundred at most."""
    sent = ["CVE-2026-1234", "CVE-26-1", 7, None, "CVE-2026-1234\n", "cve-2026-1234"]
    assert listing(security={"cves": sent}).cves == ("CVE-2026-1234",)
    assert len(listing(security={"cves": ["CVE-2026-1234"] * 101}).cves) == 100


def test_it_survives_the_disk():
    """Both records."""
    cached = CachedLicense(verified(updates_until="2027-01-31"), NOON, NOON)
    assert read_cached_license(json.loads(json.dumps(write_cached_license(cached)))) == cached
    for notice in (NOTICE, {}, None):
        offer = listing(updates_until="2027-01-31", latest_version="3.0", security=notice)
        kept = replace(offer, download_url=None)
        done = UpdateCheckRecord(NOON, 0.0, answered=True, listing=kept)
        assert read_update_check(json.loads(json.dumps(write_update_check(done)))) == done


def test_a_check_without_a_link_keeps_the_version_that_it_listed():
    """It is no offer; a record of before has none."""
    over = end_update_check(
        UpdateCheckRecord(NOON, 0.0, answered=False, listing=None), replace(listing(), download_url=None)
    )
    assert (over.listing, over.is_support_over, over.latest_version) == (None, True, "1.9")
    document = json.loads(json.dumps(write_update_check(over)))
    assert read_update_check(document) == over
    assert (document.pop("latest_version"), document["support_over"]) == ("1.9", True)
    assert read_update_check(document) == replace(over, latest_version=None)
    refused = end_update_check(over, LicenseRefusedError(Reason.EXPIRED, "Ended."))
    again = end_update_check(over, listing())
    assert [(done.is_support_over, done.latest_version) for done in (refused, again)] == [(False, None)] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"latest_version": 3},
        {"updates_until": "tomorrow"},
        {"updates_until": 3},
        {"security": 1},
        {"security": []},
        {"security": [1]},
        {"security": [None, 1]},
    ],
)
def test_a_record_of_wrong_values_is_a_miss(change):
    """Then a check is due."""
    kept = replace(listing(), download_url=None)
    document = write_update_check(UpdateCheckRecord(NOON, 0.0, answered=True, listing=kept))
    assert read_update_check(document) is not None
    assert read_update_check(document | {"listing": document["listing"] | change}) is None


def test_the_license_has_it():
    """From the cache as well."""
    license_ = from_cache(CachedLicense(verified(updates_until="2027-01-31"), NOON, NOON), NOON, SETTINGS)
    assert license_ is not None
    assert license_.source is Source.CACHE
    assert asdict(license_)["updates_until"] == date(2027, 1, 31)


@pytest.mark.parametrize(("day", "left"), [("2026-11-21", 0), ("2026-12-21", 30), ("2026-11-20", -1)])
def test_the_days_that_are_left_are_counted(day, left):
    """As those of the license are."""
    cached = CachedLicense(verified(updates_until=day), NOON, NOON)
    status = evaluate_status(cached, None, NOON, SETTINGS, key_hint=None, update=None)
    assert (status.updates_until, status.updates_days_left) == (date.fromisoformat(day), left)
    without = evaluate_status(
        CachedLicense(verified(), NOON, NOON), None, NOON, SETTINGS, key_hint=None, update=None
    )
    assert (without.updates_until, without.updates_days_left) == (None, None)


def outcome(reason: Reason) -> Outcome:
    """A refusal."""
    return Outcome("word", NOON - timedelta(hours=1), LicenseRefusedError(reason, "No."))


def test_an_expired_license_shows_a_security_release_and_nothing_else():
    """What it was offered before cannot be downloaded any more (D-321)."""
    security = Update("Notes", "notes", "1.4.3", "", NOON, is_security=True)
    for last, update, shown in (
        (outcome(Reason.EXPIRED), security, security),
        (outcome(Reason.EXPIRED), replace(security, is_security=False), None),
        (outcome(Reason.EXPIRED), None, None),
        (outcome(Reason.REVOKED), security, None),
    ):
        status = evaluate_status(None, last, NOON, SETTINGS, key_hint=None, update=update)
        assert (status.state, status.update) == (LicenseState.REFUSED, shown)
    away = Outcome("word", NOON, ServiceUnavailableError("Away.", outage=Outage.UNREACHABLE))
    assert [is_expired(last) for last in (None, away, outcome(Reason.EXPIRED))] == [False, False, True]


def test_an_update_is_covered_if_there_is_a_newer_one():
    """What an app reads; compared, printed and converted like everything else of an update."""
    update = Update("Notes", "notes", "1.9", "", NOON)
    assert not update.is_covered
    covered = replace(update, latest_version="3.0", cves=("CVE-2026-1234",))
    assert covered.is_covered
    assert covered != update
    assert asdict(covered)["cves"] == ("CVE-2026-1234",)
