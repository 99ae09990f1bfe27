"""Synchronous code whose waiting the event loop does."""

import asyncio
import threading

import pytest
from sqlalchemy import literal_column, select

from harness.engines import postgresql_only
from licserver.database.hot_path import greenlet_bridge
from licserver.database.tables import licenses


async def test_two_pieces_of_work_take_turns_on_one_thread():
    """Where one waits the other goes on, as tasks do, and each ends with what it gives."""
    turns, met = [], asyncio.Event()

    def work(name):
        turns.append((name, threading.get_ident()))
        greenlet_bridge.wait_for(met.wait())
        turns.append((name, threading.get_ident()))
        return name.upper()

    both = asyncio.gather(greenlet_bridge.run(work, "a"), greenlet_bridge.run(work, "b"))
    await asyncio.sleep(0)
    met.set()
    assert await both == ["A", "B"]
    assert turns == [(name, threading.get_ident()) for name in "abab"]


async def test_what_goes_wrong_is_told_where_it_is_waited_for():
    """What is waited for fails: the work may catch it; what the work raises reaches who runs it."""

    async def fail():
        raise LookupError("lost")

    def work():
        try:
            greenlet_bridge.wait_for(fail())
        except LookupError as error:
            raise ValueError(f"{error} and found") from None

    with pytest.raises(ValueError, match="lost and found"):
        await greenlet_bridge.run(work)


async def test_who_is_cancelled_cleans_up():
    """A piece of work that is given up while it waits sees it, and is over then."""
    seen = []

    def work():
        try:
            greenlet_bridge.wait_for(asyncio.Event().wait())
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(greenlet_bridge.run(work))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


async def test_what_blocks_is_done_beside_the_loop():
    """From within the loop on another thread, and at once for who has no loop to hold up."""
    within = await greenlet_bridge.run(greenlet_bridge.run_blocking, threading.get_ident)
    assert within != threading.get_ident()
    assert greenlet_bridge.run_blocking(threading.get_ident) == threading.get_ident()
    assert not greenlet_bridge.is_running()


@postgresql_only
async def test_while_one_waits_for_a_lock_others_are_answered(world, site):
    """A license is locked by somebody else: who wants a slot of it waits, and nobody else."""
    locked, known = world.key(slots=5), world.key(slots=5)
    assert (await site.verify(known, "a.example"))[0] == 200
    row = select(literal_column("1")).where(licenses.c.id == world.services.vault.license_id(locked))
    with world.services.database.writing() as connection:
        connection.execute(row.with_for_update())
        waiting = asyncio.create_task(site.verify(locked, "a.example"))
        for _ in range(5):
            assert (await site.verify(known, "a.example"))[0] == 200
        assert not waiting.done()
    assert (await waiting)[0] == 200
