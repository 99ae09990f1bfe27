"""The background work of `licserver serve`, in a process of its own.

On a thread of the server it would share the interpreter with requests: beside 1,000 purchases a minute, 500
verifies a second had a 99th percentile of 6 ms instead of 3.3 (SQLite, ``python -m bench.events``).
"""

import asyncio
import contextlib
import logging
import pickle
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing
from typing import Final

from aiohttp import web

from licserver.clock import Clock
from licserver.errors import LicserverError
from licserver.services import Services, open_services
from licserver.settings import Settings
from licserver.web.background import CANCEL_SECONDS, DRAIN_SECONDS, KEPT, SWEEP_SECONDS, BackgroundWorker
from licserver.web.logging import set_up_logging
from licserver.web.mail import register_mail
from licserver.web.patches import register_patches
from licserver.web.sales import register_sales
from licserver.web.shutdown import ProcessEnd
from licserver.web.webhooks import register_webhooks

_END_SECONDS: Final = DRAIN_SECONDS + CANCEL_SECONDS + 1.0
_HEAD_START: Final = 1.0  # seconds in which the server itself starts, if there is no job
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0  # seconds before a process that ends again and again is started once more

_log = logging.getLogger("licserver.background")


def create_background(services: Services, clock: Clock) -> BackgroundWorker:
    """Create the worker that does all jobs of a server."""
    background = BackgroundWorker(services.repositories, clock)
    register_webhooks(background, services)
    register_mail(background, services)
    register_patches(background, services)
    register_sales(background, services)
    background.every(SWEEP_SECONDS, lambda: services.repositories.queue.sweep(clock() - KEPT))
    return background


class BackgroundProcess:
    """Starts the process, and again if it ends. It ends itself when this one does, whatever the reason."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._woken = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    def wake(self) -> None:
        """Let it look for jobs now; call it in the event loop."""
        self._woken.set()
        pipe = None if self._process is None else self._process.stdin
        if pipe is not None and not pipe.is_closing() and not pipe.transport.get_write_buffer_size():
            pipe.write(b"!")

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Keep the process while an application runs; for its `cleanup_ctx`."""
        watching = asyncio.create_task(self._keep())
        yield
        watching.cancel()
        await asyncio.wait([watching])
        if (process := self._process) is None:
            return
        if process.stdin is not None:
            process.stdin.close()
        with contextlib.suppress(ProcessLookupError):
            process.terminate()  # ends one that is still starting; one that works ignores it, and drains
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            _log.error("the background process did not end within %g s, and is killed", _END_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _keep(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HEAD_START):
                await self._woken.wait()
        pause = _FIRST_PAUSE
        while True:
            began = time.monotonic()
            try:
                self._process = process = await self._start()
                problem = f"it exited with {await process.wait()}"
            except Exception as error:  # noqa: BLE001 - without this task no job would be done
                problem = f"{type(error).__name__}: {error}"
            if time.monotonic() - began > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            _log.error("the background process is started again in %g s: %s", pause, problem)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _start(self) -> asyncio.subprocess.Process:
        """Start it outside the terminal's process group: Ctrl-C is for the server, which ends it."""
        command = [sys.executable, "-P", "-c", f"from {__name__} import main; main()"]
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, start_new_session=True
        )
        if process.stdin is not None:
            process.stdin.write(pickle.dumps(self._settings))
        return process


async def _work(services: Services, end: ProcessEnd) -> None:
    """Work until standard input ends, with the server; each byte there says that there is a job."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # which supervisors send to every process of a service
        if hasattr(signal, name):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    background = create_background(services, services.now)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def follow() -> None:
        while sys.stdin.buffer.read(1):
            loop.call_soon_threadsafe(background.wake)
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=follow, name="server", daemon=True).start()
    async with contextlib.asynccontextmanager(background.running)(web.Application()):
        await ended.wait()
        end.begin()


def main() -> None:
    """Run the process, which reads its settings from standard input."""
    try:
        settings: Settings = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the process that started this
    except EOFError:  # it has ended already
        return
    set_up_logging(settings.log_format, settings.log_limit)
    try:
        with closing(open_services(settings)) as services:
            asyncio.run(_work(services, ProcessEnd(_END_SECONDS)))
    except Exception as problem:  # noqa: BLE001 - logged, and the server starts another
        known = isinstance(problem, (LicserverError, OSError))
        _log.error("the background process cannot go on: %s", problem, exc_info=None if known else problem)
        sys.exit(1)
