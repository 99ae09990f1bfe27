"""Connections to PostgreSQL: session settings, time limits, a circuit breaker, and poolers.

A server that was stopped refuses connections at once. One that hangs, or whose machine is gone, does not
answer: every wait has a limit here.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg
from sqlalchemy import Engine
from sqlalchemy.exc import DisconnectionError

from licserver.database import pooler
from licserver.database.cancellation import wait_until_ended
from licserver.database.connector import Connector
from licserver.database.hosts import HostRole, HostState, Server
from licserver.database.hot_path.driver import LOCK_LIMIT, RUN_LIMIT
from licserver.database.limited_connection import (
    CONNECT_LIMIT,
    WAIT_LIMIT,
    LimitedConnection,
    NoResponseError,
    SharedLimits,
)
from licserver.database.timelines import Timelines

LAST_WAIT: Final = 2.0  # seconds to wait for a statement in a process that ends
_LAST_CANCELS: Final = 1.0  # seconds in which a process that ends still cancels statements

ONE_HOST: Final = 0.5
SEVERAL_HOSTS: Final = 0.1
"""Seconds in which no connection is tried after a failure."""

_SETTINGS: Final = {
    "timezone": "UTC",  # elsewhere an instant of the year 9999 is in the year 10000, which Python lacks
    "datestyle": "ISO",  # an instant's text begins with its day, as in SQLite
}
_LIMITS: Final = {"statement_timeout": "60s", "lock_timeout": "5s"}
_HOT_LIMITS: Final = {
    "statement_timeout": f"{RUN_LIMIT * 1000:.0f}ms",
    "lock_timeout": f"{LOCK_LIMIT * 1000:.0f}ms",
    # A machine that dies between lock and commit must not hold the license for hours.
    "idle_in_transaction_session_timeout": "5s",
    # Every hot statement finds its rows by an index. A plan from when the tables were small would read all
    # rows, and be kept until the next ANALYZE.
    "enable_seqscan": "off",
}

_RETRYABLE: Final = {
    "0A000",  # a prepared statement whose tables have changed
    "25P03",  # this process paused for longer than idle_in_transaction_session_timeout
    "25006",  # the server has become a replica; the next connection finds the new primary
    "26000",  # a pooler assigned another connection, without our prepared statements
    "40001",  # serialization failure
    "40P01",  # deadlock
}


class CircuitBreaker:
    """Opens connections; after a failure refuses for a moment.

    Without it requests queue behind each other while the server hangs, and take longer than two seconds each.

    Args:
        connect: Opens a connection within `CONNECT_LIMIT`.
        seconds: How long to refuse; another host may be there sooner.
    """

    def __init__(self, connect: Callable[[], LimitedConnection], seconds: float = ONE_HOST) -> None:
        self._connect = connect
        self._seconds = seconds
        self._open_until = 0.0
        self._reason = ""

    def connect(self) -> LimitedConnection:
        """Open a connection."""
        if time.monotonic() < self._open_until:
            raise psycopg.OperationalError(self._reason)
        try:
            return self._connect()
        except psycopg.OperationalError as error:
            self.open(error)
            raise

    def open(self, error: BaseException) -> None:
        """Refuse connections for a moment, because of an error."""
        self._reason = str(error)
        self._open_until = time.monotonic() + self._seconds


_OURS: Final = {
    "connect_timeout": 2,
    "application_name": "licserver",
    "client_encoding": "UTF8",  # the server's own default may lack characters that clients send
    # A peer that has vanished is noticed in seconds and not in hours.
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 5000,
}
"""Parameters of libpq; those of the URL override them."""

_ABOUT: Final = """
SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on',
    (SELECT system_identifier FROM pg_control_system()),
    CASE WHEN NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_insert_lsn()) END,
    pg_postmaster_start_time()::text
"""
"""The segment's name begins with the timeline; the control file has a new one only some time later."""


