"""What is counted beside the hot paths: totals by day, and when a machine was last seen."""

import asyncio
import threading

import pytest
from sqlalchemy import select

from harness.engines import both_engines, sqlite_only
from licserver.database.repositories.statistics import (
    KEPT_PER_LICENSE,
    CountKey,
    add_counts,
    note_refusals,
    note_seen,
)
from licserver.database.tables.licenses import totals
from licserver.domain.decisions import Offer
from licserver.domain.records import Environment, EnvironmentPolicy
from licserver.errors import StoreUnavailableError
from licserver.services.license_search import LicenseFilter
from licserver.web import statistics as tally_room
from licserver.web.statistics import STATISTICS, StatisticsCounter


def counted(world) -> dict:
    """All totals, by day and by what was counted."""
    with world.services.database.reading() as connection:
        rows = connection.execute(select(totals))
        return {(f"{day:%d}", *counted): times for day, *counted, times in rows}


async def flush(site) -> None:
    """Write what was counted up to now."""
    await site.app[STATISTICS].flush()


async def test_each_verdict_is_counted_once(world, site, new_key):
    """Valid, full, revoked, expired, unknown and malformed, and among the valid ones what took a slot."""
    good, revoked, expired = world.key(), world.key(), world.key(expires_on=world.clock().date())
    world.services.licenses.revoke(revoked)
    for key, domain in [
        (good, "a.example"),
        (good, "a.example"),
        (good, "b.example"),
        (revoked, "a.example"),
    ]:
        await site.verify(key, domain)
    await site.verify(new_key())
    await site.verify("CP-nonsense")
    await flush(site)
    world.clock.forward(days=1)
    await site.verify(expired)
    await site.verify(good, "a.example")
    await flush(site)
    await flush(site)  # with nothing to write
    assert counted(world) == {
        ("15", "activation", "app", ""): 1,
        ("15", "verify", "app", "valid"): 2,
        ("15", "verify", "app", "slots full"): 1,
        ("15", "verify", "app", "revoked"): 1,
        ("15", "verify", "", "unknown"): 1,
        ("15", "verify", "", "malformed"): 1,
        ("16", "verify", "app", "expired"): 1,
        ("16", "verify", "app", "valid"): 1,
    }


@pytest.mark.slow
@both_engines
async def test_a_refusal_is_kept_with_its_license(world, site, alice):
    """Where, why, how often and when: found by the machine, bounded, and gone after 30 days."""
    key = world.key(customer_email="jo@studio.example")
    page = f"/console/licenses/{world.services.vault.license_id(key).hex()}"
    for number in [1, 2, 2, *range(3, 50)]:
        await site.verify(key, f"pc{number}.example")
    await flush(site)
    world.clock.forward(minutes=30)
    await site.verify(key, "pc2.example")
    await flush(site)
    refusals = world.services.support.list_refusals(world.services.licenses.get(key))
    latest = refusals[0]
    assert (latest.environment.domain, latest.reason, latest.times) == ("pc2.example", "slots full", 3)
    assert len(refusals) == KEPT_PER_LICENSE
    (found,) = world.services.licenses.search(LicenseFilter("pc2.example")).items
    text = await alice.get("/console") + await alice.get(page)
    assert text.count("All slots were in use") == 8 + KEPT_PER_LICENSE
    assert "3 times" in text
    await alice.get("/console/customers?email=Jo@Studio.example")
    assert (page in alice.text, "pc1.example" in alice.text, found.id.hex() in page) == (True, True, True)
    world.clock.forward(days=31)
    world.services.retention.sweep()
    assert world.services.support.list_refusals(found) == []
    assert world.services.repositories.refusals.find_licenses("pc2.example", None, 1) == []


async def test_versions_in_the_field(world, site, new_key):
    """As they were published, however they are spelt; inventions are one, and strangers' checks are none."""
    world.publish("1.4.0")
    key = world.key()
    for version in ("1.4", "1.4.0", "1.3", "<script>", "x" * 100, "9" * 50):
        await site.check(key, current_version=version)
    await site.check(new_key())
    await flush(site)
    assert counted(world) == {("15", "update", "app", "1.4.0"): 2, ("15", "update", "app", "other"): 3}


async def test_an_app_that_invents_versions(world, site, monkeypatch):
    """Takes no memory without an end."""
    monkeypatch.setattr(tally_room, "MAX_VERSIONS", 5)
    world.publish("1.0")
    key = world.key()
    for patch in range(20):
        await site.check(key, current_version=f"7.{patch}")
    await flush(site)
    assert counted(world) == {("15", "update", "app", "other"): 5}


