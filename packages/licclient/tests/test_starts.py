"""Everybody starts at nine: what a worker makes of what is due then, and a week of a fleet (D-137)."""

from datetime import timedelta

import pytest
from stage import fleet
from stage.fleet import MONDAY as NINE
from stage.fleet import NOTES, SETTINGS

from licclient._cadence import START_WITHIN, Course, next_check, next_verify, noting
from licclient._errors import ServiceUnavailable
from licclient._model import Held, Round, Verified
from licclient._outcome import Note, Outcome

FIRST = Course(NINE)
"""A worker that has just started."""


def _held(at, expiry=None):
    return Held(Verified("Notes", expiry, lifetime=False) if expiry else NOTES, at, at)


def _done(at):
    return Round(at, 0.0, answered=True, listing=None)


def _verifies(held, course=FIRST):
    """When ninety-nine installations verify that are alike."""
    return [next_verify(str(n), held, None, course, course.started_at, SETTINGS) for n in range(99)]


def _checks(done, course=FIRST):
    return [next_check(str(n), done, course, course.started_at, SETTINGS) for n in range(99)]


@pytest.mark.parametrize("minutes", [0, -1200, 15])
def test_what_is_due_at_the_start_is_made_up_for_in_hours(minutes):
    """Many start at nine with yesterday's answers: not in the same minute, and not before they are due."""
    due = NINE + timedelta(minutes=minutes)
    found = _verifies(_held(due - timedelta(hours=24))) + _checks(_done(due - timedelta(hours=12)))
    assert max(NINE, due) <= min(found) < max(found) <= NINE + START_WITHIN
    assert max(found) - min(found) > START_WITHIN / 2


def test_what_is_due_later_in_the_day_stays_there():
    """Who has come apart from the others need not be put off anew at each start."""
    due = NINE + timedelta(minutes=16)
    found = _verifies(_held(due - timedelta(hours=24)))
    assert due <= min(found) < max(found) <= due + timedelta(hours=2.4)


def test_the_less_is_left_the_sooner():
    """Within a sixth of what is left of the grace, or of the license itself: an outage may come."""
    found = _verifies(_held(NINE - timedelta(hours=95)))
    assert timedelta(minutes=8) < max(found) - NINE <= timedelta(minutes=10)
    found = _verifies(_held(NINE - timedelta(hours=30), expiry=NINE.date()))
    assert timedelta(hours=2) < max(found) - NINE <= timedelta(hours=2.5)


def test_an_app_that_ends_too_soon_is_put_off_less_and_less():
    """Four hours, one, a quarter of one, ten minutes; a restart in that time draws no new lot."""
    done, before = _done(NINE - timedelta(hours=25)), None
    for day, most in enumerate((240, 60, 15, 10, 10)):
        start = NINE + timedelta(days=day)
        course = noting("x", None, done, Course(start, note=before), start, SETTINGS)
        before = course.note
        assert before == Note(start, cut=day)
        within = max(_checks(done, course)) - start
        assert timedelta(minutes=most * 0.8) < within <= timedelta(minutes=most)
        planned = next_check("x", done, course, start, SETTINGS)
        again = Course(planned - timedelta(seconds=1), note=before)
        assert noting("x", None, done, again, again.started_at, SETTINGS) is again
        assert next_check("x", done, again, again.started_at, SETTINGS) == planned


def test_it_is_remembered_how_long_an_app_tends_to_run():
    """The next time does not begin quite anew; who runs for long comes back to four hours."""
    due, course = NINE - timedelta(hours=1), Course(NINE, note=Note(NINE - timedelta(days=2), cut=2))
    for left in (1, 0, 0):
        course = noting("x", None, _done(due - timedelta(hours=12)), course, course.started_at, SETTINGS)
        assert course.note == Note(course.started_at, left)
        due += timedelta(days=1)
        course = Course(course.started_at + timedelta(days=1), note=course.note)


def test_one_note_serves_both():
    """A verify that has just become due is made along with a check that was put off too often."""
    done = _done(NINE - timedelta(days=2))
    before = Course(NINE, note=Note(NINE - timedelta(days=1)))
    assert noting("x", None, done, before, NINE, SETTINGS).note == Note(NINE, 1)
    assert noting("x", _held(NINE - timedelta(hours=24)), done, before, NINE, SETTINGS).note == Note(NINE, 1)
    assert noting("x", _held(NINE - timedelta(hours=23)), None, before, NINE, SETTINGS) is before


def test_a_note_from_the_future_is_none():
    """A clock that was ahead puts nothing off for as long as it was."""
    ahead = Course(NINE, note=Note(NINE + timedelta(days=300)))
    assert noting("x", None, _done(NINE - timedelta(days=2)), ahead, NINE, SETTINGS).note == Note(NINE)


def test_what_was_asked_in_vain_is_not_put_off_again():
    """An outage at the start is asked about like any other."""
    held, failed = _held(NINE - timedelta(hours=30)), Outcome("c", NINE, ServiceUnavailable())
    at = next_verify("x", held, failed, FIRST, NINE + timedelta(seconds=1), SETTINGS)
    assert timedelta(minutes=2) <= at - NINE < timedelta(minutes=3)


# --- a week of a fleet ------------------------------------------------------------------------

WEEKS = {
    "never stopped, verified at nine": (fleet.always, lambda _: timedelta(0), fleet.WEEK),
    "nine to five, verified last on Friday": (
        fleet.working_days(8),
        lambda die: timedelta(hours=64 + 8 * die.random()),
        timedelta(hours=40),
    ),
}
"""When the apps run; how old their answers are at first; how long they run in a week."""


@pytest.mark.slow  # 10,000 installations a week take 8 seconds of processor time
@pytest.mark.parametrize("week", WEEKS)
def test_ten_thousand_that_start_at_nine_never_ask_all_at_once(week):
    """At most one verify and 2.1 checks a day each, and no minute with more than three times the mean."""
    sessions, age, work = WEEKS[week]
    calls = fleet.play(10_000, sessions, age)
    assert len(calls.verifies) == len(calls.checks) == 10_000
    assert max(calls.verifies.values()) / 7 <= 1
    assert max(calls.checks.values()) / 7 <= 2.1
    assert calls.peak(work) <= 3


@pytest.mark.parametrize("sessions", [fleet.now_and_then, fleet.with_a_break])
def test_who_runs_the_app_for_short_is_not_forgotten(sessions):
    """All are verified and look for updates in the week."""
    calls = fleet.play(500, sessions, lambda die: timedelta(hours=24 * die.random()))
    assert len(calls.verifies) == len(calls.checks) == 500
