from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from licclient._core import pace as pace_room
from licclient._core.pace import (
    LEAST_PACE,
    MAX_RETRIES,
    MAX_TRIES,
    Speed,
    StallBudget,
    Tries,
    next_try,
    retry_pause,
)

spreads = st.floats(0, 1, exclude_max=True)
seconds = st.floats(0, 1e9)


@given(st.integers(MAX_RETRIES, 99), st.none() | seconds, spreads)
def test_two_retries_and_no_more(retry, retry_after, spread):
    """Whatever there is of time, a call is made three times at most (D-54)."""
    assert retry_pause(retry, retry_after, spread, float("inf")) is None


@given(st.integers(0, MAX_RETRIES - 1), seconds, spreads, seconds)
def test_no_retry_comes_before_retry_after(retry, retry_after, spread, left):
    """`Retry-After` is honoured, or there is no retry at all: never one before its time (D-54)."""
    pause = retry_pause(retry, retry_after, spread, left)
    assert pause is None or retry_after <= pause < left
    assert (pause is None) == (retry_after + pace_room.RETRY_SECONDS * spread >= left)


@given(spreads)
def test_pauses_grow_and_are_spread(spread):
    """Half to one and a half of the pause, then of twice that."""
    first, second = (retry_pause(retry, None, spread, 60) for retry in (0, 1))
    assert pace_room.RETRY_SECONDS / 2 <= first <= pace_room.RETRY_SECONDS * 1.5
    assert second == 2 * first


def test_a_stall_budget_is_renewed_by_a_stream_and_not_by_a_drip():
    """A byte now and then uses the budget up; bytes at the least pace do not (D-55)."""
    drip = StallBudget(10)
    for done in range(10):
        drip = drip.after_wait(1).at(done)
    assert drip.remaining == 0
    stream = StallBudget(10)
    for second in range(1, 100):
        stream = stream.after_wait(1).at(second * LEAST_PACE)
        assert stream.remaining > 0


def test_starting_over_wins_no_stall_budget():
    """A server that sends the same beginning again and again is not getting anywhere."""
    budget = StallBudget(10).at(100 * LEAST_PACE).after_wait(6).at(0)
    for second in range(1, 100):
        budget = budget.after_wait(0.1).at(second * LEAST_PACE)
    assert 0 < budget.remaining <= 4
    budget = budget.at(200 * LEAST_PACE)
    assert budget.remaining == 10


def test_a_stall_budget_is_renewed_at_the_least_pace_and_not_below():
    """Measured from the last mark; bytes that had been there before bring back only what was left then."""
    coming = StallBudget(10, mark=6000, best=6000, waited=3, waited_at_mark=1)
    assert coming.at(6000) == coming
    slow = coming.at(11_000)
    assert (slow.remaining, slow.best, slow.mark) == (7, 11_000, 6000)
    assert coming.at(6000 + 10 * LEAST_PACE).remaining == 10
    again = StallBudget(10, mark=0, best=10 * LEAST_PACE, waited=5, waited_at_mark=2)
    assert again.at(10 * LEAST_PACE).remaining == 8


def test_a_download_that_comes_in_pieces_goes_on_at_once():
    """Until there were too many requests; what brings nothing waits, and is given up after three."""
    tries = Tries(0)
    for done in range(1, MAX_TRIES):
        tries, pause = next_try(tries, done, None, 0.5, 60)
        assert pause == 0
    assert next_try(tries, MAX_TRIES, None, 0.5, 60)[1] is None
    tries, pauses = Tries(100), []
    for _ in range(MAX_RETRIES + 1):
        tries, pause = next_try(tries, 100, None, 0.5, 60)
        pauses.append(pause)
    first, second = (retry_pause(retry, None, 0.5, 60) for retry in (0, 1))
    assert pauses == [first, second, None]
    assert tries.best == 100


def test_a_download_waits_as_long_as_the_service_asks():
    """Also after a request that brought something; not beyond the time limit."""
    assert next_try(Tries(0), 5, 30, 0.0, 60)[1] == 30
    assert next_try(Tries(0), 5, 30, 0.0, 20)[1] is None


def test_speed_is_of_the_last_seconds():
    """What was there before does not count, nor what came long ago; and nothing is divided by zero."""
    speed = Speed(0, 5000)
    assert speed.at(0, 5000) == 0
    assert speed.at(1, 6000) == 1000
    for second in range(2, 20):
        last = speed.at(second, 6000 + (second - 1) * 100)
    assert last == 100
    assert speed.at(20, 0) == 0


def test_a_file_that_pauses_keeps_its_speed():
    """It is averaged over three seconds, and known after a tenth of a second."""
    assert Speed(0, 0).at(0.1, 100) == 1000
    speed = Speed(0, 0)
    assert [speed.at(1, 1000), speed.at(2, 1000)] == [1000, 500]
    speed = Speed(0, 0)
    assert [speed.at(1, 1000), speed.at(4, 1300)] == [1000, 100]


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(0, 10**9)), min_size=2))
def test_speed_is_never_negative(steps):
    """Also when time stands still or a file starts over."""
    now, speed = 0.0, Speed(0, 0)
    for wait, done in steps:
        now += wait
        assert speed.at(now, done) >= 0
    assert all(first[0] <= other[0] for first, other in pairwise(speed._seen))
