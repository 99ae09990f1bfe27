"""The background process of `licserver serve`.

A thread of the server would share the interpreter with requests: beside 1,000 purchases a minute, 500
verifies a second had a 99th percentile of 6 ms instead of 3.3 (SQLite, ``python -m bench.events``).
"""

import asyncio
import contextlib
import logging
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Final

from aiohttp import web

from licserver.clock import Clock
from licserver.domain.instants import TOLERANCE
from licserver.errors import LicserverError
from licserver.jobs.mail import register_mail
from licserver.jobs.patches import register_patches
from licserver.jobs.shops import register_sales
from licserver.jobs.webhooks import register_webhooks
from licserver.jobs.worker import CANCEL_SECONDS, DRAIN_SECONDS, KEPT, SWEEP_SECONDS, JobWorker
from licserver.runtime.logging import set_up_logging
from licserver.runtime.periodic import CLOCK_SECONDS
from licserver.runtime.shutdown import ProcessEnd
from licserver.services.installation import Services, open_services
from licserver.settings import Settings

END_SECONDS: Final = DRAIN_SECONDS + CANCEL_SECONDS + 1.0
_HEAD_START: Final = 1.0  # seconds in which the server itself starts
_TEND_SECONDS: Final = 0.25
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0  # seconds before a process that ends repeatedly is restarted
_BEAT_SECONDS: Final = 1.0  # between two heartbeats of its event loop
_MOST_SILENT: Final = 30.0  # seconds without a heartbeat, after which the process is killed
_LONGEST_LOOK: Final = 1.0  # seconds that count between two checks: the server may have been suspended

_SETTINGS: Final = "_LICSERVER_BACKGROUND"  # not standard input, which restarts and several processes share

_log = logging.getLogger("licserver.background")


def create_job_worker(services: Services, clock: Clock) -> JobWorker:
    """Create the worker that does all jobs of a server."""
    worker = JobWorker(services.repositories, clock)
    worker.every(CLOCK_SECONDS, ClockWatch(services).read)  # first: the other work depends on the clock
    worker.every(SWEEP_SECONDS, lambda: services.repositories.clock.mend(clock()))
    register_webhooks(worker, services)
    register_mail(worker, services)
    register_patches(worker, services)
    register_sales(worker, services)
    worker.every(
        SWEEP_SECONDS, lambda: services.repositories.queue.sweep(services.context.settled_now() - KEPT)
    )
    worker.every(SWEEP_SECONDS, services.retention.sweep_daily)
    return worker


class ClockWatch:
    """A periodic reading of the clock, with a warning for each step that is not trusted."""

    def __init__(self, services: Services) -> None:
        self._services, self._is_believed = services, True

    def read(self) -> None:
        """Read the clock; log a warning if it has just moved too far."""
        services = self._services
        settled, now = services.context.settled_now(), services.now()
        is_believed = abs(now - settled) <= TOLERANCE
        if self._is_believed and not is_believed:
            _log.warning(
                "this machine's clock (%s) has moved from the latest reading that is certain (%s). Until "
                "it is trusted, nothing is reported as ended, no mail of an end is sent, and nothing is "
                "deleted; see `licserver check`",
                f"{now:%Y-%m-%d %H:%M} UTC",
                f"{settled:%Y-%m-%d %H:%M} UTC",
            )
        self._is_believed = is_believed


