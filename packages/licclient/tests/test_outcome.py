"""How the last call ended: for whom it counts, and for how long (D-115, D-119)."""

from datetime import UTC, datetime, timedelta

import pytest
from stage.rules import settings

from licclient import LicenseRefusedError, Reason, ServiceUnavailableError
from licclient._model import Verified
from licclient._outcome import Outcome, outcome_of, read_outcome, refused_lately, write_outcome

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SETTINGS = settings(product="Notes")
REVOKED = LicenseRefusedError(Reason.REVOKED, "License has been revoked.")
SILENCE = ServiceUnavailableError("The license service could not be reached.")


@pytest.mark.parametrize(
    ("last", "refused"),
    [
        (None, None),
        (Outcome("c", NOW - timedelta(seconds=59), REVOKED), Reason.REVOKED),
        (Outcome("c", NOW - timedelta(seconds=60), REVOKED), None),
        (Outcome("c", NOW + timedelta(seconds=1), REVOKED), None),  # a clock set back
        (Outcome("c", NOW, SILENCE), None),
        (Outcome("c", NOW, None, "Notes"), None),
        (Outcome("c", NOW, None, "Photos"), Reason.OTHER_PRODUCT),
        (Outcome("c", NOW, None), None),
        (Outcome("c", NOW, None, is_private=True), None),
    ],
)
def test_a_refusal_holds_for_a_minute(last, refused):
    """One of another app of the vendor, which sells another product, is none for this one (D-44, D-119)."""
    found = refused_lately(last, NOW, SETTINGS)
    assert (found and found.reason) == refused


def test_a_success_is_remembered_with_its_product():
    """So that the other apps of a vendor know whether it was one for them."""
    good = outcome_of(Verified("Notes", None, lifetime=True), "call", NOW)
    assert read_outcome(write_outcome(good)) == good == Outcome("call", NOW, None, "Notes")
