"""Pure: how long a request may take, when it is retried, and how fast a file is coming (D-54, D-55).

Instants here are seconds of a monotonic clock, never the time of day.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import Final

MAX_RETRIES: Final = 2
"""Most retries of a call, and most tries of a download in a row that bring nothing."""

RETRY_SECONDS: Final = 0.4
"""Pause before the first retry, give or take a half; the second is twice as long."""

MAX_TRIES: Final = 20
"""Most requests for a file at all: a server that cuts after every byte must not keep us."""

PASSING: Final = frozenset({429, 502, 503, 504})
"""Statuses that say "not now": the same call may be answered a moment later."""

LEAST_PACE: Final = 1024
"""Bytes a second below which a transfer is not going anywhere: the slowest modem did more."""

SPEED_SPAN: Final = 3.0
"""Seconds over which the speed of a download is averaged."""

LEAST_SPAN: Final = 0.1
"""Seconds after which a speed means anything."""


def retry_pause(retry: int, retry_after: float | None, spread: float, remaining: float) -> float | None:
    """Return the seconds until another try, after so many retries; None when it is not worth it.

    `retry_after` is the value of the `Retry-After` header, in seconds, and `remaining` the seconds until the
    caller's deadline. `spread` is random, from 0 to 1, so that clients that failed together do not retry
    together.
    """
    if retry >= MAX_RETRIES:
        return None
    own = RETRY_SECONDS * 2.0**retry * (0.5 + spread)
    # Never earlier than requested, and spread over clients that received the same value.
    pause = own if retry_after is None else retry_after + RETRY_SECONDS * spread
    return pause if pause < remaining else None


@dataclass(frozen=True, slots=True)
class Tries:
    """The requests for a file so far; `MAX_TRIES` of them at most, and few in a row that bring nothing.

    Attributes:
        best: The most bytes that there have been.
        count: How many requests broke off.
        in_vain: How many of the last ones brought nothing.
    """

    best: int
    count: int = 0
    in_vain: int = 0


def next_try(
    tries: Tries, done: int, retry_after: float | None, spread: float, remaining: float
) -> tuple[Tries, float | None]:
    """Return the tries after one that broke off with `done` bytes, and the seconds until the next one.

    None in their place to give up. `retry_after`, `spread` and `remaining` are as for `retry_pause`.
    """
    in_vain = 0 if done > tries.best else tries.in_vain + 1
    after = Tries(max(tries.best, done), tries.count + 1, in_vain)
    if in_vain > MAX_RETRIES or after.count >= MAX_TRIES:
        return after, None
    if not in_vain and retry_after is None:
        return after, 0.0
    # The first failure in a row is no retry yet.
    return after, retry_pause(max(in_vain - 1, 0), retry_after, spread, remaining)


@dataclass(frozen=True, slots=True)
class StallBudget:
    """The seconds for which a transfer may still bring nothing before it is given up.

    It is used up by waiting alone: what the disk or the app takes is not the server's fault. Bytes that come
    at `LEAST_PACE` or faster renew it; a byte now and then does not. Bytes that had been there before, when
    the server made us start over, cost nothing at that pace, and renew nothing.

    Attributes:
        seconds: How long nothing may come.
        mark: How many bytes there were when the pace was last measured.
        best: The most bytes that there have been.
        waited: Seconds of it that are used up.
        waited_at_mark: The same at the mark.
    """

    seconds: float
    mark: int = 0
    best: int = 0
    waited: float = 0.0
    waited_at_mark: float = 0.0

    @property
    def remaining(self) -> float:
        """Seconds; zero or less when it is used up."""
        return self.seconds - self.waited

    def after_wait(self, seconds: float) -> "StallBudget":
        """Return the budget after time that passed in waiting for the other side."""
        return replace(self, waited=self.waited + seconds)

    def at(self, done: int) -> "StallBudget":
        """Return the budget when there are so many bytes."""
        if done < self.mark:  # the file starts over
            return replace(self, mark=done, waited_at_mark=self.waited)
        best = max(self.best, done)
        if done - self.mark < LEAST_PACE * self.seconds:
            return replace(self, best=best)
        waited = 0.0 if done > self.best else self.waited_at_mark
        return StallBudget(self.seconds, done, best, waited, waited)


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
