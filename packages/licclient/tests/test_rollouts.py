"""Staged rollouts as an app meets them: checks by a person, important versions, reports (D-230)."""

from dataclasses import replace

import pytest
from stage.flavours import both

from licclient import Update, Updates
from licclient._core.responses import Reply
from licclient._core.texts import LANGUAGES, text_of
from licclient._updates.rollbacks import MAX_REPORTS, ROLLED_BACK_PATH, is_settled
from licclient.dialogs._states import OfferState
from licclient.install import Installation
from licclient.testing import MemoryStorage

COUNTED = b'{"counted": false}'


async def test_a_check_by_a_person_is_marked_as_manual(make_client, service, clock, key):
    """Until what was offered is installed, so that no later check is offered less."""
    service.offers("2.0")
    client = make_client()
    await client.check_for_update(key)
    for _ in range(2):
        await client.check_for_update(key, force=True)
        clock.move(hours=14)
        update = (await client.check_for_update(key)).update
        clock.move(hours=14)
    await make_client(version="2.0").check_for_update(key)
    manual = [request.query.get("manual") for request in service.requests]
    assert manual == [None, "1", "1", "1", "1", None]
    clock.move(hours=14)
    await client.check_for_update(key)  # the older version in the same folder goes on; what is newer decides
    assert "manual" not in service.requests[-1].query
    assert update.version == "2.0"


async def test_the_link_of_what_a_person_was_offered_is_renewed_for_a_person(
    fetch, client, service, store, key
):
    """A fresh link leads to the version that was offered, not to the one before."""
    await fetch(client, force=True)
    checks = [
        request.query.get("manual") for request in service.requests if request.path.endswith("update-check")
    ]
    assert set(checks) == {"1"}


async def test_an_important_version_is_marked_and_cannot_be_skipped(make_client, service, key):
    """Also when it is remembered; nothing but the word of the service makes it important."""
    service.offers(critical="yes")
    assert not (await make_client().check_for_update(key)).update.is_critical
    service.offers(critical=True)
    client = make_client()
    update = (await client.check_for_update(key, force=True)).update
    await client.skip_update(replace(update, is_critical=False))  # when it was not important yet
    again = (await make_client().check_for_update(key)).update
    assert (update.is_critical, again.is_critical) == (True, True)
    assert not await client.is_skipped(again)


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_dialog_calls_it_important(language, clock):
    """In each language, and without a button to skip it."""
    update = Update("Notes", "notes", "2.0", "", clock(), "", is_critical=True)
    view = OfferState(language, update).view()
    assert (view.message, view.skip) == (text_of("update.important", language), None)
    ordinary = OfferState(language, replace(update, is_critical=False)).view()
    assert (ordinary.message, ordinary.skip is None) == ("", False)


# --- reports ----------------------------------------------------------------------------------


@pytest.fixture
def rolled_back(root, lay, monkeypatch):
    """Run in version 1.0, to which a person went back from 2.0."""
    installation = Installation(root)
    first = installation.apply(lay("1.0"))
    installation.apply(lay("2.0"))
    installation.roll_back()
    monkeypatch.setattr("sys.argv", [str(first.folder / "photo-lab")])


@pytest.fixture
def take_reports(service, http_answer):
    """Answer update checks with 2.0, and reports as configured."""

    def take(status, body=b""):
        listing = http_answer(200, service.listing("2.0"))
        report = http_answer(status, body)
        service.script = lambda request: report if request.path == ROLLED_BACK_PATH else listing

    return take


def reports(service):
    """Return what was reported."""
    return [request.json for request in service.requests if request.path == ROLLED_BACK_PATH]


