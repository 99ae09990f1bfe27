"""The database: its two engines, their connections and transactions, and their errors as ours."""

import contextlib
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DisconnectionError, NoSuchModuleError, SAWarning

from licserver.database.hosts import HostState, split_libpq_url
from licserver.database.hot_path.driver import (
    RUN_LIMIT,
    KeptConnection,
    RemoteEngine,
    SqliteConnection,
    pause,
    translated_errors,
)
from licserver.database.timelines import Timelines
from licserver.errors import SettingsError, StoreUnavailableError

WRITES: Final = "licserver_writes"
_PATIENCE: Final = 10.0
"""Seconds that a service waits for another writer of a SQLite file; the hot path waits `RUN_LIMIT`."""

_LAST_CANCELS: Final = 1.0  # seconds in which a process that ends still cancels statements
_LOCK_INTERVAL: Final = 0.003
_INVALID_PARAMETERS: Final = "LICSERVER_DATABASE_URL: invalid query parameters"

_DEADLINE: Final[ContextVar[float]] = ContextVar("deadline", default=float("inf"))


def read_deadline() -> float:
    """Return the instant of the monotonic clock at which waiting ends for whatever calls this."""
    return _DEADLINE.get()


@contextlib.contextmanager
def waiting_until(deadline: float) -> Iterator[None]:
    """Let a customer's request wait until an instant of the monotonic clock; raise if that is over.

    Services and repositories are those of the vendor's operations, which may wait longer.
    """
    if time.monotonic() > deadline:
        raise StoreUnavailableError("the database failed: others took all the time")
    before = _DEADLINE.set(deadline)
    try:
        yield
    finally:
        _DEADLINE.reset(before)


def connect(url: str, timelines: Timelines | None = None) -> "Database":
    """Return the database of a URL; nothing is opened yet.

    Args:
        url: ``sqlite+pysqlite:///…`` or ``postgresql+psycopg://…``; ``postgresql://…`` and
            ``postgres://…`` mean the latter, and may name several hosts.
        timelines: Which servers of PostgreSQL are former primaries; None if only what this process sees
            counts.

    Raises:
        SettingsError: for an unsupported URL, or one whose driver is not installed.
    """
    if url.startswith("postgres://"):
        url = url.replace("postgres://", "postgresql://", 1)
    try:
        url, hosts = split_libpq_url(url)
        parsed = make_url(url).update_query_dict(hosts)
    except (ArgumentError, ValueError):
        raise SettingsError("LICSERVER_DATABASE_URL is not a database URL") from None
    match parsed.get_backend_name():
        case "sqlite":
            return _connect_sqlite(parsed)
        case "postgresql":
            return _connect_postgresql(parsed, timelines)
        case other:
            raise SettingsError(
                f"LICSERVER_DATABASE_URL: {other!r} is not supported; use sqlite or postgresql"
            )


def _connect_sqlite(url: URL) -> "Database":
    if not url.database or url.database == ":memory:":
        raise SettingsError(
            "LICSERVER_DATABASE_URL: name a file; several threads and processes share the database"
        )
    if url.database.startswith("file:"):
        raise SettingsError("LICSERVER_DATABASE_URL: name the file by its path, without file:")
    if not Path(url.database).parent.is_dir():
        raise SettingsError(f"LICSERVER_DATABASE_URL: there is no folder {Path(url.database).parent}")
    engines = _create(url), _create(url, poolclass=NullPool)
    for engine, patience in zip(engines, (_PATIENCE, RUN_LIMIT), strict=True):
        event.listen(engine, "do_connect", _open_existing)
        event.listen(engine, "connect", partial(_prepare_sqlite, patience))
        event.listen(engine, "begin", partial(_begin_sqlite, patience))
    return Database(*engines)