class PostgresServer:
    """A PostgreSQL server, whose hosts may be several: opens connections, and bounds all waits.

    Args:
        parameters: libpq's.
        timelines: The highest ones that were seen (`Connector`).
        is_pooled: Whether a pooler gives each transaction another session.

    Raises:
        ValueError: for parameters that contradict each other.
    """

    def __init__(
        self, parameters: Mapping[str, Any], timelines: Timelines | None, *, is_pooled: bool
    ) -> None:
        self._connector = Connector(parameters, timelines)
        self.is_pooled = is_pooled
        self._limits = SharedLimits()
        seconds = SEVERAL_HOSTS if self._connector.has_several else ONE_HOST
        self._breaker = CircuitBreaker(lambda: self._connector.connect(self._open), seconds)
        self._hot_breaker = CircuitBreaker(lambda: self._connector.connect(self._open_hot), seconds)

    def connect(self) -> LimitedConnection:
        """Open a connection for what a vendor does."""
        return self._breaker.connect()

    def connect_hot(self) -> LimitedConnection:
        """Open a connection for the hot path."""
        return self._hot_breaker.connect()

    def open_breaker(self, error: BaseException) -> None:
        """Refuse hot connections for a moment, after a failure that took all the time."""
        self._hot_breaker.open(error)

    def is_retryable(self, error: BaseException | None) -> bool:
        """Return whether the same transaction may succeed at once on a new connection.

        One that broke rolled its transaction back, unless it broke during the commit: what is retried must
        bear to be done twice.
        """
        if not isinstance(error, psycopg.Error) or isinstance(error, NoResponseError):
            return False
        state = error.sqlstate
        if state is None:  # not an error of the server: the connection broke
            return isinstance(error, psycopg.OperationalError)
        return state in _RETRYABLE or state.startswith(("57P", "08"))  # it was shut down; a pooler lost it

    def is_former(self, connection: LimitedConnection) -> bool:
        """Return whether a connection is to a server that another one has replaced."""
        return self._connector.is_former(connection)

    def refuse_former(self, connection: LimitedConnection, *_: Any) -> None:
        """Have the pool replace a connection to a former primary; listens to its checkouts."""
        if self.is_former(connection):
            raise DisconnectionError("a former primary")

    def look(self) -> float:
        """Look in the background whether another host was promoted; return in how many seconds to repeat."""
        return self._connector.look(self._open)

    def query_hosts(self) -> list[HostState]:
        """Return the role of each host."""
        return self._connector.ask(self._open)

    def check_sessions(self, engine: Engine) -> None:
        """Raise a `StoreError` for a pooler that gives each transaction another session, unless it may."""
        if not self.is_pooled:
            pooler.check_sessions(engine)

    def end_soon(self) -> None:
        """Bound all waits, also those that have begun, because the process ends."""
        self._limits.longest_wait = LAST_WAIT

    def close(self) -> None:
        """Wait a moment for statements that are being cancelled."""
        wait_until_ended(_LAST_CANCELS)

    def _open(self, parameters: Mapping[str, Any]) -> LimitedConnection:
        connection = self._set_up(parameters, _LIMITS)
        connection.wait_limit = WAIT_LIMIT
        return connection

    def _open_hot(self, parameters: Mapping[str, Any]) -> LimitedConnection:
        return self._set_up(parameters, _HOT_LIMITS)

    def _set_up(self, parameters: Mapping[str, Any], limits: Mapping[str, str]) -> LimitedConnection:
        """Open a connection to one address, set its session up, and read what the server is."""
        kind = pooler.PooledConnection if self.is_pooled else LimitedConnection
        connection = kind.connect(autocommit=True, **{**_OURS, **parameters})
        connection.shared_limits = self._limits
        connection.wait_limit = CONNECT_LIMIT
        try:
            connection.configure(_SETTINGS, limits)
            connection.server = _read_server(connection)
            connection.autocommit = False
        except BaseException:
            connection.close()
            raise
        return connection


def _read_server(connection: LimitedConnection) -> Server:
    try:
        ((is_standby, is_read_only, system, segment, started),) = connection.execute(_ABOUT).fetchall()
    except psycopg.Error as error:
        if (error.sqlstate or "57")[:2] in {"08", "57"}:
            raise
        # Another engine that speaks PostgreSQL's protocol, or a role without the right.
        ((read_only,),) = connection.execute("SHOW transaction_read_only").fetchall()
        return Server(HostRole.READ_ONLY if read_only == "on" else HostRole.PRIMARY)
    if is_standby:
        return Server(HostRole.STANDBY, str(system))
    role = HostRole.READ_ONLY if is_read_only else HostRole.PRIMARY
    return Server(role, str(system), int(segment[:8], 16), started)
