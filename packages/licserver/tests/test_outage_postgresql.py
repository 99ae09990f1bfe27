"""PostgreSQL stopped, killed and frozen under a server: reported at once, never wrong, soon well again."""

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import psycopg
import pytest

from harness.engines import own_engine
from harness.standstill import Standstill
from licserver.database import migrate
from licserver.database.engine import connect

pytestmark = own_engine
AT_ONCE, SOON = 2.0, 5.0  # seconds: docs/server/postgresql.md


@pytest.fixture
def world(own_postgres, make_world):
    """A vendor whose PostgreSQL is the test's alone."""
    url = own_postgres.url(own_postgres.make())
    database = connect(url)
    migrate.upgrade(database)
    database.close()
    world = make_world(database_url=url)
    world.publish("1.0")
    return world


@pytest.fixture
async def customers(site, world):
    """What customers ask of a warm server: known and new environments, updates and downloads."""
    key = world.key(slots=None)
    link = await site.link(key)
    domains = iter(f"{number}.example" for number in range(10**6))

    async def ask():
        """Ask everything at once; gives the statuses, and from when to when that lasted."""
        began = time.monotonic()
        answers = await asyncio.gather(
            site.call("POST", "/api/v1/licenses/verify", json=body(key, "known.example")),
            site.call("POST", "/api/v1/licenses/verify", json=body(key, next(domains))),
            site.call("GET", "/api/v1/update-check", params=query(key)),
            site.call("GET", link),
        )
        for status, headers, answer in answers:
            assert status != 503 or (headers["Retry-After"], answer["error"]) == ("5", "unavailable")
        return [status for status, _, _ in answers], began, time.monotonic()

    assert (await ask())[0] == [200] * 4
    return ask


def body(key, domain):
    """A verify call."""
    return {"license_key": key, "domain": domain, "ip": "192.0.2.1"}


def query(key):
    """An update check."""
    return {"license_key": key, "slug": "app", "current_version": "1.0", "domain": "a.example"}


@asynccontextmanager
async def gone(postgres, how):
    """Let PostgreSQL be away for a block."""
    if how == "frozen":
        with postgres.frozen():
            yield
        return
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread:  # of its own: those of asyncio may be busy
        await loop.run_in_executor(thread, postgres.stop if how == "stopped" else postgres.crash)
        yield
        await loop.run_in_executor(thread, postgres.start)


async def assert_unavailable_then_back(answers, machine, customers):
    """Every call got 503 at once; all is served again soon after the outage."""
    for statuses, began, ended in answers:
        assert statuses == [503] * 4
        assert ended - began - machine.within(began, ended) < AT_ONCE
    back = time.monotonic()
    while (await customers())[0] != [200] * 4:
        assert time.monotonic() - back < SOON
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("how", ["stopped", "killed", "frozen"])
async def test_an_outage_is_reported_at_once_and_over_soon(customers, own_postgres, how):
    """All who ask meanwhile get 503 with Retry-After within 2 s; 5 s after its return all is as before."""
    async with asyncio.timeout(30), gone(own_postgres, how):
        with Standstill() as machine:
            calls = [asyncio.create_task(customers()) for _ in range(3)]
            for number in range(8):  # callers come and go while others wait
                calls.append(asyncio.create_task(customers()))
                await asyncio.sleep(0.1 * number)
            answers = await asyncio.gather(*calls)
    await assert_unavailable_then_back(answers, machine, customers)


async def test_a_locked_table_is_reported_at_once(customers, own_postgres, world):
    """As by VACUUM FULL, or an ALTER TABLE by hand: who waits behind another one does not wait twice."""
    calls = []
    async with asyncio.timeout(30):
        with (
            psycopg.connect(world.settings.database.replace("+psycopg", "")) as link,
            Standstill() as machine,
        ):
            link.execute("LOCK TABLE licenses IN ACCESS EXCLUSIVE MODE")
            for _ in range(40):
                calls.append(asyncio.create_task(customers()))
                await asyncio.sleep(0.1)
            answers = await asyncio.gather(*calls)
    await assert_unavailable_then_back(answers, machine, customers)