def _connect_postgresql(url: URL, timelines: Timelines | None) -> "Database":
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername != "postgresql+psycopg":
        raise SettingsError(
            "LICSERVER_DATABASE_URL: the driver for PostgreSQL is psycopg: postgresql+psycopg://…"
        )
    try:
        from licserver.database import connector, postgres  # noqa: PLC0415 - an extra, and slow
    except ImportError:
        raise SettingsError(
            "LICSERVER_DATABASE_URL needs the extra postgres; run: pip install 'licserver[postgres]'"
        ) from None

    # With `transaction` nothing of ours belongs to a session of the server (D-248).
    pooler, url = url.query.get("pooler"), url.difference_update_query(["pooler"])
    if pooler not in (None, "transaction"):
        raise SettingsError("LICSERVER_DATABASE_URL: pooler must be transaction")
    base = postgres.PooledConnection if pooler else postgres.LimitedConnection
    kind: type[postgres.LimitedConnection] = type(base.__name__, (base,), {})  # of this database: `end_soon`

    def create(**more: Any) -> Engine:
        return _create(
            url,
            paramstyle="format",  # by position, so that a statement is prepared once whoever asks
            isolation_level="READ COMMITTED",  # what waited for a lock must see what it waited for
            use_native_hstore=False,
            **more,
        )

    # A PostgreSQL server accepts a hundred connections by default, from all processes.
    engine = create(pool_pre_ping=True, pool_size=3, max_overflow=5, pool_timeout=10)
    hot_engine = create(poolclass=NullPool)
    try:
        hosts = connector.Connector(engine.dialect.create_connect_args(url)[1], timelines)
    except ValueError:
        raise SettingsError(_INVALID_PARAMETERS) from None
    seconds = postgres.SEVERAL_HOSTS if hosts.has_several else postgres.ONE_HOST
    open_, open_hot = (partial(postgres.open_connection, kind, hot=hot) for hot in (False, True))
    breaker = postgres.CircuitBreaker(partial(hosts.connect, open_), seconds)
    hot_breaker = postgres.CircuitBreaker(partial(hosts.connect, open_hot), seconds)
    event.listen(engine, "do_connect", lambda *_: breaker.connect())
    event.listen(hot_engine, "do_connect", lambda *_: hot_breaker.connect())

    def refuse_former(connection: Any, *_: Any) -> None:
        if hosts.is_former(connection):
            raise DisconnectionError("a former primary")  # the pool replaces the connection

    event.listen(engine, "checkout", refuse_former)
    remote = RemoteEngine(
        postgres.is_retryable,
        hot_breaker.open,
        hosts.is_former,
        look=partial(hosts.look, open_),
        close=partial(connector.wait_until_ended, _LAST_CANCELS),
        end_soon=partial(setattr, kind, "longest_wait", postgres.LAST_WAIT),
        ask=partial(hosts.ask, open_),
        check_sessions=None if pooler else partial(postgres.check_sessions, engine),
    )
    return Database(engine, hot_engine, remote)


def _create(url: URL, **more: Any) -> Engine:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SAWarning)  # an unknown option is a warning
            # hide_parameters: an error's text must not contain values
            return create_engine(url, hide_parameters=True, **more)
    except (NoSuchModuleError, ImportError):
        raise SettingsError(f"LICSERVER_DATABASE_URL: there is no driver {url.drivername!r}") from None
    except (ArgumentError, ValueError, SAWarning):  # a query such as ?timeout=soon, or ?foo=bar
        raise SettingsError(_INVALID_PARAMETERS) from None


