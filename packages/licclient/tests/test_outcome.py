"""How the last call ended, and which ones did not: for whom it counts, and for how long (D-115 to D-119)."""

from datetime import UTC, datetime, timedelta

import pytest
from stage.rules import settings

from licclient import LicenseRefusedError, Reason, ServiceUnavailableError
from licclient._model import Verified
from licclient._outcome import (
    Note,
    Outcome,
    forget_begun,
    note_begun,
    outcome_of,
    read_note,
    read_outcome,
    refused_lately,
    write_note,
    write_outcome,
)

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


# --- calls that were begun and cut off (D-117) ------------------------------------------------

LONGEST = timedelta(seconds=15)


def _times(document, *minutes: int):
    """Begin calls at these minutes; returns the record, and how many were cut off before each."""
    cut = []
    for minute in minutes:
        document, before = note_begun(document, NOW + timedelta(minutes=minute), LONGEST)
        cut.append(before)
    return document, cut


@pytest.mark.parametrize("before", [None, write_outcome(Outcome("call", NOW, SILENCE))])
def test_calls_that_were_cut_off_are_counted(before):
    """From the first that did not end; what is known of the one that did end stays beside it."""
    document, cut = _times(before, 0, 1, 2, 3)
    assert cut == [0, 1, 2, 3]
    assert repr(read_outcome(document)) == repr(read_outcome(before))
    assert forget_begun(document) == before
    assert forget_begun(before) is before
    assert _times(write_outcome(Outcome("call", NOW, None)), 4)[1] == [0]


def test_a_call_that_may_be_on_its_way_is_not_cut_off():
    """Another process has begun it a moment ago; nothing is written then."""
    document, _ = _times(None, 0)
    assert note_begun(document, NOW + timedelta(seconds=14), LONGEST) == (document, 0)
    assert note_begun(document, NOW - timedelta(seconds=14), LONGEST)[0] is document
    assert note_begun(document, NOW - timedelta(days=1), LONGEST)[1] == 1  # a clock set back


@pytest.mark.parametrize(
    "begun", [7, {}, {"at": "noon", "cut": 1}, {"at": 7, "cut": 1}, {"at": NOW.isoformat(), "cut": "x"}]
)
def test_a_beginning_that_makes_no_sense_is_none(begun):
    """Damage, or a later version's words: counted from here."""
    assert _times({"begun": begun}, 1, 2)[1] == [0, 1]


def test_a_count_stays_within_reason():
    """Whatever the record says."""
    for told in (-5, 10**30):
        _, cut = note_begun({"begun": {"at": NOW.isoformat(), "cut": told}}, NOW + LONGEST, LONGEST)
        assert 0 < cut < 10_000


# --- calls that were put off (D-137) ----------------------------------------------------------


def test_what_was_put_off_is_still_so_after_a_call():
    """The note is about update checks as well; it disturbs neither an outcome nor what was begun."""
    ended = Outcome("call", NOW, SILENCE)
    document, _ = note_begun(write_note(None, Note(NOW, cut=3)), NOW, LONGEST)
    document = write_outcome(ended, forget_begun(document))
    assert read_note(document) == Note(NOW, cut=3)
    assert read_outcome(write_note(document, Note(NOW))).call == "call"


@pytest.mark.parametrize(
    "put_off",
    [None, {}, {"at": "yesterday", "cut": 1}, {"at": NOW.isoformat(), "cut": "often"}, [NOW.isoformat()]],
)
def test_a_note_that_makes_no_sense_is_none(put_off):
    """Whoever edits the file gets the policy of a first start."""
    assert read_note({"put_off": put_off}) is None
    assert read_note({"put_off": {"at": NOW.isoformat(), "cut": 10**30}}).cut <= 1000
