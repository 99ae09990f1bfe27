"""Opening the database: what SQLite must be told, and what a failure is called outside this room."""

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError

from licserver.errors import StoreError, StoreUnavailable

_WRITES: Final = "licserver_writes"
_BUSY_TIMEOUT_MS: Final = 10_000


def connect(url: str) -> Engine:
    """Make the engine for a database URL.

    Raises:
        StoreError: for a URL that names no database we know.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise StoreError("LICSERVER_DATABASE_URL is not a database URL") from None
    if parsed.get_backend_name() != "sqlite":
        raise StoreError(
            f"LICSERVER_DATABASE_URL: {parsed.get_backend_name()!r} is not supported; use sqlite"
        )
    if not parsed.database or parsed.database == ":memory:":
        raise StoreError(
            "LICSERVER_DATABASE_URL: name a file; several threads and processes share the database"
        )
    if not Path(parsed.database).parent.is_dir():
        raise StoreError(f"LICSERVER_DATABASE_URL: there is no folder {Path(parsed.database).parent}")
    try:
        # hide_parameters: an error's text must not carry what was being stored
        engine = create_engine(parsed, hide_parameters=True)
    except (NoSuchModuleError, ArgumentError, ImportError):
        raise StoreError(f"LICSERVER_DATABASE_URL: there is no driver {parsed.drivername!r}") from None
    except ValueError:  # a query such as ?timeout=soon
        raise StoreError("LICSERVER_DATABASE_URL: what stands behind the ? cannot be used") from None
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None  # we say BEGIN ourselves, see _begin_sqlite
    for pragma in (
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",  # first: the next ones may meet a lock
        "journal_mode = WAL",  # readers never wait for the writer
        "synchronous = FULL",  # an acknowledged activation survives a power cut
        "foreign_keys = ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that writes takes the lock at its first statement. A deferred one would read,
    # then fail with "locked" on the upgrade, and two could judge the same free slot.
    writes = connection.get_execution_options().get(_WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


class Database:
    """One database with its two kinds of transaction; safe to share among threads.

    Args:
        engine: From `connect`.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # SQLite's lock is the whole file's, and BEGIN IMMEDIATE has it already.
        self.locks_rows: Final = engine.dialect.name != "sqlite"
        self.is_remote: Final = engine.dialect.name != "sqlite"

    def reader(self) -> "Reader":
        """Make a reader with a connection of its own."""
        return Reader(self.engine)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """Open a transaction that reads one consistent state.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with _failures_named(self.engine), self.engine.connect() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """Open a transaction that writes; it commits at the end, or leaves no trace.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with (
            _failures_named(self.engine),
            self.engine.connect().execution_options(**{_WRITES: True}) as connection,
            connection.begin(),
        ):
            yield connection

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()


class Reader:
    """Keeps one connection at hand for single SELECTs, each a transaction of its own.

    Taking one from the pool, and opening and ending a transaction, costs more than the statement.

    Args:
        engine: Where to connect, when first asked.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine.execution_options(isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def connection(self) -> Iterator[Connection]:
        """Lend the connection to one thread; a failure makes the next one begin with a new one.

        Raises:
            StoreUnavailable: when the database fails.
        """
        with self._lock, _failures_named(self._engine):
            if self._connection is None:
                self._connection = self._engine.connect()
            try:
                yield self._connection
                if self._connection.in_transaction():  # or it would go on seeing what it sees now
                    self._connection.rollback()
            except BaseException:
                self._drop()
                raise

    def close(self) -> None:
        """Give the connection back."""
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                connection.invalidate()
                connection.close()


@contextlib.contextmanager
def _failures_named(engine: Engine) -> Iterator[None]:
    """Turn the library's and the driver's errors into ours, without the statement and the values."""
    try:
        yield
    except DBAPIError as error:
        raise _unavailable(error.orig) from None
    except engine.dialect.loaded_dbapi.Error as error:
        raise _unavailable(error) from None
    except SQLAlchemyError as error:
        raise StoreUnavailable(f"the database failed: {type(error).__name__}") from None


def _unavailable(error: BaseException | None) -> StoreUnavailable:
    first_line = str(error).partition("\n")[0]  # further lines of PostgreSQL quote values
    return StoreUnavailable(f"the database failed: {first_line}")
