"""Threads for long work that the vendor starts, such as a backup: they outlive its request."""

import threading
from collections.abc import Callable
from typing import Final

_PATIENCE: Final = 10.0
"""Seconds until `wait` gives up: a thread that hangs in I/O must not keep the process alive."""


class VendorThreads:
    """The threads of a process; they end before the database is closed."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def is_stopping(self) -> bool:
        """Return whether threads should end."""
        return self._stopping.is_set()

    def start(self, work: Callable[[], None]) -> None:
        """Run a function on a new thread."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, name="vendor-background", daemon=True)
        self._threads.append(thread)
        thread.start()

    def wait(self) -> None:
        """Wait for all threads."""
        for thread in self._threads:
            thread.join(_PATIENCE)

    def close(self) -> None:
        """Ask all threads to stop, and wait for them."""
        self._stopping.set()
        self.wait()
