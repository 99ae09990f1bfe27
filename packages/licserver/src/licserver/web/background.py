"""Work beside requests: jobs of the queue, which all processes share, and what is to be done now and then."""

import asyncio
import contextlib
import inspect
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeVar

from aiohttp import web

from licserver.clock import Clock
from licserver.database.repositories import Repositories
from licserver.database.repositories.queue import Job
from licserver.errors import BuryJobError, LicserverError, RetryJobError

POLL_SECONDS: Final = 1.0
LOOK_PAUSE: Final = 0.1
"""Seconds between two looks for jobs: what falls due meanwhile is claimed together. Without it looking was a
quarter of the background's work beside 17 purchases a second."""
LONGEST_PAUSE: Final = 30.0  # seconds between two polls while the database is away
LEASE: Final = timedelta(seconds=60)
KEPT: Final = timedelta(days=90)  # finished jobs, which the command line and the console show
SWEEP_SECONDS: Final = 3600.0
DRAIN_SECONDS: Final = 5.0  # for running jobs when the process ends; others repeat the rest after the lease
CANCEL_SECONDS: Final = 1.0  # for those that are cancelled then: `wait_for` may lose that until Python 3.12
SCHEDULE: Final = tuple(timedelta(seconds=one) for one in (5, 30, 120, 600, 3600, 6 * 3600, 24 * 3600))
"""Pauses after the first failed attempt, the second, …; after the last one a job is dead."""

_THREADS: Final = 1  # what two would do at once is Python, and SQLite has one writer

_log = logging.getLogger("licserver.background")

Result = TypeVar("Result")
Handler = Callable[[Job], Awaitable[bool | None] | bool | None]
"""Does a job; True if its transaction has finished the job as well, which spares a commit."""


@dataclass(frozen=True, slots=True)
class _Queue:
    run: Handler
    lease: timedelta
    at_once: int
    schedule: Sequence[timedelta]


class BackgroundWorker:
    """Runs jobs of registered queues in one process; it belongs to one event loop."""

    def __init__(self, repositories: Repositories, clock: Clock) -> None:
        self._repositories, self._clock = repositories, clock
        self._queues: dict[str, _Queue] = {}
        self._periodic: list[tuple[float, Callable[[], object]]] = []
        self._running: dict[asyncio.Task[None], str] = {}
        self._woken = asyncio.Event()
        self._threads = ThreadPoolExecutor(_THREADS, "background")

    def register(
        self,
        queue: str,
        run: Handler,
        *,
        lease: timedelta = LEASE,
        at_once: int = 8,
        schedule: Sequence[timedelta] = SCHEDULE,
    ) -> None:
        """Add a queue, before the application starts.

        Args:
            run: Does a job: a function on a thread, or a coroutine function in the event loop, which is
                cancelled when its lease ends. It may be called again for the same job, also after success: it
                must be idempotent. `RetryJobError` and `BuryJobError` decide what follows; after any
                other exception the job is repeated by the schedule.
            lease: How long a job may take; then another process repeats it.
            at_once: Jobs of this queue that run in a process at a time.
        """
        self._queues[queue] = _Queue(run, lease, at_once, schedule)

    def every(self, seconds: float, work: Callable[[], object]) -> None:
        """Run a function on a thread, first when the application starts; all processes do so."""
        self._periodic.append((seconds, work))

    def wake(self) -> None:
        """Look for jobs now; call it in the event loop."""
        self._woken.set()

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Work while an application runs; for its `cleanup_ctx`."""
        loops = [asyncio.create_task(self._repeat(*one)) for one in self._periodic]
        if self._queues:
            loops.append(asyncio.create_task(self._poll()))
        yield
        for task in loops:
            task.cancel()
        if loops:
            await asyncio.wait(loops)
        if self._running:
            await asyncio.wait(self._running, timeout=DRAIN_SECONDS)
        if self._running:
            for task in [*self._running]:
                task.cancel()
            await asyncio.wait(self._running, timeout=CANCEL_SECONDS)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def on_thread(self, work: Callable[[], Result]) -> Result:
        """Run a function on a thread of the background."""
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

    async def _poll(self) -> None:
        pause = POLL_SECONDS
        while True:
            self._woken.clear()
            try:
                await self._start_due()
                pause = POLL_SECONDS
            except LicserverError as problem:
                if pause == POLL_SECONDS:
                    _log.warning("background jobs wait for the database: %s", problem)
                pause = min(2 * pause, LONGEST_PAUSE)
            except Exception:  # noqa: BLE001 - the next time
                _log.exception("cannot look for background jobs")
                pause = LONGEST_PAUSE
            # Not `wait_for`: Python 3.11's ignores a cancellation that meets `wake`; this would never end.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await asyncio.sleep(LOOK_PAUSE)
                    await self._woken.wait()

    async def _start_due(self) -> None:
        busy = Counter(self._running.values())
        room = {name: one.at_once - busy[name] for name, one in self._queues.items()}
        room = {name: free for name, free in room.items() if free > 0}
        for job in await self.on_thread(lambda: self._claim(room)):
            task = asyncio.create_task(self._run(job))
            self._running[task] = job.queue
            task.add_done_callback(self._end)

    def _claim(self, room: dict[str, int]) -> list[Job]:
        queue, now = self._repositories.queue, self._clock()
        claimed: list[Job] = []
        for name in queue.find_due(room, now):
            claimed += queue.claim(name, now, self._queues[name].lease, room[name])
        return claimed

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._woken.set()  # more may be due than could run at once

    async def _run(self, job: Job) -> None:
        """Run a job and store what came of it; while the database is away, its lease ends by itself."""
        queue = self._queues[job.queue]
        end: Callable[[], object]
        try:
            if inspect.iscoroutinefunction(queue.run):
                async with asyncio.timeout(queue.lease.total_seconds()):
                    is_finished = await queue.run(job)
            else:
                is_finished = await self.on_thread(lambda: queue.run(job))
        except Exception as error:  # noqa: BLE001 - fails this job alone
            end = self._on_failure(job, queue, error)
        else:
            if is_finished:
                return
            end = lambda: self._repositories.queue.finish(job, self._clock())  # noqa: E731 - one of three
        try:
            await self.on_thread(end)
        except LicserverError as problem:
            _log.warning("job %d of %s will be repeated: %s", job.id, job.queue, problem)

    def _on_failure(self, job: Job, queue: _Queue, error: Exception) -> Callable[[], object]:
        """Return what stores a failure. Only messages that are ours are stored: others may quote values."""
        message, at = f"failed unexpectedly ({type(error).__name__}); see the server's log", None
        match error:
            case TimeoutError():
                message = "took too long"
            case LicserverError():
                message, at = str(error), error.at if isinstance(error, RetryJobError) else None
            case _:
                _log.error("job %d of %s failed unexpectedly", job.id, job.queue, exc_info=error)
        now = self._clock()
        if at is None and not isinstance(error, BuryJobError):
            at = self._next_attempt(job, queue, now)
        if at is None:
            return lambda: self._repositories.queue.bury(job, now, message)
        due = at
        return lambda: self._repositories.queue.retry(job, due, message)

    @staticmethod
    def _next_attempt(job: Job, queue: _Queue, now: datetime) -> datetime | None:
        if job.attempts > len(queue.schedule):
            return None
        return now + queue.schedule[job.attempts - 1]
