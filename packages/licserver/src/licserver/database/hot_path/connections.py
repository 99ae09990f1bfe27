"""A connection that is kept open for one kind of work of the hot path.

A checkout from SQLAlchemy's pool, with a ping, would cost more than the statement. Instead the connection is
used as it is: what fails because it had died meanwhile runs again on a new one.
"""

import contextlib
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

Result = TypeVar("Result")
TranslateErrors = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """What differs for a database on another machine.

    Args:
        is_retryable: Whether the same transaction may succeed at once on a new connection.
        note_silence: Called with a failure that took all the time, so that other requests fail at once.
        connect: Opens a connection without blocking the event loop.
    """

    is_retryable: Callable[[BaseException | None], bool]
    note_silence: Callable[[BaseException], None]
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
            StoreUnavailable: when the database fails, or does not answer within `RUN_LIMIT`.
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
            self._remote.note_silence(error if cause is None else cause)
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
