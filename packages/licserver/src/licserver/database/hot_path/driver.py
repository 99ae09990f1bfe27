"""Code that bypasses SQLAlchemy: kept connections, the driver's own cursor, waiting in the event loop.

SQLAlchemy Core writes each statement, once for each size of batch; run by Core, a known verify takes 3.2
times as many instructions. A checkout from its pool costs more than the statement: with it a batch of eight
lookups takes 276 us instead of 63 on SQLite, 325 instead of 163 on PostgreSQL. There the event loop waits: a
lookup takes 28 us of the server's processor, on a thread 40, with SQLAlchemy's `AsyncEngine` 42.
"""

import asyncio
import contextlib
import sqlite3
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import (
    CTE,
    Boolean,
    ColumnClause,
    Compiled,
    Connection,
    Dialect,
    Engine,
    Integer,
    RootTransaction,
    Select,
    bindparam,
    column,
    literal_column,
    values,
)
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.util.concurrency import await_, greenlet_spawn, in_greenlet

from licserver.errors import NotWritableError, StatementRefusedError, StoreUnavailableError

RUN_LIMIT: Final = 1.5  # seconds until a run fails; a client has its response within two
LOCK_LIMIT: Final = 1.2  # seconds that an activation waits for another transaction to release its license
_LEAST_LIMIT: Final = 0.4
_LAST_RETRY_BEFORE: Final = 1.0
_TRIES: Final = 3

_REFUSALS: Final = ("22", "23", "54", "55P03", "P0")
"""PostgreSQL's errors about a statement's values and rows: data, constraints, sizes, locks, triggers."""

_UNWRITABLE: Final = {"53100", "58030", "25006", "42501"}
"""PostgreSQL's errors of a full disk, a failing one, a transaction that may only read, a missing right."""

_SQLITE_UNWRITABLE: Final = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY}
_SQLITE_DENIED: Final = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM}

_CHECK_LOG_EVERY: Final = 1_000
"""Rows between two checkpoints; each takes a page or two of the log."""

_LONGEST_LOG: Final = 16_000
"""Pages. Where several processes read all the time, SQLite never restarts the write-ahead log by itself."""

_THREADS: Final = ThreadPoolExecutor(8, "database")
"""Not asyncio's threads: where these wait for a bucket, known environments would be a 503."""

_QUICK_COMMIT: Final = 0.002  # seconds; a hand-over to a thread costs an activation a quarter more
_SLOW_SHARE: Final = 0.005
"""Share of its time that the event loop may wait for commits that are not quick (D-173)."""

_UNKNOWN_DISK: Final = 5.0  # seconds at the start in which all commits are on a thread

_CAN_WATCH: Final = sys.platform != "win32"
"""Whether the event loop can watch sockets that others opened; that of Windows cannot."""

Request = TypeVar("Request")
Result = TypeVar("Result")
Row = tuple[Any, ...]


# --- waiting in the event loop ----------------------------------------------------------------


async def run_in_loop(work: Callable[..., Result], *arguments: Any) -> Result:
    """Run synchronous code on a greenlet: where PostgreSQL's driver would block, the event loop goes on.

    Other tasks run while it waits: its connection and its locks must not be shared with them.
    """
    if not _CAN_WATCH:
        return await asyncio.to_thread(work, *arguments)
    return await greenlet_spawn(work, *arguments)


def is_in_loop() -> bool:
    """Return whether the caller runs by `run_in_loop`, so that it can `wait_in_loop`."""
    return _CAN_WATCH and bool(in_greenlet())


def wait_in_loop(awaitable: Awaitable[Result]) -> Result:
    """Await, from code that `run_in_loop` runs."""
    return await_(awaitable)


def run_blocking(work: Callable[[], Result]) -> Result:
    """Run what blocks: on a thread if the caller runs by `run_in_loop`."""
    if not is_in_loop():
        return work()
    return wait_in_loop(asyncio.get_running_loop().run_in_executor(_THREADS, work))


