"""A database URL with several hosts: silent ones, standbys, promotions, and a former primary that is back."""

import asyncio
import time
from contextlib import ExitStack

import pytest

from harness.cluster import silent_host
from harness.engines import own_engine
from harness.standstill import Standstill
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.errors import StoreUnavailableError
from licserver.services.installation import open_services
from licserver.services.self_check import Level, check_installation
from licserver.serving.waiting import may_return

RECOVERY = 2.0  # seconds: docs/server/postgresql.md
NOTICED = 4.0  # seconds: docs/server/postgresql.md
CONNECTIONS = 12  # of one process: docs/server/postgresql.md


@pytest.fixture
def cluster(primary_and_standby):
    """A primary and a standby with the tables of a vendor."""
    primary_and_standby.create()
    database = connect(primary_and_standby.primary.url("licserver"))
    migrate.upgrade(database)
    database.close()
    primary_and_standby.wait_until_equal()
    return primary_and_standby


@pytest.fixture
def opened():
    """Open databases, which are closed at the end."""
    with ExitStack() as stack:

        def open_one(url):
            database = connect(url)
            stack.callback(database.close)
            return database

        yield open_one


@pytest.fixture
def reverse():
    """Whether the URL names the standby first; parametrized by tests."""
    return False


@pytest.fixture
def world(cluster, reverse, make_world):
    """A vendor whose URL names both."""
    return make_world(database_url=cluster.url("licserver", reverse=reverse))


def port_of(database):
    """Return the port of the server that a new connection is to."""
    with database.reading() as connection:
        return connection.exec_driver_sql("SHOW port").scalar()


async def until_valid(site, key, domain):
    """Verify, again and again, until that is granted."""
    async with asyncio.timeout(20):
        while (await site.verify(key, domain))[0] != 200:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.02)


def test_a_silent_host_keeps_nobody_from_the_other(cluster, opened):
    """Neither a first nor a last one; a statement comes back within a second."""
    with silent_host() as silent:
        for hosts in (f"{silent},{cluster.primary.host}", f"{cluster.primary.host},{silent}"):
            began = time.monotonic()
            with Standstill() as machine:
                database = opened(f"postgresql://postgres@{hosts}/licserver")
                assert port_of(database) == str(cluster.primary.port)
                ended = time.monotonic()
            assert ended - began < 1 + machine.within(began, ended)


def test_a_standby_is_refused_by_its_name(cluster, opened):
    """Nothing starts on it, unless the URL asks for one, as for a backup."""
    url = cluster.standby.url("licserver")
    with pytest.raises(StoreUnavailableError, match=rf"{cluster.standby.host} is a standby"):
        port_of(opened(url))
    assert port_of(opened(f"{url}?target_session_attrs=any")) == str(cluster.standby.port)
    with cluster.primary.frozen():
        with pytest.raises(StoreUnavailableError, match=f"{cluster.standby.host} is a standby") as refused:
            port_of(opened(cluster.url("licserver")))
        assert f"{cluster.primary.host} does not answer" in str(refused.value)


def test_a_host_that_refuses_does_not_end_the_waiting_for_another_one(cluster, opened):
    """A server waits for the host that is away, while a new one has no database yet; not if all refuse."""
    with silent_host() as silent, pytest.raises(StoreUnavailableError, match="does not exist") as refused:
        port_of(opened(f"postgresql://postgres@{silent},{cluster.primary.host}/nowhere"))
    assert may_return(refused.value)
    with pytest.raises(StoreUnavailableError, match="does not exist") as refused:
        port_of(opened(cluster.url("nowhere")))
    assert not may_return(refused.value)


