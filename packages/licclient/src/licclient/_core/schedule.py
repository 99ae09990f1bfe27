"""Pure: when a worker verifies and checks for updates next (D-59, D-115, D-137)."""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, NamedTuple

from licclient._core.model import CachedLicense, Settings
from licclient._core.policy import (
    CLOCK_TOLERANCE,
    CacheState,
    check_due_at,
    evaluate,
    holds_until,
    next_verify_at,
)
from licclient._core.status import Outcome
from licclient._core.update_model import UpdateCheckRecord

# Installations that start in the same minute, such as at nine o'clock, must not call in the same minute. So
# each call is delayed by a fraction of a window: a digest of the installation's own record and the instant at
# which the window begins. It differs among installations, and is the same each time that it is computed.


START_WINDOW: Final = timedelta(hours=4)
"""In what time after its start a worker makes the calls that are due, while the license holds meanwhile."""

NEAR_START: Final = timedelta(minutes=15)
"""Requests due so soon after a start are due for all users who start at the same hour."""

LATE_WINDOW: Final = timedelta(minutes=30)
LATE: Final = timedelta(days=5)
"""For a check that has been due for so long: an app that runs for minutes a day would never get to it."""

JITTER: Final = 0.25
"""Window of a call that becomes due while the worker runs, as a part of the wait for it."""

GRACE_PART: Final = 10
"""A window for a verify is at most this part of the grace that is left: most of it is kept for an outage."""

RETRY_FIRST: Final = timedelta(minutes=2)
RETRY_MOST: Final = timedelta(minutes=45)
"""Bounds of the wait after a call without a usable response: as long as it has failed so far."""


def next_verify(
    name: str,
    cached: CachedLicense | None,
    last: Outcome | None,
    tried_at: datetime | None,
    started_at: datetime,
    now: datetime,
    settings: Settings,
) -> datetime:
    """Return when to verify the activated key next; in the past if that is due.

    `name` is of the record of its license, `cached` the last success, `last` the end of the last call, in any
    process. This worker began, or its computer woke up, at `started_at`; it last tried at `tried_at`: a call
    that could not be made leaves no record.
    """
    tried_at = _latest(None if last is None else last.ended_at, tried_at, now)
    holds = cached is not None and evaluate(cached, now, settings) in (CacheState.FRESH, CacheState.GRACE)
    if not holds and last is not None and tried_at is not None and last.refusal(settings) is not None:
        # It may be reinstated or renewed, but no caller waits for that: a person presses a button.
        return tried_at + settings.cache_for
    due = _Due(started_at, timedelta(0))
    if cached is not None and holds:
        due_at = next_verify_at(cached, settings)
        remaining = holds_until(cached, settings) - max(due_at, started_at)
        longest = max(remaining / GRACE_PART, timedelta(0))
        window = min(_window(due_at, started_at, settings.cache_for), longest)
        due = _Due(due_at, window)
    return _schedule(name, due, tried_at, started_at)


def next_update_check(
    name: str,
    last: UpdateCheckRecord | None,
    tried_at: datetime | None,
    started_at: datetime,
    now: datetime,
    settings: Settings,
) -> datetime:
    """Return when to check for updates next, never before a check is due (D-46); arguments as above."""
    due_at, window = check_due_at(last, now, settings), timedelta(0)
    if due_at is None:
        due_at = started_at
    elif last is not None and last.answered:
        window = _window(due_at, started_at, settings.check_every)
    elif due_at < started_at:  # the check before it failed, which is no reason to wait for hours
        window = LATE_WINDOW
    # At another time than the verify, or the peaks of both would fall together.
    return _schedule(f"{name} check", _Due(due_at, window), _latest(None, tried_at, now), started_at)


# --- one schedule for both ----------------------------------------------------------------------


class _Due(NamedTuple):
    """When a call is due, and within which time after that the clients spread theirs."""

    at: datetime
    window: timedelta


def _schedule(name: str, due: _Due, tried_at: datetime | None, started_at: datetime) -> datetime:
    """Return when to make a call that is due: within its window, and after a failure later and later."""
    begins_at = max(due.at, started_at)
    if tried_at is None or tried_at < begins_at:
        at = begins_at + due.window * _fraction(name, begins_at)
        return at if tried_at is None else max(at, tried_at + RETRY_FIRST)  # D-115: also after a restart
    # To no avail, or it would not be due any more. Doubles the time that has passed, and so backs off.
    wait = min(max(tried_at - begins_at, RETRY_FIRST), RETRY_MOST)
    return tried_at + wait * (1 + JITTER * _fraction(name, tried_at))


def _latest(instant: datetime | None, other: datetime | None, now: datetime) -> datetime | None:
    """Return the later instant; ignore instants in the future, which a wrong clock has set."""
    return max(
        (at for at in (instant, other) if at is not None and at - now <= CLOCK_TOLERANCE), default=None
    )


def _window(due_at: datetime, started_at: datetime, wait: timedelta) -> timedelta:
    if due_at > started_at + NEAR_START:
        return wait * JITTER
    return START_WINDOW if started_at - due_at < LATE else LATE_WINDOW


def _fraction(name: str, at: datetime) -> float:
    """Return a number from 0 to 1."""
    digest = sha256(f"{name} {at.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
