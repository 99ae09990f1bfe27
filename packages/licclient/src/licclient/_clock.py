"""The one module of the client that reads the real clock."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Final

Clock = Callable[[], datetime]

real_clock: Final[Clock] = partial(datetime.now, UTC)
"""Returns the present instant; aware, UTC."""


def checked(clock: Clock | None) -> Clock:
    """Return a clock that raises when the application's own returns no instant; None for the real one."""
    if clock is None or clock is real_clock:
        return real_clock
    return lambda: read_clock(clock)


def read_clock(clock: Clock) -> datetime:
    """Read a clock of an application.

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
