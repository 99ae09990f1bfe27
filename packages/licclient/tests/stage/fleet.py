"""A week of many installations with a worker each, by the pure rooms alone: when each of them calls."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from licclient._cadence import Course, next_check, next_verify, noting
from licclient._model import Held, Round, Verified
from licclient._outcome import Outcome
from licclient._policy import MAX_SPREAD, Standing, judge_held
from stage.rules import settings

SETTINGS = settings()
MONDAY = datetime(2026, 11, 23, 9, tzinfo=UTC)
"""Nine o'clock."""
WEEK = timedelta(days=7)
NOTES = Verified("Notes", None, lifetime=False)

Session = tuple[datetime, datetime]
"""From when to when a worker works: a computer that sleeps in between is two (D-137)."""


@dataclass
class Calls:
    """What a fleet asked: how often each of it, and how many in each minute."""

    verifies: Counter[int] = field(default_factory=Counter)
    checks: Counter[int] = field(default_factory=Counter)
    minutes: Counter[int] = field(default_factory=Counter)

    def peak(self, work: timedelta) -> float:
        """Return the busiest minute, in terms of the mean of the time in which the apps run."""
        return max(self.minutes.values()) / (self.minutes.total() / (work / timedelta(minutes=1)))


def play(
    size: int,
    sessions: Callable[[Random], Iterable[Session]],
    age: Callable[[Random], timedelta],
    *,
    asks_at_start: bool = False,
) -> Calls:
    """Play a week.

    Args:
        size: How many installations.
        sessions: When one of them runs.
        age: Of its last success and its last check, when it first starts.
        asks_at_start: Whether its app calls `verify()` before its worker begins.
    """
    calls = Calls()
    for number in range(size):
        die = Random(number)
        for kind, at in _one(f"license-{number}", die, list(sessions(die)), age(die), asks_at_start):
            getattr(calls, kind)[number] += 1
            calls.minutes[(at - MONDAY) // timedelta(minutes=1)] += 1
    return calls


def _one(
    name: str, die: Random, sessions: list[Session], age: timedelta, asks_at_start: bool
) -> Iterator[tuple[str, datetime]]:
    since, note = sessions[0][0] - age, None
    held, last, done = _verified(since), Outcome("c", since, None, "Notes"), _checked(since, die)
    for now, end in sessions:
        course = Course(now, note=note)
        if asks_at_start and judge_held(held, now, SETTINGS) is not Standing.FRESH:
            held, last = _verified(now), Outcome("c", now, None, "Notes")
            yield "verifies", now
        while now < end:
            course = noting(name, held, done, course, now, SETTINGS)
            verify_at = next_verify(name, held, last, course, now, SETTINGS)
            check_at = next_check(name, done, course, now, SETTINGS)
            now = max(now, min(verify_at, check_at))  # noqa: PLW2901 - time passes
            if now >= end:
                break
            if verify_at <= now:
                held, last = _verified(now), Outcome("c", now, None, "Notes")
                yield "verifies", now
            else:
                done = _checked(now, die)
                yield "checks", now
        note = course.note


def _verified(now: datetime) -> Held:
    return Held(NOTES, now, now)


def _checked(now: datetime, die: Random) -> Round:
    return Round(now, die.random() * MAX_SPREAD, answered=True, listing=None)


# --- who works when ---------------------------------------------------------------------------


def always(_: Random) -> Iterator[Session]:
    """Started on Monday at nine, and never stopped."""
    yield MONDAY, MONDAY + WEEK


def working_days(hours: float) -> Callable[[Random], Iterator[Session]]:
    """Switched on (or woken) at nine sharp from Monday to Friday, for so many hours."""

    def days(_: Random) -> Iterator[Session]:
        for day in range(5):
            start = MONDAY + timedelta(days=day)
            yield start, start + timedelta(hours=hours)

    return days


def with_a_break(_: Random) -> Iterator[Session]:
    """From nine to one and from two to five, and everybody starts anew after the break."""
    for start, end in working_days(8)(_):
        yield start, end - timedelta(hours=4)
        yield start + timedelta(hours=5), end


def now_and_then(die: Random) -> Iterator[Session]:
    """Twenty minutes a day, whenever."""
    for start, _ in working_days(8)(die):
        at = start + timedelta(minutes=460 * die.random())
        yield at, at + timedelta(minutes=20)
