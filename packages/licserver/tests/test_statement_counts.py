"""Customers' requests that write hold the only writer of SQLite: few statements each."""

from contextlib import contextmanager

import pytest
from sqlalchemy import event

from harness.engines import sqlite_only
from licserver.domain.records import Environment
from licserver.domain.seats import SeatRequest

pytestmark = sqlite_only
SEAT = SeatRequest(b"s" * 16, "pc.example", None)
HERE = Environment("pc.example", "192.0.2.1")


@contextmanager
def counting(world):
    """Give the list of statements that the services send meanwhile."""
    sent = []

    def note(_connection, _cursor, statement, _parameters, _context, _many):
        sent.append(" ".join(statement.split()))

    engine = world.services.database.engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", note)


@pytest.fixture
def key(world):
    """A key with two slots and two seats, used once before: what is asked once a process is known."""
    key = world.key(slots=2, floating_seats=2)
    take_and_release(world, key)
    return key


def take_and_release(world, key):
    """Take a seat and release it."""
    world.services.seats.hold(key, SEAT)
    world.services.seats.release(key, SEAT.seat_id)


def free(world, key):
    """Free a slot that is taken."""
    license_ = world.services.licenses.find_by_key(key)
    world.services.moves.deactivate(license_, HERE.domain)


@pytest.mark.parametrize(("work", "most"), [(take_and_release, 9), (free, 10)])
def test_a_request_that_writes_sends_few_statements(world, activate, key, work, most):
    """The license is loaded once: what a transaction of SQLite writes is locked already."""
    activate(key, *HERE)
    with counting(world) as sent:
        work(world, key)
    assert len(sent) <= most, sent
    assert not any("SELECT licenses.id FROM licenses" in statement for statement in sent)


async def test_the_page_for_signing_in_asks_for_users_once(site, users):
    """Any client can request it."""
    assert (await site.call("GET", "/console/sign-in"))[0] == 200
    with counting(site.world) as sent:
        assert (await site.call("GET", "/console/sign-in"))[0] == 200
    assert not [statement for statement in sent if "FROM users" in statement]
