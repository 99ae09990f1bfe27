"""Synchronous code whose waiting the event loop does."""

import asyncio
import threading

from sqlalchemy import literal_column, select

from harness.engines import postgresql_only
from licserver.database.hot_path.driver import is_in_loop, run_blocking, run_in_loop
from licserver.database.tables import licenses


async def test_what_blocks_is_done_beside_the_loop():
    """From within the loop on another thread, and at once for who has no loop to hold up."""
    within = await run_in_loop(run_blocking, threading.get_ident)
    assert within != threading.get_ident()
    assert run_blocking(threading.get_ident) == threading.get_ident()
    assert not is_in_loop()


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
