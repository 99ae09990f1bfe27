"""A connection kept at hand for one kind of work on the hot paths.

Taking one from the pool, and asking it whether it still lives, would cost more than the statement. Instead
a lane finds out by using it: what fails because the connection had died meanwhile is done again on a new one.
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
"""Seconds until a run gives up: a customer is told to try again within two."""

_LEAST_LIMIT: Final = 0.4
_LAST_TRY_BEFORE: Final = 1.0
_TRIES: Final = 3

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RemoteEngine:
    """What is different about an engine on another machine.

    Args:
        is_worth_retrying: Whether the same transaction may succeed at once on a new connection.
        note_silence: Told of a failure that took all the time there was, lest others wait as well.
        connect: Opens a connection, without keeping an event loop from its work.
    """

    is_worth_retrying: Callable[[BaseException | None], bool]
    note_silence: Callable[[BaseException], None]
    connect: Callable[[Callable[[], Connection]], Connection]


class KeptConnection:
    """Runs one piece of work after another on a connection of its own.

    Safe to share among threads; within an event loop (`store.inloop`) a lane has one user.

    Args:
        engine: Where to connect, when first asked, and after a failure.
        named: Turns failures into ours.
        remote: ResponseModel for an engine on another machine; absent, nothing is tried twice.
        writes: Whether each run is a transaction; otherwise each statement is.
    """

    def __init__(
        self,
        engine: Engine,
        named: Callable[[], AbstractContextManager[None]],
        remote: RemoteEngine | None = None,
        *,
        writes: bool = False,
    ) -> None:
        self._engine = engine
        self.named: Final = named
        self._remote = remote
        self._writes = writes
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Do a piece of work, and once more on a new connection if the old one had died.

        Args:
            work: Reads, or reads and writes within the run's transaction. May be called again after a
                failure, even one of its commit whose outcome nobody knows: it must judge anew what it finds.

        Raises:
            StoreUnavailable: when the database fails, or gives no answer within `RUN_LIMIT`.
        """
        with self._lock, self.named():
            began = time.monotonic()
            for _ in range(_TRIES - 1):
                try:
                    return self._try(work, began)
                except Exception as error:
                    if not self._may_try_again(error, began):
                        raise
            return self._try(work, began)

    def _try(self, work: Callable[[Connection], Result], began: float) -> Result:
        try:
            connection = self._connected(began)
            if not self._writes:
                result = work(connection)
                if connection.in_transaction():  # or it would go on seeing what it sees now
                    connection.rollback()
                return result
            with connection.begin():
                return work(connection)
        except BaseException:
            self._drop()
            raise

    def _connected(self, began: float) -> Connection:
        if self._connection is None:
            connect = self._engine.connect
            self._connection = connect() if self._remote is None else self._remote.connect(connect)
        if self._remote is not None:
            driver: Any = self._connection.connection.driver_connection
            driver.deadline = max(began + RUN_LIMIT, time.monotonic() + _LEAST_LIMIT)
        return self._connection

    def _may_try_again(self, error: Exception, began: float) -> bool:
        if self._remote is None:
            return False
        cause = error.orig if isinstance(error, DBAPIError) else error
        took = time.monotonic() - began
        if self._remote.is_worth_retrying(cause):
            return took < _LAST_TRY_BEFORE
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
