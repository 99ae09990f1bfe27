"""A SQLite file: taking one's turn to write, and one connection for reads and writes on the hot paths."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from sqlalchemy import Connection, Engine

from licserver.database.hot_path.connections import RUN_LIMIT, KeptConnection, Result

_LOOK_FOR_LOCK: Final = 0.003
_LONGEST_LOG: Final = 16_000
"""Pages. A log comes to be that long where several processes write, and one always has just begun."""


def begin_in_turn(connection: Connection, patience: float, *, usual: float) -> None:
    """Take the lock as soon as it is free.

    SQLite's own waiting looks ten times a second in the end, and beside busy writers gets no turn for seconds
    (D-129).

    Args:
        connection: Not in a transaction.
        patience: Seconds to wait for others at most.
        usual: Seconds that this connection waits otherwise.

    Raises:
        sqlite3.OperationalError: busy, when others had the lock all the time; or what else went wrong.
    """
    driver: Any = connection.connection.driver_connection
    deadline = time.monotonic() + patience
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                driver.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not _is_busy(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_LOOK_FOR_LOCK)
            else:
                return
    finally:
        driver.execute(f"PRAGMA busy_timeout = {usual * 1000:.0f}")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def move_log(connection: Connection) -> None:
    """Move what was committed from the log to the file, so that the next to write begins the log anew."""
    driver: Any = connection.connection.driver_connection
    _, pages, _ = driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if pages > _LONGEST_LOG:
        driver.execute("PRAGMA wal_checkpoint(RESTART)")  # has the other writers wait


class SqliteConnection(KeptConnection):
    """A lane whose transactions are done in steps, and which is read on between them.

    `begin_at_once` or `begin` opens a transaction, `commit` or `abandon` ends it, whichever threads call
    them. Nothing is tried twice, and no commit has to move the log: `move_log` is to be called now and then.

    Args:
        engine: As `KeptConnection`.
        named: As `KeptConnection`.
    """

    def __init__(self, engine: Engine, named: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__(engine, named, writes=True)

    def look(self, work: Callable[[Connection], Result], instead: KeptConnection) -> Result:
        """Do a piece of work that only reads, outside of any transaction.

        Args:
            work: Reads, on the driver's cursor.
            instead: Does it while a transaction is open here: what that one writes is nobody's to see yet.

        Raises:
            StoreUnavailable: when the database fails.
        """
        if not self._lock.acquire(blocking=False):  # to wait for a thread that waits for us would be the end
            return instead.run(work)
        try:
            with self.named():
                return work(self._connected(time.monotonic()))
        except BaseException:
            self._drop()
            raise
        finally:
            self._lock.release()

    def begin(self) -> Connection:
        """Open a transaction, after all who write now.

        Raises:
            StoreUnavailable: when the database fails, or others write for too long.
        """
        self._lock.acquire()
        try:
            with self.named():
                connection = self._connected(time.monotonic())
                begin_in_turn(connection, RUN_LIMIT, usual=RUN_LIMIT)
        except BaseException:
            self.abandon()
            raise
        return connection

    def begin_at_once(self) -> Connection | None:
        """Open a transaction, unless somebody else writes at this moment: then None.

        Raises:
            StoreUnavailable: when the database fails.
        """
        if not self._lock.acquire(blocking=False):
            return None
        try:
            with self.named():
                connection = self._connected(time.monotonic())
                try:
                    begin_in_turn(connection, 0, usual=RUN_LIMIT)
                except sqlite3.OperationalError as error:
                    if not _is_busy(error):
                        raise
                    self._lock.release()
                    return None
        except BaseException:
            self.abandon()
            raise
        return connection

    def commit(self) -> None:
        """End the transaction for good.

        Raises:
            StoreUnavailable: when the database fails; the transaction is then still to be abandoned.
        """
        if self._connection is None:
            raise RuntimeError("no transaction was begun")
        driver: Any = self._connection.connection.driver_connection
        with self.named():
            driver.execute("COMMIT")
        self._lock.release()

    def abandon(self) -> None:
        """End the transaction without a trace."""
        self._drop()
        self._lock.release()

    def _connected(self, began: float) -> Connection:
        if self._connection is None:
            driver: Any = super()._connected(began).connection.driver_connection
            driver.execute("PRAGMA wal_autocheckpoint = 0")
        return super()._connected(began)
