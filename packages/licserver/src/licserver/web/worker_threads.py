"""Work for the vendor, on threads of its own: customers are answered meanwhile."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from aiohttp import web

THREADS: Final = 3
"""Few: threads that run Python take the interpreter from the loop in turns."""

FILE_THREADS: Final = 2
"""Files that are copied at a time; more of them wait, and pages and other calls do not (D-174)."""

P = ParamSpec("P")
R = TypeVar("R")


class WorkerThreads:
    """Runs what reads and writes the vendor's books beside the loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="vendor")
        self._file_threads = ThreadPoolExecutor(FILE_THREADS, thread_name_prefix="vendor-file")

    async def run(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function on one of the threads, and wait for it; it is done even if the caller goes away."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    async def run_with_file(self, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a function that copies a whole file, to the disk or a bucket, as `run` does."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._file_threads, lambda: work(*args, **kwargs))

    async def close(self, _app: web.Application | None = None) -> None:
        """Wait for what runs."""
        await asyncio.to_thread(self._threads.shutdown)
        await asyncio.to_thread(self._file_threads.shutdown)
