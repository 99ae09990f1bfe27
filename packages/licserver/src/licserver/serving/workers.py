"""Several processes by gunicorn: one that cannot start is restarted, and does not stop the others (D-125).

Stock gunicorn stops all workers when one cannot start: right at the very first start, and an outage when a
process dies while the database is away. It also loses a SIGTERM that arrives while it forks.
"""

import asyncio
import contextlib
import logging
import math
import mmap
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from aiohttp import web
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer
from gunicorn.glogging import Logger

from licserver.errors import LicserverError, StoreUnavailableError
from licserver.jobs.process import END_SECONDS as BACKGROUND_SECONDS
from licserver.jobs.process import BackgroundProcess
from licserver.runtime.logging import make_formatter
from licserver.runtime.shutdown import END_SECONDS, exit_at_next_signal
from licserver.services.installation import open_services
from licserver.serving.connections import Runner
from licserver.serving.server import make_runner, open_metrics, tune_interpreter
from licserver.settings import LogFormat, Settings
from licserver.web.middlewares import DRAIN

_log = logging.getLogger("licserver.serving")

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 2.0
_NOTIFY_SECONDS: Final = 1.0
_PATIENCE: Final = 10.0
"""Seconds that a process waits for the database before another replaces it; gunicorn kills it after 30."""

_FAILED: Final = 1
_FAILED_AT_FIRST: Final = Arbiter.WORKER_BOOT_ERROR  # stops all other workers as well
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Master(Arbiter):  # type: ignore[misc] # gunicorn is not typed
    """Starts and replaces the workers, which open what `settings` name."""

    def __init__(
        self,
        app: BaseApplication,
        settings: Settings,
        not_ready: mmap.mmap,
        background: BackgroundProcess,
    ) -> None:
        super().__init__(app)
        self._settings, self._not_ready, self._background = settings, not_ready, background

    def manage_workers(self) -> None:
        """Keep the workers, and the process that does the jobs of all; called every second."""
        super().manage_workers()
        self._background.tend()

    def spawn_worker(self) -> int:
        """Fork a worker with the stop signals blocked; `WorkerStartup.begin` unblocks them.

        A new process has the master's handlers, which fill a queue that is not read there: a SIGTERM before
        its own handlers are set would be lost, and the worker would serve until SIGKILL.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            pid: int = super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid

    def handle_hup(self) -> None:
        """Replace the workers if new ones could start; otherwise keep them."""
        try:
            open_services(self._settings).close()
        except (LicserverError, OSError) as problem:
            _log.error("SIGHUP: the running processes go on, new ones could not start: %s", problem)
            return
        # Not gunicorn's: that handles nothing else until the old workers have ended, not even SIGTERM.
        for _ in range(self.num_workers):
            self.spawn_worker()
        self.manage_workers()

    def reap_workers(self) -> None:
        """Reap workers; gunicorn waits for any child, and would drop the exit code of that process."""
        self._background.has_ended()
        super().reap_workers()

    def stop(self, graceful: bool = True) -> None:
        """Stop all workers, even if one of them fails while it stops; first let load balancers notice.

        At last the process with the jobs ends, in what is left of their time.
        """
        if graceful and self._settings.drain_delay and self.WORKERS:  # after Ctrl-C they have ended already
            self._not_ready[0] = 1
            self._rest_unless_signalled(self._settings.drain_delay)
        exit_at_next_signal(self._kill_workers)
        deadline = time.monotonic() + self._settings.drain_timeout + END_SECONDS
        while True:
            try:
                super().stop(graceful)
            except HaltServer:  # that worker has ended
                continue
            self._background.end(max(1.0, min(deadline - time.monotonic(), BACKGROUND_SECONDS)))
            return

    def _kill_workers(self) -> None:
        for pid in list(self.WORKERS):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _rest_unless_signalled(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while (remaining := deadline - time.monotonic()) > 0:
            if set(self.wait_for_signals(timeout=remaining)) & set(_STOP_SIGNALS):
                return

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """Exit with the code of every failed command."""
        super().halt(reason, _FAILED if exit_status else 0)


class WorkerStartup:
    """Starts one worker.

    `turn` is a pipe that the first running worker reads. Once it is empty, a worker that cannot start does
    not stop the others.
    """

    def __init__(self, make: Callable[[], Awaitable[Runner]], turn: int) -> None:
        self._make = make
        self._turn = turn
        self._worker: Any = None

    def note(self, _arbiter: Arbiter, worker: Any) -> None:
        """Store the worker; gunicorn's hook in the new process."""
        self._worker = worker

    async def begin(self) -> Runner:
        """Create the runner, and retry while the database is away.

        Raises:
            SystemExit: when it cannot be created, or this process is stopped meanwhile.
        """
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)  # gunicorn has set the worker's handlers
        pause, deadline = _FIRST_PAUSE, time.monotonic() + _PATIENCE
        while True:
            try:
                runner = await self._make()
                self._notify()
                return runner
            except StoreUnavailableError as problem:
                if pause == _FIRST_PAUSE:
                    _log.error("a worker waits for the database: %s", problem)
                if time.monotonic() > deadline:
                    sys.exit(_FAILED)
            except Exception as problem:  # noqa: BLE001 - logged, and this process exits
                is_expected = isinstance(problem, (LicserverError, OSError))
                _log.error("a worker cannot start: %s", problem, exc_info=None if is_expected else problem)
                if select.select([self._turn], [], [], 0)[0]:
                    sys.exit(_FAILED_AT_FIRST)
                await self._rest(_LONGEST_PAUSE)
                sys.exit(_FAILED)
            await self._rest(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _notify(self) -> None:
        """Report to the master each second that the event loop runs, also while it drains.

        gunicorn's own notification stops then, and it kills a worker that is silent for half a minute.
        """
        self._worker.notify()
        asyncio.get_running_loop().call_later(_NOTIFY_SECONDS, self._notify)

    async def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(min(_FIRST_PAUSE, seconds))
            if not self._worker.alive:
                sys.exit(0)


class MaskedLogger(Logger):  # type: ignore[misc] # gunicorn is not typed
    """Writes gunicorn's lines as all others are written, with the credentials in them masked."""

    log_format: ClassVar[LogFormat] = LogFormat.TEXT  # gunicorn makes the logger, from its class alone

    def setup(self, cfg: Any) -> None:
        """Set the handlers up, then their formatters."""
        super().setup(cfg)
        for handler in self.error_log.handlers:
            handler.setFormatter(make_formatter(self.log_format, self.error_fmt, self.datefmt))


class Manager(BaseApplication):  # type: ignore[misc] # gunicorn is not typed
    """The application that gunicorn runs: `begin` in each worker, with these options."""

    def __init__(self, options: Mapping[str, Any], begin: Callable[[], Awaitable[Runner]]) -> None:
        self._options = options
        self._begin = begin
        super().__init__()

    def load_config(self) -> None:
        """Set the options which this version of gunicorn has."""
        for name, value in self._options.items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)

    def load(self) -> Callable[[], Any]:
        """Return what aiohttp's worker awaits for its runner."""
        return self._begin


