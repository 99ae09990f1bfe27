"""Running the application: a socket, one process or several, and an orderly end."""

import asyncio
import contextlib
import gc
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from licserver.settings import Settings
from licserver.vendor import Vendor
from licserver.web.app import create_app
from licserver.web.connections import Runner
from licserver.web.logs import MaskingFormatter
from licserver.web.state import DRAIN

_log = logging.getLogger("licserver.serving")

_BACKLOG = 2048
_LINGER = 2.0
"""Seconds that an idle connection may still bring a request while the process is on its way out."""

Announce = Callable[[], None]


class AccessLogger(AbstractAccessLogger):
    """Logs method, path and status; never the query, in which a license key stands."""

    def log(self, request: web.BaseRequest, response: web.StreamResponse, time: float) -> None:
        """Write one line."""
        path = request.rel_url.raw_path  # as sent: a decoded one could bring line breaks along
        self.logger.info("%s %s %s %d %.4f", request.remote, request.method, path, response.status, time)


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket; port 0 lets the system choose one.

    Raises:
        OSError: when the address cannot be had.
    """
    family, _, _, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=_BACKLOG)


def address_of(sock: socket.socket) -> str:
    """The address of a listening socket, as a URL."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class DrainingRunner(Runner):
    """Ends in order: nobody who is connected loses an answer.

    Nothing new is accepted, which is then another process's to do, and readiness turns false. Who
    holds a connection gets one more answer on it, with ``Connection: close``; a connection on which
    nothing is asked is closed after a moment. What runs has the settings' time to finish.
    """

    async def cleanup(self) -> None:
        """Drain, then end."""
        self.app[DRAIN].active = True
        for site in list(self.sites):
            await site.stop()
        deadline = time.monotonic() + _LINGER
        while True:  # aiohttp has no event for it
            # First of all: who was accepted a moment ago is not among the connections yet.
            await asyncio.sleep(_LINGER / 40)
            if self.server is None or not self.server.connections or time.monotonic() >= deadline:
                break
        await super().cleanup()


def _make_runner(vendor: Vendor) -> DrainingRunner:
    settings = vendor.settings
    return DrainingRunner(
        create_app(vendor),
        settings,
        access_log_class=AccessLogger,
        access_log=logging.getLogger("licserver.access") if settings.access_log else None,
        shutdown_timeout=settings.drain_timeout,
    )


def _calm_collector() -> None:
    """Have the garbage collector look less often, and never again at what was there at the start.

    Hardly anything here is garbage in cycles. Its usual rhythm, every 700 objects, is once in a few
    requests, and costs each of them a tenth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def serve(vendor: Vendor, sock: socket.socket, announce: Announce) -> None:
    """Serve in this process until SIGTERM or Ctrl-C, then let running requests finish.

    Args:
        vendor: The opened data folder.
        sock: From `bind`.
        announce: Called once the server answers.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends asyncio.run instead
            loop.add_signal_handler(name, stop.set)
    if hasattr(signal, "SIGHUP"):  # else it would end us in the midst of a request
        loop.add_signal_handler(signal.SIGHUP, _log.warning, "SIGHUP is for serve --workers; going on")
    runner = _make_runner(vendor)
    await runner.setup()
    _calm_collector()
    try:
        await web.SockSite(runner, sock, backlog=_BACKLOG).start()
        announce()
        await stop.wait()
    finally:
        await runner.cleanup()


def serve_with_workers(settings: Settings, sock: socket.socket, workers: int, announce: Announce) -> None:
    """Serve with several processes that share the listening socket, until SIGTERM or Ctrl-C.

    SIGHUP replaces the processes by fresh ones, one generation after the other; `workers` has what
    happens when one cannot begin.

    Args:
        settings: Each worker opens the data folder for itself: a database connection does not
            survive a fork.
        sock: From `bind`; it is used up.
        workers: How many processes.
        announce: Called once, by the first worker that answers.
    """
    from gunicorn.app.base import BaseApplication  # noqa: PLC0415 - does not exist on Windows
    from gunicorn.glogging import Logger  # noqa: PLC0415 - the same

    from licserver.web.workers import Beginning, run  # noqa: PLC0415 - the same

    listener = sock.detach()  # gunicorn's, to close: a copy kept open would go on taking callers in
    turn_read, turn_write = os.pipe()  # holds one byte: who gets it announces
    os.write(turn_write, b"!")
    os.set_blocking(turn_read, False)

    async def make_runner() -> DrainingRunner:
        vendor = Vendor(settings)
        runner = _make_runner(vendor)

        async def close_vendor(_app: web.Application) -> None:
            vendor.close()

        async def announce_once(_app: web.Application) -> None:
            _calm_collector()
            with contextlib.suppress(BlockingIOError):
                os.read(turn_read, 1)
                asyncio.get_running_loop().call_soon(announce)

        runner.app.on_startup.append(announce_once)
        runner.app.on_cleanup.append(close_vendor)
        return runner

    beginning = Beginning(make_runner, turn_read)

    class MaskedLogger(Logger):  # type: ignore[misc] # gunicorn is not typed
        def setup(self, cfg: Any) -> None:
            super().setup(cfg)
            for handler in self.error_log.handlers:
                handler.setFormatter(MaskingFormatter(self.error_fmt, self.datefmt))

    class Manager(BaseApplication):  # type: ignore[misc] # gunicorn is not typed
        def load_config(self) -> None:
            options: dict[str, Any] = {
                "bind": f"fd://{listener}",
                "workers": workers,
                "worker_class": "aiohttp.GunicornWebWorker",
                "graceful_timeout": math.ceil(settings.drain_timeout + 2 * _LINGER),
                "loglevel": "warning",
                "logger_class": MaskedLogger,
                "proc_name": "licserver",
                "control_socket_disable": True,
                "post_fork": beginning.note,
            }
            for name, value in options.items():
                if name in self.cfg.settings:
                    self.cfg.set(name, value)

        def load(self) -> Callable[[], Any]:
            return beginning.begin

    run(Manager(), settings)