def pause(seconds: float) -> None:
    """Sleep; if the caller runs by `run_in_loop`, the event loop goes on."""
    if is_in_loop():
        wait_in_loop(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


# --- connections ------------------------------------------------------------------------------


@contextlib.contextmanager
def translated_errors(engine: Engine) -> Iterator[None]:
    """Raise errors of SQLAlchemy and the driver as `StoreUnavailableError`, without SQL and values."""
    try:
        yield
    except DBAPIError as error:
        raise _unavailable(error.orig, engine.url.database) from None
    except engine.dialect.loaded_dbapi.Error as error:
        raise _unavailable(error, engine.url.database) from None
    except UnicodeError:  # the driver's, before anything was sent; its message quotes the text
        raise StatementRefusedError("the database failed: it cannot store a text that was sent") from None
    except SQLAlchemyError as error:
        raise StoreUnavailableError(f"the database failed: {type(error).__name__}") from None


def _unavailable(error: BaseException | None, database: str | None) -> StoreUnavailableError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}:
        return StoreUnavailableError(
            f"the database file is damaged or no SQLite database ({error}); stop the server, and restore a "
            "backup: licserver restore FILE --force"
        )
    first_line = str(error).partition("\n")[0]  # further lines of PostgreSQL quote values
    is_refused = isinstance(error, sqlite3.IntegrityError | sqlite3.DataError) or (
        getattr(error, "sqlstate", None) or ""
    ).startswith(_REFUSALS)
    kind = StatementRefusedError if is_refused else StoreUnavailableError
    if _is_unwritable(error):
        kind = NotWritableError
    problem = kind(f"the database failed: {first_line}")
    if code in _SQLITE_DENIED:  # a note is for the vendor; `/readyz` has the message alone
        problem.add_note(f"see that this user may read and write {database} and its folder")
    return problem