def run(
    app: BaseApplication, settings: Settings, not_ready: mmap.mmap, background: BackgroundProcess
) -> None:
    """Run the workers until SIGTERM or Ctrl-C, then exit; `not_ready` is what they have as `Drain`."""
    with contextlib.suppress(HaltServer):
        Master(app, settings, not_ready, background).run()
    sys.exit(_FAILED)


def serve_with_workers(
    settings: Settings,
    socks: Sequence[socket.socket],
    workers: int,
    announce: Callable[[], None],
    admin_socks: Sequence[socket.socket] = (),
) -> None:
    """Serve with several processes that share the listening sockets, until SIGTERM or Ctrl-C.

    SIGHUP replaces the processes by new ones. Each opens the data folder itself: database connections do not
    survive a fork. The first one calls `announce`.
    """
    metrics = open_metrics(settings, workers)
    not_ready = mmap.mmap(-1, 1)  # one byte, shared after the fork
    background = BackgroundProcess(settings)
    # gunicorn closes them: a copy that stays open would go on accepting connections.
    listeners = [sock.detach() for sock in socks]
    for admin_sock in admin_socks:
        # The flag is shared by all processes, and `dup` copies the object's own: a new worker would make the
        # others block in `accept` for a connection that it takes itself.
        admin_sock.setblocking(False)  # noqa: FBT003 - the standard library's
    turn_read, turn_write = os.pipe()  # holds one byte: the worker that reads it announces
    os.write(turn_write, b"!")
    os.set_blocking(turn_read, False)

    async def make_worker() -> Runner:
        services = open_services(settings)
        admin = [admin_sock.dup() for admin_sock in admin_socks]  # each worker closes its own
        runner = make_runner(services, metrics, admin, background.wake)
        runner.app[DRAIN].not_ready = not_ready

        async def announce_once(_app: web.Application) -> None:
            tune_interpreter()
            with contextlib.suppress(BlockingIOError):
                os.read(turn_read, 1)
                asyncio.get_running_loop().call_soon(announce)

        runner.app.on_startup.append(announce_once)
        return runner

    startup = WorkerStartup(make_worker, turn_read)

    MaskedLogger.log_format = settings.log_format
    options = {
        "bind": [f"fd://{listener}" for listener in listeners],
        "workers": workers,
        "worker_class": "aiohttp.GunicornWebWorker",
        # Longer than their own limit: a killed worker cannot log why it was late.
        "graceful_timeout": math.ceil(settings.drain_timeout + END_SECONDS) + 2,
        "loglevel": "warning",
        "logger_class": MaskedLogger,
        "proc_name": "licserver",
        "control_socket_disable": True,
        "post_fork": startup.note,
    }
    run(Manager(options, startup.begin), settings, not_ready, background)
