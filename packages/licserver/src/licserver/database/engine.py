"""Opening the database: what each engine must be told, and what a failure is called outside this room."""

import contextlib
import os
import sqlite3
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SAWarning, SQLAlchemyError

from licserver.database.hot_path import greenlet_bridge
from licserver.database.hot_path.connections import RUN_LIMIT, KeptConnection, RemoteEngine
from licserver.database.hot_path.sqlite_connection import SqliteConnection, begin_in_turn
from licserver.errors import SettingsError, StoreUnavailable

if TYPE_CHECKING:
    from licserver.database.postgres import CircuitBreaker

WRITES: Final = "licserver_writes"
_PATIENCE: Final = 10.0
"""Seconds that a vendor's operation waits for another writer of a SQLite file; a customer, `RUN_LIMIT`."""

_POSTGRESQL: Final = "postgresql"


def connect(url: str) -> "Database":
    """Make the database of a URL; nothing is opened yet.

    Args:
        url: ``sqlite+pysqlite:///…`` or ``postgresql+psycopg://…``; ``postgresql://…`` and
            ``postgres://…`` mean the latter.

    Raises:
        SettingsError: for a URL that names no database we know, or one whose driver is not installed.
    """
    if url.startswith("postgres://"):
        url = url.replace("postgres://", "postgresql://", 1)
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError):
        raise SettingsError("LICSERVER_DATABASE_URL is not a database URL") from None
    match parsed.get_backend_name():
        case "sqlite":
            return _connect_sqlite(parsed)
        case "postgresql":
            return _connect_postgresql(parsed)
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


def _connect_postgresql(url: URL) -> "Database":
    if url.drivername == _POSTGRESQL:
        url = url.set(drivername="postgresql+psycopg")
    if url.drivername != "postgresql+psycopg":
        raise SettingsError(
            "LICSERVER_DATABASE_URL: the driver for PostgreSQL is psycopg: postgresql+psycopg://…"
        )
    try:
        from licserver.database.postgres import is_worth_retrying, make_door  # noqa: PLC0415 - an extra, and slow

        greenlet_bridge.is_running()  # needs greenlet, which whoever had the extra before may lack
    except ImportError:
        raise SettingsError(
            "LICSERVER_DATABASE_URL: PostgreSQL needs a driver: pip install licserver[postgres]"
        ) from None

    def create(*, hot: bool, **more: Any) -> "tuple[Engine, CircuitBreaker]":
        engine = _create(
            url,
            paramstyle="format",  # by position, so that a statement is prepared once whoever asks
            isolation_level="READ COMMITTED",  # what waited for a lock must see what it waited for
            use_native_hstore=False,
            **more,
        )
        door = make_door(engine.dialect.create_connect_args(url)[1], hot=hot)
        event.listen(engine, "do_connect", lambda *_: door.enter())
        return engine, door

    # Besides the lanes of the hot paths a process needs few; a server takes a hundred from all.
    engine, calm_door = create(hot=False, pool_pre_ping=True, pool_size=3, max_overflow=5, pool_timeout=10)
    hot, door = create(hot=True, poolclass=NullPool)
    remote = RemoteEngine(is_worth_retrying, door.close_for_a_moment, connect=greenlet_bridge.beside)
    return Database(engine, hot, remote, (calm_door.close, door.close))


def _create(url: URL, **more: Any) -> Engine:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SAWarning)  # of an option that there is not
            # hide_parameters: an error's text must not carry what was being stored
            return create_engine(url, hide_parameters=True, **more)
    except (NoSuchModuleError, ArgumentError, ImportError):
        raise SettingsError(f"LICSERVER_DATABASE_URL: there is no driver {url.drivername!r}") from None
    except (ValueError, SAWarning):  # a query such as ?timeout=soon, or ?foo=bar
        raise SettingsError("LICSERVER_DATABASE_URL: what stands behind the ? cannot be used") from None


def _open_existing(_dialect: Any, _record: Any, arguments: Sequence[Any], options: dict[str, Any]) -> Any:
    """Open a file that exists: SQLite would create another one, for all to read, and drop a log beside it."""
    uri = f"{Path(arguments[0]).as_uri()}?mode=rw"
    return None if options.get("uri") else sqlite3.connect(uri, uri=True, **options)


