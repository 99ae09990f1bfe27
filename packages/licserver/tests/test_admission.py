"""An admission in steps: begun and committed where waiting does no harm, judged in between (D-08)."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable

import pytest

from licserver.database.hot_path.batch_store import (
    ActivationRequest,
    ActivationTransaction,
    BatchStore,
    Lookup,
)
from licserver.database.hot_path.batcher import PublicQueries
from licserver.database.hot_path.sqlite_connection import SqliteConnection
from licserver.domain.decisions import Valid, VerifyRefusal, judge_verify
from licserver.domain.records import Environment
from licserver.errors import StoreUnavailable


@pytest.fixture
def store(world):
    """The batch side of the default world's database."""
    store = BatchStore(world.services.database)
    yield store
    store.close()


@pytest.fixture
def claim(world) -> Callable[[str, int], ActivationRequest]:
    """Claim a slot of a key for the numbered environment."""

    def make(key, number):
        environment = Environment(f"{number}.example", "192.0.2.1")
        return ActivationRequest(
            Lookup(world.services.vault.license_id(key), environment),
            lambda license_: judge_verify(key, license_, environment, world.clock()),
            world.clock(),
        )

    return make


def test_in_three_steps_exactly_the_slots_are_given(world, store, claim):
    """Judged between begin and commit, ten claims on three slots admit three, and three are noted."""
    key = world.key(slots=3)
    admission = store.admission()
    admission.begin()
    verdicts = admission.judge([claim(key, number) for number in range(10)])
    admission.commit()
    assert [isinstance(verdict, Valid) for verdict in verdicts] == [True] * 3 + [False] * 7
    assert verdicts[-1] is VerifyRefusal.ENVIRONMENT
    assert len(world.held(key)) == 3


def test_what_is_abandoned_leaves_no_trace_and_nothing_locked(world, store, claim):
    """An admission given up after judging has taken no slot, and the next one goes ahead."""
    key = world.key(slots=1)
    admission = store.admission()
    admission.begin()
    admission.judge([claim(key, 1)])
    admission.abandon()
    admission.abandon()  # as may happen on the way out
    assert world.held(key) == []
    assert isinstance(store.admit([claim(key, 2)])[0], Valid)


def test_who_cannot_begin_holds_nothing(world, store, claim):
    """Somebody else writes for too long: the admission fails, and the next one goes ahead."""
    key = world.key(slots=1)
    store.admit([claim(world.key(), 1)])
    driver = store._claim_lane._connection.connection.driver_connection
    driver.execute("PRAGMA busy_timeout = 10")
    with world.services.database.writing() as connection:
        connection.exec_driver_sql("SELECT 1")
        admission = store.admission()
        with pytest.raises(StoreUnavailable, match="locked"):
            admission.begin()
        admission.abandon()
    assert isinstance(store.admit([claim(key, 1)])[0], Valid)


@pytest.fixture
async def desk(world):
    """A desk before the default world's database."""
    desk = PublicQueries(BatchStore(world.services.database))
    yield desk
    await desk.close()


@pytest.fixture
def steps(monkeypatch):
    """Which steps of admissions were done in the event loop's thread, and which were not."""
    done: list[tuple[str, bool]] = []

    def note(step):
        do = getattr(ActivationTransaction, step)

        def noting(admission, *claims: object):
            done.append((step, threading.current_thread() is threading.main_thread()))
            return do(admission, *claims)

        monkeypatch.setattr(ActivationTransaction, step, noting)

    for step in ("begin_at_once", "begin", "judge", "commit"):
        note(step)
    return done


HERE, BESIDE = True, False


async def test_only_the_commit_is_beside_the_loop_where_nobody_else_writes(world, desk, claim, steps):
    """However quick the disk was, no commit holds up the event loop; what waits for nobody is done in it."""
    key = world.key(slots=2)
    for number in range(2):
        assert isinstance(await desk.admit(claim(key, number)), Valid)
    assert steps == [("begin_at_once", HERE), ("judge", HERE), ("commit", BESIDE)] * 2


async def test_a_disk_that_becomes_slow_keeps_no_lookup_waiting(world, desk, claim, monkeypatch):
    """After quick commits one takes long: who is known is answered meanwhile, and the claim in the end."""
    monkeypatch.setattr(
        "licserver.database.hot_path.batcher.QUICK", 0.2
    )  # whatever the disk of this machine is
    key = world.key(slots=9)
    known = claim(key, 1)
    for number in range(5):
        await desk.admit(claim(key, number))
    go, commit = threading.Event(), SqliteConnection.commit

    def slow(lane):
        assert go.wait(10)
        commit(lane)

    monkeypatch.setattr(SqliteConnection, "commit", slow)
    waiting = desk.admit(claim(key, 6))
    await asyncio.sleep(0)
    assert (await desk.look_up(known.sighting)).activated.domain
    assert not waiting.done()
    go.set()
    assert isinstance(await waiting, Valid)


