"""Turns of SQLite's writers: a thread that writes on and on lets others write now and then."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from licserver.database.hot_path.driver import pause

MOST_HELD: Final = 0.05
"""Seconds for which a thread holds the lock before it pauses; a longer transaction is not interrupted."""

PAUSE: Final = 0.01  # seconds; a waiting writer tries every 3 ms


class WriteTurns(threading.local):
    """Pauses a thread whose transactions follow each other without a gap.

    SQLite wakes no writer that waits. Without a pause the next transaction of the same thread had the lock
    before any other writer tried again: an order of 1,000 keys, in eight transactions, delayed all others by
    1.4 to 2.2 s, which for an activation is a 503 (D-129).
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = pause
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._held = 0.0  # since the last pause
        self._ended_at = 0.0
        self._began_at: float | None = None

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Pause before a transaction if it is due; the block is the transaction, and calls `begin`."""
        if self._clock() - self._ended_at >= PAUSE:  # others could write meanwhile
            self._held = 0.0
        elif self._held >= MOST_HELD:
            self._sleep(PAUSE)
            self._held = 0.0
        try:
            yield
        finally:
            self._ended_at = self._clock()
            if self._began_at is not None:
                self._held += self._ended_at - self._began_at
                self._began_at = None

    def begin(self) -> None:
        """Note that the transaction has the lock."""
        self._began_at = self._clock()
