"""A connection to PostgreSQL whose every wait has a limit."""

import contextlib
import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import psycopg
from psycopg import pq
from psycopg.waiting import wait_async

from licserver.database.cancellation import give_up
from licserver.database.deadlines import read_deadline
from licserver.database.hosts import Server
from licserver.database.hot_path.driver import is_in_loop, wait_in_loop

BEGIN: Final = "BEGIN ISOLATION LEVEL READ COMMITTED"

CONNECT_LIMIT: Final = 1.5
"""Seconds to wait for a connection; with what follows, a client has its response within two."""

WAIT_LIMIT: Final = 75.0
"""Seconds to wait for a statement beside the hot path; `statement_timeout` is shorter."""

_CLOCK_INTERVAL: Final = 0.05  # seconds between two checks of a limit; psycopg's own is 0.1
_SHORTEST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 1.0

Yielded = TypeVar("Yielded")
Sent = TypeVar("Sent")
Result = TypeVar("Result")


class NoResponseError(psycopg.OperationalError):
    """No connection, or no answer on one, within the limit."""


@dataclass(slots=True)
class SharedLimits:
    """Limits of all connections to a database; `longest_wait` in seconds."""

    longest_wait: float = float("inf")


class LimitedConnection(psycopg.Connection[Any]):
    """A connection that is closed when the server does not answer in time.

    `deadline` (of the monotonic clock) and `wait_limit` (seconds, of each single wait) may be set; what
    `shared_limits` bounds also holds for connections that wait already. A throttled connection pauses before
    each statement for as long as the server worked for it (D-152). `server` is what it is connected to.
    """

    raw_cursor: type[psycopg.RawCursor[Any]] = psycopg.RawCursor
    server: Server
    deadline: float = float("inf")
    wait_limit: float = WAIT_LIMIT
    shared_limits: SharedLimits
    is_throttled: bool = False
    _in_pipeline: psycopg.Pipeline | None = None
    _owed: float = 0.0
    _answered: float = 0.0

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.shared_limits = SharedLimits()
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
    def pipeline(self) -> Iterator[psycopg.Pipeline]:
        """Do as psycopg."""
        before = self._in_pipeline
        try:
            with super().pipeline() as self._in_pipeline:
                yield self._in_pipeline
        finally:  # its end waits, too
            self._in_pipeline = before

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
        """Have the statement cancelled in the background, and be closed at once.

        libpq's connection goes to the thread that cancels. One that was never opened takes its place: for
        psycopg and SQLAlchemy this connection is broken, and neither uses the other one beside the thread.
        """
        never_opened: Any = pq.PGconn
        given_up, self.pgconn = self.pgconn, never_opened(None)
        if self._in_pipeline is not None:
            self._in_pipeline.pgconn = self.pgconn
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
            event = next(gen)
            while True:
                ready = yield event
                if not ready and time.monotonic() > min(limit, began + self.shared_limits.longest_wait):
                    self._give_up()  # a late answer must not be read as that to the next statement
                    raise NoResponseError("no answer in time")
                event = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result
