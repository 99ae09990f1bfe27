"""Pure: when a worker calls the server (D-59, D-137). `verify` and `check_for_update` do not use it.

Installations that start in the same minute, such as at nine o'clock, must not call in the same minute. So
each call is delayed by a fraction of a window. The fraction is a digest of the installation's own record and
the instant at which the window begins: it differs among installations, and it is the same each time that it
is computed.
"""

from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from licclient._model import Held, Round, Settings
from licclient._policy import CLOCK_TOLERANCE, Standing, holds_until, judge_held
from licclient._status import Outcome

START_WINDOW: Final = timedelta(hours=4)
"""In what time after its start a worker makes the calls that are due, while the license holds meanwhile."""

NEAR_START: Final = timedelta(minutes=15)
"""What becomes due so soon after a start does so for everybody who starts at that hour every day."""

LATE_WINDOW: Final = timedelta(minutes=30)
LATE: Final = timedelta(days=5)
"""For a check that has been due for so long: an app that runs for minutes a day would never get to it."""

JITTER: Final = 0.25
"""Window of a call that becomes due while the worker runs, as a part of the wait for it."""

GRACE_PART: Final = 10
"""A window for a verify is at most this part of the grace that is left: most of it is kept for an outage."""

RETRY_FIRST: Final = timedelta(minutes=2)
RETRY_MOST: Final = timedelta(minutes=45)
"""How long to wait after a call that settled nothing: as long as it has failed, but within these bounds."""


def next_verify(
    name: str,
    held: Held | None,
    last: Outcome | None,
    tried_at: datetime | None,
    started_at: datetime,
    now: datetime,
    settings: Settings,
) -> datetime:
    """Return when to verify the activated key next; in the past if that is due.

    Args:
        name: Of the record of its license; differs among installations.
        held: The last success.
        last: How the last call ended, in any process.
        tried_at: When this worker last tried; a call that could not be made leaves no record.
        started_at: When the worker began, or when its computer woke up last.
        now: Aware, UTC, as all instants.
        settings: `cache_for` and `grace`.
    """
    ended_at = None if last is None else last.ended_at
    tried_at = _latest(ended_at, tried_at, now)
    due_at, window = started_at, timedelta(0)  # nothing holds
    if held is not None and judge_held(held, now, settings) in (Standing.FRESH, Standing.GRACE):
        due_at = held.checked_at - held.slow_by + settings.cache_for
        left = holds_until(held, settings) - held.slow_by - max(due_at, started_at)
        window = min(_window(due_at, started_at, settings.cache_for), max(left / GRACE_PART, timedelta(0)))
    elif last is not None and tried_at is not None and last.refusal(settings) is not None:
        # It may be reinstated or renewed, but nobody waits for that: a person presses a button.
        return tried_at + settings.cache_for
    return _next(name, due_at, window, tried_at, started_at)


def next_check(
    name: str,
    last: Round | None,
    tried_at: datetime | None,
    started_at: datetime,
    now: datetime,
    settings: Settings,
) -> datetime:
    """Return when to check for updates next, never before a check is due (D-46); arguments as above."""
    if last is None or last.checked_at - now > CLOCK_TOLERANCE:
        due_at, window = started_at, timedelta(0)
    else:
        due_at = last.checked_at + settings.check_every * (1 + last.spread)
        window = _window(due_at, started_at, settings.check_every)
    # At another time than the verify, or the peaks of both would be one.
    return _next(f"{name} check", due_at, window, _latest(None, tried_at, now), started_at)


def _latest(one: datetime | None, other: datetime | None, now: datetime) -> datetime | None:
    """Return the later instant; one in the future is none, since the clock was wrong then."""
    return max((at for at in (one, other) if at is not None and at - now <= CLOCK_TOLERANCE), default=None)


def _window(due_at: datetime, started_at: datetime, wait: timedelta) -> timedelta:
    if due_at > started_at + NEAR_START:
        return wait * JITTER
    return START_WINDOW if started_at - due_at < LATE else LATE_WINDOW


def _next(
    name: str, due_at: datetime, window: timedelta, tried_at: datetime | None, started_at: datetime
) -> datetime:
    begins_at = max(due_at, started_at)
    if tried_at is None or tried_at < begins_at:
        at = begins_at + window * _fraction(name, begins_at)
        return at if tried_at is None else max(at, tried_at + RETRY_FIRST)  # D-115: also after a restart
    # To no avail, or it would not be due any more. Doubles the time that has passed, and so backs off.
    wait = min(max(tried_at - begins_at, RETRY_FIRST), RETRY_MOST)
    return tried_at + wait * (1 + JITTER * _fraction(name, tried_at))


def _fraction(name: str, at: datetime) -> float:
    """Return a number from 0 to 1."""
    digest = sha256(f"{name} {at.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
