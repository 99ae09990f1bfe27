"""Threads for the admin API and the console, beside the event loop."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from aiohttp import web

THREADS: Final = 3  # few: threads that run Python take the interpreter from the event loop
FILE_THREADS: Final = 2
"""Files that are copied at a time; more wait, without blocking pages and other requests (D-174)."""

P = ParamSpec("P")
R = TypeVar("R")


class WorkerThreads:
    """Two pools of threads: for calls of services, and for files."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="vendor")
        self._file_threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="vendor-file")

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function on a thread; once begun, it runs to its end even if the caller is cancelled."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    async def run_with_file(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that copies a whole file, as `run` does."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._file_threads, lambda: work(*args, **kwargs))

    async def close(self, _app: web.Application | None = None) -> None:
        """Wait for running functions."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._file_threads.shutdown)
