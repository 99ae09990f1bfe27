from datetime import UTC, date, datetime, timedelta

import pytest
from stage.rules import settings

from licclient import LicenseState, Reason, Source, explain
from licclient._core.model import CachedLicense, Verified
from licclient._core.status import (
    Outcome,
    evaluate_status,
    failed_lately,
    outcome_of,
    read_outcome,
    was_trial,
    write_outcome,
)
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    ServiceUnavailableError,
    UntrustedResponseError,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = settings(product="Notes")
REVOKED = LicenseRefusedError(Reason.REVOKED, "License has been revoked.")
SILENCE = ServiceUnavailableError("The license service could not be reached.")


def _held(hours, product="Notes", expiry=None):
    at = NOW - timedelta(hours=hours)
    return CachedLicense(Verified(product, expiry, lifetime=False), at, max(at, NOW - timedelta(hours=1)))


def _ended(hours, answer=None):
    return Outcome("call", NOW - timedelta(hours=hours), answer)


@pytest.mark.parametrize(
    ("held", "last", "state", "source", "reason"),
    [
        (_held(1), None, LicenseState.VALID, Source.CACHE, None),
        (_held(1), _ended(1), LicenseState.VALID, Source.CACHE, None),
        (_held(1), _ended(0, SILENCE), LicenseState.VALID, Source.CACHE, None),
        (_held(40), _ended(40), LicenseState.VALID, Source.GRACE, None),  # due, and not asked yet
        (_held(40), _ended(20, SILENCE), LicenseState.VALID, Source.GRACE, None),  # failed while it was fresh
        (_held(40), _ended(1, SILENCE), LicenseState.GRACE, Source.GRACE, None),
        (_held(97), _ended(1, SILENCE), LicenseState.UNCONFIRMED, None, None),
        (_held(-9), None, LicenseState.UNCONFIRMED, None, None),  # a clock set back
        (None, None, LicenseState.UNCONFIRMED, None, None),
        (None, _ended(0, SILENCE), LicenseState.UNCONFIRMED, None, None),
        (None, _ended(0, REVOKED), LicenseState.REFUSED, None, Reason.REVOKED),
        (_held(1, "Photos"), None, LicenseState.REFUSED, None, Reason.OTHER_PRODUCT),
        (_held(1, expiry=date(2026, 11, 20)), None, LicenseState.REFUSED, None, Reason.EXPIRED),
    ],
)
def test_where_a_license_stands(held, last, state, source, reason):
    """From what is remembered to what a settings page shows."""
    status = evaluate_status(held, last, NOW, SETTINGS, key_hint="CP-…45", update=None)
    assert (status.state, status.source, status.reason) == (state, source, reason)
    assert status.key_hint == "CP-…45"
    assert explain(status, "en")


def test_the_facts_of_a_license():
    """Days left are whole UTC days after today; the ends are counted from the last confirmation."""
    status = evaluate_status(
        _held(2, expiry=date(2026, 11, 26)), None, NOW, SETTINGS, key_hint=None, update=None
    )
    assert (status.days_left, status.product, status.expiry) == (5, "Notes", date(2026, 11, 26))
    assert status.next_check_at == NOW + timedelta(hours=22)
    assert status.grace_ends_at == NOW + timedelta(hours=94)
    assert status.message is None
    last_day = evaluate_status(_held(2, expiry=NOW.date()), None, NOW, SETTINGS, key_hint=None, update=None)
    assert last_day.days_left == 0


def test_grace_never_reaches_past_the_last_day():
    """No message asks to go online by a day after the license has ended."""
    status = evaluate_status(
        _held(2, expiry=date(2026, 11, 23)), None, NOW, SETTINGS, key_hint=None, update=None
    )
    assert status.grace_ends_at == datetime(2026, 11, 23, 23, 59, 59, tzinfo=UTC)


def test_a_success_of_the_last_days_of_all():
    """A clock that stood at the end of time does not end the settings page."""
    at = datetime(9999, 12, 31, 12, tzinfo=UTC)
    held = CachedLicense(Verified("Notes", None, lifetime=True), at, at)
    status = evaluate_status(held, _ended(0, SILENCE), at, SETTINGS, key_hint=None, update=None)
    assert status.next_check_at == status.grace_ends_at == datetime.max.replace(tzinfo=UTC)