@pytest.mark.sampled(2, "policy", "calls_from")
@pytest.mark.parametrize(
    ("policy", "calls_from", "is_seen"),
    [
        ("strict", ("a.example", "127.0.0.1"), True),
        ("domain", ("a.example", "127.0.0.2"), True),
        ("either", ("c.example", "127.0.0.1"), True),
        ("either", ("a.example", "127.0.0.2"), True),
    ],
)
async def test_a_machine_is_seen(world, site, policy, calls_from, is_seen):
    """Each day anew, by whichever half of it the product's policy knows it (D-03)."""
    key = world.key(world.product(policy, policy))
    await site.verify(key, "a.example")
    await flush(site)
    world.clock.forward(days=1)
    status, _ = await site.verify(key, *calls_from)
    assert status == 200
    await flush(site)
    (activation,) = world.repositories.licenses.list_activations_page(
        world.services.vault.license_id(key), None, 9
    )
    assert activation.environment == Environment("a.example", "127.0.0.1")
    assert (activation.last_seen_at == world.clock()) is is_seen


async def test_what_was_noted_today_is_not_tried_again(world, site, monkeypatch):
    """The lookup of a verify shows it: a machine that asks all day costs one write, and the next day another.

    The day on which it takes its slot costs none: that is stored as seen itself.
    """
    key, noted = world.key(), []

    def note(database, batch, days):
        noted.extend(batch)
        return note_seen(database, batch, days)

    monkeypatch.setattr(tally_room, "note_seen", note)
    for day in (0, 1, 2):
        for _ in range(3):
            assert (await site.verify(key, "a.example"))[0] == 200
            await flush(site)
        assert len(noted) == day
        world.clock.forward(days=1)


async def test_a_machine_keeps_fresh_all_that_it_lives_by(world, site, activate):
    """By either half: another machine has called from its address today; its domain lives on as well."""
    key = world.key(slots=2)
    license_id = world.services.vault.license_id(key)
    activate(key, "a.example", "127.0.0.1")
    activate(key, "a.example", "192.0.2.1")
    world.services.products.change("app", policy=EnvironmentPolicy.EITHER)
    world.clock.forward(days=1)
    for domain, seen in (("z.example", [True, False]), ("a.example", [True, True])):
        assert (await site.verify(key, domain))[0] == 200
        await flush(site)
        held = world.repositories.licenses.list_activations_page(license_id, None, 9)
        held = sorted(held, key=lambda activation: activation.environment)
        assert [activation.last_seen_at == world.clock() for activation in held] == seen


async def test_a_database_that_is_away(world, site, monkeypatch, caplog):
    """What was counted waits for the next time, and calls are answered as ever."""
    await site.verify(world.key())

    def fail(_database, _day, _counts):
        raise StoreUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(tally_room, "add_counts", fail)
        await flush(site)
    assert "statistics will be written later: away" in caplog.text
    assert counted(world) == {}
    await flush(site)
    assert counted(world)["15", "verify", "app", "valid"] == 1


async def test_a_database_that_is_away_at_the_end(world, site, monkeypatch, caplog):
    """The log does not promise that the counts will be written."""
    await site.verify(world.key())

    def fail(_database, _day, _counts):
        raise StoreUnavailableError("away")

    monkeypatch.setattr(tally_room, "add_counts", fail)
    await site.stop()
    assert "statistics of the last 10 seconds are lost: away" in caplog.text
    assert "later" not in caplog.text


@pytest.fixture
def fail_writes(meddler):
    """Make each write to a table fail, as a full disk would; return what ends it."""

    def begin(table, event):
        meddler.do(
            f"CREATE TRIGGER sabotage BEFORE {event} ON {table} BEGIN SELECT RAISE(ABORT, 'full'); END"
        )
        return lambda: meddler.do("DROP TRIGGER sabotage")

    return begin


@sqlite_only
async def test_a_flush_that_fails_halfway_adds_nothing_twice(world, site, fail_writes, caplog):
    """Totals are committed, noting activations fails: the next flush notes those, and adds nothing."""
    key = world.key()
    await site.verify(key)
    await flush(site)
    world.clock.forward(days=1)
    await site.verify(key)
    mend = fail_writes("activations", "UPDATE")
    await flush(site)
    assert "statistics will be written later" in caplog.text
    mend()
    await flush(site)
    assert counted(world)["16", "verify", "app", "valid"] == 1
    (activation,) = world.repositories.licenses.list_activations_page(
        world.services.vault.license_id(key), None, 9
    )
    assert activation.last_seen_at == world.clock()


