"""Connections that are kept open for one kind of work of the hot path.

A checkout from SQLAlchemy's pool costs more than the statement: with it a batch of eight lookups takes 276 us
instead of 63 on SQLite, 325 instead of 163 on PostgreSQL. Instead the connection is used as it is: what fails
because it had died meanwhile runs again on a new one.
"""

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

RUN_LIMIT: Final = 1.5
"""Seconds until a run fails; a client has its response within two."""

_LEAST_LIMIT: Final = 0.4
_LAST_RETRY_BEFORE: Final = 1.0
_TRIES: Final = 3

_LOCK_INTERVAL: Final = 0.003
_CHECK_LOG_EVERY: Final = 100
_LONGEST_LOG: Final = 16_000
"""Pages. Where several processes read all the time, SQLite never restarts the write-ahead log by itself."""

Result = TypeVar("Result")
TranslateErrors = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """What differs for a database on another machine.

    Args:
        is_retryable: Whether the same transaction may succeed at once on a new connection.
        open_breaker: Called with a failure that took all the time, so that other requests fail at once.
        connect: Opens a connection without blocking the event loop.
    """

    is_retryable: Callable[[BaseException | None], bool]
    open_breaker: Callable[[BaseException], None]
    connect: Callable[[Callable[[], Connection]], Connection]


class KeptConnection:
    """Runs one function after another on its own connection. Thread-safe; on greenlets it has one user.

    Args:
        engine: Where to connect, at first use and after a failure.
        translate_errors: Raises the driver's errors as ours.
        remote: For a database on another machine; without it nothing is retried.
        writes: Whether each run is a transaction; otherwise each statement is.
    """

    def __init__(
        self,
        engine: Engine,
        translate_errors: TranslateErrors,
        remote: RemoteEngine | None = None,
        *,
        writes: bool = False,
    ) -> None:
        self._engine = engine
        self._translate_errors = translate_errors
        self._remote = remote
        self._writes = writes
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Call a function with the connection, and again with a new one if the old one had died.

        Args:
            work: May be called again even after a commit whose outcome is unknown: it must decide anew.

        Raises:
            StoreUnavailableError: when the database fails, or does not answer within `RUN_LIMIT`.
        """
        with self._lock, self._translate_errors():
            began = time.monotonic()
            for _ in range(_TRIES - 1):
                try:
                    return self._try(work, began)
                except Exception as error:
                    if not self._may_retry(error, began):
                        raise
            return self._try(work, began)

    def _try(self, work: Callable[[Connection], Result], began: float) -> Result:
        try:
            connection = self._connect(began)
            if not self._writes:
                result = work(connection)
                if connection.in_transaction():  # or later reads would see the same state
                    connection.rollback()
                return result
            with connection.begin():
                return work(connection)
        except BaseException:
            self._drop()
            raise

    def _connect(self, began: float) -> Connection:
        if self._connection is None:
            connect = self._engine.connect
            self._connection = connect() if self._remote is None else self._remote.connect(connect)
        if self._remote is not None:
            driver: Any = self._connection.connection.driver_connection
            driver.deadline = max(began + RUN_LIMIT, time.monotonic() + _LEAST_LIMIT)
        return self._connection

    def _may_retry(self, error: Exception, began: float) -> bool:
        if self._remote is None:
            return False
        cause = error.orig if isinstance(error, DBAPIError) else error
        took = time.monotonic() - began
        if self._remote.is_retryable(cause):
            return took < _LAST_RETRY_BEFORE
        if took >= RUN_LIMIT:
            self._remote.open_breaker(error if cause is None else cause)
        return False

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.invalidate()
                connection.close()


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