def test_words_that_nobody_has_translated():
    """The server's own sentence is quoted for a reason that is not known."""
    odd = _ended(0, LicenseRefusedError(Reason.OTHER, "Closed on Sundays."))
    status = evaluate_status(None, odd, NOW, SETTINGS, key_hint=None, update=None)
    assert status.message == "Closed on Sundays."
    assert explain(status, "ja") == (
        "ライセンスが拒否されました。ライセンスサービスからのメッセージ: Closed on Sundays."
    )


@pytest.mark.parametrize("answer", [None, REVOKED, SILENCE])
def test_an_outcome_survives_the_disk(answer):
    """What is written is what is read."""
    again = read_outcome(write_outcome(Outcome("call", NOW, answer)))
    assert again is not None
    assert (again.call, again.ended_at, repr(again.answer)) == ("call", NOW, repr(answer))


@pytest.mark.parametrize(
    "document",
    [None, {}, {"call": "x", "ended_at": "noon", "result": {}},
     {"call": 1, "ended_at": NOW.isoformat(), "result": {}},
     {"call": "x", "ended_at": NOW.isoformat(), "result": 7},
     {"call": "x", "ended_at": NOW.isoformat(), "result": {"reason": "new", "message": "?"}}],
)  # fmt: skip
def test_an_outcome_that_makes_no_sense_is_none(document):
    """Damage, or a later version's words."""
    assert read_outcome(document) is None


def test_a_malformed_request_is_nobody_elses_business():
    """A 422 says something about one caller's settings (D-49)."""
    for answer in (InvalidRequestError({}), UntrustedResponseError()):
        private = outcome_of(answer, "call", NOW)
        assert (private.answer, private.is_private) == (None, True)
        assert read_outcome(write_outcome(private)) == private
        assert evaluate_status(None, private, NOW, SETTINGS, key_hint=None, update=None).message is None


# --- how the last call ended (D-115, D-119) -----------------------------------------------------


@pytest.mark.parametrize(
    ("last", "failed"),
    [
        (None, None),
        (Outcome("c", NOW - timedelta(seconds=59), REVOKED), REVOKED),
        (Outcome("c", NOW - timedelta(seconds=60), REVOKED), None),
        (Outcome("c", NOW + timedelta(seconds=1), REVOKED), None),  # a clock set back
        (Outcome("c", NOW - timedelta(seconds=59), SILENCE), SILENCE),
        (Outcome("c", NOW - timedelta(seconds=60), SILENCE), None),
        (Outcome("c", NOW, None, "Notes"), None),
        (Outcome("c", NOW, None), None),
        (Outcome("c", NOW, None, is_private=True), None),
    ],
)
def test_a_refusal_and_an_outage_hold_for_a_minute(last, failed):
    """By this computer's clock (D-119)."""
    assert failed_lately(last, NOW, SETTINGS) is failed


def test_a_success_of_another_product_is_a_refusal():
    """It was for another app of the vendor (D-44)."""
    found = failed_lately(Outcome("c", NOW, None, "Photos"), NOW, SETTINGS)
    assert isinstance(found, LicenseRefusedError)
    assert found.reason is Reason.OTHER_PRODUCT


def test_a_success_is_remembered_with_its_product():
    """So that the other apps of a vendor know whether it was one for them."""
    good = outcome_of(Verified("Notes", None, lifetime=True), "call", NOW)
    assert read_outcome(write_outcome(good)) == good == Outcome("call", NOW, None, "Notes")


def test_a_refused_license_was_a_trial_if_its_last_success_was_one():
    """Else what an earlier refusal said counts."""
    trial = CachedLicense(Verified("Notes", None, lifetime=True, is_trial=True), NOW, NOW)
    bought = CachedLicense(Verified("Notes", None, lifetime=True), NOW, NOW)
    refused = Outcome("c", NOW, LicenseRefusedError(Reason.EXPIRED, "over", is_trial=True))
    assert was_trial(trial, None)
    assert not was_trial(bought, refused)
    assert was_trial(None, refused)
    assert not was_trial(None, None)
