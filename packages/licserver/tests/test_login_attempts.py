"""Tries of passwords, counted for all servers together (D-97, D-131)."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier, Event

import pytest
from sqlalchemy import select

from harness import engines
from harness.console import PASSWORD, Browser
from licserver.database.engine import connect
from licserver.database.repositories import Repositories
from licserver.database.repositories.users import Limit
from licserver.database.tables.access import tries
from licserver.services.users import NETWORK_NAME_TRIES, TRIES, LoginService

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps

MINUTE = datetime(2026, 6, 15, 12, tzinfo=UTC)
ANN, BEN = Limit(b"a" * 16, TRIES), Limit(b"b" * 16, TRIES)


def rows(world):
    """All that is counted."""
    with world.services.database.reading() as connection:
        return connection.execute(select(tries)).all()


@pytest.mark.slow
async def test_two_servers_count_together(world, users, open_site, open_browser):
    """Ten wrong passwords at either of two processes are all there are, and then the right one is none."""
    first = await open_browser()
    second = Browser(first.session, (await open_site(world)).url)
    for browser in (first, second):
        for _ in range(NETWORK_NAME_TRIES // 2):
            await browser.sign_in(password="wrong")
            assert browser.status == 401
    for browser in (first, second):
        await browser.sign_in()
        assert (browser.status, browser.headers["Retry-After"]) == (429, "61")
    world.clock.forward(seconds=61)
    await second.sign_in()
    assert second.status == 200


def test_who_come_at_once_are_counted_one_by_one(world):
    """Of eighty tries on eight connections twenty are let, whoever is first."""
    url = world.settings.database
    start, made = Barrier(8), []

    def guess(_):
        database = connect(url)
        repositories = Repositories(database)
        made.append(database)
        start.wait()
        # in either order, so that they would wait for each other if that were not seen to
        return sum(
            repositories.logins.count_attempt([ANN, BEN][:: (1, -1)[n % 2]], MINUTE) for n in range(10)
        )

    with ThreadPoolExecutor(8) as threads:
        let = sum(threads.map(guess, range(8)))
    for database in made:
        database.close()
    assert let == TRIES


@pytest.mark.sampled(3, "before", "let")
@pytest.mark.parametrize(
    ("before", "later", "let"),
    [
        (TRIES, 0, 0),
        (TRIES, 59, 0),
        (TRIES, 60, 0),  # the whole of the last minute is still within the sliding one
        (TRIES, 90, TRIES // 2),
        (TRIES, 110, 17),  # a sixth of them still counts
        (TRIES, 120, TRIES),
        (TRIES // 2, 60, TRIES // 2),
        (0, 0, TRIES),
    ],
)
def test_the_minute_slides(world, before, later, let):
    """As tries go by they count less, and after two minutes not at all."""
    for _ in range(before):
        assert world.repositories.logins.count_attempt([ANN], MINUTE)
    now = MINUTE + timedelta(seconds=later)
    assert [world.repositories.logins.count_attempt([ANN], now) for _ in range(TRIES + 1)].count(True) == let


def test_who_is_refused_counts_nowhere(world):
    """An address that has had its tries keeps nobody's name from being let in, and writes nothing."""
    for number in range(TRIES):
        assert world.services.logins.count_attempt("192.0.2.1", f"mallory-{number % 2}")
    before = rows(world)
    for _ in range(TRIES):
        assert not world.services.logins.count_attempt("192.0.2.1", "alice")
    assert rows(world) == before
    assert world.services.logins.count_attempt("192.0.2.2", " ALICE ")
    assert not world.services.logins.count_attempt("192.0.2.3", "mallory-0")


def test_what_is_kept_of_a_try(world):
    """Neither name nor address, which may be a password typed into the wrong field; and that not for long."""
    world.services.logins.count_attempt("192.0.2.1", PASSWORD)
    world.services.logins.count_attempt("192.0.2.1", "ö\0\udcff" * 500)
    held = rows(world)
    # two names, and each with the network; the address, and the network
    assert sorted((len(row.who), row.count) for row in held) == [(16, 1)] * 4 + [(16, 2)] * 2
    for text in (PASSWORD, "192.0.2.1"):
        assert text.encode() not in b"".join(row.who for row in held)
    world.clock.forward(minutes=11)
    world.services.logins.count_attempt("192.0.2.1", "alice")
    assert len(rows(world)) == 4  # what is old goes with the next attempt
    world.clock.forward(minutes=11)
    world.services.retention.sweep()
    assert rows(world) == []


async def test_a_full_queue_is_not_counted(world, users, open_browser, monkeypatch):
    """What one thread cannot hash anyhow is not written down either."""
    monkeypatch.setattr("licserver.web.console.login._QUEUE", 0)
    browser = await open_browser()
    await browser.sign_in()
    assert (browser.status, rows(world)) == (429, [])


async def test_an_attempt_that_has_waited_long_is_neither_counted_nor_compared(
    world, users, open_browser, monkeypatch
):
    """The client has gone; the next one must not wait for it."""
    monkeypatch.setattr("licserver.web.console.login._PATIENCE", -1.0)
    browser = await open_browser()
    await browser.sign_in()
    assert (browser.status, rows(world)) == (429, [])


async def test_the_end_of_a_server_waits_for_no_queue_of_passwords(site, users, open_browser, monkeypatch):
    """Twenty attempts that wait for the thread took as long as the drain time."""
    began, released, compared = Event(), Event(), []

    def compare(_self, _name, _password, _address):
        began.set()
        compared.append(released.wait(30))

    monkeypatch.setattr(LoginService, "sign_in", compare)
    browsers = [await open_browser() for _ in range(3)]
    attempts = [asyncio.create_task(browser.sign_in()) for browser in browsers]
    await asyncio.to_thread(began.wait, 30)
    await site.app.shutdown()
    released.set()
    await asyncio.gather(*attempts)
    assert sorted(browser.status for browser in browsers) == [401, 429, 429]
    assert compared == [True]
