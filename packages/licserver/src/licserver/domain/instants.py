"""The settled instant, which protects irreversible work from a wrong clock. Pure.

A clock may be wrong for a while: after a start without a network, a restored virtual machine, a mistyped
date. So readings are stored and compared. Irreversible work (events and mails that are sent once, deletions,
license files) uses the settled instant. It follows the clock while that continues from the earlier readings
(D-284).
"""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

TOLERANCE: Final = timedelta(minutes=5)
"""Greatest difference between two readings, which servers take every minute, or between two clocks."""

LONGEST_HOLD: Final = timedelta(days=1)
"""How long a clock that has moved must run on before it is trusted; less after a smaller step."""

AGREED_HOLD: Final = timedelta(minutes=1)
"""The same, if the clock of the database agrees."""

# Longest lifetimes of stored rows: a row with a later end was written by a clock that was ahead.
CONSOLE_SESSION: Final = timedelta(hours=12)
ACCOUNT_SESSION: Final = timedelta(hours=1)
ACCOUNT_CODE: Final = timedelta(minutes=15)
TWO_WEBHOOK_SECRETS: Final = timedelta(days=1)
SEAT_REFUSED: Final = timedelta(days=1)
LONGEST_PAUSE: Final = timedelta(days=5)
"""Wait of a job: a day and its jitter, or 10,000 mails to the same address before it."""
LONGEST_LEASE: Final = timedelta(minutes=15)
"""Lease of a running job."""


class ClockRecord(NamedTuple):
    """The record of the clocks of all servers and commands.

    Args:
        confirmed_at: The latest instant that has certainly passed.
        read_at: The latest reading, certain or not.
        moved_at: The first reading after the clock moved away from `confirmed_at`; None if it did not.
        is_mended: False if a clock was ahead, and rows that it wrote may have instants in the future.
    """

    confirmed_at: datetime
    read_at: datetime
    moved_at: datetime | None = None
    is_mended: bool = True


class ClockReading(NamedTuple):
    """The result of a reading: the settled instant, and the instant from which the clock is trusted."""

    record: ClockRecord
    settled_at: datetime
    believed_from: datetime | None = None  # None: it is trusted


def read_clock(
    record: ClockRecord | None, now: datetime, database_now: datetime | None, latest_known: datetime | None
) -> ClockReading:
    """Compare a reading of the clock with the earlier readings.

    Args:
        record: The earlier readings; None at the first reading.
        now: The clock of this machine.
        database_now: The clock of the database; None if it has none. If they differ, the earlier counts.
        latest_known: At the first reading, the last change of the database by a person, if any.
    """
    instant, hold = now, LONGEST_HOLD
    if database_now is not None:
        if abs(database_now - now) <= TOLERANCE:
            hold = AGREED_HOLD
        else:
            instant = min(now, database_now)
    if record is None:
        first_known = (
            instant if latest_known is None else min(instant, latest_known)
        )  # a later instant came from a clock that was ahead
        record = ClockRecord(first_known, first_known, is_mended=False)
    is_mended = record.is_mended and instant >= record.read_at - TOLERANCE
    if abs(instant - record.confirmed_at) <= TOLERANCE:
        return ClockReading(ClockRecord(instant, instant, None, is_mended), instant)
    moved_at = record.moved_at
    if moved_at is None or not -TOLERANCE <= instant - record.read_at <= max(LONGEST_HOLD, TOLERANCE):
        moved_at = instant  # the clock moved, for the first time or again
    believed_from = moved_at + min(hold, abs(moved_at - record.confirmed_at))
    if instant >= believed_from:
        return ClockReading(ClockRecord(instant, instant, None, is_mended), instant)
    held = ClockRecord(record.confirmed_at, instant, moved_at, is_mended)
    return ClockReading(held, min(instant, record.confirmed_at), believed_from)


def follow(reading: ClockReading | None, now: datetime) -> datetime:
    """Extrapolate the settled instant from the latest reading; `now` before the first reading."""
    if reading is None:
        return now
    passed = now - reading.record.read_at
    if timedelta() <= passed <= TOLERANCE:
        return reading.settled_at + passed
    return min(now, reading.settled_at)


def is_of_the_future(instant: datetime, now: datetime) -> bool:
    """Return whether a recorded instant lies in the future."""
    return instant > now + TOLERANCE
