"""The faults. Each function causes one under load, judges what is special about it, and mends it again."""

import json
import time
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager

import psycopg

from failover.installation import Host, Installation, promoted
from failover.network import IS_OWN, cut_off
from harness.cluster import silent_host, wait_for
from harness.pooler import running_pooler
from licserver.database import migrate
from licserver.database.engine import connect

Fault = Callable[[Installation, float], None]  # the seconds that it lasts


def host_stops(there: Installation, _seconds: float) -> None:
    """SIGTERM, and a start, as for a new version: no call fails."""
    with there.fault("a host stops and starts (SIGTERM)") as result:
        there.hosts[0].stop()
        time.sleep(1)
        result.notes.append(f"starts in {there.hosts[0].start():.1f} s")
        time.sleep(2)
    assert result.outcomes["failed"] == 0


def host_dies(there: Installation, seconds: float) -> None:
    """SIGKILL: the calls on their way fail, and none after them."""
    with there.fault("a host dies (SIGKILL)") as result:
        there.hosts[1].kill()
        time.sleep(seconds)
    assert result.outcomes["failed"] <= 10
    there.hosts[1].start()


def redis_silent(there: Installation, seconds: float) -> None:
    """Servers count by themselves."""
    _redis_away(there, seconds, "Redis is silent", there.redis.frozen())


def redis_cut_off(there: Installation, seconds: float) -> None:
    """The same, without an answer of its machine."""
    _redis_away(there, seconds, "Redis is cut off", cut_off(there.redis.port))


def _redis_away(there: Installation, seconds: float, name: str, away: AbstractContextManager[None]) -> None:
    with there.fault(name) as result, away:
        time.sleep(seconds)
    assert result.outcomes["failed"] == 0


def bucket_silent(there: Installation, seconds: float) -> None:
    """Only downloads fail."""
    _bucket_away(there, seconds, "the bucket is silent", there.s3.frozen())


def bucket_cut_off(there: Installation, seconds: float) -> None:
    """The same, without an answer of its machine."""
    _bucket_away(there, seconds, "the bucket is cut off", cut_off(there.s3.port))


def _bucket_away(there: Installation, seconds: float, name: str, away: AbstractContextManager[None]) -> None:
    host = there.hosts[0]
    link = _download_link(host, there.stock.known[0])
    assert host.ask(link) == 200
    with there.fault(name) as result, away:
        time.sleep(seconds)
    assert result.outcomes["failed"] == 0
    assert host.ask(link) == 200


def _download_link(host: Host, key: str) -> str:
    query = f"license_key={key}&slug=app&current_version=0&domain=home.example"
    address = f"{host.url}/api/v1/update-check?{query}"
    with urllib.request.urlopen(address, timeout=20) as answer:  # noqa: S310 - our own
        link: str = json.load(answer)["download_url"]
    return link.removeprefix(host.url)


def license_locked(there: Installation, seconds: float) -> None:
    """Another program locks one license: customers of other licenses notice nothing."""
    key, statuses = next(there.stock.fresh), set()
    with (
        psycopg.connect(there.cluster.primary.url("licserver")) as link,
        there.fault(f"one license's row is locked for {seconds:g} s") as result,
    ):
        link.execute("SELECT 1 FROM licenses WHERE id = %s FOR UPDATE", [there.vault.license_id(key)])
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            statuses.add(there.hosts[0].verify(key, "locked.example"))
        link.rollback()
        result.notes.append(f"claims of that license: {_list(statuses)}")
    assert result.outcomes["failed"] == 0


def _list(statuses: set[int]) -> str:
    return ", ".join(map(str, sorted(statuses)))


def standby_gone(there: Installation, seconds: float) -> None:
    """Commits wait: claims fail, known environments are verified, and no backends pile up."""
    backends = []
    with there.fault(f"the synchronous standby is gone for {seconds:g} s") as result:
        there.other.kill()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            backends.append(there.cluster.primary.backends("licserver"))
            time.sleep(0.25)
        there.other.start()
        _wait_for_synchronous(there)
    result.notes.append(f"only claims fail; at most {max(backends)} backends")
    assert {kind for kind, outcomes in result.by_kind.items() if outcomes["failed"]} <= {"claim"}
    assert max(backends) <= 30


def _wait_for_synchronous(there: Installation) -> None:
    query = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
    wait_for(lambda: there.cluster.primary.run(query) == [(1,)])


def primary_freezes(there: Installation, seconds: float) -> None:
    """The standby takes over; then the old primary is back, and two of them write."""
    primary = there.cluster.primary
    _takes_over(there, seconds, ("the primary is silent", "the old primary is back"), primary.frozen())


def primary_cut_off(there: Installation, seconds: float) -> None:
    """The same with a primary that goes on, but which no packet reaches or leaves."""
    away = cut_off(there.cluster.primary.port)
    _takes_over(there, seconds, ("the primary is cut off", "the old primary can be reached again"), away)


