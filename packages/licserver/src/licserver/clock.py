"""The only module that reads the clock; all others take `now` or a `Clock`."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]  # returns the current time as an aware datetime in UTC


def system_clock() -> datetime:
    """Return the machine's time."""
    return datetime.now(UTC)
