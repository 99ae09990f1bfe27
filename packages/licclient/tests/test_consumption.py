"""Uses of a metered entitlement: counted by the service, or within an allowance while it is out of reach."""

import json
import pickle
from datetime import UTC, datetime

import httpx
import pytest
from stage.flavours import both

from licclient import ClientSettings, LicenseClient, Quota, Reason, Trust, explain
from licclient._core.responses import Reply
from licclient._uses.fake import use
from licclient._uses.protocol import Usage, read_consume
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    NotActivatedError,
    NotEntitledError,
    QuotaExceededError,
    ServiceUnavailableError,
    UntrustedResponseError,
)
from licclient.testing import MemoryStorage

SETTINGS = ClientSettings("https://licenses.example.com", product="Notes")
KEY = "CP-ABC123-DEF456-GHI789-JKL012-MNO345"
RESETS = datetime(2026, 12, 1, tzinfo=UTC)
USED = {"used": 3, "limit": 10, "remaining": 7, "resets_at": "2026-12-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (200, {"name": "exports", **USED}, Usage),
        (200, {"name": "scans", **USED}, ServiceUnavailableError),
        (200, {"name": "exports", **USED, "remaining": 11}, ServiceUnavailableError),
        (200, {"name": "exports", **USED, "resets_at": "2026-12-01"}, ServiceUnavailableError),
        (200, {"name": "exports", **USED, "resets_at": "soon"}, ServiceUnavailableError),
        (200, {"name": "exports", **USED, "used": "3"}, ServiceUnavailableError),
        (403, {"error": "quota_exceeded", "message": "no", **USED}, QuotaExceededError),
        (403, {"error": "quota_exceeded", "message": "no"}, ServiceUnavailableError),
        (403, {"error": "not_entitled", "message": "no"}, NotEntitledError),
        (403, {"error": "not_activated", "message": "no"}, LicenseRefusedError),
        (401, {"error": "license_expired", "message": "no"}, LicenseRefusedError),
        (401, {}, ServiceUnavailableError),
        (404, {}, ServiceUnavailableError),  # a server of somebody else
        (422, {"message": "no", "errors": {"name": ["no"]}}, InvalidRequestError),
        (503, {}, ServiceUnavailableError),
    ],
)
def test_what_the_service_answers(status, body, kind):
    """Only what makes sense counts; everything else is an outage."""
    assert isinstance(read_consume(Reply(status, json.dumps(body).encode()), KEY, "exports"), kind)


def test_what_an_answer_says():
    """All of it, also of a period in which nothing was used, or all was."""
    for used, remaining in ((0, 10), (3, 7), (10, 0)):
        body = {"name": "exports", **USED, "used": used, "remaining": remaining}
        read = read_consume(Reply(200, json.dumps(body).encode()), KEY, "exports")
        assert read == Usage(used, 10, remaining, RESETS)
    refused = read_consume(Reply(403, b'{"error": "not_activated", "message": "no"}'), KEY, "exports")
    assert (refused.reason, refused.message) == (Reason.ENVIRONMENT, "no")
    assert read_consume(Reply(403, b'{"error": "not_entitled"}'), KEY, "exports").entitlement == "exports"
    over = {"name": "exports", **USED, "remaining": 11}
    for status, body in ((200, over), (403, {**over, "error": "quota_exceeded"})):
        outage = read_consume(Reply(status, json.dumps(body).encode()), KEY, "exports")
        assert str(status) in str(outage)


def test_what_is_no_json_is_an_outage():
    """Such as the login page of a hotel."""
    assert isinstance(read_consume(Reply(200, b"<html>"), KEY, "exports"), ServiceUnavailableError)


@pytest.mark.parametrize(
    ("limit", "remaining", "allowance"), [(100, 100, 10), (100, 4, 4), (5, 5, 1), (5, 0, 0), (1000, 500, 100)]
)
def test_what_may_be_used_offline(limit, remaining, allowance):
    """A tenth of the limit, at least 1, and never more than is left."""
    assert Usage(limit - remaining, limit, remaining, RESETS).allowance == allowance


@pytest.fixture
def app(flavour, drive, license_service):
    """The app's client, of either class."""
    make = license_service.client if flavour is LicenseClient else license_service.async_client
    return drive(make(SETTINGS))


@pytest.fixture
def sold(license_service):
    """A license with 20 exports a month."""
    return license_service.issue("Notes", entitlements={"exports": Quota(20, "month")}, activated=True)


@both
async def test_uses_are_counted(app, license_service, sold, license_clock):
    """Until nothing is left; the error says when it goes on, and then it does."""
    await app.verify()
    assert [await app.uses.consume("exports"), await app.uses.consume("exports", 18)] == [19, 1]
    with pytest.raises(QuotaExceededError) as caught:
        await app.uses.consume("exports", 2)
    assert (caught.value.entitlement, caught.value.resets_at) == ("exports", datetime(2030, 2, 1, tzinfo=UTC))
    assert "2030" in explain(caught.value, "de")
    assert pickle.loads(pickle.dumps(caught.value)).resets_at == caught.value.resets_at  # noqa: S301
    assert await app.uses.consume("exports") == 0
    license_clock.move(days=17)
    assert await app.uses.consume("exports") == 19


@both
async def test_offline_uses_are_settled_at_the_next_contact(app, license_service, sold):
    """A tenth of the limit is allowed without contact; each use is counted in the end, and once."""
    await app.verify()
    await app.uses.consume("exports")
    with license_service.offline():
        assert [await app.uses.consume("exports"), await app.uses.consume("exports")] == [18, 17]
        with pytest.raises(ServiceUnavailableError):
            await app.uses.consume("exports")
    assert await app.uses.consume("exports") == 16
    assert sum(amount for *_, amount in license_service._endpoints.licenses[sold].uses.values()) == 4


