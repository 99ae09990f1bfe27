"""Pure: when a worker asks again (D-59, D-137). `verify` and `check_for_update` know nothing of it.

Installations that started in the same minute, such as at nine o'clock, must not ask in the same minute for
ever after. So every due time is put off by a part that differs among installations and from day to day, yet
is the same for all processes of one and after a restart: a digest decides, not a die.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final

from licclient._model import Held, Round, Settings
from licclient._outcome import Note, Outcome
from licclient._policy import CLOCK_TOLERANCE, Standing, holds_until, judge_held

WIDE: Final = timedelta(hours=12)
"""How far, at most, what follows a call at a worker's start is put off: who started together comes apart."""

NARROW: Final = 0.1
"""By which part of its wait, at most, every other call is put off."""

NEAR_START: Final = timedelta(minutes=15)
"""What falls due so soon after a start does so for everybody who starts at that hour every day."""

START_WITHIN: Final = timedelta(hours=4)
"""In what time after its start a worker makes up for what is due, while the license holds meanwhile."""

START_WITHIN_LEAST: Final = timedelta(minutes=10)
"""The same for an app that never runs for as long; each time that it ended too soon quarters the time."""

OF_WHAT_IS_LEFT: Final = 6
"""The closer the end of the grace, the sooner: within this part of what is left of it."""

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
        started_at: When it began, or when its computer woke up last; aware, UTC.
        failures: How many verifies in a row left nothing that holds.
        note: That something which was due was put off, by this worker or one before it.
    """

    started_at: datetime
    failures: int = 0
    note: Note | None = None

    def is_due_at_start(self, due_at: datetime) -> bool:
        """Tell whether a call is due when the worker starts, or so soon after that it makes no difference."""
        return due_at <= self.started_at + NEAR_START

    def note_of(self, name: str, due_at: datetime, most: timedelta) -> Note:
        """Say since when a call is put off that is due at the start: an app that ended meanwhile counts on.

        Args:
            name: Of the record.
            due_at: When the call became due.
            most: By how much it may be put off.
        """
        note = self.note
        if note is None or note.at > self.started_at:
            return Note(self.started_at)
        if note.at < due_at - NEAR_START:
            # Of what was due before this: it says how long this app tends to run.
            return Note(self.started_at, max(note.cut - 1, 0))
        if note.at == self.started_at or _made_up_at(name, note, most) > self.started_at:
            return note
        return Note(self.started_at, note.cut + 1)

    def apart(
        self, name: str, since: datetime, due_at: datetime, wait: timedelta, most: timedelta
    ) -> datetime:
        """Say when to make a call that is due at an instant, so that installations come apart.

        Args:
            name: Of the record.
            since: When the call before it was made.
            due_at: When it becomes due.
            wait: What lies between calls of this kind.
            most: By how much it may be put off.
        """
        if self.is_due_at_start(due_at):
            return max(due_at, _made_up_at(name, self.note_of(name, due_at, most), most))
        room = WIDE if abs(since - self.started_at) <= NEAR_START else wait * NARROW
        return due_at + min(room * spread(name, since), most)


def _made_up_at(name: str, note: Note, most: timedelta) -> datetime:
    within = max(START_WITHIN / (1 << 2 * min(note.cut, _DOUBLINGS)), START_WITHIN_LEAST)
    return note.at + min(within, most) * spread(name, note.at)


def noting(
    name: str, held: Held | None, last: Round | None, course: Course, now: datetime, settings: Settings
) -> Course:
    """Note what is put off at a worker's start: an app that ends too soon must not put it off for ever.

    Returns:
        The very same object when there is nothing to be written.
    """
    dues = []
    if held is not None and (due := _verify_due(held, now, settings)) is not None:
        dues.append((name, due, _most(held, course, settings)))
    if (due := _check_due(last, now, settings)) is not None:
        dues.append((_checks(name), due, WIDE))
    found = [course.note_of(name, due, most) for name, due, most in dues if course.is_due_at_start(due)]
    if not found:
        return course
    note = max(found, key=lambda note: (note.at, note.cut))  # one serves both: the more urgent one
    return course if note == course.note else replace(course, note=note)


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
    due_at = max(now, _runs_out(name, held, last, course, now, settings))
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


def _runs_out(
    name: str, held: Held | None, last: Outcome | None, course: Course, now: datetime, settings: Settings
) -> datetime:
    """Say when what is remembered has to be confirmed, by this computer's clock."""
    due_at = _verify_due(held, now, settings)
    if held is None or due_at is None:
        return now
    if last is not None and last.ended_at >= max(due_at, course.started_at):
        return due_at  # asked already, to no avail: that is not put off once more
    checked_at = held.checked_at - held.slow_by
    return course.apart(name, checked_at, due_at, settings.cache_for, _most(held, course, settings))


def _verify_due(held: Held | None, now: datetime, settings: Settings) -> datetime | None:
    """Say when the cache runs out of a success that holds, grace included, by this computer's clock."""
    if held is None or judge_held(held, now, settings) not in (Standing.FRESH, Standing.GRACE):
        return None
    return held.checked_at - held.slow_by + settings.cache_for


def _most(held: Held, course: Course, settings: Settings) -> timedelta:
    """Say by how much a verify may be put off: most of the grace is left for an outage."""
    left = holds_until(held, settings) - held.slow_by - course.started_at
    return max(min(left / OF_WHAT_IS_LEFT, settings.grace / 2), timedelta(0))


def next_check(name: str, last: Round | None, course: Course, now: datetime, settings: Settings) -> datetime:
    """Say when to look for an update next, never before one is due (D-46)."""
    due_at = _check_due(last, now, settings)
    if last is None or due_at is None:
        return now
    return course.apart(_checks(name), last.checked_at, due_at, settings.check_every, WIDE)


def _checks(name: str) -> str:
    """Name what is drawn for checks: at another time than verifies, or the peaks of both would be one."""
    return f"{name} check"


def _check_due(last: Round | None, now: datetime, settings: Settings) -> datetime | None:
    """Say when an update check is due again; None: now, because there was none, or one in the future."""
    if last is None or now < last.checked_at - CLOCK_TOLERANCE:
        return None
    return last.checked_at + settings.check_every * (1 + last.spread)


def spread(name: str, at: datetime) -> float:
    """Draw a number from 0 to 1 that is the same whenever it is drawn for the same record and instant."""
    digest = sha256(f"{name} {at.isoformat()}".encode()).digest()
    return int.from_bytes(digest[:4]) / 2**32
