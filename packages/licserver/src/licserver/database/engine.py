"""The database: its two engines, their connections and transactions, and their errors as ours."""

import contextlib
import os
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SAWarning

from licserver.database.deadlines import read_deadline
from licserver.database.durability import is_repeated
from licserver.database.hosts import HostState, split_libpq_url
from licserver.database.hot_path.driver import (
    RUN_LIMIT,
    KeptConnection,
    SqliteConnection,
    pause,
    translated_errors,
)
from licserver.database.timelines import Timelines
from licserver.database.write_turns import WriteTurns
from licserver.errors import NotWritableError, SettingsError, StoreUnavailableError

if TYPE_CHECKING:
    from licserver.database.postgres import PostgresServer

WRITES: Final = "licserver_writes"
_PATIENCE: Final = 10.0
"""Seconds that a service waits for another writer of a SQLite file; the hot path waits `RUN_LIMIT`."""

_LOCK_INTERVAL: Final = 0.003
_TRUNCATE: Final = "PRAGMA wal_checkpoint(TRUNCATE)"
_NORMAL: Final = 1  # of `PRAGMA synchronous`: a commit does not wait for the disk
_PROBE_BYTES: Final = 64 << 10
_READ_BYTES: Final = 1 << 20
_LOG_LIMIT: Final = 16 << 20  # bytes of SQLite's write-ahead log after a checkpoint
_INVALID_PARAMETERS: Final = "LICSERVER_DATABASE_URL: invalid query parameters"


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
        from licserver.database.postgres import PostgresServer  # noqa: PLC0415 - an extra, and slow
    except ImportError:
        raise SettingsError(
            "LICSERVER_DATABASE_URL needs the extra postgres; run: pip install 'licserver[postgres]'"
        ) from None

    # With `transaction` nothing of ours belongs to a session of the server.
    pooler, url = url.query.get("pooler"), url.difference_update_query(["pooler"])
    if pooler not in (None, "transaction"):
        raise SettingsError("LICSERVER_DATABASE_URL: pooler must be transaction")

    def create(**more: Any) -> Engine:
        return _create(
            url,
            paramstyle="format",  # by position, so that a statement is prepared once for all callers
            isolation_level="READ COMMITTED",  # what waited for a lock must see what it waited for
            use_native_hstore=False,
            **more,
        )

    # A PostgreSQL server accepts a hundred connections by default, from all processes.
    engine = create(pool_pre_ping=True, pool_size=3, max_overflow=5, pool_timeout=10)
    hot_engine = create(poolclass=NullPool)
    try:
        parameters = engine.dialect.create_connect_args(url)[1]
        server = PostgresServer(parameters, timelines, is_pooled=pooler is not None)
    except ValueError:
        raise SettingsError(_INVALID_PARAMETERS) from None
    event.listen(engine, "do_connect", lambda *_: server.connect())
    event.listen(hot_engine, "do_connect", lambda *_: server.connect_hot())
    event.listen(engine, "checkout", server.refuse_former)
    return Database(engine, hot_engine, server)


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
    if options.get("uri"):
        return None
    connection = sqlite3.connect(uri, uri=True, **options)
    if _lacks_room(connection):
        connection.close()
        connection = sqlite3.connect(uri, uri=True, **options)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    return connection


def _lacks_room(connection: sqlite3.Connection) -> bool:
    """Return whether a full disk has no room for the index of the log, which the first reader creates.

    Without other readers the index can be in memory: so the data can be read, and backed up elsewhere.
    """
    try:
        connection.execute("PRAGMA schema_version").close()
    except sqlite3.OperationalError as error:
        return error.sqlite_errorcode == sqlite3.SQLITE_IOERR_SHMSIZE
    except sqlite3.DatabaseError:  # no database; whatever comes next reports it
        return False
    return False


