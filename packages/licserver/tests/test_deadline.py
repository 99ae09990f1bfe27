"""A customer's request waits for the database until an instant, whatever service it runs in."""

import sqlite3
import time
from contextlib import closing

import pytest
from sqlalchemy import text

from harness.engines import both_engines
from licserver.database.deadlines import waiting_until
from licserver.database.engine import connect
from licserver.errors import StoreUnavailableError


def timed(work):
    """Call a function that fails; return the seconds that it took."""
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        work()
    return time.monotonic() - began


def read_until(database, deadline):
    """Read something within a deadline."""
    with waiting_until(deadline), database.reading() as connection:
        connection.execute(text("SELECT 1"))


def test_a_frozen_postgresql_is_waited_for_until_then(own_postgres):
    """Not for the minute that vendors' operations have; afterwards the pool is as it was."""
    database = connect(own_postgres.url(own_postgres.make()))
    with closing(database):
        read_until(database, time.monotonic() + 1)
        with own_postgres.frozen():
            assert timed(lambda: read_until(database, time.monotonic() + 0.5)) < 15  # and a new connection
            assert timed(lambda: read_until(database, time.monotonic() - 1)) < 15
        time.sleep(0.6)  # after a failure no connection is tried for half a second
        read_until(database, time.monotonic() + 1)


def test_a_locked_sqlite_file_is_waited_for_until_then(tmp_path):
    """Not for ten seconds."""
    file = tmp_path / "one.sqlite3"
    file.touch()
    with closing(connect(f"sqlite:///{file}")) as database, closing(sqlite3.connect(file)) as other:
        other.execute("CREATE TABLE facts (name)")
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("BEGIN IMMEDIATE")

        def write():
            with waiting_until(time.monotonic() + 0.3), database.writing():
                raise AssertionError("it is locked")

        assert 0.2 < timed(write) < 7


@both_engines
def test_a_connection_that_comes_back_after_the_end_is_closed(world):
    """A thread may still read when the pool is closed; its connection stayed open until it was collected."""
    database = connect(world.services.database.engine.url.render_as_string(hide_password=False))
    with database.reading() as connection:
        connection.execute(text("SELECT 1"))
        driver = connection.connection.driver_connection
        database.close()
    if database.is_remote:
        assert driver.closed
    else:
        with pytest.raises(sqlite3.ProgrammingError):
            driver.execute("SELECT 1")
