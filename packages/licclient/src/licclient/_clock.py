"""The one room of the client that reads the real clock."""

from collections.abc import Callable
from datetime import UTC, datetime

Clock = Callable[[], datetime]


def real_clock() -> datetime:
    """Return the present instant; aware, UTC."""
    return datetime.now(UTC)


def read_clock(clock: Clock) -> datetime:
    """Ask a clock that an app handed in.

    Raises:
        TypeError: It did not return a datetime.
        ValueError: Its datetime has no time zone, so it is no instant.
    """
    now = clock()
    if not isinstance(now, datetime):
        raise TypeError(f"clock must return a datetime, not {type(now).__name__}")
    if now.utcoffset() is None:
        raise ValueError("clock must return an aware datetime, such as datetime.now(UTC)")
    return now.astimezone(UTC)
