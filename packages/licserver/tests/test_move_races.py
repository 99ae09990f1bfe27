"""Moves and new computers that race for the slots of a license (D-333, D-334): exact on both engines."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Barrier

import pytest

from harness.engines import both_engines
from licserver.database import engine
from licserver.database.hot_path.store import BatchStore
from licserver.domain.decisions import Valid, VerifyRefusal
from licserver.domain.moves import MoveRefusal, RefusedMove, counted_moves
from licserver.domain.records import Environment, EnvironmentPolicy
from licserver.errors import LicenseLockedError, StoreUnavailableError
from licserver.services.context import CUSTOMER

SLOTS, RACERS, ALLOWED, STORES = 5, 64, 4, 8
RACES = int(os.environ.get("LICENSING_RACES", "10"))  # `nox -s crash` asks for 200


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Of SQLite's writers each waits for its turn: a slow disk is not what is tried here."""
    monkeypatch.setattr(engine, "RUN_LIMIT", 20 * engine.RUN_LIMIT)


def place(name):
    """Return the environment of a computer."""
    return Environment(name, "192.0.2.1")


def until_answered(call, name):
    """Repeat a call that the database did not answer, as an app does: on a busy machine a lock takes long."""
    while True:
        try:
            return call(name)
        except StoreUnavailableError:
            time.sleep(0.01)


class Race:
    """A license whose slots are taken in part, and computers that want one at the same moment."""

    def __init__(self, world, stores, seed: int, *, are_idle: bool) -> None:
        self.world, self.random = world, random.Random(seed)
        self.stores: SimpleQueue[BatchStore] = SimpleQueue()  # each serves one call at a time
        for store in stores:
            self.stores.put(store)
        idle_days = 30 if are_idle else 0
        world.services.products.change("app", policy="domain", customer_moves=ALLOWED, idle_days=idle_days)
        world.services.retention.sweep_daily()  # from here on computers are watched
        self.key = world.key(slots=SLOTS)
        self.id = world.services.vault.license_id(self.key)
        self.moves = world.services.acting_as(CUSTOMER).moves
        self.first = [f"first-{number}" for number in range(self.random.choice((SLOTS, SLOTS, 3)))]
        for name in self.first:
            self.claim(name)
        listed = self.moves.list_computers(self.key, Environment("", "192.0.2.1"))
        self.ids = [id_ for id_, _ in listed.computers]
        world.clock.forward(days=31)
        world.services.context.settled_now()

    def claim(self, name: str):
        """Verify: take a slot if one is free, or that of an idle computer."""
        store = self.stores.get()
        try:
            while isinstance(verdict := store.activate([self.request(name)])[0], LicenseLockedError):
                time.sleep(0.001)
        finally:
            self.stores.put(store)
        if verdict is VerifyRefusal.ENVIRONMENT:
            verdict = self.moves.take_idle_slot(self.key, place(name))
        return verdict

    def request(self, name: str):
        """Return the request of a verify."""
        return self.world.request_slot(self.key, *place(name))

    def move(self, name: str):
        """Move the slot of one of the first computers here, as the list named it."""
        return self.moves.move(self.key, place(name), self.random.choice(self.ids))

    def run(self):
        """Let all begin at once; return the outcomes of moves, and the verdicts of new computers."""
        names = [f"new-{number}" for number in range(RACERS)]
        movers = set(self.random.sample(names, RACERS // 2))
        start = Barrier(RACERS)

        def work(name):
            start.wait()
            return until_answered(self.move if name in movers else self.claim, name)

        with ThreadPoolExecutor(RACERS) as threads:
            outcomes = dict(zip(names, threads.map(work, names), strict=True))
        moves = {name: outcomes.pop(name) for name in movers}
        return moves, outcomes


@both_engines
@pytest.mark.sampled(2, "engine_name", "are_idle")
@pytest.mark.parametrize("are_idle", [False, True], ids=["in use", "idle"])
@pytest.mark.parametrize("seed", range(RACES))
def test_moves_and_new_computers_that_race_share_the_slots_exactly(world, seed, are_idle):
    """Never more computers than slots, none that lost one without a successor, no move beyond their number.

    The slots of idle computers are taken by new ones and by moves at the same time.
    """
    stores = [BatchStore(world.services.database) for _ in range(STORES)]
    race = Race(world, stores, seed, are_idle=are_idle)
    try:
        moves, verdicts = race.run()
    finally:
        for store in stores:
            store.close()
    held = {domain for domain, _ in world.held(race.key)}
    records = world.repositories.moves.list_records(race.id)
    lost = [record.domain for record in records]
    # None: it has a slot already, by a try whose answer did not come.
    moved = {name for name, outcome in moves.items() if not isinstance(outcome, RefusedMove)}
    valid = {name for name, verdict in verdicts.items() if isinstance(verdict, Valid)}
    assert len(world.held(race.key)) == len(held) == SLOTS
    assert held == ({*race.first} - {*lost}) | moved | valid
    assert {*lost} <= {*race.first}
    assert len(lost) == len({*lost})
    assert moved <= {record.to_domain for record in records} <= moved | valid
    assert are_idle or len(records) == len(moved)
    assert 0 < len(records) <= ALLOWED
    reasons = {outcome.reason for outcome in moves.values() if isinstance(outcome, RefusedMove)}
    assert reasons <= {MoveRefusal.COMPUTER_NOT_FOUND, MoveRefusal.TOO_MANY}
    assert {verdict for verdict in verdicts.values() if not isinstance(verdict, Valid)} <= {
        VerifyRefusal.ENVIRONMENT
    }
    stored = world.repositories.moves.list_all([race.id])[race.id]
    counted, _ = counted_moves(
        stored, [place(name) for name in held], world.clock(), EnvironmentPolicy.DOMAIN
    )
    assert len(counted) == len(records)