def _prepare_sqlite(patience: float, connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # `_begin_sqlite` sends BEGIN
    # First: the statements below may meet a lock.
    connection.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    # Readers of a write-ahead log never wait for a writer. Another program's database, which will be refused,
    # is left unchanged. Of two processes that switch a new file one gets "locked" with any timeout.
    if not tables or "facts" in tables:
        _retry(patience, 0.01, lambda: connection.execute("PRAGMA journal_mode = WAL"))
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")  # else it stays as large as it ever was
    connection.execute("PRAGMA secure_delete = ON")  # what is erased leaves zeros; the default of few builds
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
    if is_repeated() != connection.info.get("is_repeated", False):
        _set_repeated(connection.info, driver, is_repeated())
    driver.execute("PRAGMA busy_timeout = 0")
    try:
        _retry(patience, _LOCK_INTERVAL, lambda: driver.execute("BEGIN IMMEDIATE"))
    finally:
        driver.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")


def _set_repeated(info: dict[str, Any], driver: sqlite3.Connection, repeated: bool) -> None:
    """Let the next transactions of a connection wait for the disk, or not."""
    if "synchronous" not in info:
        (info["synchronous"],) = driver.execute("PRAGMA synchronous").fetchone()
    driver.execute(
        f"PRAGMA synchronous = {min(_NORMAL, info['synchronous']) if repeated else info['synchronous']}"
    )
    info["is_repeated"] = repeated


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

    def __init__(self, engine: Engine, hot: Engine, remote: "PostgresServer | None" = None) -> None:
        self.engine = engine
        self._hot = hot
        self._remote = remote
        self.is_remote: Final = remote is not None
        self.is_pooled: Final = remote is not None and remote.is_pooled
        self.file: Final = None if self.is_remote else Path(str(engine.url.database))
        self._write_fault: NotWritableError | None = None
        self._turns = WriteTurns()

    @contextlib.contextmanager
    def watching_writes(self) -> Iterator[None]:
        """Remember whether the latest transaction that wrote found the database full or read-only."""
        try:
            yield
        except NotWritableError as fault:
            self._write_fault = fault
            raise
        self._write_fault = None

    def check_latest_write(self) -> None:
        """Raise the fault of the latest write, until another one succeeds.

        Each server writes its reading of the clock (D-284): a fault is noticed, and ends, without customers.
        """
        if self._write_fault is not None:
            raise NotWritableError(str(self._write_fault))

    def create_file(self) -> None:
        """Create an empty SQLite file with mode 0600; SQLite gives the files beside it the same."""
        if self.file is not None:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def empty_log(self) -> bool:
        """Move SQLite's write-ahead log into the file, and empty it; return False if readers prevent it.

        Until then the log has what was erased in the file.
        """
        if self.file is None:
            return True
        with translated_errors(self.engine), contextlib.closing(self.engine.raw_connection()) as pooled:
            driver: Any = pooled.driver_connection
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)")  # most of it, while others go on writing
            driver.execute("PRAGMA busy_timeout = 0")  # while it waits for readers, nobody could write
            try:
                deadline = time.monotonic() + _PATIENCE
                while (is_busy := driver.execute(_TRUNCATE).fetchone()[0]) and time.monotonic() < deadline:
                    pause(_LOCK_INTERVAL)
            finally:
                driver.execute(f"PRAGMA busy_timeout = {_PATIENCE * 1000:.0f}")
        return not is_busy

    def holds(self, texts: Collection[bytes]) -> bool:
        """Return whether a SQLite file has one of some texts in lower case, also where nothing reads it.

        `secure_delete` overwrites what is deleted, and not what was left when rows moved to another page.
        """
        longest, end = max(map(len, texts), default=0), b""
        if self.file is None:
            return False
        with self.file.open("rb") as file:
            while piece := file.read(_READ_BYTES):
                lower = (end + piece).lower()
                if any(text in lower for text in texts):
                    return True
                end = piece[-longest:]
        return False

    def vacuum(self) -> None:
        """Write a SQLite file anew, without anything that was deleted; nobody else can write meanwhile."""
        with translated_errors(self.engine), contextlib.closing(self.engine.raw_connection()) as pooled:
            driver: Any = pooled.driver_connection
            driver.execute("VACUUM")

    def check_disk(self) -> None:
        """Write beside a SQLite file, as much as an activation does; nothing is left of it.

        Raises:
            StoreUnavailableError: The disk is full, or cannot be written to. Reads go on.
        """
        if self.file is None:
            return
        try:
            with tempfile.TemporaryFile(dir=self.file.parent, prefix=".probe-", buffering=0) as probe:
                probe.write(bytes(_PROBE_BYTES))
        except OSError as problem:
            raise StoreUnavailableError(
                f"the database cannot be written to: {problem.strerror or type(problem).__name__}"
            ) from None

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
            self.watching_writes(),
            translated_errors(self.engine),
            contextlib.nullcontext() if self.is_remote else self._turns.turn(),
            self.engine.connect().execution_options(**{WRITES: True}) as connection,
            connection.begin(),
        ):
            self._turns.begin()
            yield connection

    def check_pooler(self) -> None:
        """Raise a `StoreError` for a pooler whose mode is not that of the URL."""
        if self._remote is not None:
            with translated_errors(self.engine):
                self._remote.check_sessions(self.engine)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a throttled transaction that reads one snapshot."""
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

    def query_hosts(self) -> list[HostState]:
        """Return what each host of PostgreSQL is."""
        with translated_errors(self.engine):
            return [] if self._remote is None else self._remote.query_hosts()

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
        """Close the pool, and what a thread returns to it later; owners close the kept connections."""
        event.listen(self.engine, "checkin", lambda _, entry: entry.close())
        self.engine.dispose()
        if self._remote is not None:
            self._remote.close()
