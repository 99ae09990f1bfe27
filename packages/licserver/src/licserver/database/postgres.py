"""Connections to PostgreSQL: session settings, time limits, a circuit breaker, and poolers.

A server that was stopped refuses connections at once. One that hangs, or whose machine is gone, does not
answer: every wait has a limit here.
"""

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeVar

import psycopg
from psycopg import pq
from psycopg.waiting import wait_async
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from licserver.database.connector import CONNECT_LIMIT, NoAnswerError, give_up
from licserver.database.engine import read_deadline
from licserver.database.hosts import Role, Server
from licserver.database.hot_path.driver import LOCK_LIMIT, RUN_LIMIT, is_in_loop, wait_in_loop
from licserver.errors import StoreError

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"
WAIT_LIMIT: Final = 75.0
"""Seconds to wait for a statement beside the hot path; `statement_timeout` is shorter."""

LAST_WAIT: Final = 2.0  # the same in a process that ends

ONE_HOST: Final = 0.5
SEVERAL_HOSTS: Final = 0.1
"""Seconds in which no connection is tried after a failure."""

_CLOCK_INTERVAL: Final = 0.05  # seconds between two checks of a limit; psycopg's own is 0.1
_SHORTEST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 1.0

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
Yielded = TypeVar("Yielded")
Sent = TypeVar("Sent")
Result = TypeVar("Result")


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server does not answer in time.

    `deadline` (of the monotonic clock) and `wait_limit` (seconds, of each single wait) may be set, and for
    all connections of a class `longest_wait`, which holds for those that wait already. A throttled connection
    pauses before each statement for as long as the server worked for it (D-152). `server` is what it is
    connected to.
    """

    raw_cursor: type[psycopg.RawCursor[Any]] = psycopg.RawCursor
    server: Server
    deadline: float = float("inf")
    wait_limit: float = WAIT_LIMIT
    longest_wait: ClassVar[float] = float("inf")
    is_throttled: bool = False
    _owed: float = 0.0
    _answered: float = 0.0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._cursors: dict[str, psycopg.RawCursor[Any]] = {}

    def cursor_for(self, sql: str) -> psycopg.RawCursor[Any]:
        """Return the cursor that is kept for a statement, as is what psycopg finds out about its types."""
        if sql not in self._cursors:
            self._cursors[sql] = self.raw_cursor(self)
        return self._cursors[sql]

    def configure(self, settings: Mapping[str, str], limits: Mapping[str, str]) -> None:
        """Make settings of the session, and limits of its statements."""
        # SET and not the connection's `options`, which poolers refuse.
        self.execute("; ".join(f"SET {name} = '{value}'" for name, value in {**settings, **limits}.items()))

    @contextlib.contextmanager
    def pipelined(self, *, begins: bool, commits: bool) -> Iterator[None]:
        """Send a block's statements one behind the other, if wanted with the transaction's begin and end.

        psycopg's own BEGIN and COMMIT would be waited for by themselves, even in a pipeline.
        """
        with self.pipeline():
            if begins:
                psycopg.Cursor(self).execute(BEGIN, prepare=False)
            yield
            if commits:
                psycopg.Cursor(self).execute("COMMIT", prepare=False)

    def keep_session(self) -> None:
        """Have temporary tables, and statements that may take any time, until the connection is closed."""
        self.execute("SET statement_timeout = 0")
        self.commit()

    def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
        """Wait as psycopg does, within the limits; in a greenlet the event loop waits."""
        waits = self._limited(gen)
        if is_in_loop():
            return wait_in_loop(wait_async(waits, self.pgconn.socket, _CLOCK_INTERVAL))
        if not self.is_throttled:
            return super().wait(waits, *arguments, **more)
        self._pause()
        begin = time.monotonic()
        result = super().wait(waits, *arguments, **more)
        self._answered = time.monotonic()
        self._owed += self._answered - begin
        return result

    def close(self) -> None:
        """Close it; a statement that has not ended is cancelled."""
        if self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            self._give_up()
        self._cursors.clear()
        super().close()

    def _give_up(self) -> None:
        """Leave the server's side to be ended in the background; this connection is closed from now on."""
        create: Any = pq.PGconn  # that of the C library takes no argument, and says so
        given_up, self.pgconn = self.pgconn, create(None)
        if self._pipeline is not None:  # psycopg's: it would go on using the other one, beside the thread
            self._pipeline.pgconn = self.pgconn
        give_up(given_up)

    def _pause(self) -> None:
        """Pause for as long as the server worked; time spent on other work since then counts."""
        owed = self._owed - (time.monotonic() - self._answered)
        if owed > _SHORTEST_PAUSE:
            time.sleep(min(owed, _LONGEST_PAUSE))
            owed = 0.0
        self._owed = max(owed, 0.0)

    def _limited(self, gen: Generator[Yielded, Sent, Result]) -> Generator[Yielded, Sent, Result]:
        """Pass everything through; psycopg sends 0 now and then while nothing arrives."""
        began = time.monotonic()
        limit = min(self.deadline, read_deadline(), began + self.wait_limit)
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > min(limit, began + self.longest_wait):
                    self._give_up()  # a late answer must not be read as that to the next statement
                    raise NoAnswerError("no answer in time")
                wanted = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result


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


