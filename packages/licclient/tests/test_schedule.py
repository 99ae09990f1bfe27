"""When a worker calls next, however a call ended and whatever is remembered; and a week of a fleet."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stage.rules import settings

from licclient import Reason, Trust
from licclient._core.model import CachedLicense, Verified
from licclient._core.policy import MAX_SPREAD
from licclient._core.schedule import (
    JITTER,
    LATE_WINDOW,
    RETRY_FIRST,
    RETRY_MOST,
    START_WINDOW,
    next_update_check,
    next_verify,
)
from licclient._core.status import Outcome
from licclient._core.update_model import UpdateCheckRecord
from licclient.errors import LicenseRefusedError, ServiceUnavailableError

NOW = datetime(2026, 11, 23, 9, tzinfo=UTC)  # a Monday
SETTINGS = settings()
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOTES = Verified("Notes", None, lifetime=False)
SILENCE = ServiceUnavailableError("nobody there")
REFUSED = LicenseRefusedError(Reason.REVOKED, "License has been revoked.")
names = st.text("abcdef", min_size=1)


def held(age, **changes: object):
    """A success of so long ago."""
    return CachedLicense(NOTES, NOW - age, NOW, **changes)


def verify(found, last=None, tried_at=None, *, name="a", started_at=NOW, rules=SETTINGS):
    """When the next verify is due."""
    return next_verify(name, found, last, tried_at, started_at, NOW, rules)


@given(names, st.timedeltas(timedelta(0), 22 * HOUR))
def test_a_success_is_left_alone_for_its_cache(name, age):
    """Never before the cache runs out, and a quarter of a day later at most."""
    due_at = NOW - age + DAY
    assert due_at <= verify(held(age), name=name, started_at=NOW - 9 * DAY) <= due_at + DAY * JITTER


@given(names, st.timedeltas(timedelta(0), 60 * HOUR))
def test_what_is_due_at_the_start_is_made_up_for_in_hours(name, late):
    """Within four hours, and within a tenth of what is left of the grace; a check within four hours."""
    most = min(START_WINDOW, (72 * HOUR - late) / 10)
    assert NOW <= verify(held(DAY + late), name=name) <= NOW + most
    done = UpdateCheckRecord(NOW - 12 * HOUR - late, 0, answered=True, listing=None)
    assert NOW <= next_update_check(name, done, None, NOW, NOW, SETTINGS) <= NOW + START_WINDOW


def test_what_does_not_hold_is_asked_at_once():
    """No success, a grace that is over, no grace at all, a clock set back; and no check before."""
    seen_later = CachedLicense(NOTES, NOW - HOUR, NOW + HOUR)
    for found in (None, held(97 * HOUR), seen_later):
        assert verify(found) == NOW
    assert verify(held(DAY), rules=settings(trust=Trust(grace=timedelta(0)))) == NOW
    for done in (None, UpdateCheckRecord(NOW + HOUR, 0, answered=True, listing=None)):
        assert next_update_check("a", done, None, NOW, NOW, SETTINGS) == NOW


def test_a_slow_clock_does_not_put_it_off():
    """By this computer's clock a signed success is as old as by the service's (D-116)."""
    fast = CachedLicense(NOTES, NOW + 2 * HOUR, NOW + 2 * HOUR, slow_by=2 * HOUR)
    assert NOW + DAY <= verify(fast) <= NOW + DAY * (1 + JITTER)


@pytest.mark.parametrize("found", [None, held(30 * HOUR)], ids=["nothing", "grace"])
@pytest.mark.parametrize(
    "last", [lambda at: Outcome("c", at, SILENCE), lambda at: Outcome("c", at, None, is_private=True), None]
)
def test_what_settles_nothing_is_asked_less_and_less(found, last):
    """The wait grows with the outage, and stays below an hour; also for calls that leave no record."""
    waits, at = [], NOW
    for _ in range(30):
        ended = None if last is None else last(at)
        following = next_verify("a", found, ended, at if last is None else None, NOW, at, SETTINGS)
        waits.append(following - at)
        at = following
    assert RETRY_FIRST <= waits[0] <= RETRY_FIRST * (1 + JITTER)
    assert RETRY_MOST <= waits[-1] <= RETRY_MOST * (1 + JITTER)
    assert waits[1] < waits[3] < waits[6]


@pytest.mark.parametrize(
    ("last", "product", "wait"),
    [
        (Outcome("c", NOW, REFUSED), None, DAY),
        (Outcome("c", NOW, None, "Photos"), "Notes", DAY),
        (Outcome("c", NOW + HOUR, REFUSED), None, timedelta(0)),  # a clock set back
    ],
)
def test_a_refusal_is_asked_about_once_a_day(last, product, wait):
    """Another product is a refusal, too."""
    assert verify(None, last, rules=settings(product=product)) == NOW + wait


def test_a_restart_is_no_reason_to_ask_again_at_once():
    """Two minutes lie between two calls, whatever starts in between (D-115)."""
    assert verify(None, Outcome("c", NOW - MINUTE, SILENCE)) == NOW - MINUTE + RETRY_FIRST


def test_an_app_that_runs_for_minutes_gets_to_its_check():
    """After five days a check is made within half an hour of the start."""
    done = UpdateCheckRecord(NOW - 6 * DAY, 0, answered=True, listing=None)
    assert next_update_check("a", done, None, NOW, NOW, SETTINGS) <= NOW + timedelta(minutes=30)


# --- a week of a fleet that begins on Monday at nine (D-137) ------------------------------------


def always(_):
    """Started once."""
    return [(NOW, NOW + 7 * DAY)]


def working_days(_):
    """Started or woken at nine sharp, until five."""
    return [(NOW + day * DAY, NOW + day * DAY + 8 * HOUR) for day in range(5)]


def play(size, sessions, age):
    """Return how many calls each installation makes, and how many there are in each minute."""
    verifies, checks, minutes = Counter(), Counter(), Counter()
    for number in range(size):
        die, name = Random(number), f"license-{number}"
        runs = sessions(die)
        at = runs[0][0] - age(die)
        confirmed, done = (
            CachedLicense(NOTES, at, at),
            UpdateCheckRecord(at, die.random() * MAX_SPREAD, answered=True, listing=None),
        )
        for now, end in runs:
            started_at = now
            while True:
                verify_at = next_verify(name, confirmed, None, None, started_at, now, SETTINGS)
                check_at = next_update_check(name, done, None, started_at, now, SETTINGS)
                now = max(now, min(verify_at, check_at))  # noqa: PLW2901 - time passes
                if now >= end:
                    break
                if verify_at <= now:
                    confirmed = CachedLicense(NOTES, now, now)
                    verifies[number] += 1
                else:
                    done = UpdateCheckRecord(now, die.random() * MAX_SPREAD, True, None)  # noqa: FBT003
                    checks[number] += 1
                minutes[(now - NOW) // MINUTE] += 1
    return verifies, checks, minutes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sessions", "age", "work"),
    [
        (always, lambda die: DAY * die.random(), 7 * DAY),
        (working_days, lambda _: 64 * HOUR, 40 * HOUR),
    ],
)
def test_a_thousand_that_start_at_nine_never_call_all_at_once(sessions, age, work):
    """At most a verify and two checks a day each, and no five minutes with four times the mean."""
    verifies, checks, minutes = play(1000, sessions, age)
    assert max(verifies.values()) <= 7
    assert max(checks.values()) <= 14
    spans = Counter[int]()
    for minute, calls in minutes.items():
        spans[minute // 5] += calls
    assert max(spans.values()) / (minutes.total() / (work / (5 * MINUTE))) < 4


def test_an_update_check_without_an_answer_is_made_up_for_at_the_start():
    """Within minutes, and not hours: the one before it found no service."""
    last = UpdateCheckRecord(NOW - timedelta(hours=5), 0.0, answered=False, listing=None)
    answered = UpdateCheckRecord(NOW - timedelta(hours=15), 0.0, answered=True, listing=None)
    for record, window in ((last, LATE_WINDOW), (answered, START_WINDOW)):
        at = next_update_check("a", record, None, NOW, NOW, SETTINGS)
        assert NOW <= at <= NOW + window


def test_a_check_that_failed_long_before_the_start_is_not_repeated_at_once_by_all():
    """Nor is there a reason to wait for hours."""
    failed = UpdateCheckRecord(NOW - 9 * DAY, 0, answered=False, listing=None)
    for name in map(str, range(20)):
        assert NOW <= next_update_check(name, failed, None, NOW, NOW, SETTINGS) <= NOW + LATE_WINDOW
    failed = UpdateCheckRecord(NOW, 0, answered=False, listing=None)
    assert next_update_check("a", failed, None, NOW - DAY, NOW, SETTINGS) > NOW
