"""Failed logins and refused tokens: in the log and the audit log, bounded, and nothing typed."""

import asyncio
import time

import pytest
from sqlalchemy import func, select

from harness.admin import Api
from harness.console import NAME, PASSWORD
from harness.engines import sqlite_only
from licserver.database.tables.access import failed_logins
from licserver.database.tables.licenses import audit
from licserver.domain.records import SYSTEM, Scope
from licserver.runtime.logging import FAILURES, FailureReport
from licserver.runtime.worker_threads import THREADS, WorkerThreads
from licserver.services.users import NETWORK_NAME_TRIES

pytestmark = sqlite_only


def lines(world, action):
    """Lines of the audit log of an action, the oldest first."""
    found = [entry for entry in world.services.audit.list_page(limit=200).items if entry.action == action]
    assert all(entry.actor == SYSTEM for entry in found)
    return [(entry.object_kind, entry.object_id, entry.details) for entry in reversed(found)]


async def test_wrong_passwords_are_noted(world, site, users, open_browser, caplog):
    """The first at once, the others counted; by the name of a user, and never what was typed."""
    browser = await open_browser()
    for name in (NAME, NAME, "my secret passphrase", PASSWORD):
        await browser.sign_in(name, "the-secret-guess")
    for _ in range(NETWORK_NAME_TRIES):
        await browser.sign_in(password="the-secret-guess")
    await site.app[FAILURES].close()
    address = {"address": "127.0.0.1"}
    assert lines(world, "user.sign_in_failed") == [
        ("user", "alice", {"attempts": 1, **address}),
        ("user", "alice", {"attempts": 10, **address}),
        ("user", "-", {"attempts": 2, **address}),
    ]
    assert lines(world, "user.sign_in_throttled") == [("user", "-", {"attempts": 2, **address})]
    logged = [record.getMessage() for record in caplog.records if record.name == "licserver.logins"]
    assert logged[0] == "wrong password of alice, 1 time, the last from 127.0.0.1"
    assert len(logged) <= 5
    for typed in ("the-secret-guess", "my secret passphrase", PASSWORD):
        assert typed not in caplog.text
        assert typed not in str(world.services.audit.list_page(limit=200).items)


async def test_refused_tokens_are_noted(world, site, caplog):
    """An unknown one without a name, a revoked one by its name; and none of them by what was sent."""
    _, revoked = world.services.tokens.create("shop", Scope.READ)
    world.services.tokens.revoke("shop")
    for text in (revoked, "lsv_" + "x" * 43, "lsv_" + "y" * 43):
        assert (await Api(site, text)("GET", "/products"))[0] == 401
    await site.app[FAILURES].close()
    assert {(kind, name) for kind, name, _ in lines(world, "token.refused")} == {
        ("token", "shop"),
        ("token", "-"),
    }
    assert revoked not in caplog.text
    assert "yyyy" not in caplog.text


async def test_a_line_that_waits_for_a_thread_is_written_when_the_server_stops(world):
    """The report of a stopping server does not forget what no thread has taken yet."""
    threads = WorkerThreads()
    busy = [asyncio.create_task(threads.run(time.sleep, 0.2)) for _ in range(THREADS)]
    report = FailureReport(world.services, threads)
    report.add("token.refused", "shop", "192.0.2.1")
    await asyncio.sleep(0)  # it begins to wait
    await report.close()
    await asyncio.gather(*busy)
    await threads.close()
    assert lines(world, "token.refused") == [("token", "shop", {"attempts": 1, "address": "192.0.2.1"})]


async def test_a_token_of_too_small_a_scope_is_noted(world, site, caplog):
    """By its name, as often as it tries, in one line."""
    _, text = world.services.tokens.create("shop", Scope.READ)
    for _ in range(3):
        assert (await Api(site, text)("POST", "/products", {"slug": "x", "name": "X"}))[0] == 403
    await site.app[FAILURES].close()
    assert lines(world, "token.forbidden") == [("token", "shop", {"attempts": 1, "address": "127.0.0.1"})]
    assert "of shop" in caplog.text


async def test_a_flood_of_failures_is_few_lines(world, site):
    """A hundred thousand failures of a day are six lines in the audit log and one row beside it."""
    report = site.app[FAILURES]
    for count in (1, 5, 40, 900, 9_000, 90_054):
        for _ in range(count):
            report.add("user.sign_in_failed", None, "192.0.2.1")
        await report.close()
    found = [details["attempts"] for _, _, details in lines(world, "user.sign_in_failed")]
    assert found == [1, 46, 946, 9_946, 100_000]
    with world.services.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(failed_logins)) == 1
        before = connection.scalar(select(func.count()).select_from(audit))
    world.clock.forward(days=1)
    report.add("user.sign_in_failed", None, "192.0.2.1")  # another day begins anew
    await report.close()
    assert lines(world, "user.sign_in_failed")[-1][2]["attempts"] == 1
    world.clock.forward(days=2)
    world.services.retention.sweep()
    with world.services.database.reading() as connection:
        assert connection.scalar(select(func.count()).select_from(failed_logins)) == 0
        assert connection.scalar(select(func.count()).select_from(audit)) == before + 1


async def test_failures_are_written_once_a_minute(world, site, monkeypatch):
    """While they go on, what follows the first is written with the next turn, without another request."""
    monkeypatch.setattr("licserver.runtime.logging.PAUSE", 0.05)
    written = asyncio.Queue()
    monkeypatch.setattr(
        type(world.services.logins), "record_failures", lambda _, *what: written.put_nowait(what[2])
    )
    monkeypatch.setattr(site.app[FAILURES]._threads, "run", _run_here)
    for _ in range(2):
        for _ in range(3):
            site.app[FAILURES].add("token.refused", None, "192.0.2.1")
        assert await asyncio.wait_for(written.get(), 10) == 3


async def _run_here(work, action, subject, count, address):
    return work(action, subject, count, address)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("minutes", [5, 720])
async def test_an_idle_session_ends(make_world, open_site, open_browser, minutes):
    """After so many minutes without a request; each request, at most one a minute, begins them anew."""
    world = make_world(session_idle_minutes=minutes)
    world.services.users.add(NAME, PASSWORD)
    browser = await open_browser()
    browser.url = (await open_site(world)).url
    await browser.sign_in()
    if minutes == 5:
        for _ in range(4):
            world.clock.forward(minutes=4)
            assert "Overview" in await browser.get("/console")
        world.clock.forward(minutes=6, seconds=1)
    else:
        world.clock.forward(hours=11)
        assert "Overview" in await browser.get("/console")
        world.clock.forward(hours=1, seconds=1)
    assert "Sign in" in await browser.get("/console")
    assert world.services.retention.sweep().sessions == 1


async def test_failures_that_wait_for_others_are_written_at_the_end(world):
    """The end of a server came while the first was written, and the rest was lost."""
    written, begun = [], asyncio.Event()

    class Threads:
        async def run(self, _record, _action, subject, _count, _address):
            written.append(subject)
            begun.set()
            await asyncio.sleep(0)

    report = FailureReport(world.services, Threads())
    report.add("token.refused", "shop", "192.0.2.1")
    report.add("token.refused", None, "192.0.2.1")
    await begun.wait()
    await report.close()
    assert written == ["shop", None]
