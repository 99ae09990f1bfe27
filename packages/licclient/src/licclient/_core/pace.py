"""Pure: how long to wait, how often to ask again, and how fast a file is coming (D-54, D-55).

Instants here are seconds of a monotonic clock, never the time of day.
"""

from collections import deque
from typing import Final

MAX_RETRIES: Final = 2
"""How often a call is made again, at most, and how many tries of a download in a row may bring nothing."""

RETRY_SECONDS: Final = 0.4
"""Pause before the first retry, give or take a half; the second is twice as long."""

PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses that say "not now": the same call may be answered a moment later."""

LEAST_PACE: Final = 1024
"""Bytes a second below which a transfer is not going anywhere: the slowest modem did more."""

SPEED_SPAN: Final = 3.0
"""Seconds over which the speed of a download is averaged."""

LEAST_SPAN: Final = 0.1
"""Seconds after which a speed means anything."""


def retry_pause(retry: int, retry_after: float | None, spread: float, left: float) -> float | None:
    """Return the seconds until another try, after so many retries; None when it is not worth it (D-54).

    `retry_after` is the value of the `Retry-After` header, in seconds, and `left` the seconds until the
    caller's deadline. `spread` is random, from 0 to 1, so that clients that failed together do not retry
    together.
    """
    if retry >= MAX_RETRIES:
        return None
    own = RETRY_SECONDS * 2.0**retry * (0.5 + spread)
    # Never earlier than requested, and spread over clients that received the same value.
    pause = own if retry_after is None else retry_after + RETRY_SECONDS * spread
    return pause if pause < left else None


class Patience:
    """How much longer a transfer is worth waiting for, which may bring nothing for so many seconds.

    It is used up by waiting alone: what the disk or the app takes is not the server's fault. Bytes that come
    at `LEAST_PACE` or faster renew it; a byte now and then does not. Bytes that had been there before, when
    the server made us start over, cost nothing at that pace, and renew nothing.
    """

    def __init__(self, seconds: float, done: int = 0) -> None:
        self._seconds = seconds
        self._waited = self._waited_at_mark = 0.0
        self._mark = self._best = done

    @property
    def left(self) -> float:
        """Seconds; zero or less when it is used up."""
        return self._seconds - self._waited

    def waited(self, seconds: float) -> None:
        """Take note of time that passed in waiting for the other side."""
        self._waited += seconds

    def came(self, done: int) -> None:
        """Take note of how many bytes there are."""
        if done < self._mark:
            self._mark, self._waited_at_mark = done, self._waited
        elif done - self._mark >= LEAST_PACE * self._seconds:
            self._waited = self._waited_at_mark = 0.0 if done > self._best else self._waited_at_mark
            self._mark = done
        self._best = max(self._best, done)


class Speed:
    """How fast a file is coming, over the last few seconds; `done` bytes were there before."""

    def __init__(self, now: float, done: int) -> None:
        self._seen = deque([(now, done)])

    def at(self, now: float, done: int) -> float:
        """Take note of where it stands, and return bytes a second; zero as long as it is unknown."""
        if done < self._seen[-1][1]:
            self._seen = deque([(now, done)])
        self._seen.append((now, done))
        # The oldest is kept until the next one is old enough: there is always something to compare with.
        while now - self._seen[1][0] >= SPEED_SPAN:
            self._seen.popleft()
        since, before = self._seen[0]
        return (done - before) / (now - since) if now - since >= LEAST_SPAN else 0.0
