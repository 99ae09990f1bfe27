"""Readings of the clock by all servers and commands, and the instant that they have settled."""

from datetime import datetime, timedelta
from typing import Final

from licserver.clock import Clock
from licserver.database.engine import Database
from licserver.database.repositories.base import Repository
from licserver.database.repositories.instants import (
    FutureInstants,
    count_future,
    evaluate_clock,
    mend,
    read_record,
    write_record,
)
from licserver.domain.instants import TOLERANCE, ClockReading, ClockRecord, follow

_STORED_EVERY: Final = timedelta(seconds=30)


class ClockRepository(Repository):
    """The record of all readings."""

    def settle(self, now: datetime) -> datetime:
        """Compare and store a reading; return the settled instant, by which goes what cannot be undone.

        What a clock that was ahead has stored is brought back. Within a transaction of something else nothing
        is stored: others would wait for its end.
        """
        with self._reading() as connection:
            stored_record, reading = read_record(connection), evaluate_clock(connection, now)
        if self._connection is None and _is_worth_storing(stored_record, reading.record):
            with self._writing() as connection:
                record = reading.record
                if not record.is_mended and record.read_at >= record.confirmed_at - TOLERANCE:
                    mend(connection, record.read_at, went_back=True)
                    record = record._replace(is_mended=True)
                write_record(connection, record)
        return reading.settled_at

    def mend(self, now: datetime) -> int:
        """Bring back what commands have stored while a clock was ahead; return how many values."""
        with self._reading() as connection:
            reading = evaluate_clock(connection, now)
        if now < reading.record.confirmed_at - TOLERANCE:
            return 0
        with self._writing() as connection:
            return mend(connection, now, went_back=False)

    def accept(self, now: datetime) -> None:
        """Believe the clock at once."""
        with self._writing() as connection:
            mend(connection, now, went_back=True)
            write_record(connection, ClockRecord(now, now))

    def evaluate(self, now: datetime) -> ClockReading:
        """Compare a reading, and store nothing."""
        with self._reading() as connection:
            return evaluate_clock(connection, now)

    def count_future(self, now: datetime) -> list[FutureInstants]:
        """Count instants stored by a clock that was ahead, not corrected yet."""
        with self._reading() as connection:
            return count_future(connection, now)


class SettledClock:
    """The settled instant for the public endpoints, which ask no database for it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._clocks, self._clock = ClockRepository(database), clock
        self._latest: ClockReading | None = None

    def refresh(self) -> None:
        """Compare a reading with those of the background; called every minute."""
        self._latest = self._clocks.evaluate(self._clock())

    def settle(self, now: datetime) -> datetime:
        """Return the settled instant."""
        return follow(self._latest, now)


def _is_worth_storing(stored_record: ClockRecord | None, new: ClockRecord) -> bool:
    if stored_record is None or not new.is_mended or stored_record.moved_at != new.moved_at:
        return True
    return abs(new.read_at - stored_record.read_at) >= _STORED_EVERY
