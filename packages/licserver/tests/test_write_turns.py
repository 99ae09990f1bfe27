"""A thread that writes on and on lets other writers of a SQLite file write now and then."""

import threading
from itertools import pairwise

import pytest

from harness import shops
from harness.sales import add, receive
from licserver.database.write_turns import MOST_HELD, PAUSE, WriteTurns
from licserver.services.sales.reconciler import SaleReconciler


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.pauses = list[float]()

    def __call__(self) -> float:
        """Return the time."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Pause."""
        self.pauses.append(seconds)
        self.now += seconds


def hold(turns: WriteTurns, clock: Clock, seconds: float) -> None:
    """Write for some time."""
    with turns.turn():
        turns.begin()
        clock.now += seconds


@pytest.mark.parametrize("seconds", [0.001, 0.004, 0.02, MOST_HELD, 0.3])
def test_others_wait_for_no_more_than_one_transaction_and_what_was_held_before(seconds: float) -> None:
    """However short each transaction is, and however many there are."""
    clock = Clock()
    turns, ends = WriteTurns(clock, clock.sleep), [clock.now]
    for _ in range(200):
        known = len(clock.pauses)
        hold(turns, clock, seconds)
        if len(clock.pauses) > known:
            ends.append(clock.now)
    longest = max(after - before for before, after in pairwise(ends))
    assert longest <= MOST_HELD + PAUSE + 2 * seconds
    assert set(clock.pauses) == {PAUSE}


def test_a_thread_that_leaves_gaps_never_pauses() -> None:
    """Nor does another thread, or one that waited for the lock itself."""
    clock = Clock()
    turns = WriteTurns(clock, clock.sleep)
    for _ in range(20):
        hold(turns, clock, MOST_HELD)
        clock.now += 2 * PAUSE
    hold(turns, clock, MOST_HELD)
    other = threading.Thread(target=hold, args=(turns, clock, 0.001))
    other.start()
    other.join()
    assert clock.pauses == []
    turns = WriteTurns(clock, clock.sleep)
    for _ in range(3):
        with turns.turn():  # refused: the lock was never held
            clock.now += 10 * MOST_HELD
    assert clock.pauses == []


@pytest.mark.slow
def test_other_writers_have_their_turns_while_an_order_of_1000_keys_is_issued(world, monkeypatch) -> None:
    """Another one writes after a few of its transactions, and does not wait for all of them."""
    monkeypatch.setenv("STANDARD_SECRET", shops.SECRETS["standard"])
    monkeypatch.setattr("licserver.services.sales.reconciler.ISSUE_BATCH", 25)
    add(world, "standard")
    receive(
        world,
        "standard",
        shops.standard("purchase.completed", order_id="1", external_id="app", quantity=1000),
    )
    (event,) = world.services.sources.list_events("standard").items
    parts, is_done, waited = [0], threading.Event(), list[int]()
    reconcile = SaleReconciler.reconcile

    def counting(worker, objects, plan=None):
        parts[0] += 1
        return reconcile(worker, objects, plan)

    def write_too() -> None:
        while not is_done.is_set():
            before = parts[0]
            with world.services.transaction():
                waited.append(parts[0] - before)
            is_done.wait(0.001)

    monkeypatch.setattr(SaleReconciler, "reconcile", counting)
    other = threading.Thread(target=write_too)
    other.start()
    world.services.sales.process(event.id)
    is_done.set()
    other.join()
    assert parts[0] >= 40
    assert max(waited) <= 12, waited  # without turns 25 and more