def _prepare_sqlite(patience: float, connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, see _begin_sqlite
    # First: the next ones may meet a lock.
    connection.execute(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
    _enter_wal(connection, patience)
    connection.execute("PRAGMA synchronous = FULL")  # an acknowledged activation survives a power cut
    connection.execute("PRAGMA foreign_keys = ON")


def _enter_wal(connection: sqlite3.Connection, patience: float) -> None:
    """Let readers never wait for the writer.

    Of two who meet at a fresh file one is told that it is locked, whatever the timeout: it tries again.
    """
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and "facts" not in tables:
        return  # another program's, which will be refused: it stays as it is
    deadline = time.monotonic() + patience
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(patience: float, connection: Connection) -> None:
    # A transaction that writes takes the lock at its first statement. A deferred one would read,
    # then fail with "locked" on the upgrade, and two could judge the same free slot.
    if connection.get_execution_options().get(WRITES, False):
        begin_in_turn(connection, patience, usual=patience)
    else:
        connection.exec_driver_sql("BEGIN")


def hurry(connection: Connection) -> None:
    """Have a connection to PostgreSQL give way no more: others wait for what it has locked (D-152)."""
    driver: Any = connection.connection.driver_connection
    driver.gives_way = False


class Database:
    """One database: transactions for whoever has time, and lanes for the hot paths.

    Safe to share among threads.

    Args:
        engine: Lends connections out of a pool.
        hot: Makes connections for the lanes, which keep their own.
        remote: What the lanes must know of an engine on another machine.
        closers: What else is to be closed in the end.
    """

    def __init__(
        self,
        engine: Engine,
        hot: Engine,
        remote: RemoteEngine | None = None,
        closers: Sequence[Callable[[], None]] = (),
    ) -> None:
        self.engine = engine
        self._hot = hot
        self._remote = remote
        self._closers = closers
        # SQLite's lock is the whole file's, and BEGIN IMMEDIATE has it already.
        self.locks_rows: Final = engine.dialect.name != "sqlite"
        self.is_remote: Final = engine.dialect.name != "sqlite"
        self.file: Final = None if self.is_remote else Path(str(engine.url.database))

    def create_file(self) -> None:
        """Create the SQLite file, empty and for this user alone whatever the umask; keep one that exists.

        SQLite gives the files beside it the same mode.

        Raises:
            OSError: when it cannot be created.
        """
        if self.file is not None:
            with contextlib.suppress(FileExistsError):
                os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))

    def reader(self) -> KeptConnection:
        """Make a lane whose every statement is a transaction of its own."""
        return KeptConnection(
            self._hot.execution_options(isolation_level="AUTOCOMMIT"), self._named, self._remote
        )

    def writer(self) -> KeptConnection:
        """Make a lane whose every run is a transaction that writes."""
        hot = self._hot.execution_options(**{WRITES: True})
        return KeptConnection(hot, self._named, self._remote, writes=True)

    def local_writer(self) -> SqliteConnection:
        """Make a lane whose transactions are done in steps; for an engine of this machine."""
        return SqliteConnection(self._hot.execution_options(**{WRITES: True}), self._named)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that reads one consistent state.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with self._named(), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """Open a transaction that reads one state, whatever is written meanwhile, and takes its time.

        Raises:
            StoreUnavailable: when the database fails.
        """
        options = {"isolation_level": "REPEATABLE READ"} if self.is_remote else {}
        with self._patient(gives_way=True, **options) as connection:
            if self.is_remote:
                connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
            yield connection

    @contextlib.contextmanager
    def apart(self) -> Iterator[Connection]:
        """Lend a connection that nobody has afterwards: for temporary tables, and statements that take time.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with self._patient(gives_way=True) as connection:
            if self.is_remote:
                with connection.begin():
                    connection.exec_driver_sql("SET statement_timeout = 0")
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes; it commits at the end, or leaves no trace.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with (
            self._named(),
            self.engine.connect().execution_options(**{WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection

    @contextlib.contextmanager
    def unhurried(self, *, enforced: bool = True) -> Iterator[Connection]:
        """Open a transaction that writes, and may take its time: to change the schema, to count everything.

        Others' locks are waited for ten seconds only: who waits for a whole table holds up everybody behind.

        Args:
            enforced: Whether foreign keys are; SQLite must not while it makes a table anew.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with self._patient(**{WRITES: True}) as connection:
            if not (self.is_remote or enforced):
                driver: Any = connection.connection.driver_connection
                driver.execute("PRAGMA foreign_keys = OFF")  # which does nothing within a transaction
            with connection.begin():
                if self.is_remote:
                    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
                    connection.exec_driver_sql("SET LOCAL lock_timeout = '10s'")
                yield connection

    @contextlib.contextmanager
    def _patient(self, *, gives_way: bool = False, **options: Any) -> Iterator[Connection]:
        """Lend a connection that waits however long an answer takes, and that nobody has afterwards."""
        with self._named(), self.engine.connect().execution_options(**options) as connection:
            try:
                if self.is_remote:
                    driver: Any = connection.connection.driver_connection
                    driver.patience = float("inf")
                    driver.gives_way = gives_way
                yield connection
            finally:
                connection.invalidate()  # it is not as the others any more

    def close(self) -> None:
        """Close all connections; lanes close their own."""
        self.engine.dispose()
        for close in self._closers:
            close()

    @contextlib.contextmanager
    def _named(self) -> Iterator[None]:
        """Turn the library's and the driver's errors into ours, without the statement and the values."""
        try:
            yield
        except DBAPIError as error:
            raise _unavailable(error.orig) from None
        except self.engine.dialect.loaded_dbapi.Error as error:
            raise _unavailable(error) from None
        except UnicodeError:  # the driver's, before anything was sent; it quotes the text
            raise StoreUnavailable("the database failed: it cannot take a text that was sent") from None
        except SQLAlchemyError as error:
            raise StoreUnavailable(f"the database failed: {type(error).__name__}") from None


def _unavailable(error: BaseException | None) -> StoreUnavailable:
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreUnavailable(
            f"the database file is damaged or no SQLite database ({error}); stop the server, and restore a "
            "backup: licserver restore FILE --force"
        )
    first_line = str(error).partition("\n")[0]  # further lines of PostgreSQL quote values
    return StoreUnavailable(f"the database failed: {first_line}")
