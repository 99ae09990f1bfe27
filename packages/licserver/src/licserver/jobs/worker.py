"""The worker of the background process: jobs of the queue, which all processes share, and periodic work."""

import asyncio
import contextlib
import inspect
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from aiohttp import web

from licserver.clock import Clock
from licserver.database.durability import repeated_if_lost
from licserver.database.repositories import Repositories
from licserver.database.repositories.queue import Job
from licserver.errors import (
    BuryJobError,
    ContinueJobError,
    LicserverError,
    RetryJobError,
    StatementRefusedError,
)
from licserver.runtime.periodic import PeriodicWork

POLL_SECONDS: Final = 1.0
LOOK_PAUSE: Final = 0.1
"""Seconds between two queries for jobs, whose results are claimed together. Without the pause, queries were a
quarter of the background's work at 17 purchases a second."""
LONGEST_PAUSE: Final = 30.0  # seconds between two polls while the database is away
LEASE: Final = timedelta(seconds=60)
KEPT: Final = timedelta(days=90)  # finished jobs, which the command line and the console show
SWEEP_SECONDS: Final = 3600.0
DRAIN_SECONDS: Final = 5.0  # for running jobs at the end; other processes repeat the rest after the lease
CANCEL_SECONDS: Final = 1.0  # for jobs that are cancelled then: Python 3.11's `wait_for` may lose that
SCHEDULE: Final = tuple(
    timedelta(seconds=seconds) for seconds in (5, 30, 120, 600, 3600, 6 * 3600, 24 * 3600)
)
"""Pauses after the first failed attempt, the second, …; after the last pause and attempt a job is dead."""

_log = logging.getLogger("licserver.background")

Handler = Callable[[Job], Awaitable[bool | None] | bool | None]
"""Run a job; return True if its transaction has finished the job as well, which saves a commit."""


@dataclass(frozen=True, slots=True)
class _Queue:
    run: Handler
    lease: timedelta
    at_once: int
    share: int | None
    schedule: Sequence[timedelta]


class JobWorker(PeriodicWork):
    """A worker for the jobs of registered queues and for periodic work, in an event loop of its process.

    1. `register` adds a queue with its handler, lease, and limits; `every` adds periodic work.
    2. `running` polls for due jobs, and claims them for the time of the lease.
    3. A handler runs on a thread or in the event loop, and must be idempotent.
    4. The job is finished, repeated by the schedule, or given up.

    Example::

        worker = JobWorker(services.repositories, clock)
        worker.register("reports", send_report, at_once=2)
        app.cleanup_ctx.append(worker.running)

    A handler raises a `RetryJobError` to repeat a job at an instant, a `ContinueJobError` to let others have
    their turn, and a `BuryJobError` to give it up; any other exception repeats it by the schedule. The worker
    itself raises nothing: failures are logged.
    """

    def __init__(self, repositories: Repositories, clock: Clock) -> None:
        super().__init__("background")
        self._repositories, self._clock = repositories, clock
        self._queues: dict[str, _Queue] = {}
        self._running: dict[asyncio.Task[None], tuple[str, str | None]] = {}  # by queue and owner
        self._woken = asyncio.Event()

    @property
    def queues(self) -> frozenset[str]:
        """The registered queues."""
        return frozenset(self._queues)

    def register(
        self,
        queue: str,
        run: Handler,
        *,
        lease: timedelta = LEASE,
        at_once: int = 8,
        share: int | None = None,
        schedule: Sequence[timedelta] = SCHEDULE,
    ) -> None:
        """Add a queue, before the application starts.

        Args:
            run: The handler: a function, run on a thread, or a coroutine function, run in the event loop and
                cancelled when the lease ends. It may be called again for the same job, also after success.
            lease: The time a job may take before another process repeats it.
            at_once: The number of this queue's jobs that run at the same time in a process.
            share: The number of an owner's jobs among them; None for no limit.
            schedule: The pauses after failed attempts.
        """
        self._queues[queue] = _Queue(run, lease, at_once, share, schedule)

    def wake(self) -> None:
        """Look for jobs now; call it in the event loop."""
        self._woken.set()

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Work while an application runs; for its `cleanup_ctx`."""
        loops = self.start_periodic()
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
        self.end_thread()

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
        running = Counter(self._running.values())
        busy = Counter(queue for queue, _ in self._running.values())
        capacity = {name: queue.at_once - busy[name] for name, queue in self._queues.items()}
        capacity = {name: free for name, free in capacity.items() if free > 0}
        for job in await self.on_thread(lambda: self._claim(capacity, running)):
            task = asyncio.create_task(self._run(job))
            self._running[task] = job.queue, job.owner
            task.add_done_callback(self._end)

    def _claim(self, capacity: dict[str, int], running: Counter[tuple[str, str | None]]) -> list[Job]:
        with repeated_if_lost():
            return self._claim_due(capacity, running)

    def _claim_due(self, capacity: dict[str, int], running: Counter[tuple[str, str | None]]) -> list[Job]:
        queue, now = self._repositories.queue, self._clock()
        claimed: list[Job] = []
        for name in queue.find_due(capacity, now):
            share, lease = self._queues[name].share, self._queues[name].lease
            if share is None:
                claimed += queue.claim(name, now, lease, capacity[name])
                continue
            owners = queue.find_owners(name, now)
            share = max(1, min(share, self._queues[name].at_once // max(1, len(owners))))
            random.shuffle(owners)  # no owner must always be first
            for owner in owners:
                free = min(share - running[name, owner or None], capacity[name])
                if free > 0:
                    claimed += (taken := queue.claim(name, now, lease, free, owner=owner))
                    capacity[name] -= len(taken)
        return claimed

    def _end(self, task: asyncio.Task[None]) -> None:
        del self._running[task]
        self._woken.set()  # more may be due than could run at once

    async def _run(self, job: Job) -> None:
        """Run a job and store its result; without a database, its lease ends by itself."""
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
            end = lambda: self._repositories.queue.finish(job, self._clock())  # noqa: E731 - as in `_on_failure`
        try:
            await self.on_thread(end)
        except LicserverError as problem:
            _log.warning("job %d of %s will be repeated: %s", job.id, job.queue, problem)

    def _on_failure(self, job: Job, queue: _Queue, error: Exception) -> Callable[[], object]:
        """Return the function that stores a failure, with our own messages only: others may quote values."""
        message, retry_at = f"failed unexpectedly ({type(error).__name__}); see the server's log", None
        match error:
            case TimeoutError():
                message = "took too long"
            case StatementRefusedError():  # a repetition rarely helps: a fault, or contradictory data
                message = str(error)
                _log.error("the database refused job %d of %s: %s", job.id, job.queue, error)
            case LicserverError():
                message, retry_at = str(error), error.at if isinstance(error, RetryJobError) else None
            case _:
                _log.error("job %d of %s failed unexpectedly", job.id, job.queue, exc_info=error)
        now = self._clock()
        if retry_at is None and not isinstance(error, BuryJobError):
            retry_at = self._next_attempt(job, queue, now)
        if retry_at is None:
            return lambda: self._repositories.queue.bury(job, now, message)
        due, is_attempt = retry_at, not isinstance(error, ContinueJobError)
        return lambda: self._repositories.queue.retry(job, due, message, is_attempt=is_attempt)

    @staticmethod
    def _next_attempt(job: Job, queue: _Queue, now: datetime) -> datetime | None:
        if job.attempts > len(queue.schedule):
            return None
        return now + queue.schedule[job.attempts - 1]