async def test_whoever_writes_is_waited_for_beside_the_loop(world, desk, claim, steps):
    """While a vendor's command writes, who claims a slot waits, and who is known gets an answer."""
    key = world.key(slots=2)
    known = claim(key, 1)
    await desk.admit(known)
    del steps[:]
    with world.services.database.writing() as connection:
        connection.exec_driver_sql("SELECT 1")
        waits = desk.admit(claim(key, 2))
        await asyncio.sleep(0.05)
        assert not waits.done()
        assert (await desk.look_up(known.sighting)).activated.domain
    assert isinstance(await waits, Valid)
    assert steps == [("begin_at_once", HERE), ("begin", BESIDE), ("judge", HERE), ("commit", BESIDE)]


async def test_nobody_sees_a_slot_that_the_disk_has_not_confirmed(world, desk, claim, monkeypatch):
    """Between judging and the disk's word, a taken slot is not there for who looks it up."""
    key = world.key(slots=1)
    one = claim(key, 1)
    judged, go = threading.Event(), threading.Event()
    commit = ActivationTransaction.commit

    def held(admission):
        judged.set()
        assert go.wait(10)
        commit(admission)

    monkeypatch.setattr(ActivationTransaction, "commit", held)
    asked = desk.admit(one)
    await asyncio.to_thread(judged.wait)
    assert (await desk.look_up(one.sighting)).slots_used == 0
    go.set()
    assert isinstance(await asked, Valid)
    assert (await desk.look_up(one.sighting)).activated.domain


async def test_the_log_is_moved_beside_the_loop_and_does_not_grow(world, desk, claim, monkeypatch):
    """No commit moves SQLite's log; it is done now and then by itself, and the log begins anew."""
    monkeypatch.setattr("licserver.database.hot_path.batch_store.MOVE_LOG_AFTER", 20)
    log = world.services.settings.data_dir / "licserver.sqlite3-wal"
    key = world.key(slots=None)
    sizes = []
    for round_ in range(30):
        await asyncio.gather(*(desk.admit(claim(key, 10 * round_ + number)) for number in range(10)))
        sizes.append(log.stat().st_size)
    assert sizes[10:] == sizes[10:11] * 20


async def test_a_log_that_cannot_be_moved_refuses_nobody(world, desk, claim, monkeypatch):
    """The log may grow for a while; slots are given all the same, and the next one tries again."""
    monkeypatch.setattr("licserver.database.hot_path.batch_store.MOVE_LOG_AFTER", 3)
    tried = []

    def fail(connection):
        tried.append(connection)
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("licserver.database.hot_path.batch_store.move_log", fail)
    key = world.key(slots=5)
    for number in range(5):
        assert isinstance(await desk.admit(claim(key, number)), Valid)
    assert len(tried) == 2


@pytest.mark.parametrize("step", ["begin_at_once", "begin", "judge", "commit"])
async def test_a_step_that_fails_grants_nobody_anything(world, claim, desk, step):
    """Whichever step fails, all who wait learn of it, nothing is noted, and the next batch is served."""
    key = world.key(slots=5)

    def fail(*_: object):
        raise StoreUnavailable("no disk")

    with pytest.MonkeyPatch.context() as patch:
        if step == "begin":  # which follows where somebody else writes
            patch.setattr(ActivationTransaction, "begin_at_once", lambda _: False)
        patch.setattr(ActivationTransaction, step, fail)
        replies = await asyncio.gather(
            *(desk.admit(claim(key, number)) for number in range(3)), return_exceptions=True
        )
    assert [type(reply) for reply in replies] == [StoreUnavailable] * 3
    assert world.held(key) == []
    assert isinstance(await desk.admit(claim(key, 1)), Valid)


async def test_closing_lets_an_admission_come_to_its_end(world, claim):
    """A desk that closes while a slot is being taken has taken it when it is closed."""
    key = world.key(slots=5)
    desk = PublicQueries(BatchStore(world.services.database))
    asked = desk.admit(claim(key, 1))
    await asyncio.sleep(0)
    await desk.close()
    assert isinstance(await asked, Valid)
    assert len(world.held(key)) == 1


@pytest.mark.parametrize("step", ["begin", "commit"])
async def test_an_admission_that_is_cancelled_keeps_no_lock(world, claim, desk, monkeypatch, step):
    """Cancelled while a step runs on the thread, an admission lets the next one have the lock."""
    entered, go = threading.Event(), threading.Event()
    do = getattr(ActivationTransaction, step)

    def held(admission):
        entered.set()
        assert go.wait(10)
        do(admission)

    with monkeypatch.context() as patch:
        if step == "begin":  # which follows where somebody else writes
            patch.setattr(ActivationTransaction, "begin_at_once", lambda _: False)
        patch.setattr(ActivationTransaction, step, held)
        asked = desk.admit(claim(world.key(), 1))
        assert await asyncio.to_thread(entered.wait, 10)
        desk._claims._serving.cancel()
        with pytest.raises(RuntimeError):
            await asked
        go.set()
    async with asyncio.timeout(10):
        assert isinstance(await desk.admit(claim(world.key(), 2)), Valid)