def test_a_read_only_database_is_refused(cluster, opened):
    """As an operator makes it when the disk is nearly full."""
    cluster.primary.run("ALTER DATABASE licserver SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailableError, match=rf"{cluster.primary.host} is read-only"):
        port_of(opened(cluster.url("licserver")))


def test_two_standbys_that_were_both_promoted_are_not_used(cluster, opened):
    """Both have the second timeline; a command that starts now does not take the one that answers first."""
    third = cluster.add("three")
    cluster.primary.kill()
    for standby in (cluster.standby, third):
        standby.promote()
    with pytest.raises(StoreUnavailableError, match="they are two databases, and neither follows the other"):
        port_of(opened(cluster.url("licserver")))
    third.stop()
    assert port_of(opened(cluster.url("licserver"))) == str(cluster.standby.port)


@own_engine
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("how", ["killed", "frozen", "frozen for long"])
async def test_a_promotion_is_followed_within_two_seconds(site, world, cluster, how, reverse):
    """Whichever host comes first, and whether the old primary refuses or is silent."""
    key = world.key(slots=None)
    assert (await site.verify(key, "known.example"))[0] == 200
    await asyncio.to_thread(cluster.wait_until_equal)
    with ExitStack() as stack:
        if how == "killed":
            cluster.primary.kill()
        else:
            stack.enter_context(cluster.primary.frozen())
        asking = [asyncio.create_task(site.verify(key, "known.example")) for _ in range(3)]
        if how == "frozen for long":
            for _ in range(3):
                assert (await site.verify(key, "known.example"))[0] == 503
        await asyncio.to_thread(cluster.standby.promote)
        promoted = time.monotonic()
        with Standstill() as machine:
            for domain in ("known.example", "new.example"):
                await until_valid(site, key, domain)
            recovered = time.monotonic()
        assert recovered - promoted - machine.within(promoted, recovered) < RECOVERY
        await asyncio.gather(*asking)


@own_engine
async def test_a_former_primary_is_not_believed(site, world, cluster, opened, bare_cli, clock, monkeypatch):
    """Not by those who start now, nor by those who were connected to it: a revoked key stays refused."""
    key = world.key(slots=None)
    assert (await site.verify(key, "known.example"))[0] == 200
    await asyncio.to_thread(cluster.wait_until_equal)
    cluster.standby.promote()  # nobody stops the old one
    fresh = opened(cluster.url("licserver"))
    assert port_of(fresh) == str(cluster.standby.port)
    cluster.standby.run("UPDATE licenses SET revoked_at = now()", database="licserver")

    began = time.monotonic()
    while (await site.verify(key, "known.example"))[0] != 403:
        assert time.monotonic() - began < NOTICED
        await asyncio.sleep(0.05)
    cluster.standby.kill()  # and now the old one alone is there
    with pytest.raises(StoreUnavailableError, match="is a former primary"):
        port_of(fresh)
    # Nor after a restart: not by a server, and not by commands.
    with pytest.raises(StoreUnavailableError, match=r"former primary .* delete .*timelines.json"):
        open_services(world.settings)
    bare_cli.use(cluster.url("licserver"))
    monkeypatch.setenv("LICSERVER_DATA_DIR", str(world.settings.data_dir))
    for command in (["db", "upgrade"], ["db", "status"], ["license", "list"]):
        assert "is a former primary" in bare_cli(*command, expect=1), command
    found = check_installation(world.settings, clock(), reach=False)
    assert [
        "is a former primary" in finding.message for finding in found if finding.level is Level.FAILED
    ] == [True]


@own_engine
async def test_a_lost_synchronous_standby_stops_activations_only(site, world, cluster):
    """Commits that wait for it are cancelled: no connection stays, known environments are answered."""
    key, *others = [world.key(slots=None) for _ in range(5)]
    cluster.make_synchronous()
    assert (await site.verify(key, "known.example"))[0] == 200
    cluster.standby.kill()
    for other in others:
        await asyncio.sleep(0.15)  # after a failure no connection is tried for 0.1 s
        new, known = await asyncio.gather(
            site.verify(other, "new.example"), site.verify(key, "known.example")
        )
        assert (new[0], known[0]) == (503, 200)
    query = "SELECT count(*) FILTER (WHERE wait_event = 'SyncRep'), count(*) FROM pg_stat_activity"
    ((waiting, connected),) = cluster.primary.run(f"{query} WHERE datname = 'licserver'")
    assert waiting <= 1
    assert connected <= CONNECTIONS
    await asyncio.to_thread(cluster.standby.start)
    await asyncio.to_thread(cluster.make_synchronous)
    await until_valid(site, others[0], "back.example")


@own_engine
async def test_a_server_is_not_ready_while_nothing_can_be_written(site, world, cluster):
    """Known environments go on; a balancer sends the new ones to nobody, and `check` reports why."""
    key = world.key(slots=None)
    assert (await site.verify(key, "known.example"))[0] == 200
    assert (await site.call("GET", "/readyz"))[0] == 200
    await asyncio.to_thread(
        cluster.primary.run, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()"
    )
    async with asyncio.timeout(20):
        while (await site.call("GET", "/readyz"))[0] != 503:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.05)


@own_engine
def test_check_knows_each_host(world, cluster, clock):
    """A standby that is gone cannot take over; writes to a former primary that still runs are lost."""

    def hosts():
        found = check_installation(world.settings, clock(), reach=False)
        return [(finding.level, finding.message) for finding in found if finding.about == "database hosts"]

    first, two = cluster.primary.host, cluster.standby.host
    well = "; ".join(sorted([f"{first} is the primary", f"{two} is a standby"]))
    assert hosts() == [(Level.OK, well)]
    cluster.standby.kill()
    assert hosts() == [(Level.WARNING, f"{two} cannot be reached")]
    cluster.standby.start()
    cluster.standby.promote()
    assert hosts() == [(Level.FAILED, f"{first} is a former primary that can still be written to")]