async def test_seats_fail_in_time_and_keep_nobody_waiting(site, world, customers, own_postgres):
    """Dozens that wait for a frozen PostgreSQL, each on a thread: they and all others have their answer."""
    key = world.key(floating_seats=2)

    async def renew(number):
        began = time.monotonic()
        call = {"license_key": key, "domain": "a.example", "seat": f"{number:032x}"}
        status, _, _ = await site.call("POST", "/api/v1/licenses/seat", json=call)
        return status, began, time.monotonic()

    assert (await renew(0))[0] == 200
    async with asyncio.timeout(30), gone(own_postgres, "frozen"):
        # All of them end at `ANSWER_LIMIT`, 0.1 s before the bound: beside other work the last of 33 answers
        # comes later by as much as this thread wakes up late.
        with Standstill(late=0.002) as machine:
            seats = [asyncio.create_task(renew(number)) for number in range(30)]
            await asyncio.sleep(0.1)
            others = [await customers() for _ in range(3)]
            answers = await asyncio.gather(*seats)
    for status, began, ended in [*answers, *((min(found), *times) for found, *times in others)]:
        assert status == 503
        assert ended - began - machine.within(began, ended) < AT_ONCE
    back = time.monotonic()
    while (await customers())[0] != [200] * 4 or (await renew(0))[0] != 200:
        assert time.monotonic() - back < SOON
        await asyncio.sleep(0.05)


async def test_a_silent_bucket_keeps_nobody_from_the_database(site, world, own_postgres):
    """Downloads may have all of asyncio's threads, just when connections have to be replaced."""
    key, bucket = world.key(slots=None), threading.Event()
    assert (await site.verify(key, "known.example"))[0] == 200
    waiting = [asyncio.create_task(asyncio.to_thread(bucket.wait, 20)) for _ in range(40)]
    try:
        async with gone(own_postgres, "killed"):
            pass
        async with asyncio.timeout(SOON):
            for domain in ("known.example", "new.example"):
                assert (await site.verify(key, domain))[0] == 200
            assert (await site.call("GET", "/readyz"))[0] == 200
    finally:
        bucket.set()
        await asyncio.gather(*waiting)


@pytest.mark.parametrize("how", ["stopped", "killed"])
async def test_connections_that_died_meanwhile_fail_nobody(customers, own_postgres, how):
    """When PostgreSQL was started anew and nobody had asked meanwhile, the first who ask are served."""
    async with gone(own_postgres, how):
        pass
    assert (await customers())[0] == [200] * 4


async def test_what_was_acknowledged_outlives_a_crash(site, world, own_postgres):
    """Killed under claims, PostgreSQL comes back with every activation that was acknowledged (D-08)."""
    keys = [world.key(slots=3) for _ in range(10)]
    acknowledged = {key: set() for key in keys}

    async def claim(key, domain):
        status, answer = await site.verify(key, domain)
        assert (status, answer.get("valid")) in {(200, True), (403, False), (503, None)}
        if status == 200:
            acknowledged[key].add(domain)

    claims = [claim(key, f"{n}.example") for n in range(9) for key in keys]
    half = asyncio.gather(*claims[:45])
    await asyncio.sleep(0.02)
    await asyncio.to_thread(own_postgres.crash)
    rest = asyncio.gather(*claims[45:])
    await asyncio.to_thread(own_postgres.start)
    await asyncio.gather(half, rest)
    await asyncio.sleep(0.6)  # the door opens half a second after the last failure
    for key in keys:
        held = {domain for domain, _ in world.held(key)}
        assert acknowledged[key] <= held
        assert len(held) <= 3


async def test_a_commit_whose_answer_is_lost_is_judged_anew(site, world, own_postgres):
    """Connections cut in the middle of claims, again and again: one environment never takes two slots."""
    keys = [world.key(slots=2) for _ in range(40)]
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'"
    cut += " AND pid <> pg_backend_pid()"
    going = asyncio.gather(*(site.verify(key, "a.example") for key in keys for _ in range(3)))
    while not going.done():
        await asyncio.to_thread(own_postgres.run, cut)
    assert {status for status, _ in await going} <= {200, 503}
    assert all(len(world.held(key)) <= 1 for key in keys)
    assert await site.verify(keys[0], "a.example")
