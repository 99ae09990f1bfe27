"""Periodic work of a process, on a thread beside the event loop."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from aiohttp import web

from licserver.errors import LicserverError

_THREADS: Final = 1  # a second thread would share the interpreter, and SQLite has a single writer
CLOCK_SECONDS: Final = 60.0  # between two readings of the machine's clock
_log = logging.getLogger("licserver.background")

Result = TypeVar("Result")


class PeriodicWork:
    """A scheduler that runs functions on its own thread, for a single event loop."""

    def __init__(self, thread_name: str) -> None:
        self._periodic: list[tuple[float, Callable[[], object]]] = []
        self._threads = ThreadPoolExecutor(_THREADS, thread_name)

    def every(self, seconds: float, work: Callable[[], object]) -> None:
        """Run a function on a thread, first when the application starts; all processes do so."""
        self._periodic.append((seconds, work))

    def start_periodic(self) -> list[asyncio.Task[None]]:
        """Start a task for each function; the caller cancels it."""
        return [asyncio.create_task(self._repeat(*item)) for item in self._periodic]

    def end_thread(self) -> None:
        """Let the thread end after what it runs."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Work while an application runs; for its `cleanup_ctx`."""
        tasks = self.start_periodic()
        yield
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self.end_thread()

    async def on_thread(self, work: Callable[[], Result]) -> Result:
        """Run a function on the thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def _repeat(self, seconds: float, work: Callable[[], object]) -> None:
        while True:
            try:
                await self.on_thread(work)
            except LicserverError as problem:
                _log.warning("background work will be repeated later: %s", problem)
            except Exception:  # noqa: BLE001 - the next time
                _log.exception("background work failed")
            await asyncio.sleep(seconds)
