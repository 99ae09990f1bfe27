"""Work that goes on after the request that started it."""

import threading
from collections.abc import Callable
from typing import Final

_PATIENCE: Final = 10.0
"""Seconds for work to stop on request; a source that does not respond must not keep the process alive."""


class Background:
    """Threads, which end before the database is closed."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def is_stopping(self) -> bool:
        """Return whether the work should end."""
        return self._stopping.is_set()

    def start(self, work: Callable[[], None]) -> None:
        """Run a function on a thread of its own."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, name="vendor-background", daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Wait for all work that was started."""
        for thread in self._threads:
            thread.join(_PATIENCE)

    def close(self) -> None:
        """Tell all work to end, and wait for it."""
        self._stopping.set()
        self.wait()