@sqlite_only
async def test_counts_that_are_refused_hold_up_nothing_else(world, site, fail_writes):
    """Such as by a lock on their table: machines are seen, and refusals stored, all the same."""
    key = world.key(slots=1)
    await site.verify(key, "a.example")
    await flush(site)
    world.clock.forward(days=1)
    await site.verify(key, "a.example")
    await site.verify(key, "b.example")
    fail_writes("totals", "INSERT")
    await flush(site)
    license_id = world.services.vault.license_id(key)
    (activation,) = world.repositories.licenses.list_activations_page(license_id, None, 9)
    assert activation.last_seen_at == world.clock()
    assert len(world.services.repositories.refusals.list_recent(world.clock(), 9)) == 1


@both_engines
def test_the_refusal_of_a_license_that_was_deleted_meanwhile(world):
    """As a sweep does with ended trials: passed over, or it would fail with all others again and again."""
    license_id, here = world.services.vault.license_id(world.key()), Environment("a.example", "192.0.2.1")
    both = {(b"\0" * 16, here, "expired"): 1, (license_id, here, "expired"): 1}
    assert note_refusals(world.services.database, both, world.clock()) == set()
    (stored,) = world.services.repositories.refusals.list_recent(world.clock(), 9)
    assert stored.license_id == license_id


@sqlite_only
async def test_a_long_outage_takes_no_memory_without_an_end(world, fail_writes, monkeypatch):
    """Versions that are counted while a flush fails are bounded together with those that it puts back."""
    monkeypatch.setattr(tally_room, "MAX_VERSIONS", 5)
    offer = Offer(world.services.products.get("app"), world.publish("1.0"), None, downloadable=True)
    tally = StatisticsCounter(world.services.database, world.clock)
    fail_writes("totals", "INSERT")
    for patch in range(4):
        tally.count_update_check(offer, f"7.{patch}")
    flushing = asyncio.create_task(tally.flush())
    await asyncio.sleep(0)  # what was counted has been taken
    for patch in range(4):
        tally.count_update_check(offer, f"8.{patch}")
    await flushing
    assert len(tally._versions) == 5


@sqlite_only
async def test_an_unexpected_failure_is_logged_and_the_next_flush_comes(
    world, open_site, monkeypatch, caplog
):
    """The flush task survives an exception that nobody expected, and its traceback is in the log."""
    failed = asyncio.Event()
    add = tally_room.add_counts

    def fail(_database, _day, _counts):
        loop.call_soon_threadsafe(failed.set)
        raise KeyError("unexpected")

    loop = asyncio.get_running_loop()
    monkeypatch.setattr(tally_room, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(tally_room, "add_counts", fail)
    site = await open_site(world)
    await site.verify(world.key())
    await asyncio.wait_for(failed.wait(), 10)
    monkeypatch.setattr(tally_room, "add_counts", add)
    await site.verify("CP-nonsense")
    async with asyncio.timeout(10):
        while not counted(world):  # noqa: ASYNC110 - the database notifies nobody
            await asyncio.sleep(0.01)
    assert "KeyError: 'unexpected'" in caplog.text


async def test_what_was_counted_is_written_at_the_end(world, open_site, monkeypatch):
    """Also by a server that is stopped before the first batch, and every few seconds before that."""
    monkeypatch.setattr(tally_room, "FLUSH_SECONDS", 0.01)
    site = await open_site(world)
    await site.verify(world.key())
    async with asyncio.timeout(10):
        while not counted(world):  # noqa: ASYNC110 - the database notifies nobody
            await asyncio.sleep(0.01)
    monkeypatch.setattr(tally_room, "FLUSH_SECONDS", 3600)
    await asyncio.sleep(0.05)
    await site.verify(world.key())
    await site.stop()
    assert counted(world)["15", "verify", "app", "valid"] == 2


async def test_what_is_refused_while_the_server_stops_is_written_at_the_end(world, open_site, monkeypatch):
    """The batch that was on its way is put back, and goes with the last one."""
    loop, begun, has_stopped = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    add, refusals = tally_room.add_counts, iter([StoreUnavailableError("away")])

    def refuse_once(database, day, counts):
        loop.call_soon_threadsafe(begun.set)
        has_stopped.wait(10)
        if (refusal := next(refusals, None)) is not None:
            raise refusal
        add(database, day, counts)

    monkeypatch.setattr(tally_room, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(tally_room, "add_counts", refuse_once)
    site = await open_site(world)
    await site.verify(world.key())
    await asyncio.wait_for(begun.wait(), 10)
    loop.call_later(0.3, has_stopped.set)  # the server has begun to stop
    await site.stop()
    assert counted(world)["15", "verify", "app", "valid"] == 1


def test_many_processes_add_up(world):
    """Nobody overwrites what another process has counted."""
    today = world.clock().date()
    for _ in range(3):
        add_counts(world.services.database, today, {CountKey("verify", "", "valid"): 2})
    assert counted(world) == {("15", "verify", "", "valid"): 6}
