"""The one module of the client that reads the real clock; one that was set back is `policy`'s."""

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

Clock = Callable[[], datetime]
"""Returns the present instant, aware."""


def real_clock() -> datetime:
    """Return the present instant; aware, UTC. In a test the one that freezegun or time-machine shows."""
    return datetime.now(UTC)


monotonic: Final[Callable[[], float]] = partial(time.monotonic)
"""Returns seconds for deadlines. Not the function itself: freezegun would stop it, and no wait would end."""


# Linux and macOS stop `time.monotonic` while the computer is suspended; Windows does not.
_WITH_SLEEP: Final = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))

uptime: Final[Callable[[], float]] = (
    time.monotonic if _WITH_SLEEP is None else partial(time.clock_gettime, _WITH_SLEEP)
)
"""Returns seconds that go on while the computer is suspended, and that no change of the time moves."""


_LOADED_AT: Final = uptime()


def process_age() -> timedelta:
    """Return for how long this process has used this package, with sleep; apps load it when they start."""
    return timedelta(seconds=uptime() - _LOADED_AT)


def checked(clock: Clock | None) -> Clock:
    """Return a clock that raises when the application's own returns no instant; None for the real one."""
    if clock is None or clock is real_clock:
        return real_clock
    return lambda: read_clock(clock)


def read_clock(clock: Clock) -> datetime:
    """Read a clock of an application; raise `TypeError` or `ValueError` if it shows no instant."""
    now = clock()
    if not isinstance(now, datetime):
        raise TypeError(f"clock must return a datetime, not {type(now).__name__}")
    if now.utcoffset() is None:
        raise ValueError("clock must return an aware datetime, such as datetime.now(UTC)")
    return now.astimezone(UTC)
