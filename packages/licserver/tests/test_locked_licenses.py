"""A license that another transaction has locked, and claims of other licenses in the same batch (D-08)."""

import asyncio

import pytest
from sqlalchemy import select

from harness.engines import postgresql_only
from licserver.database.hot_path import batcher as desk_module
from licserver.database.hot_path.batcher import PublicQueries
from licserver.database.hot_path.store import BatchStore
from licserver.database.tables.licenses import activations
from licserver.domain.decisions import Valid
from licserver.errors import LicenseLockedError
from licserver.web.statistics import STATISTICS

pytestmark = postgresql_only  # SQLite locks its whole file


@pytest.fixture
async def desk(world):
    """What admits, a batch at a time."""
    desk = PublicQueries(BatchStore(world.services.database))
    yield desk
    await desk.close()


@pytest.fixture
def lock(world, meddler):
    """Lock a key's license in a transaction that goes on; its commit ends that."""

    def begin(key):
        license_id = world.services.vault.license_id(key).hex()
        meddler.do("BEGIN")
        meddler.do(f"UPDATE licenses SET subscription_id = 's-1' WHERE id = '\\x{license_id}'")  # noqa: S608
        return lambda: meddler.do("COMMIT")

    return begin


async def test_a_locked_license_refuses_its_own_claims_only(world, desk, lock, monkeypatch):
    """Of a batch with one locked license all others are admitted at once; that one fails in the end."""
    monkeypatch.setattr(desk_module, "LOCK_LIMIT", 0.1)
    keys = [world.key() for _ in range(20)]
    lock(keys[7])
    verdicts = await asyncio.gather(
        *(desk.activate(world.request_slot(key)) for key in keys), return_exceptions=True
    )
    assert isinstance(verdicts.pop(7), LicenseLockedError)
    assert all(isinstance(verdict, Valid) for verdict in verdicts)
    assert world.held(keys[7]) == []


async def test_seats_of_a_locked_license_hold_up_no_other_seats(world, site, lock):
    """However many wait for it, and though each waits on a thread."""

    async def take(key, number):
        call = {"license_key": key, "domain": "a.example", "seat": f"{number:032x}"}
        status, _, _ = await site.call("POST", "/api/v1/licenses/seat", json=call)
        return status

    locked, other = (world.key(floating_seats=50) for _ in range(2))
    release = lock(locked)
    waiting = [asyncio.ensure_future(take(locked, number)) for number in range(12)]
    await asyncio.sleep(0.2)  # all of them wait
    async with asyncio.timeout(1):
        assert [await take(other, number) for number in range(3)] == [200] * 3
    assert not any(task.done() for task in waiting)
    release()
    assert await asyncio.gather(*waiting) == [200] * 12


async def test_a_license_that_is_released_in_time_is_admitted(world, desk, lock):
    """A claim that finds its license locked is tried again, and sees what the other transaction wrote."""
    locked, other = world.key(), world.key()
    release = lock(locked)
    waiting = asyncio.ensure_future(desk.activate(world.request_slot(locked)))
    assert isinstance(await desk.activate(world.request_slot(other)), Valid)
    assert not waiting.done()
    release()
    verdict = await waiting
    assert isinstance(verdict, Valid)
    assert world.held(locked) == [("a.example", "192.0.2.1")]


async def test_an_unknown_license_is_not_taken_for_a_locked_one(world, desk, new_key):
    """A key that no license has is refused, not retried."""
    assert not isinstance(await desk.activate(world.request_slot(new_key())), Valid)


@pytest.mark.parametrize("locked", ["activations", "licenses"])
async def test_a_lock_delays_the_statistics_of_its_own_row_only(world, site, meddler, caplog, locked):
    """When machines were last seen, and who was refused: however long another program holds one."""
    keys = [world.key(slots=1) for _ in range(20)]
    ids = [world.services.vault.license_id(key) for key in keys]
    for key in keys:
        await site.verify(key, "a.example")
    await site.app[STATISTICS].flush()
    world.clock.forward(days=1)
    for key in keys:
        await site.verify(key, "a.example")
        await site.verify(key, "b.example")

    def seen():
        query = select(activations.c.license_id).where(activations.c.last_seen_at == world.clock())
        with world.services.database.reading() as connection:
            return set(connection.scalars(query))

    def refused():
        return {
            refusal.license_id
            for refusal in world.services.repositories.refusals.list_recent(world.clock(), 99)
        }

    meddler.do("BEGIN")
    column = "license_id" if locked == "activations" else "id"
    meddler.do(f"SELECT 1 FROM {locked} WHERE {column} = '\\x{ids[7].hex()}' FOR UPDATE")  # noqa: S608
    for _ in range(2):
        await site.app[STATISTICS].flush()
        assert set(ids) - seen() == ({ids[7]} if locked == "activations" else set())
        assert set(ids) - refused() == ({ids[7]} if locked == "licenses" else set())
    assert caplog.text.count("statistics will be written later") == 2
    meddler.do("ROLLBACK")
    await site.app[STATISTICS].flush()
    assert (seen(), refused()) == (set(ids), set(ids))
    await site.app[STATISTICS].flush()
    assert caplog.text.count("statistics will be written later") == 2
