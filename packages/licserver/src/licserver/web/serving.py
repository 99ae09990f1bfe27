"""Running the application: a socket, one process or several, and an orderly end."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.abc import AbstractAccessLogger

from licserver.settings import Settings
from licserver.vendor import Vendor
from licserver.web.app import create_app

_BACKLOG = 2048

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


def _make_runner(vendor: Vendor) -> web.AppRunner:
    settings = vendor.settings
    return web.AppRunner(
        create_app(vendor),
        access_log_class=AccessLogger,
        access_log=logging.getLogger("licserver.access") if settings.access_log else None,
        shutdown_timeout=settings.drain_timeout,
        keepalive_timeout=75,
    )


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
    runner = _make_runner(vendor)
    await runner.setup()
    try:
        await web.SockSite(runner, sock, backlog=_BACKLOG).start()
        announce()
        await stop.wait()
    finally:
        await runner.cleanup()


def serve_with_workers(settings: Settings, sock: socket.socket, workers: int, announce: Announce) -> None:
    """Serve with several processes that share the listening socket, until SIGTERM or Ctrl-C.

    Args:
        settings: Each worker opens the data folder for itself: a database connection does not
            survive a fork.
        sock: From `bind`.
        workers: How many processes.
        announce: Called once, by the first worker that answers.
    """
    from gunicorn.app.base import BaseApplication  # noqa: PLC0415 - does not exist on Windows

    turn_read, turn_write = os.pipe()  # holds one byte: who gets it announces
    os.write(turn_write, b"!")
    os.set_blocking(turn_read, False)

    async def make_runner() -> web.AppRunner:
        vendor = Vendor(settings)
        runner = _make_runner(vendor)

        async def close_vendor(_app: web.Application) -> None:
            vendor.close()

        async def announce_once(_app: web.Application) -> None:
            with contextlib.suppress(BlockingIOError):
                os.read(turn_read, 1)
                asyncio.get_running_loop().call_soon(announce)

        runner.app.on_startup.append(announce_once)
        runner.app.on_cleanup.append(close_vendor)
        return runner

    class Manager(BaseApplication):  # type: ignore[misc] # gunicorn is not typed
        def load_config(self) -> None:
            options: dict[str, Any] = {
                "bind": f"fd://{os.dup(sock.fileno())}",
                "workers": workers,
                "worker_class": "aiohttp.GunicornWebWorker",
                "graceful_timeout": max(1, int(settings.drain_timeout)),
                "loglevel": "warning",
                "proc_name": "licserver",
                "control_socket_disable": True,
            }
            for name, value in options.items():
                if name in self.cfg.settings:
                    self.cfg.set(name, value)

        def load(self) -> Callable[[], Any]:
            return make_runner

    Manager().run()
