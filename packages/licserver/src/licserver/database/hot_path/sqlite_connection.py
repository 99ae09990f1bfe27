"""A SQLite file: the lock for writing, and one connection for reads and writes of the hot path."""

import contextlib
import sqlite3
import time
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import Connection, Engine

from licserver.database.hot_path.connections import KeptConnection, Result, TranslateErrors

_LOCK_INTERVAL: Final = 0.003
_CHECK_LOG_EVERY: Final = 100
_LONGEST_LOG: Final = 16_000
"""Pages. Where several processes read all the time, SQLite itself never starts the log anew."""


def begin_immediate(connection: Connection, patience: float, *, usual: float) -> None:
    """Begin a transaction with the lock for writing, as soon as it is free.

    SQLite's own waiting tries ten times a second in the end, and beside busy writers fails for seconds
    (D-129).

    Args:
        connection: Not in a transaction.
        patience: Seconds to wait for other writers.
        usual: Seconds of `busy_timeout` to restore.

    Raises:
        sqlite3.OperationalError: busy, when others had the lock all the time; or what else failed.
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
                time.sleep(_LOCK_INTERVAL)
            else:
                return
    finally:
        driver.execute(f"PRAGMA busy_timeout = {usual * 1000:.0f}")


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


class SqliteConnection(KeptConnection):
    """A connection for transactions on a thread, which the event loop reads from between them."""

    def __init__(self, engine: Engine, translate_errors: TranslateErrors) -> None:
        super().__init__(engine, translate_errors, writes=True)
        self._runs = 0

    def read(self, work: Callable[[Connection], Result], otherwise: KeptConnection) -> Result:
        """Call a function that only reads; with another connection while a transaction is open on this one.

        A commit empties the page caches of all other connections: reading from them costs a new environment
        a quarter more.
        """
        if not self._lock.acquire(blocking=False):
            return otherwise.run(work)
        try:
            with self._translate_errors():
                return work(self._connect(time.monotonic()))
        except BaseException:
            self._drop()
            raise
        finally:
            self._lock.release()

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Call a function within a transaction, and now and then keep the log short."""
        result = super().run(work)
        self._runs += 1
        if self._runs % _CHECK_LOG_EVERY == 0:
            with self._lock, contextlib.suppress(sqlite3.Error):  # the next time
                self._shorten_log()
        return result

    def _shorten_log(self) -> None:
        driver: Any = self._connect(time.monotonic()).connection.driver_connection
        _, pages, _ = driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages > _LONGEST_LOG:
            driver.execute("PRAGMA wal_checkpoint(RESTART)")  # waits for readers, and other writers for it
