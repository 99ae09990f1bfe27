"""Activations on SQLite: the event loop waits for no other writer and no slow disk."""

import asyncio
import threading
from contextlib import contextmanager

import pytest
from sqlalchemy import RootTransaction

from licserver.database.hot_path import driver
from licserver.database.hot_path.batcher import PublicQueries
from licserver.database.hot_path.store import BatchStore
from licserver.domain.decisions import Valid


@pytest.fixture
async def queries(world):
    """The batched queries of the default world's database."""
    queries = PublicQueries(BatchStore(world.services.database))
    yield queries
    await queries.close()


@pytest.fixture
def hold(meddler):
    """Hold the lock for writing, as a vendor's command does, for a block."""

    @contextmanager
    def held():
        meddler.do("BEGIN IMMEDIATE")
        yield
        meddler.do("COMMIT")

    return held


async def test_another_writer_is_waited_for_beside_the_loop(world, queries, hold):
    """While another connection writes, a new environment waits, and a known one gets its response."""
    key = world.key(slots=2)
    known = world.request_slot(key, "1.example")
    await queries.activate(known)
    with hold():
        waiting = asyncio.ensure_future(queries.activate(world.request_slot(key, "2.example")))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert (await queries.find_license(known.lookup)).activated.domain
    assert isinstance(await waiting, Valid)


async def test_a_slot_is_seen_when_the_disk_has_confirmed_it(world, queries, monkeypatch):
    """Until a transaction is committed, lookups are answered without what it has inserted."""
    key = world.key(slots=1)
    request = world.request_slot(key, "1.example")
    inserted, go = threading.Event(), threading.Event()
    commit = RootTransaction.commit

    def slow(transaction):
        inserted.set()
        assert go.wait(10)
        commit(transaction)

    monkeypatch.setattr(RootTransaction, "commit", slow)
    waiting = asyncio.ensure_future(queries.activate(request))
    assert await asyncio.to_thread(inserted.wait, 10)
    assert (await queries.find_license(request.lookup)).slots_used == 0
    go.set()
    assert isinstance(await waiting, Valid)
    assert (await queries.find_license(request.lookup)).activated.domain


@pytest.mark.parametrize("took", [0.001, 0.02])
def test_a_slow_disk_is_waited_for_on_a_thread(world, monkeypatch, took):
    """The loop waits for a quick disk, and for a slow one at most half a percent of its time."""
    now, on_thread, commit = 1_000.0, [], RootTransaction.commit

    def slow(transaction):
        nonlocal now
        now += took
        commit(transaction)

    def run_blocking(work):
        on_thread.append(now)
        return work()

    monkeypatch.setattr(driver.time, "monotonic", lambda: now)
    monkeypatch.setattr(RootTransaction, "commit", slow)
    monkeypatch.setattr(driver, "run_blocking", run_blocking)
    key, store = world.key(slots=None), BatchStore(world.services.database)
    now += driver._UNKNOWN_DISK + 1
    for number in range(30):
        store.activate([world.request_slot(key, f"{number}.example")])
        now += 0.5
    store.close()
    assert len(on_thread) == (0 if took < driver._QUICK_COMMIT else 29)  # the first one showed it


async def test_closing_waits_for_an_activation(world, hold):
    """Queries that are closed while a slot is being taken have taken it when they are closed."""
    key = world.key(slots=5)
    queries = PublicQueries(BatchStore(world.services.database))
    with hold():
        waiting = asyncio.ensure_future(queries.activate(world.request_slot(key, "1.example")))
        await asyncio.sleep(0.05)
        closing = asyncio.ensure_future(queries.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
    await closing
    assert isinstance(await waiting, Valid)
    assert len(world.held(key)) == 1


def test_the_log_is_kept_short(world, monkeypatch):
    """Every so many commits the log is written to the file, and begins anew."""
    monkeypatch.setattr(driver, "_CHECK_LOG_EVERY", 10)
    monkeypatch.setattr(driver, "_LONGEST_LOG", 10)
    log = world.services.settings.data_dir / "licserver.sqlite3-wal"
    key, store, sizes = world.key(slots=None), BatchStore(world.services.database), []
    for number in range(60):
        store.activate([world.request_slot(key, f"{number}.example")])
        sizes.append(log.stat().st_size)
    store.close()
    assert sizes[20:] == sizes[20:21] * 40


def test_a_log_that_cannot_be_shortened_refuses_nothing(world, monkeypatch):
    """The log may grow for a while; slots are granted all the same, and the next one tries again."""
    monkeypatch.setattr(driver, "_CHECK_LOG_EVERY", 1)
    tries = []

    def fail(connection):
        tries.append(connection)
        raise driver.sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr(driver, "_checkpoint", fail)
    key, store = world.key(slots=5), BatchStore(world.services.database)
    for number in range(3):
        assert isinstance(store.activate([world.request_slot(key, f"{number}.example")])[0], Valid)
    store.close()
    assert len(tries) == 3
