"""The threads of what customers change, within the time that their requests have."""

import asyncio
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from aiohttp import web

from licserver.database.deadlines import waiting_until
from licserver.database.hot_path.batcher import ANSWER_LIMIT
from licserver.database.hot_path.driver import RUN_LIMIT
from licserver.errors import StoreUnavailableError

_THREADS: Final = 4
"""Threads of these requests alone: those of asyncio are for verify and `/readyz`."""

Result = TypeVar("Result")


class CustomerThreads:
    """Calls functions on threads."""

    def __init__(self, *, is_remote: bool) -> None:
        # SQLite has one writer: threads that wait for it would take the turns of new activations.
        self._threads = ThreadPoolExecutor(_THREADS if is_remote else 1, "customer")
        self._turns: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def run(self, subject: Hashable, work: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function on a thread, within the time that customers' requests have.

        One at a time for a `subject`: a license that another program has locked keeps one thread.
        """
        deadline = time.monotonic() + RUN_LIMIT

        def run() -> Result:
            with waiting_until(deadline):
                return work(*arguments)

        try:
            async with (
                asyncio.timeout(ANSWER_LIMIT),
                self._turns.setdefault(subject, asyncio.Lock()),
            ):
                return await asyncio.get_running_loop().run_in_executor(self._threads, run)
        except TimeoutError:
            raise StoreUnavailableError("the database failed: no answer in time") from None

    async def close(self, _app: web.Application) -> None:
        """Wait for running functions."""
        await asyncio.to_thread(self._threads.shutdown)
