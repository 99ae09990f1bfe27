from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from licclient._cadence import START_WITHIN, Course, next_check, next_verify, spread
from licclient._errors import LicenseRefused, ServiceUnavailable
from licclient._model import Held, Reason, Round, Settings, Verified
from licclient._outcome import Outcome
from licclient._policy import MAX_SPREAD

NINE = datetime(2026, 11, 23, 9, tzinfo=UTC)
FIRST = Course(NINE)
"""A worker that has just started."""
LATER = Course(NINE - timedelta(days=3))
"""One that has been at work for days."""
SETTINGS = Settings(
    "https://s.example", None, "notes", "1.0", None,
    timedelta(hours=24), timedelta(hours=72), timedelta(hours=12), timedelta(seconds=10),
)  # fmt: skip


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


def test_what_is_overdue_at_the_start_is_made_up_for_soon():
    """Many start at nine with a cache of yesterday's: within ten minutes, not in the same one."""
    since = NINE - timedelta(days=2)
    done = Round(since, 0.0, answered=True, listing=None)
    found = [next_verify(str(n), _held(since), None, FIRST, NINE, SETTINGS) for n in range(99)]
    found += [next_check(str(n), done, FIRST, NINE, SETTINGS) for n in range(99)]
    assert NINE <= min(found) < max(found) <= NINE + START_WITHIN
    assert max(found) - min(found) > START_WITHIN / 2


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


def test_a_fleet_spreads_out():
    """10,000 installations that start at nine: a week later they have asked seldom, and never all at once.

    The minute of the common start is everybody's first; what must not come back is its like.
    """
    size, days = 10_000, 7
    end = NINE + timedelta(days=days)
    verifies, checks, minutes = Counter(), Counter(), Counter()
    for number in range(size):
        name = f"license-{number}"
        now = NINE
        while (now := next_verify(name, _held(now), _ended(now), FIRST, now, SETTINGS)) < end:
            verifies[name] += 1
            minutes[int((now - NINE).total_seconds() // 60)] += 1
        now = NINE
        while True:
            done = Round(now, spread(f"die {number}", now) * MAX_SPREAD, answered=True, listing=None)
            if (now := next_check(name, done, FIRST, now, SETTINGS)) >= end:
                break
            checks[name] += 1
            minutes[int((now - NINE).total_seconds() // 60)] += 1
    assert len(verifies) == len(checks) == size
    assert max(verifies.values()) / days <= 1
    assert max(checks.values()) / days <= 2.1
    mean = minutes.total() / (days * 24 * 60)
    peak = max(minutes.values())
    assert peak <= 3 * mean, f"peak minute {peak}, mean {mean:.1f}"