def open_connection(
    kind: type[LimitedConnection], parameters: Mapping[str, Any], *, hot: bool
) -> LimitedConnection:
    """Open a connection to one address, set its session up, and read what the server is."""
    connection = kind.connect(autocommit=True, **{**_OURS, **parameters})
    connection.wait_limit = CONNECT_LIMIT
    try:
        connection.configure(_SETTINGS, _HOT_LIMITS if hot else _LIMITS)
        connection.server = _read_server(connection)
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    connection.wait_limit = CONNECT_LIMIT if hot else WAIT_LIMIT
    return connection


def _read_server(connection: LimitedConnection) -> Server:
    try:
        ((is_standby, is_read_only, system, segment, started),) = connection.execute(_ABOUT).fetchall()
    except psycopg.Error as error:
        if (error.sqlstate or "57")[:2] in {"08", "57"}:
            raise
        # Another engine that speaks PostgreSQL's protocol, or a role that may not ask.
        ((read_only,),) = connection.execute("SHOW transaction_read_only").fetchall()
        return Server(Role.READ_ONLY if read_only == "on" else Role.PRIMARY)
    if is_standby:
        return Server(Role.STANDBY, str(system))
    role = Role.READ_ONLY if is_read_only else Role.PRIMARY
    return Server(role, str(system), int(segment[:8], 16), started)


def is_retryable(error: BaseException | None) -> bool:
    """Return whether the same transaction may succeed at once on a new connection.

    One that broke rolled its transaction back, unless it broke during the commit: what is retried must bear
    to be done twice.
    """
    if not isinstance(error, psycopg.Error) or isinstance(error, NoAnswerError):
        return False
    state = error.sqlstate
    if state is None:  # not an error of the server: the connection broke
        return isinstance(error, psycopg.OperationalError)
    return state in _RETRYABLE or state.startswith(("57P", "08"))  # it was shut down; a pooler lost it


# --- poolers such as PgBouncer that give each transaction another session of the server (D-248) ---
#
# Nothing of ours may then belong to a session: settings hold for a transaction, statements are not prepared,
# and an import keeps the session of its temporary tables by beginning each transaction as it ends the last.

_LOOKS: Final = 5  # of which one is enough, unless others use the pooler in the same moment


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
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as one:
        session = _session(one)
        driver: Any = one.connection.driver_connection
        if session == driver.info.backend_pid:
            return  # no pooler: it draws the numbers that it gives to clients
        for _ in range(_LOOKS):
            try:
                with engine.connect() as other:
                    is_shared = _session(other) == session or _session(one) != session
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
