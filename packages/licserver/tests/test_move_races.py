"""Moves and new computers that race for the slots of a license (D-333): exact on both engines."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import Barrier

import pytest

from harness.engines import both_engines
from licserver.database import engine
from licserver.database.hot_path.store import BatchStore
from licserver.domain.moves import Computer, MoveRefusal, RefusedMove, counted_moves
from licserver.domain.records import Environment
from licserver.errors import LicenseLockedError
from licserver.services.context import CUSTOMER

SLOTS, RACERS, ALLOWED, STORES = 5, 64, 7, 8


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Of SQLite's writers each waits for its turn: a slow disk is not what is tried here."""
    monkeypatch.setattr(engine, "RUN_LIMIT", 20 * engine.RUN_LIMIT)


def place(name):
    """Return the environment of a computer."""
    return Environment(name, "192.0.2.1")


class Race:
    """A license whose slots are taken in part, and computers that want one at the same moment."""

    def __init__(self, world, stores, seed: int) -> None:
        self.world, self.random = world, random.Random(seed)
        self.stores: SimpleQueue[BatchStore] = SimpleQueue()  # each serves one call at a time
        for store in stores:
            self.stores.put(store)
        world.services.products.change("app", policy="domain", customer_moves=ALLOWED)
        self.key = world.key(slots=SLOTS)
        self.id = world.services.vault.license_id(self.key)
        self.moves = world.services.acting_as(CUSTOMER).moves
        self.first = [f"first-{number}" for number in range(self.random.choice((SLOTS, SLOTS, 3)))]
        for name in self.first:
            self.claim(name)
        listed = self.moves.list_computers(self.key, "")
        self.ids = [id_ for id_, _ in listed.computers]

    def claim(self, name: str):
        """Verify: take a slot if one is free."""
        store = self.stores.get()
        try:
            while isinstance(verdict := store.activate([self.request(name)])[0], LicenseLockedError):
                time.sleep(0.001)
        finally:
            self.stores.put(store)
        return verdict

    def request(self, name: str):
        """Return the request of a verify."""
        return self.world.request_slot(self.key, *place(name))

    def move(self, name: str):
        """Move the slot of one of the first computers here, as the list named it."""
        return self.moves.move(self.key, place(name), self.random.choice(self.ids))

    def run(self):
        """Let all begin at once; return the outcome of each move, and those of the claims."""
        names = [f"new-{number}" for number in range(RACERS)]
        movers = set(self.random.sample(names, RACERS // 2))
        start = Barrier(RACERS)

        def work(name):
            start.wait()
            return self.move(name) if name in movers else self.claim(name)

        with ThreadPoolExecutor(RACERS) as threads:
            outcomes = dict(zip(names, threads.map(work, names), strict=True))
        return {name: outcomes[name] for name in names if name in movers}


@both_engines
@pytest.mark.sampled(3, "engine_name")
@pytest.mark.parametrize("seed", range(200))
def test_moves_and_new_computers_that_race_share_the_slots_exactly(world, seed):
    """Never more computers than slots, none that lost a slot without a mover, no move beyond their number."""
    stores = [BatchStore(world.services.database) for _ in range(STORES)]
    race = Race(world, stores, seed)
    try:
        outcomes = race.run()
    finally:
        for store in stores:
            store.close()
    held = {domain for domain, _ in world.held(race.key)}
    moved = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Computer)}
    lost = [outcome.domain for outcome in moved.values()]
    assert len(world.held(race.key)) == SLOTS
    assert held >= moved.keys()  # all that were granted: none of these is the source of a move
    assert len(lost) == len({*lost})
    assert held >= {*race.first} - {*lost}
    assert not held & {*lost}
    assert 0 < len(moved) <= ALLOWED
    reasons = {outcome.reason for outcome in outcomes.values() if isinstance(outcome, RefusedMove)}
    assert reasons <= {MoveRefusal.COMPUTER_NOT_FOUND, MoveRefusal.TOO_MANY}
    moves = world.repositories.moves
    active = [place(name) for name in held]
    counted, _ = counted_moves(moves.list_all([race.id])[race.id], active, world.clock())
    assert len(counted) == len(moved) == len(moves.list_records(race.id))
