"""When a worker asks next, however a call ended and whatever is remembered; and a week of a fleet."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage import fleet
from stage.fleet import MONDAY as NINE
from stage.fleet import SETTINGS, WEEK

from licclient._cadence import START_WITHIN, Course, next_check, next_verify, noting
from licclient._model import Held, Reason, Round, Verified
from licclient._outcome import Note, Outcome
from licclient.errors import LicenseRefusedError, ServiceUnavailableError

FIRST = Course(NINE)
"""A worker that has just started."""
LATER = Course(NINE - timedelta(days=3))
"""One that has been at work for days."""


def _held(at, expiry=None):
    return Held(Verified("Notes", expiry, lifetime=False), at, at)


def _ended(at, answer=None):
    return Outcome("call", at, answer)


@given(st.text(), st.timedeltas(timedelta(0), timedelta(hours=24)))
def test_a_success_is_left_alone_for_its_cache(name, later):
    """Never before the cache runs out; at first half a day later at most, then a tenth of one."""
    at = next_verify(name, _held(NINE), _ended(NINE), FIRST, NINE + later, SETTINGS)
    assert timedelta(hours=24) <= at - NINE <= timedelta(hours=36)
    at = next_verify(name, _held(NINE), _ended(NINE), LATER, NINE + later, SETTINGS)
    assert timedelta(hours=24) <= at - NINE <= timedelta(hours=26.4)


def test_without_grace_nothing_is_put_off():
    """An app that gives no grace is verified when its cache runs out."""
    strict = replace(SETTINGS, grace=timedelta(0))
    assert next_verify("x", _held(NINE), None, FIRST, NINE, strict) == NINE + timedelta(hours=24)


@pytest.mark.parametrize("failures", range(12))
def test_an_outage_is_asked_about_within_the_hour(failures):
    """The wait doubles, and stays below an hour: who is back is noticed."""
    now = NINE + timedelta(days=3)
    at = next_verify(
        "x", _held(NINE), _ended(now, ServiceUnavailableError()), Course(NINE, failures), now, SETTINGS
    )
    assert timedelta(minutes=2) <= at - now < timedelta(hours=1)


def test_a_refusal_is_asked_about_the_next_day():
    """It may be reinstated; nobody sits and waits for that."""
    refused = _ended(NINE, LicenseRefusedError(Reason.REVOKED, "No."))
    at = next_verify("x", None, refused, FIRST, NINE, SETTINGS)
    assert timedelta(hours=24) <= at - NINE <= timedelta(hours=30)


def test_nothing_remembered_is_asked_at_once():
    """No success, no outcome; a clock set back; a grace that is over; an outcome from the future."""
    assert next_verify("x", None, None, FIRST, NINE, SETTINGS) == NINE
    back = NINE - timedelta(days=2)
    assert next_verify("x", _held(NINE), _ended(NINE), FIRST, back, SETTINGS) == back
    late = NINE + timedelta(days=5)
    assert next_verify("x", _held(NINE), _ended(NINE), FIRST, late, SETTINGS) == late
    assert (
        next_verify("x", None, _ended(late, ServiceUnavailableError()), Course(NINE, 3), NINE, SETTINGS)
        == NINE
    )


def test_a_round_is_left_alone_for_its_span():
    """D-46, and then a tenth more at most; one from the future does not count."""
    done = Round(NINE, 0.1, answered=True, listing=None)
    at = next_check("x", done, LATER, NINE, SETTINGS)
    assert timedelta(hours=13.2) <= at - NINE <= timedelta(hours=14.4)
    assert next_check("x", None, FIRST, NINE, SETTINGS) == NINE
    past = NINE - timedelta(days=1)
    assert next_check("x", done, FIRST, past, SETTINGS) == past


# --- never in a circle (D-115) ----------------------------------------------------------------

NOTES = replace(SETTINGS, product="Notes")
FOR_NOTES = Verified("Notes", None, lifetime=False)
STANDINGS = {
    "none": None,
    "fresh": Held(FOR_NOTES, NINE - timedelta(hours=1), NINE),
    "soon due": Held(FOR_NOTES, NINE - timedelta(hours=24) + timedelta(seconds=1), NINE),
    "grace": Held(FOR_NOTES, NINE - timedelta(hours=40), NINE),
    "over": Held(FOR_NOTES, NINE - timedelta(hours=97), NINE),
    "past its day": Held(replace(FOR_NOTES, expiry=NINE.date() - timedelta(days=1)), NINE, NINE),
    "clock set back": Held(FOR_NOTES, NINE + timedelta(hours=1), NINE + timedelta(hours=1)),
    "slow clock": Held(FOR_NOTES, NINE + timedelta(hours=9), NINE, slow_by=timedelta(hours=9)),
    "another product's": Held(replace(FOR_NOTES, product="Photos"), NINE - timedelta(hours=40), NINE),
}
OUTCOMES = {
    "success": Outcome("c", NINE, None, "Notes"),
    "success of an older version": Outcome("c", NINE, None),
    "another product": Outcome("c", NINE, None, "Photos"),
    "refused": Outcome("c", NINE, LicenseRefusedError(Reason.EXPIRED, "No.")),
    "no answer": Outcome("c", NINE, ServiceUnavailableError()),
    "422, or unsigned": Outcome("c", NINE, None, is_private=True),
}


@pytest.mark.parametrize("standing", STANDINGS)
def test_a_call_that_has_ended_is_left_alone(standing):
    """Whatever came of it, and whatever is remembered: two minutes at least."""
    courses = [FIRST, LATER, Course(NINE, 4)]
    for outcome, course, grace, name, later in product(
        OUTCOMES, courses, [0, 72], "abcdefgh", [0, 1, 60, 119]
    ):
        settings, now = replace(NOTES, grace=timedelta(hours=grace)), NINE + timedelta(seconds=later)
        at = next_verify(name, STANDINGS[standing], OUTCOMES[outcome], course, now, settings)
        assert at >= NINE + timedelta(minutes=2), (outcome, course, grace)


@pytest.mark.parametrize("outcome", ["success", "422, or unsigned", "no answer"])
def test_what_settles_nothing_is_asked_less_and_less(outcome):
    """A success that does not hold by this clock included; within the hour all the same."""
    waits = [
        next_verify("x", STANDINGS["past its day"], OUTCOMES[outcome], Course(NINE, failures), NINE, NOTES)
        - NINE
        for failures in range(8)
    ]
    assert waits == sorted(waits)
    assert waits[0] < timedelta(minutes=3) < timedelta(minutes=40) < waits[-1] < timedelta(hours=1)


@pytest.mark.parametrize("outcome", ["another product", "refused"])
def test_a_no_is_asked_about_once_a_day(outcome):
    """Another product is a refusal, for the app that is another product; for the right one it is none."""
    at = next_verify("x", None, OUTCOMES[outcome], FIRST, NINE, NOTES)
    assert timedelta(hours=24) <= at - NINE <= timedelta(hours=27)
    right = replace(NOTES, product="Photos")
    at = next_verify("x", None, OUTCOMES["another product"], FIRST, NINE, right)
    assert at - NINE < timedelta(minutes=3)


def test_a_slow_clock_does_not_put_it_off():
    """By this computer's clock a signed success is as old as by the service's."""
    at = next_verify("x", STANDINGS["slow clock"], OUTCOMES["success"], LATER, NINE, NOTES)
    assert timedelta(hours=24) <= at - NINE <= timedelta(hours=26.4)


# --- everybody starts at nine (D-137) ----------------------------------------------------------


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
    """A client whose schedule is spread already is not delayed again at each start."""
    due = NINE + timedelta(minutes=16)
    found = _verifies(_held(due - timedelta(hours=24)))
    assert due <= min(found) < max(found) <= due + timedelta(hours=2.4)


def test_the_less_is_left_the_sooner():
    """Within a sixth of what is left of the grace, or of the license itself: an outage may come."""
    found = _verifies(_held(NINE - timedelta(hours=95)))
    assert timedelta(minutes=8) < max(found) - NINE <= timedelta(minutes=10)
    found = _verifies(_held(NINE - timedelta(hours=30), NINE.date()))
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
    held, failed = _held(NINE - timedelta(hours=30)), Outcome("c", NINE, ServiceUnavailableError())
    at = next_verify("x", held, failed, FIRST, NINE + timedelta(seconds=1), SETTINGS)
    assert timedelta(minutes=2) <= at - NINE < timedelta(minutes=3)


# --- a week of a fleet ------------------------------------------------------------------------

WEEKS = {
    "never stopped, verified at nine": (fleet.always, lambda _: timedelta(0), WEEK),
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
