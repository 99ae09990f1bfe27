"""When a worker asks next, however a call ended and whatever is remembered; `test_starts` goes on."""

from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.fleet import MONDAY as NINE
from stage.fleet import SETTINGS

from licclient._cadence import Course, next_check, next_verify
from licclient._errors import LicenseRefused, ServiceUnavailable
from licclient._model import Held, Reason, Round, Verified
from licclient._outcome import Outcome

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
        "x", _held(NINE), _ended(now, ServiceUnavailable()), Course(NINE, failures), now, SETTINGS
    )
    assert timedelta(minutes=2) <= at - now < timedelta(hours=1)


def test_a_refusal_is_asked_about_the_next_day():
    """It may be reinstated; nobody sits and waits for that."""
    refused = _ended(NINE, LicenseRefused(Reason.REVOKED, "No."))
    at = next_verify("x", None, refused, FIRST, NINE, SETTINGS)
    assert timedelta(hours=24) <= at - NINE <= timedelta(hours=30)


def test_nothing_remembered_is_asked_at_once():
    """No success, no outcome; a clock set back; a grace that is over; an outcome from the future."""
    assert next_verify("x", None, None, FIRST, NINE, SETTINGS) == NINE
    back = NINE - timedelta(days=2)
    assert next_verify("x", _held(NINE), _ended(NINE), FIRST, back, SETTINGS) == back
    late = NINE + timedelta(days=5)
    assert next_verify("x", _held(NINE), _ended(NINE), FIRST, late, SETTINGS) == late
    assert next_verify("x", None, _ended(late, ServiceUnavailable()), Course(NINE, 3), NINE, SETTINGS) == NINE


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
    "refused": Outcome("c", NINE, LicenseRefused(Reason.EXPIRED, "No.")),
    "no answer": Outcome("c", NINE, ServiceUnavailable()),
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