def _is_unwritable(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in _SQLITE_UNWRITABLE or getattr(error, "sqlstate", None) in _UNWRITABLE


class RemoteServer(Protocol):
    """A database on another machine (`postgres.PostgresServer`)."""

    def is_retryable(self, error: BaseException | None) -> bool:
        """Return whether the same transaction may succeed at once on a new connection."""

    def open_breaker(self, error: BaseException) -> None:
        """Fail other requests at once, after a failure that took all the time."""

    def is_former(self, connection: Any) -> bool:
        """Return whether a driver's connection is to a server that another one has replaced."""


class KeptConnection:
    """Runs one function after another on its own connection. Thread-safe; in the event loop it has one user.

    Args:
        engine: Where to connect, at first use and after a failure.
        remote: For a database on another machine; without it nothing is retried.
        writes: Whether each run is a transaction; otherwise each statement is.
    """

    def __init__(self, engine: Engine, remote: RemoteServer | None = None, *, writes: bool = False) -> None:
        self._engine = engine
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
        with self._lock, translated_errors(self._engine):
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
            with connection.begin() as transaction:
                result = work(connection)
                self._commit(transaction)
            return result
        except BaseException:
            self._drop()
            raise

    def _commit(self, transaction: RootTransaction) -> None:
        transaction.commit()

    def _connect(self, began: float) -> Connection:
        if self._connection is not None and self._is_former(self._connection):
            self._drop()
        if self._connection is None:
            connect = self._engine.connect
            self._connection = connect() if self._remote is None else run_blocking(connect)
        if self._remote is not None:
            driver: Any = self._connection.connection.driver_connection
            driver.deadline = max(began + RUN_LIMIT, time.monotonic() + _LEAST_LIMIT)
        return self._connection

    def _is_former(self, connection: Connection) -> bool:
        return self._remote is not None and self._remote.is_former(connection.connection.driver_connection)

    def _may_retry(self, error: Exception, began: float) -> bool:
        if self._remote is None:
            return False
        cause = error.orig if isinstance(error, DBAPIError) else error
        took = time.monotonic() - began
        if self._remote.is_retryable(cause):
            return took < _LAST_RETRY_BEFORE
        # A reader that waited for a lock waited for a whole table: all others would.
        if took >= (RUN_LIMIT if self._writes else LOCK_LIMIT):
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


def run_one_by_one_on_refusal(
    work: Callable[[Sequence[Request]], Sequence[Result]], requests: Sequence[Request]
) -> Sequence[Result | Exception]:
    """Call a function with all requests; if the database refuses that, with one after the other (D-247).

    Then an error takes the place of a result. After `RUN_LIMIT` the rest fails as all of them did.
    """
    began = time.monotonic()
    try:
        return work(requests)
    except StatementRefusedError as error:
        if len(requests) == 1:
            raise
        refused = error
    results: list[Result | Exception] = []
    for request in requests:
        try:
            results += [refused] if time.monotonic() > began + RUN_LIMIT else work([request])
        except StatementRefusedError as error:
            results.append(error)
    return results


class SqliteConnection(KeptConnection):
    """A connection for transactions, on which others read between two of them.

    Called by `run_in_loop`, it lets the event loop go on while it waits for another writer or a slow disk.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine, writes=True)
        self._checked_at = 0
        self._on_thread_until = time.monotonic() + _UNKNOWN_DISK

    def read(self, work: Callable[[Connection], Result], otherwise: KeptConnection) -> Result:
        """Call a function that only reads; with another connection while a transaction is open on this one.

        A commit empties the page caches of all other connections: reading from them costs a new environment
        a quarter more.
        """
        if not self._lock.acquire(blocking=False):
            return otherwise.run(work)
        try:
            with translated_errors(self._engine):
                return work(self._connect(time.monotonic()))
        except BaseException:
            self._drop()
            raise
        finally:
            self._lock.release()

    def run(self, work: Callable[[Connection], Result]) -> Result:
        """Call a function within a transaction, and now and then keep the log short."""
        result = super().run(work)
        with self._lock, contextlib.suppress(sqlite3.Error):  # the next time
            if self._connection is not None:
                self._shorten_log(self._connection)
        return result

    def _connect(self, began: float) -> Connection:
        is_new = self._connection is None
        connection = super()._connect(began)
        if is_new:
            # SQLite's own checkpoints would be part of a commit, and take longer than it.
            connection.connection.cursor().execute("PRAGMA wal_autocheckpoint = 0")
            self._checked_at = 0
        return connection

    def _commit(self, transaction: RootTransaction) -> None:
        """Wait for the disk in the event loop as long as it is quick."""
        began = time.monotonic()
        if began > self._on_thread_until:
            transaction.commit()
        else:
            run_blocking(transaction.commit)
        ended = time.monotonic()
        if ended > began + _QUICK_COMMIT:
            self._on_thread_until = ended + (ended - began) / _SLOW_SHARE

    def _shorten_log(self, connection: Connection) -> None:
        driver: Any = connection.connection.driver_connection
        if driver.total_changes < self._checked_at + _CHECK_LOG_EVERY:
            return
        self._checked_at = driver.total_changes
        run_blocking(partial(_checkpoint, driver))


def _checkpoint(driver: sqlite3.Connection) -> None:
    """Write the log into the file; begin it anew once it is long."""
    _, pages, _ = driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
    if pages > _LONGEST_LOG:
        driver.execute("PRAGMA wal_checkpoint(RESTART)")  # waits for readers, and other writers for it


def pipeline(
    connection: Connection, *, begins: bool = False, commits: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Send PostgreSQL the statements of a block one behind the other, and wait for all of them at its end.

    A batch of activations waits twice instead of five times. With half a millisecond between two machines
    that is a third less time for a batch of 16.

    Args:
        begins: Whether the block begins the transaction, in the same round trip.
        commits: Whether its end commits, in the same round trip.
    """
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        return contextlib.nullcontext()
    pipelined: contextlib.AbstractContextManager[None] = driver.pipelined(begins=begins, commits=commits)
    return pipelined


# --- statements -------------------------------------------------------------------------------

Processors = list[tuple[int, Callable[[Any], Any]]]  # positions in a row, with what converts the value there
_SIZES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Sizes of batches, up to the largest: few statements to compile and prepare, and few rows too many."""

_COMPILED_AT_START: Final = _SIZES[:10]
"""To compile a statement takes 3 to 30 ms, in the event loop."""


def written(compiled: Compiled) -> str:
    """Return a statement; with PostgreSQL's own numbers of parameters, which psycopg need not look for."""
    if compiled.dialect.name == "sqlite":
        return str(compiled)
    first, *others = str(compiled).replace("%%", "%").split("%s")
    return first + "".join(f"${number}{text}" for number, text in enumerate(others, 1))


class BatchedQuery:
    """A SELECT joined to a table ``requested``, whose column ``n`` numbers the requests.

    Args:
        columns: The other columns of ``requested``, typed.
        build: Builds the SELECT from ``requested``; its first column must be ``n``.
    """

    def __init__(self, columns: Sequence[ColumnClause[Any]], build: Callable[[CTE], Select[Any]]) -> None:
        self._columns: Final = columns
        self._build: Final = build
        self._compiled: Final[dict[tuple[str, int], tuple[str, Processors]]] = {}

    def rows(self, connection: Connection, requests: Sequence[Row]) -> list[Row]:
        """Run the statement for a batch of at least one request, each with the values of `columns`.

        Returns:
            The rows in any order; each begins with the number of its request.
        """
        return self.send(connection, requests)()

    def send(self, connection: Connection, requests: Sequence[Row]) -> Callable[[], list[Row]]:
        """Run the statement, or in a pipeline send it; return what reads the rows, then or after its end."""
        count = len(requests)
        size = next((size for size in _SIZES if size >= count), count)
        sql, processors = self._statement(connection.dialect, size)
        parameters = list(chain.from_iterable(requests))
        parameters += requests[-1] * (size - count)  # the last one again, under unused numbers
        cursor = _cursor(connection, sql)
        cursor.execute(sql, parameters)

        def read() -> list[Row]:
            rows: list[Row] = cursor.fetchall()
            if size > count:
                rows = [row for row in rows if row[0] < count]
            return [_convert(row, processors) for row in rows] if processors else rows

        return read

    def compile(self, dialect: Dialect) -> None:
        """Compile the statements of the usual sizes."""
        for size in _COMPILED_AT_START:
            self._statement(dialect, size)

    def _statement(self, dialect: Dialect, size: int) -> tuple[str, Processors]:
        key = (dialect.name, size)
        if key not in self._compiled:
            numbered = [
                (
                    literal_column(str(row), Integer),
                    *(bindparam(f"{column_.name}_{row}", type_=column_.type) for column_ in self._columns),
                )
                for row in range(size)
            ]
            requested = values(column("n", Integer), *self._columns, name="requested").data(numbered)
            statement = self._build(requested.cte("requested"))
            compiled = statement.compile(dialect=dialect)
            names = [f"{column_.name}_{row}" for row in range(size) for column_ in self._columns]
            if list(compiled.positiontup or ()) != names:
                raise AssertionError("a batched statement takes no parameters but the requests")
            processors: Processors = [
                (index, process)
                for index, column_ in enumerate(statement.selected_columns)
                if not isinstance(column_.type, Boolean)  # 0 and 1 will do
                and (process := column_.type.dialect_impl(dialect).result_processor(dialect, None))
                is not None
            ]
            self._compiled[key] = written(compiled), processors
        return self._compiled[key]


def _cursor(connection: Connection, sql: str) -> Any:
    """Return a cursor for a statement whose parameters are numbered."""
    if connection.dialect.name == "sqlite":
        return connection.connection.cursor()
    driver: Any = connection.connection.driver_connection
    return driver.cursor_for(sql)


def _convert(row: Row, processors: Processors) -> Row:
    """Convert the driver's values to those of the columns' types; most of these are NULL."""
    for index, process in processors:
        if row[index] is not None:
            row = (*row[:index], process(row[index]), *row[index + 1 :])
    return row
