"""Cancels what a server still does for connections that were given up (D-245).

Closing the socket is not enough: PostgreSQL notices it only when it writes the answer. A COMMIT that waits
for a lost synchronous standby never does, and keeps its locks and one of the server's connections.
"""

import contextlib
import threading
import time
from typing import Final

import psycopg
from psycopg import pq

_ENDING_PATIENCE: Final = 60.0
"""Seconds in which a frozen server may return; a machine that vanished is noticed earlier (`keepalives`)."""

_ANSWER_LIMIT: Final = 0.5  # seconds until a statement that was cancelled is cancelled again
_ENDING_INTERVAL: Final = 0.02
_MOST_ENDING: Final = 24
"""Connections that are being ended, of one process: twice as many as it uses at most."""

_ending: Final[set[threading.Thread]] = set()


def give_up(connection: pq.abc.PGconn) -> None:
    """Cancel what a connection's server still does, then close it; return at once.

    On a thread: it takes a connection of its own, and may have to be repeated.
    """
    thread = threading.Thread(target=_end, args=(connection,), name="postgres-cancel", daemon=True)
    _ending.add(thread)
    thread.start()


def are_too_many() -> bool:
    """Return whether so many are being ended that this process must open no other connection."""
    return len(_ending) >= _MOST_ENDING


def wait_until_ended(seconds: float) -> None:
    """Wait until none is left."""
    deadline = time.monotonic() + seconds
    for thread in list(_ending):
        thread.join(max(0.0, deadline - time.monotonic()))


def _end(connection: pq.abc.PGconn) -> None:
    canceller: psycopg.Connection[object] = psycopg.Connection(connection)
    try:
        _cancel(connection, canceller)
    except psycopg.Error:
        pass  # it broke: the server has gone, or ended it
    finally:
        canceller.close()
        _ending.discard(threading.current_thread())


def _cancel(connection: pq.abc.PGconn, canceller: psycopg.Connection[object]) -> None:
    deadline = time.monotonic() + _ENDING_PATIENCE
    while (remaining := deadline - time.monotonic()) > 0:
        with contextlib.suppress(psycopg.Error):
            # Not for a shorter time: PgBouncer 1.18 dies of a request to cancel whose sender has gone.
            canceller.cancel_safe(timeout=remaining)
        if _has_answered(connection):
            return


def _has_answered(connection: pq.abc.PGconn) -> bool:
    """Wait for the end of the statement; it may have begun only after it was cancelled."""
    deadline = time.monotonic() + _ANSWER_LIMIT
    while time.monotonic() < deadline:
        connection.consume_input()
        if not connection.is_busy():
            return True
        time.sleep(_ENDING_INTERVAL)
    return False
