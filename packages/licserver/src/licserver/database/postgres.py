"""What PostgreSQL must be told: how long to wait, for whom, and when not to try at all.

A server that has stopped refuses at once. One that has frozen, or whose machine has gone, says nothing: so
every wait has an end on our side, and for a moment after such an end nobody else waits.
"""

import contextlib
import threading
import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

import psycopg
from psycopg.waiting import wait_async

from licserver.database.hot_path import greenlet_bridge

CONNECT_LIMIT: Final = 1.5
"""Seconds that anybody waits for a connection; with what follows, an answer within two."""

PATIENCE: Final = 75.0
"""Seconds that a statement may take beside the hot paths; the server's own limit comes first."""

_DOOR_CLOSED: Final = 0.5

_LOOK_AT_CLOCK: Final = 0.1
"""Seconds between looks whether a wait has come to its end; as psycopg's own waits have it."""

_SHORT: Final = 0.001
_LONG: Final = 1.0
"""Seconds from which on, and for how long, a connection rests that gives way."""

_SAME_FOR_ALL: Final = {
    "timezone": "UTC",  # an instant of the year 9999 has a year 10000 elsewhere, which Python has not
    "datestyle": "ISO",  # an instant's text begins with its day, as in SQLite
    "statement_timeout": "60s",
    "lock_timeout": "5s",
}
_ON_HOT_PATHS: Final = {
    "statement_timeout": "1500ms",
    "lock_timeout": "1200ms",
    # A machine that dies between lock and commit must not hold the license for hours.
    "idle_in_transaction_session_timeout": "5s",
    # Every hot statement finds its rows by an index. A plan made while the tables were small would read all
    # of them, and be kept until statistics are taken anew.
    "enable_seqscan": "off",
}

_CHANGED_UNDER_US: Final = {
    "0A000",  # a prepared statement whose tables have changed
    "25P03",  # this process stood still for so long that the server gave it up
    "25006",  # the server has become a replica; the next connection finds the new primary
    "26000",  # a pooler has lent us another connection, without our prepared statements
    "40001",  # two transactions could not be put in an order
    "40P01",  # or waited for each other
}

Yielded = TypeVar("Yielded")
Sent = TypeVar("Sent")
Result = TypeVar("Result")


class PatientConnection(psycopg.Connection[Any]):
    """A connection that waits for its server only so long; then it is closed, and says so.

    `deadline` is of the monotonic clock and set by who has one; `patience` bounds each single wait. One that
    `gives_way` is at rest for as long as its server worked for it (D-152).
    """

    deadline: float = float("inf")
    patience: float = PATIENCE
    gives_way: bool = False
    _owed: float = 0.0
    _answered: float = 0.0

    def wait(self, gen: Any, *arguments: Any, **more: Any) -> Any:
        """Wait as psycopg does, until the limit; within an event loop as its asynchronous ones do."""
        waits = self._until(gen)
        if greenlet_bridge.is_running():
            return greenlet_bridge.wait_for(wait_async(waits, self.pgconn.socket, _LOOK_AT_CLOCK))
        if not self.gives_way:
            return super().wait(waits, *arguments, **more)
        self._rest()
        begin = time.monotonic()
        answer = super().wait(waits, *arguments, **more)
        self._answered = time.monotonic()
        self._owed += self._answered - begin
        return answer

    def _rest(self) -> None:
        """Leave the server to others for as long as it worked for us; what we did meanwhile counts."""
        owed = self._owed - (time.monotonic() - self._answered)
        if owed > _SHORT:
            time.sleep(min(owed, _LONG))
            owed = 0.0
        self._owed = max(owed, 0.0)

    def _until(self, gen: Generator[Yielded, Sent, Result]) -> Generator[Yielded, Sent, Result]:
        """Pass everything through; psycopg sends nothing (0) while nothing comes, ten times a second."""
        limit = min(self.deadline, time.monotonic() + self.patience)
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > limit:
                    self.pgconn.finish()  # nobody knows what it would say next
                    raise NoAnswer("no answer in time")
                wanted = gen.send(ready)
        except StopIteration as done:
            result: Result = done.value
            return result


