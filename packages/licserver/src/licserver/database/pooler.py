"""Poolers such as PgBouncer that give each transaction another session of the server (D-248).

Nothing of ours may then belong to a session: settings hold for a transaction, statements are not prepared,
and an import keeps the session of its temporary tables by beginning each transaction as it ends the last.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import psycopg
from psycopg import pq
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from licserver.database.limited_connection import BEGIN, LimitedConnection
from licserver.errors import StoreError

_LOOKS: Final = 5  # a single look is enough, unless others use the pooler in the same moment


class _Cursor(psycopg.Cursor[Any]):
    """Sets the limits of its connection in each transaction that it begins."""

    connection: "PooledConnection"

    def execute(self, query: Any, params: Any = None, **more: Any) -> "_Cursor":
        if not self.connection.begins():
            return super().execute(query, params, **more)
        if not self.connection.autocommit:
            self.connection.begin()
            return super().execute(query, params, **more)
        with self.connection.pipeline():  # both are one transaction, in one round trip
            self.connection.set_limits()
            super().execute(query, params, **more)
        return self

    def executemany(self, *arguments: Any, **more: Any) -> None:
        self.connection.begin()
        super().executemany(*arguments, **more)

    def copy(self, *arguments: Any, **more: Any) -> Any:
        self.connection.begin()
        return super().copy(*arguments, **more)


class _RawCursor(_Cursor, psycopg.RawCursor[Any]):
    """The same, for statements whose parameters are numbered."""


class _ServerCursor(psycopg.ServerCursor[Any]):
    """The same, for results that are fetched piece by piece."""

    connection: "PooledConnection"

    def execute(self, *arguments: Any, **more: Any) -> "_ServerCursor":
        self.connection.begin()
        return super().execute(*arguments, **more)


class PooledConnection(LimitedConnection):
    """A connection to a pooler, whose every transaction may be in another session."""

    raw_cursor = _RawCursor
    _limits: Mapping[str, str] = {}
    _is_kept: bool = False

    def configure(self, settings: Mapping[str, str], limits: Mapping[str, str]) -> None:
        """Make settings that a pooler keeps for each client, and limits of each transaction."""
        super().configure(settings, {})
        self.prepare_threshold = None
        self.cursor_factory, self.server_cursor_factory = _Cursor, _ServerCursor
        self._limits = limits

    @contextlib.contextmanager
    def pipelined(self, *, begins: bool, commits: bool) -> Iterator[None]:
        """Send a block's statements one behind the other; before it, what begins the transaction."""
        if begins:
            self.set_limits(f"{BEGIN}; ")
        with super().pipelined(begins=False, commits=commits):
            yield

    def keep_session(self) -> None:
        """Keep one session of the server until the connection is closed."""
        self._is_kept = True
        endless = {"statement_timeout": "0", "idle_in_transaction_session_timeout": "0"}
        self._limits = {**self._limits, **endless}

    def begins(self) -> bool:
        """Return whether the next statement begins a transaction."""
        return self.pgconn.transaction_status == pq.TransactionStatus.IDLE

    def set_limits(self, before: str = "") -> None:
        """Send the limits, for the transaction in which that is."""
        values = (f"set_config('{name}', '{value}', true)" for name, value in self._limits.items())
        psycopg.Cursor(self).execute(f"{before}SELECT {', '.join(values)}")

    def begin(self) -> None:
        """Begin a transaction with the settings, unless one has begun, or each statement is one."""
        if self.begins() and not self.autocommit:
            with self.pipeline():
                self.set_limits()

    def commit(self) -> None:
        """Commit; where the session is kept, begin the next transaction with that."""
        self._end("COMMIT") if self._is_kept else super().commit()

    def rollback(self) -> None:
        """Roll back; where the session is kept, begin the next transaction with that."""
        self._end("ROLLBACK") if self._is_kept else super().rollback()

    def _end(self, command: str) -> None:
        if not self.begins():
            # The pooler takes a session back when no transaction is open.
            self.set_limits(f"{command} AND CHAIN; ")


def check_sessions(engine: Engine) -> None:
    """Refuse a pooler that gives each transaction another session, where ours would need their own.

    A `StoreError`. Others' settings would hold for our statements, and ours for theirs.
    """
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        session = _session(connection)
        driver: Any = connection.connection.driver_connection
        if session == driver.info.backend_pid:
            return  # no pooler: it draws the numbers that it gives to clients
        for _ in range(_LOOKS):
            try:
                with engine.connect() as other:
                    is_shared = _session(other) == session or _session(connection) != session
            except (SQLAlchemyError, psycopg.Error):
                return  # the pooler has no other session to give, so it keeps them apart
            if is_shared:
                raise StoreError(
                    "the database is behind a pooler that gives each transaction another session (PgBouncer: "
                    "pool_mode = transaction); add pooler=transaction to LICSERVER_DATABASE_URL, as in "
                    "postgresql://…/licserver?pooler=transaction, or let it pool by session"
                )


def _session(connection: Connection) -> int:
    number: int = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
    return number
