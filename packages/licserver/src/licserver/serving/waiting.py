"""Responds 503 while the installation cannot be opened because its database is away."""

import asyncio
import contextlib
import logging
import re
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeVar

from aiohttp import web

from licserver.errors import StoreUnavailableError
from licserver.protocol import public_api
from licserver.runtime.shutdown import END_SECONDS, ProcessEnd, exit_at_next_signal
from licserver.serving.connections import Runner
from licserver.settings import Settings
from licserver.web.responses import send, send_unavailable

_log = logging.getLogger("licserver.serving")

_PAUSE: Final = 0.5
_LOG_INTERVAL: Final = 60.0
_EXTEND_INTERVAL: Final = 10.0
_EXTEND: Final = "EXTEND_TIMEOUT_USEC=60000000"  # systemd waits a minute more for READY=1

_REFUSED: Final = re.compile("authentication failed|no pg_hba.conf entry|does not exist|permission denied")
"""PostgreSQL's English messages for faults that do not mend themselves."""


class Closeable(Protocol):
    """A resource that is closed again if it is not needed any more."""

    def close(self) -> None:
        """Close it."""


Result = TypeVar("Result", bound=Closeable)


def may_return(problem: StoreUnavailableError) -> bool:
    """Return whether a database may become available without a change of the settings.

    Of several hosts, one that only is away may return.
    """
    return any(_REFUSED.search(host) is None for host in str(problem).split("; "))


async def open_when_possible(
    open_: Callable[[], Result],
    socks: Sequence[socket.socket],
    settings: Settings,
    notify: Callable[[str], None],
) -> Result:
    """Call a function on a thread until it finds the database; respond 503 meanwhile.

    Args:
        open_: Raises `StoreUnavailableError` while the database is away.
        socks: Listening sockets, which stay open.
        notify: Sends a message to systemd.

    Raises:
        SystemExit: when this process is stopped meanwhile.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        stop.set()
        exit_at_next_signal()
        ProcessEnd(END_SECONDS).begin()  # a database that hangs holds the thread

    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.add_signal_handler(name, end)
    runner = await _respond(socks, settings)
    logged = extended = -_LOG_INTERVAL
    try:
        while not stop.is_set():
            try:
                opened = await asyncio.to_thread(open_)
            except StoreUnavailableError as problem:
                if not may_return(problem):
                    raise
                if time.monotonic() - logged > _LOG_INTERVAL:
                    logged = time.monotonic()
                    _log.error("all requests get 503 until the database is there: %s", problem)
            else:
                if stop.is_set():  # while it was opened
                    opened.close()
                    break
                return opened
            if time.monotonic() - extended > _EXTEND_INTERVAL:
                extended = time.monotonic()
                notify(_EXTEND)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSE):
                    await stop.wait()
        sys.exit(0)
    finally:
        await runner.cleanup()


async def _respond(socks: Sequence[socket.socket], settings: Settings) -> Runner:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", _handle)
    runner = Runner(app, settings, access_log=None, shutdown_timeout=1)
    await runner.setup()
    for sock in socks:
        await web.SockSite(runner, sock.dup()).start()
    return runner


async def _handle(request: web.Request) -> web.StreamResponse:
    is_health = request.path == "/healthz"
    response = send(public_api.json_response(200, {"status": "ok"})) if is_health else send_unavailable()
    response.force_close()  # the next request may find the server
    return response
