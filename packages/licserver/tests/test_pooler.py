"""A real PgBouncer between server and PostgreSQL (D-248)."""

import asyncio
import io
import json
import time
from contextlib import asynccontextmanager, closing

import psycopg
import pytest

from harness.standstill import Standstill
from harness.transfer import ASSUMED
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.database.schema import read_version
from licserver.domain.records import LicenseTerms
from licserver.errors import SettingsError, StoreError
from licserver.protocol.license_files import read_rows
from licserver.services.backup import write_backup

pytestmark = pytest.mark.system_tools


@asynccontextmanager
async def gone(server, how):
    """Let PostgreSQL be away for a block."""
    if how == "frozen":
        with server.frozen():
            yield
        return
    await asyncio.to_thread(server.stop)
    yield
    await asyncio.to_thread(server.start)


@pytest.fixture
def database(postgres):
    """The name of a database, set up and without a row."""
    name = postgres.lend()
    yield name
    postgres.take_back(name)


@pytest.fixture
def pooler(make_pooler, postgres):
    """One that has three sessions of the server for all."""
    return make_pooler(postgres, default_pool_size=3)


@pytest.fixture
def world(make_world, pooler, database):
    """A vendor behind it."""
    return make_world(database_url=pooler.url(database))


@pytest.fixture
def neighbour(pooler, database):
    """Another program that uses the same pooler; gives the settings that it finds."""
    names = "statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout", "enable_seqscan"
    url = pooler.url(database, pooler=None).replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as link:
        yield lambda: [link.execute(f"SHOW {name}").fetchone()[0] for name in names]


async def test_under_load_no_call_fails_and_no_setting_leaks(world, open_site, neighbour):
    """Customers, the vendor, an import and a backup share three sessions, and slots stay exact (D-08)."""
    world.publish("1.0")
    site = await open_site(world)
    keys = [world.key(slots=3) for _ in range(8)]
    untouched = neighbour()

    def work():
        for _ in range(3):
            world.services.licenses.issue_batches("app", LicenseTerms())
            with world.services.transfer.start_import() as incoming:
                incoming.read(read_rows("jsonl", [json.dumps({"product": "app"})] * 1200, ASSUMED))
                assert incoming.commit() == 1200
                assert len(list(incoming.generated_keys())) == 1200
            write_backup(world.services, io.BytesIO(), world.clock())

    async def customer(number):
        admitted = 0
        for key in keys * 3:
            status, answer = await site.verify(key, f"{number}.example")
            assert status in {200, 403}, (status, answer)
            admitted += status == 200
            assert (await site.check(key))[0] == 200
        return admitted

    working = asyncio.ensure_future(asyncio.to_thread(work))
    admitted = await asyncio.gather(*map(customer, range(12)))
    found = [await asyncio.to_thread(neighbour) for _ in range(50)]
    await working
    assert sum(admitted) == 3 * 3 * len(keys)
    assert [len(world.held(key)) for key in keys] == [3] * len(keys)
    assert found == [untouched] * len(found)


def test_limits_hold_in_each_transaction(world):
    """Of the hot path as of services, read or write; and in statements that are a transaction each."""
    show = "SELECT current_setting('statement_timeout'), current_setting('enable_seqscan')"
    database = world.services.database
    for hot in (database.reader(), database.writer()):
        with closing(hot):
            for _ in range(2):
                assert hot.run(lambda connection_: connection_.exec_driver_sql(show).one()) == (
                    "1500ms",
                    "off",
                )
    for service in (database.reading, database.writing):
        with service() as connection:
            assert connection.exec_driver_sql(show).one() == ("1min", "on")
    with database.background_connection() as connection, connection.begin():
        assert connection.exec_driver_sql(show).one() == ("0", "on")


def test_an_import_keeps_its_session_and_gives_it_up(world, postgres, database, neighbour):
    """Its temporary tables are there from its first to its last statement, and gone afterwards."""
    staged = "SELECT count(*) FROM pg_class WHERE relname LIKE 'staged%%' AND relkind = 'r'"
    with (
        psycopg.connect(postgres.conninfo(database), autocommit=True) as direct,
        world.services.transfer.start_import() as incoming,
    ):
        neighbour()  # wants a session, too
        incoming.read(read_rows("jsonl", ['{"product": "app"}'] * 3, ASSUMED))
        assert direct.execute(staged).fetchone() == (3,)
        neighbour()
        assert incoming.commit() == 3
        neighbour()
        assert len(list(incoming.generated_keys())) == 3
    deadline = time.monotonic() + 10
    with psycopg.connect(postgres.conninfo(database), autocommit=True) as direct:
        while direct.execute(staged).fetchone() != (0,):
            assert time.monotonic() < deadline
            time.sleep(0.02)  # until the pooler has ended the session


@pytest.mark.parametrize("how", ["stopped", "frozen"])
async def test_an_outage_behind_it_is_reported_at_once_and_over_soon(
    make_pooler, own_postgres, make_world, open_site, how
):
    """Customers get 503 within two seconds, and verdicts within five after the database's return."""
    name = own_postgres.make()
    url = make_pooler(own_postgres, server_login_retry=1).url(name)
    with closing(connect(url)) as database:
        migrate.upgrade(database)
    world = make_world(database_url=url)
    site, key = await open_site(world), world.key(slots=None)
    domains = iter(f"{number}.example" for number in range(10**6))

    async def ask():
        with Standstill() as machine:
            began = time.monotonic()
            answers = [await site.verify(key, "known.example"), await site.verify(key, next(domains))]
            ended = time.monotonic()
        return [status for status, _ in answers], ended - began - machine.within(began, ended)

    assert (await ask())[0] == [200, 200]
    async with gone(own_postgres, how):
        for _ in range(5):
            statuses, seconds = await ask()
            assert statuses == [503, 503]
            assert seconds < 2 * 2.0  # one after the other
            await asyncio.sleep(0.2)
    back = time.monotonic()
    while (await ask())[0] != [200, 200]:
        assert time.monotonic() - back < 5
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("mode", ["transaction", "session", None])
def test_a_pooler_that_is_not_named_is_noticed(make_pooler, postgres, database, mode):
    """One by transaction is refused, with what to do; one by session is as good as none."""
    url = make_pooler(postgres, mode).url(database, pooler=None) if mode else postgres.url(database)
    for _ in range(3):
        with closing(connect(url)) as found:
            if mode == "transaction":
                with pytest.raises(StoreError, match="pooler=transaction"):
                    read_version(found)
            else:
                assert read_version(found)


def test_another_kind_of_pooler_is_refused(postgres, database):
    """A word that is not known could mean that sessions are shared."""
    with pytest.raises(SettingsError, match="pooler"):
        connect(f"{postgres.url(database)}&pooler=statement")