def _takes_over(
    there: Installation, seconds: float, names: tuple[str, str], away: AbstractContextManager[None]
) -> None:
    """What was revoked meanwhile stays revoked, also for a host that starts beside both."""
    cluster, victim, fresh = there.cluster, there.stock.known.pop(), [there.add_host(), there.add_host()]
    try:
        with there.fault(f"{names[0]}, the standby takes over") as result, away:
            time.sleep(1)
            promoted(cluster)
            promoted_at = time.monotonic()
            time.sleep(seconds)
            result.notes.append(f"a new host starts in {fresh[0].start():.1f} s")
            fresh[0].run("license", "revoke", victim)
        failed_until = result.last_failure or 0
        result.notes.append(f"right again {max(0, failed_until - promoted_at):.1f} s after the promotion")
        assert failed_until < promoted_at + 5

        with there.fault(f"{names[1]}, not fenced off") as result:
            result.notes.append(f"a new host starts in {fresh[1].start():.1f} s")
            statuses = {host.verify(victim, "home.example") for host in [*fresh, *there.hosts]}
            time.sleep(seconds)
        result.notes.append(f"a key revoked meanwhile: {_list(statuses)}")
        assert statuses == {403}
        assert result.outcomes["failed"] == 0
    finally:
        for host in fresh:
            host.stop()
    cluster.standby.stop()
    cluster.standby.rejoin(cluster.primary)
    cluster.make_synchronous()


def first_host_silent(there: Installation, _seconds: float) -> None:
    """A command and a new host start as if the URL did not name it."""
    with silent_host() as silent, there.fault("the first host of the database URL is silent") as result:
        host = there.add_host(there.url.replace("@", f"@{silent},", 1))
        began = time.monotonic()
        host.run("product", "list")
        result.notes.append(f"a command takes {time.monotonic() - began:.1f} s")
        result.notes.append(f"a new host starts in {host.start():.1f} s")
        try:
            assert host.verify(there.stock.known[0], "home.example") == 200
        finally:
            host.stop()
    assert result.outcomes["failed"] == 0


def standby_only(there: Installation, _seconds: float) -> None:
    """A URL that names the standby alone, without `target_session_attrs`: such a host is never ready."""
    host = there.add_host(there.other.url("licserver"))
    with there.fault("a URL names the standby alone") as result:
        host.launch()
        try:
            wait_for(lambda: host.ask("/readyz") == 503)
            status = host.verify(there.stock.known[0], "home.example")
            code = there.check(host)
        finally:
            host.stop()
    result.notes.append(f"a new host waits: `/readyz` 503, verify {status}; `check` fails with {code}")
    assert (status, code) == (503, 1)


def pooler_between(there: Installation, seconds: float) -> None:
    """PgBouncer by transaction between a host and the primary, and an import beside."""
    with running_pooler(there.cluster.primary) as pooler:
        host = there.add_host(pooler.url("licserver"))
        host.start()
        sheet = host.home / "more.csv"
        sheet.write_text("product,slots,lifetime\n" + "app,1,no\n" * 500)
        try:
            with there.fault("PgBouncer by transaction, and an import", host) as result:
                host.run("import", str(sheet))
                time.sleep(seconds)
        finally:
            host.stop()
    assert result.outcomes["failed"] == 0


STEP = """
import sqlalchemy as sa
from alembic import op
from licserver.database.migrations.online import create_index

revision, down_revision, oldest_program = "9999", "{head}", "{head}"


def upgrade():
    if "more" not in {{one["name"] for one in sa.inspect(op.get_bind()).get_columns("licenses")}}:
        op.add_column("licenses", sa.Column("more", sa.Text))
    create_index("ix_licenses_more", "licenses", ["more", "id"])
"""


def rolling_upgrade(there: Installation, _seconds: float) -> None:
    """The schema gets a step beside the running hosts, which then are replaced one after the other."""
    from licserver.database import schema  # noqa: PLC0415 - private names of it

    folder = there.folder / "next"
    folder.mkdir()
    (folder / "9999_next.py").write_text(STEP.format(head=schema.HEAD))
    config = migrate.make_config()
    config.set_main_option("version_locations", f"{schema._MIGRATIONS}:{folder}")
    make_config, database = migrate.make_config, connect(there.url)
    migrate.make_config = lambda: config
    try:
        with there.fault("rolling upgrade: schema, then host after host") as result:
            migrate.upgrade(database)
            for host in there.hosts:
                host.stop()
                host.start()
                time.sleep(3)  # the proxy believes the second answer
    finally:
        migrate.make_config = make_config
        database.close()
    assert result.outcomes["failed"] == 0


SHORT: list[Fault] = [license_locked, standby_gone, primary_freezes]
ALL: list[Fault] = [
    host_stops,
    host_dies,
    first_host_silent,
    standby_only,
    license_locked,
    standby_gone,
    primary_freezes,
    pooler_between,
    redis_silent,
    bucket_silent,
    rolling_upgrade,
]
if IS_OWN:
    ALL[-1:] = [primary_cut_off, redis_cut_off, bucket_cut_off, rolling_upgrade]