@both
async def test_a_version_that_was_rolled_back_is_reported_once(
    rolled_back, make_client, service, take_reports, key
):
    """After an update check, by apps that want it; after an outage again."""
    domain, platform = "home.example", "linux-arm64"
    take_reports(500)
    await make_client(domain=domain, updates=Updates(platform=platform)).check_for_update(key, force=True)
    assert reports(service) == []
    client = make_client(domain=domain, updates=Updates(platform=platform, report_rollbacks=True))
    for status, body in [(500, b""), (200, b"<html>"), (200, COUNTED), (200, COUNTED)]:
        take_reports(status, body)
        assert (await client.check_for_update(key, force=True)).update.version == "2.0"
    report = {"license_key": key, "slug": "notes", "version": "2.0"}
    report |= {"domain": domain, "platform": platform}
    assert reports(service) == [report] * 3


async def test_each_of_many_versions_is_reported_once(
    rolled_back, make_client, service, take_reports, key, root
):
    """However many are listed; also after some were installed again and are listed no more."""
    listed = [f"1.{number}" for number in range(1, 61)]
    client = make_client(updates=Updates(report_rollbacks=True))
    take_reports(200, COUNTED)
    for versions in (listed, listed, [*listed[9:], *listed[9:], "2.1"], listed):
        (root / "rolled-back.txt").write_text("".join(f"{version}\n" for version in versions))
        assert (await client.check_for_update(key, force=True)).error is None
    assert [report["version"] for report in reports(service)] == [*listed, "2.1"]


async def test_a_report_that_cannot_be_delivered_is_given_up(
    rolled_back, make_client, service, take_reports, key, lay, root
):
    """Not repeated at each check as long as the app is used; what is rolled back later is reported then."""
    client = make_client(updates=Updates(report_rollbacks=True))
    take_reports(500)
    for _ in range(MAX_REPORTS + 3):
        assert (await client.check_for_update(key, force=True)).error is None
    assert len(reports(service)) == MAX_REPORTS
    take_reports(200, COUNTED)
    (root / "rolled-back.txt").write_text("2.0\n2.1\n")
    await client.check_for_update(key, force=True)
    assert [report["version"] for report in reports(service)[MAX_REPORTS:]] == ["2.1"]


@both
async def test_a_service_without_reports_is_sent_one_only_once(
    rolled_back, make_client, service, take_reports, key
):
    """A plain one refuses it, and nobody notices."""
    take_reports(404)
    client = make_client(updates=Updates(report_rollbacks=True))
    for _ in range(2):
        assert (await client.check_for_update(key, force=True)).error is None
    assert len(reports(service)) == 1


@pytest.mark.parametrize(
    ("status", "body", "settled"),
    [
        (200, COUNTED, True),
        (200, b"<h1>Welcome to our hotel</h1>", False),
        *((status, b"", True) for status in (401, 403, 404, 405, 422, 501)),
        *((status, b"", False) for status in (302, 408, 429, 500, 503)),
    ],
)
def test_when_a_report_is_not_repeated(status, body, settled):
    """When it arrived, and when this service takes none."""
    assert is_settled(Reply(status, body)) is settled


# --- the service for tests --------------------------------------------------------------------


def test_the_service_for_tests_plays_rollouts(license_service):
    """A version that has not reached the app is offered on request, and below the limit as important."""
    key = license_service.issue("Notes", activated=True)
    license_service.publish("1.1")
    license_service.publish("2.0", rolled_out=False, critical_below="1.0")

    def check(version, **check: bool):
        client = license_service.client(slug="notes", version=version, storage=MemoryStorage())
        update = client.check_for_update(key, **check).update
        return update and (update.version, update.is_critical)

    assert check("1.0") == ("1.1", False)
    assert check("0.9") == ("2.0", True)
    assert check("1.0", force=True) == ("2.0", False)
    assert check("2.0") is None


def test_the_service_for_tests_takes_reports(license_service, rolled_back):
    """It has the fields."""
    license_service.issue("Notes", activated=True)
    license_service.publish("2.0")
    client = license_service.client(slug="notes", version="1.0", updates=Updates(report_rollbacks=True))
    client.check_for_update(force=True)
    client.check_for_update(force=True)
    assert license_service.count("rolled-back") == 1
    assert license_service.requests[-2].fields["version"] == "2.0"