class BackgroundProcess:
    """A supervisor of the background process, in the server.

    1. `running` keeps the process alive while an application runs; it calls `tend` periodically.
    2. `tend` starts the process, restarts it with a growing pause if it ends, and kills it if it hangs.
    3. `wake` notifies the process of a new job through a pipe, which forked workers share.
    4. The process sends heartbeats through its standard output, another pipe.
    5. `end` lets it finish running jobs, and kills it after some seconds.

    Example::

        process = BackgroundProcess(settings)
        app.cleanup_ctx.append(process.running)
        process.wake()

    Nothing is raised: a process that cannot be started is logged and tried again. The process ends itself
    when the server has ended.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = b64encode(pickle.dumps(settings)).decode()
        self._reader, self._writer = os.pipe()
        self._beats, self._beat = os.pipe()
        if sys.platform != "win32":
            for end in (self._writer, self._beats, self._beat):
                os.set_blocking(end, False)
        self._process: subprocess.Popen[bytes] | None = None
        self._began, self._due = 0.0, time.monotonic() + _HEAD_START
        self._looked, self._silent = time.monotonic(), 0.0
        self._pause = _FIRST_PAUSE

    def wake(self) -> None:
        """Let the process look for jobs now; on Windows, where a full pipe blocks, it polls each second."""
        if not self._began:
            self._due = 0.0  # the head start is over
        if sys.platform != "win32":
            with contextlib.suppress(OSError):  # full: it was woken; closed: it ends
                os.write(self._writer, b"!")

    def tend(self) -> None:
        """Start the process if it is due, and kill it if it hangs; call this every second or more often."""
        now = time.monotonic()
        self._listen(now)
        try:
            if self._process is None and now >= self._due:
                self._began, self._silent = now, -math.inf  # until the first heartbeat
                self._process = self._start()
            if self._process is None or not self.has_ended():
                return
            problem = f"it exited with {self._process.returncode}"
        except OSError as error:
            problem = f"{type(error).__name__}: {error}"
        if now - self._began > _LONGEST_PAUSE:
            self._pause = _FIRST_PAUSE
        _log.error("the background process is started again in %g s: %s", self._pause, problem)
        self._process, self._due = None, now + self._pause
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _listen(self, now: float) -> None:
        """Kill the process without heartbeats; on Windows, where an empty pipe blocks, they are not read."""
        passed, self._looked = min(now - self._looked, _LONGEST_LOOK), now
        if sys.platform == "win32":
            return
        self._silent += passed
        with contextlib.suppress(BlockingIOError):
            if os.read(self._beats, 1 << 16):
                self._silent = 0.0
        if self._process is not None and self._silent > _MOST_SILENT:
            self._silent = 0.0
            _log.error("the background process has stopped responding, and is killed")
            self._process.kill()

    def has_ended(self) -> bool:
        """Return whether the process was started and has ended; its exit code is known then."""
        return self._process is not None and self._process.poll() is not None

    def _start(self) -> "subprocess.Popen[bytes]":
        """Start the process outside the terminal's process group: Ctrl-C is for the server, which ends it."""
        command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
        environ = {**os.environ, _SETTINGS: self._settings}
        return subprocess.Popen(  # noqa: S603 - ours
            command, stdin=self._reader, stdout=self._beat, env=environ, start_new_session=True
        )

    def end(self, seconds: float = END_SECONDS) -> None:
        """Wait for the end of the process; kill it after `seconds`. Other holders of the pipe end before."""
        if self._writer == -1:  # it has ended; after Ctrl-C gunicorn stops twice
            return
        for descriptor in (self._reader, self._writer, self._beats, self._beat):
            os.close(descriptor)
        self._writer = -1
        if self._process is None:
            return
        if sys.platform != "win32":  # there it would kill
            self._process.terminate()  # ends a process that is starting; later it is ignored
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            _log.error("the background process did not end within %g s, and is killed", seconds)
            self._process.kill()

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Keep the process alive while an application runs; for its `cleanup_ctx`."""
        tending = asyncio.create_task(self._keep())
        yield
        tending.cancel()
        await asyncio.wait([tending])
        await asyncio.to_thread(self.end)

    async def _keep(self) -> None:
        while True:
            self.tend()
            await asyncio.sleep(_TEND_SECONDS)


async def _work(services: Services, end: ProcessEnd) -> None:
    """Work until standard input ends, with the server; each byte there announces a job."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # which supervisors send to every process of a service
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    worker = create_job_worker(services, services.now)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def follow() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            loop.call_soon_threadsafe(worker.wake)
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=follow, name="server", daemon=True).start()
    beating = asyncio.create_task(_beat())
    async with contextlib.asynccontextmanager(worker.running)(web.Application()):
        await ended.wait()
        end.begin()
    beating.cancel()


async def _beat() -> None:
    """Report to the server that the event loop runs, also while threads wait."""
    while sys.platform != "win32":  # which does not read it
        with contextlib.suppress(OSError):  # full: the server is suspended; closed: it ends
            os.write(sys.stdout.fileno(), b"!")
        await asyncio.sleep(_BEAT_SECONDS)


def main() -> None:
    """Run the process."""
    settings: Settings = pickle.loads(b64decode(os.environ.pop(_SETTINGS)))  # noqa: S301 - from the server
    set_up_logging(settings.log_format, settings.log_limit)
    try:
        with closing(open_services(settings)) as services:
            asyncio.run(_work(services, ProcessEnd(END_SECONDS)))
    except Exception as problem:  # noqa: BLE001 - logged, and the server starts another
        is_expected = isinstance(problem, (LicserverError, OSError))
        _log.error(
            "the background process cannot go on: %s", problem, exc_info=None if is_expected else problem
        )
        sys.exit(1)
