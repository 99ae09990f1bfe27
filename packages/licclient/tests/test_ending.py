"""What follows from the answer to a verify: the caller's result, and what is written."""

from datetime import UTC, datetime, timedelta

import pytest
from stage.rules import settings

from licclient import License, Reason
from licclient._core.model import CachedLicense, Verified
from licclient._core.status import Outcome
from licclient._verification.ending import end_verify
from licclient.errors import (
    InvalidRequestError,
    LicenseRefusedError,
    ServiceUnavailableError,
    StateUnreadableError,
)

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
VERIFIED = Verified("Notes", None, lifetime=False)
HELD = CachedLicense(VERIFIED, NOON, NOON)
OVER = CachedLicense(VERIFIED, NOON - timedelta(days=30), NOON - timedelta(days=30))
OUTAGE = ServiceUnavailableError("No answer.")
REFUSED = LicenseRefusedError(Reason.REVOKED, "Revoked.")
UNREADABLE = StateUnreadableError("Permission denied")


def test_a_first_success_is_remembered_and_makes_a_check_due():
    """Its record is written, and so is the call's end."""
    ending = end_verify(VERIFIED, None, None, "call", NOON, settings())
    assert isinstance(ending.result, License)
    assert ending.success == HELD
    assert (ending.replaces_success, ending.is_check_due) == (True, True)
    assert ending.outcome == Outcome("call", NOON, None, "Notes")


def test_a_success_that_says_the_same_is_not_written_again():
    """Only the call's end is."""
    ending = end_verify(VERIFIED, HELD, None, "call", NOON, settings())
    assert (ending.replaces_success, ending.is_check_due) == (False, False)
    later = end_verify(VERIFIED, HELD, None, "call", NOON + timedelta(hours=1), settings())
    assert (later.replaces_success, later.is_check_due) == (True, False)


def test_a_refusal_forgets_the_success():
    """Whatever was remembered."""
    ending = end_verify(REFUSED, HELD, None, "call", NOON, settings())
    assert (ending.result, ending.replaces_success, ending.success) == (REFUSED, True, None)
    assert ending.outcome == Outcome("call", NOON, REFUSED)


@pytest.mark.parametrize("answer", [OUTAGE, InvalidRequestError({"ip": ["Bad."]})])
def test_what_is_no_answer_about_the_license_leaves_the_success(answer):
    """An outage, and a 422."""
    ending = end_verify(answer, OVER, None, "call", NOON, settings())
    assert (ending.replaces_success, ending.is_check_due) == (False, False)


@pytest.mark.parametrize(("answer", "replaces"), [(VERIFIED, True), (REFUSED, True), (OUTAGE, False)])
def test_a_success_that_cannot_be_read_is_replaced_by_an_answer_only(answer, replaces):
    """In place of an outage, the caller learns why nothing can be read: it might hold."""
    ending = end_verify(answer, None, UNREADABLE, "call", NOON, settings())
    assert (ending.replaces_success, ending.is_check_due) == (replaces, False)
    assert (ending.result is UNREADABLE) == (answer is OUTAGE)


def test_a_call_that_the_client_closed_leaves_no_end():
    """It is no outage (D-119)."""
    assert end_verify(OUTAGE, None, None, None, NOON, settings()).outcome is None