async def test_the_worker_reports_what_was_used_offline(license_service, sold, license_clock, eventually):
    """With its next verify: an app that is not used any more in this period leaves nothing uncounted."""
    client = license_service.client(SETTINGS)
    client.verify()
    client.uses.consume("exports")
    with license_service.offline():
        client.uses.consume("exports", 2)
    uses = license_service._endpoints.licenses[sold].uses
    with client.start():
        assert len(uses) == 1
        license_clock.move(days=3)
        await eventually(lambda: len(uses) == 2)
    assert sum(amount for *_, amount in uses.values()) == 3
    assert client.uses.consume("exports") == 16


async def test_a_use_whose_answer_was_lost_counts_once(license_service, sold):
    """It is sent again with the id that it had."""
    client = license_service.client(SETTINGS)
    client.verify()
    client.uses.consume("exports")

    def lose(request):
        license_service.transport.handle_request(request)
        raise httpx.ReadError("lost", request=request)

    with license_service.client(SETTINGS, transport=httpx.MockTransport(lose)) as cut:
        assert cut.uses.consume("exports") == 18
    assert client.uses.consume("exports") == 17


async def test_what_does_not_fit_any_more_is_dropped(license_service, sold):
    """Another computer has used it up meanwhile: the use is lost, and nothing more is allowed offline."""
    client = license_service.client(SETTINGS)
    client.verify()
    client.uses.consume("exports")
    other = license_service.client(SETTINGS, storage=MemoryStorage())
    other.activate(sold)
    with license_service.offline():
        client.uses.consume("exports", 2)
    assert other.uses.consume("exports", 19) == 0
    for _ in range(2):
        with pytest.raises(QuotaExceededError):
            client.uses.consume("exports")
    with license_service.offline(), pytest.raises(ServiceUnavailableError):
        client.uses.consume("exports")


async def test_without_an_answer_in_this_period_nothing_is_allowed(license_service, sold, license_clock):
    """Neither before the first contact, nor after the period, nor with a clock that was set back."""
    client = license_service.client(SETTINGS)
    client.verify()
    with license_service.offline(), pytest.raises(ServiceUnavailableError):
        client.uses.consume("exports")
    client.uses.consume("exports")
    for days in (-1, 40):
        license_clock.move(days=days)
        with license_service.offline(), pytest.raises(ServiceUnavailableError):
            client.uses.consume("exports")


async def test_only_a_signed_answer_allows_uses_offline(license_service, sold):
    """With pinned keys: when it comes, and when it is read from the disk."""
    client = license_service.client(SETTINGS, trust=Trust(public_keys=[license_service.public_key]))
    client.verify()
    client.uses.consume("exports")
    with license_service.offline():
        assert client.uses.consume("exports") == 18
        (name,) = (record for record in license_service.storage._records if record.startswith("quota-"))

        def forge(document):
            return {**document, "answer": {**document["answer"], "amount": 2}}

        license_service.storage.change(name, forge)
        with pytest.raises(ServiceUnavailableError):
            client.uses.consume("exports")
    license_service.misbehave("unsigned")
    with pytest.raises(UntrustedResponseError):
        client.uses.consume("exports")


async def test_wrong_arguments_are_rejected(license_service, sold):
    """Before anything is sent."""
    client = license_service.client(SETTINGS)
    for name, amount, kind in (
        *((KEY, 1, TypeError), (7, 1, TypeError), ("exports", True, TypeError)),
        *(("exports", 1.5, TypeError), ("exports", 0, ValueError)),
    ):
        with pytest.raises(kind):
            client.uses.consume(name, amount)
    client.forget_key()
    with pytest.raises(NotActivatedError):
        client.uses.consume("exports")
    assert license_service.requests == []


async def test_a_damaged_record_reads_as_nothing(license_service, sold):
    """What somebody has edited allows nothing, and breaks nothing."""
    client = license_service.client(SETTINGS)
    client.verify()
    client.uses.consume("exports")
    (name,) = (record for record in license_service.storage._records if record.startswith("quota-"))
    answer = license_service.storage.load(name)["answer"]
    for wrong in (
        {"answer": 7},
        {"answer": {}, "answered_at": "", "pending": [7, ["a"], ["a", 0, False]]},
        {"answer": {**answer, "body": "?"}, "answered_at": "", "pending": []},
        {"answer": {**answer, "body": "e30="}, "answered_at": "", "pending": []},
    ):
        license_service.storage.change(name, lambda _, wrong=wrong: wrong)
        with license_service.offline(), pytest.raises(ServiceUnavailableError):
            client.uses.consume("exports")


@pytest.mark.parametrize(
    ("per", "ends"), [("day", (2030, 1, 16)), ("month", (2030, 2, 1)), ("year", (2031, 1, 1))]
)
def test_the_fake_service_counts_by_calendar(per, ends):
    """In UTC; what a license does not grant is not counted."""
    uses, fields = {}, {"name": "exports", "amount": 1, "use_id": "a"}
    now = datetime(2030, 1, 15, 12, tzinfo=UTC)
    status, body = use(uses, Quota(5, per), fields, now)
    assert (status, body["remaining"]) == (200, 4)
    assert uses == {"a": ("exports", datetime(*ends, tzinfo=UTC), 1)}
    assert use(uses, None, fields, now)[1]["error"] == "not_entitled"
