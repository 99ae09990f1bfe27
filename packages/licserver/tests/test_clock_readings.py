"""The settled instant: how readings of a clock are compared with the earlier ones."""

from datetime import UTC, datetime, timedelta

import pytest

from licserver.domain.instants import (
    AGREED_HOLD,
    LONGEST_HOLD,
    TOLERANCE,
    ClockReading,
    ClockRecord,
    follow,
    is_of_the_future,
    read_clock,
)

pytestmark = pytest.mark.usefixtures("suspicious")

NOON = datetime(2026, 6, 15, 12, tzinfo=UTC)
SOON, YEAR, SECOND = timedelta(minutes=1), timedelta(days=365), timedelta(seconds=1)
RECORD = ClockRecord(NOON, NOON)


def test_a_clock_that_runs_on_is_trusted():
    """So is its first reading, if the database has nothing later."""
    assert read_clock(RECORD, NOON + SOON, None, None) == ClockReading(
        ClockRecord(NOON + SOON, NOON + SOON), NOON + SOON
    )
    assert read_clock(None, NOON, None, None).settled_at == NOON
    assert read_clock(None, NOON, None, NOON + YEAR).settled_at == NOON
    assert read_clock(None, NOON, None, NOON - SOON).record.is_mended is False


@pytest.mark.parametrize(("step", "hold"), [(YEAR, LONGEST_HOLD), (timedelta(hours=2), timedelta(hours=2))])
def test_a_clock_that_jumped_is_trusted_when_it_has_run_on(step, hold):
    """For a day at most; until then the earlier instant counts. A jump meanwhile begins it anew."""
    jumped = read_clock(RECORD, NOON + step, None, None)
    assert (jumped.settled_at, jumped.believed_from) == (NOON, NOON + step + hold)
    later = read_clock(jumped.record, NOON + step + hold - SECOND, None, None)
    assert (later.settled_at, later.believed_from) == (NOON, NOON + step + hold)
    again = read_clock(later.record, NOON + 3 * step + hold + LONGEST_HOLD, None, None)
    assert again.record.moved_at == NOON + 3 * step + hold + LONGEST_HOLD
    assert read_clock(later.record, NOON + step + hold, None, None).believed_from is None


def test_the_clock_of_the_database_shortens_it_or_counts():
    """If both agree, a minute is enough; if they differ, the earlier counts."""
    agreed = read_clock(RECORD, NOON + YEAR, NOON + YEAR + TOLERANCE, None)
    assert agreed.believed_from == NOON + YEAR + AGREED_HOLD
    assert read_clock(RECORD, NOON + YEAR, NOON + SOON, None).settled_at == NOON + SOON


def test_a_clock_that_was_ahead_leaves_rows_to_mend():
    """`is_mended` stays only as long as no reading goes back."""
    back = read_clock(RECORD, NOON - YEAR, None, None)
    assert (back.record.is_mended, back.settled_at) == (False, NOON - YEAR)
    assert read_clock(RECORD, NOON - SOON, None, None).record.is_mended is True


def test_between_readings_the_instant_goes_on():
    """But not beyond what a server misses without a new reading, and never back."""
    reading = ClockReading(RECORD, NOON)
    assert follow(None, NOON + YEAR) == NOON + YEAR
    assert follow(reading, NOON + SOON) == NOON + SOON
    assert follow(reading, NOON + YEAR) == NOON
    assert follow(reading, NOON - YEAR) == NOON - YEAR


def test_what_is_of_the_future():
    """Beyond the tolerance."""
    assert not is_of_the_future(NOON + TOLERANCE, NOON)
    assert is_of_the_future(NOON + TOLERANCE + SECOND, NOON)
