"""Worker processes that come and go: one that cannot begin is tried again, and takes nobody along (D-125).

gunicorn takes a worker that cannot begin for a program that cannot run, and ends all of them: right at the
very first start, and a whole service lost for one killed process while the database is away.
"""

import asyncio
import contextlib
import logging
import select
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.errors import HaltServer

from licserver.errors import LicserverError, StoreUnavailable
from licserver.services import open_services
from licserver.settings import Settings
from licserver.web.connections import Runner

_log = logging.getLogger("licserver.serving")

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 2.0
_PATIENCE: Final = 10.0
"""Seconds that one process waits for the database; the next one goes on. gunicorn ends it after 30."""

_FAILED: Final = 1
_FAILED_AT_FIRST: Final = Arbiter.WORKER_BOOT_ERROR
"""Ends all the others as well."""

_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)


class Master(Arbiter):  # type: ignore[misc] # gunicorn is not typed
    """Starts the workers, and replaces them.

    Args:
        app: gunicorn's, with all its options.
        settings: What each worker opens.
    """

    def __init__(self, app: BaseApplication, settings: Settings) -> None:
        super().__init__(app)
        self._settings = settings

    def spawn_worker(self) -> int:
        """Fork a worker with the stop signals blocked; `WorkerStartup.begin` unblocks them.

        A fresh process has the master's signal handlers, which only fill a queue that nobody reads there. A
        SIGTERM that came before its own handlers were set was lost, and the worker served until SIGKILL.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOP_SIGNALS)
        try:
            pid: int = super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return pid

    def handle_hup(self) -> None:
        """Replace the workers, if fresh ones could begin: else those that serve go on."""
        try:
            open_services(self._settings).close()
        except (LicserverError, OSError) as problem:
            _log.error("SIGHUP: the running processes go on, fresh ones could not begin: %s", problem)
            return
        super().handle_hup()

    def stop(self, graceful: bool = True) -> None:
        """End all workers, also if one of them fails on the way."""
        while True:
            try:
                super().stop(graceful)
            except HaltServer:  # that worker is off the list
                continue
            return

    def halt(self, reason: str | None = None, exit_status: int = 0) -> None:
        """End, with the exit code that every failed command has."""
        super().halt(reason, _FAILED if exit_status else 0)


class WorkerStartup:
    """How one worker begins.

    Args:
        make: Makes what answers.
        turn: A pipe's end, to be read by the first worker that answers. Once it is empty, the failure of
            one to begin is no other's.
    """

    def __init__(self, make: Callable[[], Awaitable[Runner]], turn: int) -> None:
        self._make = make
        self._turn = turn
        self._worker: Any = None

    def note(self, _arbiter: Arbiter, worker: Any) -> None:
        """Take note of whose beginning it is; gunicorn's hook in the fresh process."""
        self._worker = worker

    async def begin(self) -> Runner:
        """Make it, and again after a while if the database is away.

        Raises:
            SystemExit: when it cannot be made, or this process is told to end meanwhile.
        """
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOP_SIGNALS)  # gunicorn has set the worker's handlers
        pause, deadline = _FIRST_PAUSE, time.monotonic() + _PATIENCE
        while True:
            try:
                return await self._make()
            except StoreUnavailable as problem:
                if pause == _FIRST_PAUSE:
                    _log.error("a worker waits for the database: %s", problem)
                if time.monotonic() > deadline:
                    sys.exit(_FAILED)
            except Exception as problem:  # noqa: BLE001 - told, and then this process ends
                known = isinstance(problem, (LicserverError, OSError))
                _log.error("a worker cannot begin: %s", problem, exc_info=None if known else problem)
                if select.select([self._turn], [], [], 0)[0]:
                    sys.exit(_FAILED_AT_FIRST)
                await self._rest(_LONGEST_PAUSE)
                sys.exit(_FAILED)
            await self._rest(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            await asyncio.sleep(min(_FIRST_PAUSE, seconds))
            if not self._worker.alive:
                sys.exit(0)


def run(app: BaseApplication, settings: Settings) -> None:
    """Run the workers until SIGTERM or Ctrl-C; ends the process.

    Args:
        app: gunicorn's.
        settings: What each worker opens.
    """
    with contextlib.suppress(HaltServer):
        Master(app, settings).run()
    sys.exit(_FAILED)