class NoAnswer(psycopg.OperationalError):
    """The server is silent: no connection, or no answer on one, within the limit."""


class CircuitBreaker:
    """Lets connections in; nobody waits longer than `CONNECT_LIMIT`, whatever names and networks do.

    After a failure it stays closed for half a second: of all who come while the server is silent, one
    at a time waits for it.

    Args:
        connect: Makes a connection; may take as long as it likes.
    """

    def __init__(self, connect: Callable[[], PatientConnection]) -> None:
        self._connect = connect
        self._late: list[Future[PatientConnection]] = []
        self._closed_until = 0.0
        self._reason = ""

    def enter(self) -> PatientConnection:
        """Make a connection, or take one that came too late for who had asked for it.

        Without the latter a first host that is silent would keep the second one from ever being heard.

        Raises:
            psycopg.Error: when there is none to be had, or was none a moment ago.
        """
        if time.monotonic() < self._closed_until:
            raise psycopg.OperationalError(self._reason)
        try:
            future = self._late.pop()
        except IndexError:
            future = Future()
            # A thread, because looking a name up cannot be told to end.
            threading.Thread(target=self._try, args=(future,), name="store-connect", daemon=True).start()
        try:
            return future.result(CONNECT_LIMIT)
        except TimeoutError:
            self._late.append(future)
            self.close_for_a_moment(error := NoAnswer("no connection in time"))
            raise error from None
        except psycopg.OperationalError as error:
            self.close_for_a_moment(error)
            raise

    def close_for_a_moment(self, error: BaseException) -> None:
        """Let nobody wait for a server that has just been silent to somebody else."""
        self._reason = str(error)
        self._closed_until = time.monotonic() + _DOOR_CLOSED

    def close(self) -> None:
        """Close what came too late, or still comes."""
        while self._late:
            self._late.pop().add_done_callback(_close_late)

    def _try(self, future: Future[PatientConnection]) -> None:
        try:
            future.set_result(self._connect())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)


def _close_late(future: Future[PatientConnection]) -> None:
    with contextlib.suppress(psycopg.Error):
        future.result().close()


def make_door(parameters: Mapping[str, Any], *, hot: bool) -> CircuitBreaker:
    """Make the door to a server.

    Args:
        parameters: psycopg's, as SQLAlchemy reads them from the URL; those of the vendor win over ours.
        hot: Whether customers wait for what is asked on these connections.

    Returns:
        The door; nothing is connected yet.
    """
    ours = {
        "connect_timeout": 2,
        "application_name": "licserver",
        "client_encoding": "UTF8",  # else the server's own, which may lack what customers send
        # A peer that has vanished is noticed in seconds and not in hours.
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 5000,
    }
    settings = {**_SAME_FOR_ALL, **(_ON_HOT_PATHS if hot else {})}

    def connect() -> PatientConnection:
        connection = PatientConnection.connect(autocommit=True, **{**ours, **parameters})
        connection.patience = CONNECT_LIMIT
        # SET and not the connection's `options`: poolers refuse those.
        connection.execute("; ".join(f"SET {name} = '{value}'" for name, value in settings.items()))
        connection.autocommit = False
        connection.patience = CONNECT_LIMIT if hot else PATIENCE
        return connection

    return CircuitBreaker(connect)


def is_worth_retrying(error: BaseException | None) -> bool:
    """Whether the same transaction may well succeed at once, on a new connection.

    Args:
        error: psycopg's. Where the connection broke, the transaction was rolled back, unless the
            break met its commit: what is retried must bear to be done twice.
    """
    if not isinstance(error, psycopg.Error) or isinstance(error, NoAnswer):
        return False
    state = error.sqlstate
    if state is None:  # not the server's words: the connection broke
        return isinstance(error, psycopg.OperationalError)
    return state in _CHANGED_UNDER_US or state.startswith("57P")  # it was shut down