def _open_existing(_dialect: Any, _record: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Open an existing file only: SQLite would create a missing one, readable by all users."""
    uri = f"{Path(arguments[0]).as_uri()}?mode=rw"
    return None if options.get("uri") else sqlite3.connect(uri, uri=True, **options)


def _prepare_sqlite(patience: float, connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` sends BEGIN
    # First: the statements below may meet a lock.
    connection.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    # Readers of a write-ahead log never wait for a writer. Another program's database, which will be refused,
    # is left unchanged. Of two processes that switch a new file one gets "locked" whatever the timeout is.
    if not tables or "facts" in tables:
        _retry(patience, 0.01, lambda: connection.execute("PRAGMA journal_mode = WAL"))
    connection.execute("PRAGMA synchronous = FULL")  # an acknowledged activation survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(patience: float, connection: Connection) -> None:
    if not connection.get_execution_options().get(WRITES, False):
        connection.exec_driver_sql("BEGIN")
        return
    # A writing transaction takes the lock at once. A deferred one would read first and fail with "locked"
    # when it writes, and two of them could see the same free slot. SQLite's own waiting tries ten times a
    # second in the end, and beside busy writers fails for seconds (D-129).
    driver: Any = connection.connection.driver_connection
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        _retry(patience, _LOCK_INTERVAL, lambda: driver.execute("BEGIN IMMEDIATE"))
    finally:
        driver.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")


def _retry(patience: float, interval: float, work: Callable[[], object]) -> None:
    """Call a function until SQLite is not busy any more, for some seconds."""
    deadline = min(time.monotonic() + patience, read_deadline())
    while True:
        try:
            work()
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
            if not is_busy or time.monotonic() > deadline:
                raise
            pause(interval)
        else:
            return


def stop_throttling(connection: Connection) -> None:
    """Let a background connection to PostgreSQL pause no more: others wait for what it has locked."""
    driver: Any = connection.connection.driver_connection
    driver.is_throttled = False


class Database:
    """One database: pooled transactions for services, kept connections for the hot path. Thread-safe.

    What opens a connection raises `StoreUnavailableError` when the database fails. `remote`: for PostgreSQL.
    """

    def __init__(self, engine: Engine, hot: Engine, remote: RemoteEngine | None = None) -> None:
        self.engine = engine
        self._hot = hot
        self._remote = remote
        self.is_remote: Final = remote is not None
        self.file: Final = None if self.is_remote else Path(str(engine.url.database))

    def create_file(self) -> None:
        """Create an empty SQLite file with mode 0600; SQLite gives the files beside it the same."""
        if self.file is not None:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def reader(self) -> KeptConnection:
        """Return a kept connection that commits each statement."""
        hot = self._hot.execution_options(isolation_level="AUTOCOMMIT")
        return KeptConnection(hot, self._remote)

    def writer(self) -> KeptConnection:
        """Return a kept connection to PostgreSQL whose every run begins a transaction, by `pipeline`."""
        hot = self._hot.execution_options(isolation_level="AUTOCOMMIT")
        return KeptConnection(hot, self._remote, writes=True)

    def sqlite_writer(self) -> SqliteConnection:
        """Return a kept connection to a SQLite file whose transactions are done in steps."""
        return SqliteConnection(self._hot.execution_options(**{WRITES: True}))

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a reading transaction."""
        with translated_errors(self.engine), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a writing transaction; it commits at the end, or rolls back."""
        with (
            translated_errors(self.engine),
            self.engine.connect().execution_options(**{WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection

    def check_pooler(self) -> None:
        """Raise a `StoreError` for a pooler that is not safe for what the URL says of it."""
        if self._remote is not None and self._remote.check_sessions is not None:
            with translated_errors(self.engine):
                self._remote.check_sessions()

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a throttled transaction that reads one state, whatever is written meanwhile."""
        options = {"isolation_level": "REPEATABLE READ"} if self.is_remote else {}
        with self._unpooled(is_throttled=True, **options) as connection:
            if self.is_remote:
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            yield connection

    @contextlib.contextmanager
    def background_connection(self) -> Iterator[Connection]:
        """Open a throttled connection for temporary tables and long statements."""
        with self._unpooled(is_throttled=True) as connection:
            if self.is_remote:
                driver: Any = connection.connection.driver_connection
                driver.keep_session()
            yield connection

    @contextlib.contextmanager
    def long_transaction(self, *, foreign_keys: bool = True) -> Iterator[Connection]:
        """Open a writing transaction without a statement timeout: to change the schema, or count everything.

        It waits for locks for ten seconds only: a transaction that waits for a whole table blocks all that
        come after it.

        Args:
            foreign_keys: Whether SQLite enforces them; it must not while a migration recreates a table.
        """
        with self._unpooled(**{WRITES: True}) as connection:
            if not (self.is_remote or foreign_keys):
                driver: Any = connection.connection.driver_connection
                driver.execute("PRAGMA foreign_keys = OFF")  # has no effect within a transaction
            with connection.begin():
                if self.is_remote:
                    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
                    connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
                yield connection

    @contextlib.contextmanager
    def _unpooled(self, *, is_throttled: bool = False, **options: Any) -> Iterator[Connection]:
        """Open a connection that waits for an answer without limit, and close it afterwards."""
        with translated_errors(self.engine), self.engine.connect().execution_options(**options) as connection:
            try:
                if self.is_remote:
                    driver: Any = connection.connection.driver_connection
                    driver.wait_limit = float("inf")
                    driver.is_throttled = is_throttled
                yield connection
            finally:
                connection.invalidate()  # its settings have changed

    def ask_hosts(self) -> list[HostState]:
        """Return what each host of PostgreSQL is."""
        with translated_errors(self.engine):
            return [] if self._remote is None else self._remote.ask()

    def look(self) -> float | None:
        """Look in the background whether another host was promoted; connections are replaced then.

        Return after how many seconds to repeat; None for a database that has no other host.
        """
        return None if self._remote is None else self._remote.look()

    def end_soon(self) -> None:
        """Wait no longer than `LAST_WAIT` for an answer of PostgreSQL from now on."""
        if self._remote is not None:
            self._remote.end_soon()

    def close(self) -> None:
        """Close the pool; kept connections are closed by their owners."""
        self.engine.dispose()
        if self._remote is not None:
            self._remote.close()
