"""Pure: when a background worker asks again (D-59). `verify` and `check_for_update` do not depend on it.

Installations that started in the same minute, such as at nine o'clock, must not ask in the same minute for
ever after. So every due time is put off by a part that differs among installations and from day to day, yet
is the same for all processes of one and after a restart: a digest decides, not a die.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from licclient._model import Held, Round, Settings
from licclient._outcome import Outcome
from licclient._policy import CLOCK_TOLERANCE, Standing, judge_held

WIDE: Final = timedelta(hours=12)
"""How far, at most, the first calls after a worker's start are put off: who started together comes apart."""

NARROW: Final = 0.1
"""By which part of its wait, at most, every later call is put off."""

START_WITHIN: Final = timedelta(minutes=10)
"""In what time after its start a worker makes up for what is overdue, while the license holds meanwhile."""

RETRY_FIRST: Final = timedelta(minutes=2)
RETRY_MOST: Final = timedelta(minutes=45)
"""How long to wait after an attempt that settled nothing: doubling, and less than an hour with its jitter."""

_DOUBLINGS: Final = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """When to do what; aware, UTC; None: not to be done. A time that has passed means now."""

    verify_at: datetime | None
    check_at: datetime | None

    def first(self) -> datetime | None:
        """Return the earlier one."""
        return min((at for at in (self.verify_at, self.check_at) if at is not None), default=None)


@dataclass(frozen=True, slots=True)
class Course:
    """What a worker has been through.

    Attributes:
        started_at: Aware, UTC.
        failures: How many verifies in a row left nothing that holds.
    """

    started_at: datetime
    failures: int = 0

    def put_off(self, name: str, since: datetime, wait: timedelta) -> timedelta:
        """Say by how much a call is put off that is due a wait after an instant."""
        most = wait * NARROW if since > self.started_at else WIDE
        return most * spread(name, since)

    def made_up(self, name: str, at: datetime) -> datetime:
        """Put off what is overdue when the worker starts: at nine o'clock it is so for many."""
        return max(at, self.started_at + START_WITHIN * spread(name, self.started_at))


def next_verify(
    name: str, held: Held | None, last: Outcome | None, course: Course, now: datetime, settings: Settings
) -> datetime:
    """Say when to verify the activated key next, never within `RETRY_FIRST` of a call's end (D-115).

    Args:
        name: The name of its record: differs among installations.
        held: The last success.
        last: How the last call ended.
        course: The worker's.
        now: Aware, UTC.
        settings: `cache_for` and `grace`.
    """
    due_at = max(now, _runs_out(name, held, course, now, settings))
    if last is None or last.ended_at > now + CLOCK_TOLERANCE:
        return due_at
    if due_at > now:
        wait = RETRY_FIRST
    elif last.refusal(settings) is not None:
        # It may be reinstated or renewed, but nobody waits for that: who does presses a button.
        wait = settings.cache_for
    else:
        # Also after a success: one that does not hold by this computer's clock settles nothing.
        wait = min(RETRY_FIRST * (1 << min(course.failures, _DOUBLINGS)), RETRY_MOST)
    return max(due_at, last.ended_at + wait * (1 + NARROW * spread(name, last.ended_at)))


def _runs_out(name: str, held: Held | None, course: Course, now: datetime, settings: Settings) -> datetime:
    """Say when what is remembered has to be confirmed, by this computer's clock."""
    if held is None or judge_held(held, now, settings) not in (Standing.FRESH, Standing.GRACE):
        return now
    checked_at = held.checked_at - held.slow_by
    # Half of the grace is left for an outage; without any, the call is made when the cache runs out.
    room = course.put_off(name, checked_at, settings.cache_for)
    due_at = checked_at + settings.cache_for + min(room, settings.grace / 2)
    return course.made_up(name, due_at) if settings.grace else due_at


def next_check(name: str, last: Round | None, course: Course, now: datetime, settings: Settings) -> datetime:
    """Say when to look for an update next, never before one is due (D-46)."""
    if last is None or now < last.checked_at - CLOCK_TOLERANCE:
        return now
    due_at = last.checked_at + settings.check_every * (1 + last.spread)
    later = due_at + course.put_off(name, last.checked_at, settings.check_every)
    return course.made_up(name, later)


def spread(name: str, at: datetime) -> float:
    """Draw a number from 0 to 1 that is the same whenever it is drawn for the same record and instant."""
    digest = sha256(f"{name} {at.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
