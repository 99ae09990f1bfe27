"""Run the application: listening sockets, one process or several, graceful shutdown."""

import asyncio
import contextlib
import errno
import gc
import logging
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from aiohttp import web

from licserver.services import Services, open_services
from licserver.settings import Settings
from licserver.web.app import create_admin_app, create_app
from licserver.web.app_state import DRAIN
from licserver.web.connections import Runner
from licserver.web.logging import RequestIds, access_logger, make_formatter
from licserver.web.open_connections import OpenConnections, raise_descriptor_limit
from licserver.web.rate_limits import ClientAddresses

if TYPE_CHECKING:
    from licserver.web.metrics import Metrics


_log = logging.getLogger("licserver.serving")

_BACKLOG = 2048
_LINGER = 2.0  # seconds in which an idle connection may still bring a request while the process shuts down
_PORT_TRIES = 10
_NO_SUCH_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

_SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that makes a page gives the interpreter back to the event loop.

With Python's 5 ms a request would wait as long more than once: it takes several turns of the loop.
"""

Announce = Callable[[], None]


def take_supervisor() -> Callable[[], None]:
    """Take NOTIFY_SOCKET out of the environment; return a function that notifies it once, in any process.

    gunicorn would notify it before the server accepts connections. Without the variable, nothing is sent.
    """
    address = os.environ.pop("NOTIFY_SOCKET", None)

    def notify() -> None:
        if address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                # A leading @ stands for the name of an abstract socket (sd_notify(3)).
                sock.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as problem:  # systemd will end the server; the log then has the reason
            _log.error("cannot notify systemd that the server is ready: %s", problem)

    return notify


def bind(host: str, port: int) -> list[socket.socket]:
    """Open a listening socket on each address of a host, all on one port; 0 lets the system choose it.

    Addresses that this machine lacks are left out, unless there is no other: `localhost` may be ``::1`` as
    well where IPv6 is switched off.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    for _ in range(_PORT_TRIES - 1):
        try:
            return _bind_each(addresses, port)
        except OSError as problem:
            # The port chosen for the first address may be taken on the next one.
            if port or problem.errno != errno.EADDRINUSE:
                raise
    return _bind_each(addresses, port)


def _bind_each(addresses: Sequence[tuple[int, Any]], port: int) -> list[socket.socket]:
    socks: list[socket.socket] = []
    missing: OSError | None = None
    with contextlib.ExitStack() as stack:
        for family, (ip, _, *more) in addresses:
            try:
                sock = socket.create_server((ip, port, *more), family=family, backlog=_BACKLOG)
            except OSError as problem:
                if problem.errno not in _NO_SUCH_ADDRESS:
                    raise
                missing = problem
                continue
            socks.append(stack.enter_context(sock))
            port = sock.getsockname()[1]
        if missing is not None and not socks:
            raise missing
        stack.pop_all()
    return socks


def address_of(sock: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _listen(runner: Runner, socks: Sequence[socket.socket]) -> None:
    for sock in socks:
        await web.SockSite(runner, sock, backlog=_BACKLOG).start()


async def _pause_listening(site: web.BaseSite) -> None:
    """Stop accepting, and wait for connections that were accepted in this turn of the loop.

    asyncio opens a connection one turn after it has accepted it, and forgets one whose server is closed in
    between: the client would get a reset.
    """
    loop = asyncio.get_running_loop()
    server = site._server  # noqa: SLF001 - aiohttp has no way to pause a site
    if not isinstance(server, asyncio.Server):
        return
    for sock in server.sockets:
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.remove_reader(sock.fileno())
    await asyncio.sleep(0)


class DrainingRunner(Runner):
    """Shuts down without losing a response.

    It stops accepting, and readiness turns false. Each open connection gets one more response, with
    ``Connection: close``; an idle one is closed after `_LINGER`. Running requests have `drain_timeout`.
    """

    async def cleanup(self) -> None:
        """Drain, then shut down."""
        await self.stop_accepting()
        deadline = time.monotonic() + _LINGER
        while True:  # aiohttp has no event for it
            # First: a connection that was accepted a moment ago is not counted yet.
            await asyncio.sleep(_LINGER / 40)
            if self.server is None or not self.server.connections or time.monotonic() >= deadline:
                break
        await super().cleanup()

    async def stop_accepting(self) -> None:
        """Accept no more connections, and report not ready."""
        self.app[DRAIN].active = True
        for site in list(self.sites):
            await _pause_listening(site)
            await site.stop()


class ServerRunner(DrainingRunner):
    """Runs the application, and the admin application where that has an address of its own.

    Both drain at the same time: a supervisor kills a process that takes twice as long. `on_end` is called
    when both have shut down.
    """

    def __init__(
        self,
        app: web.Application,
        settings: Settings,
        *,
        admin: tuple[DrainingRunner, Sequence[socket.socket]] | None,
        on_end: Callable[[], None] | None,
        **more: Any,
    ) -> None:
        super().__init__(app, settings, **more)
        self._admin, self._on_end = admin, on_end

    async def setup(self) -> None:
        """Start the admin application, and prepare the other, whose sites the caller starts."""
        await super().setup()
        if self._admin is not None:
            runner, socks = self._admin
            await runner.setup()
            await _listen(runner, socks)

    async def cleanup(self) -> None:
        """Drain both, then shut down."""
        drains = [super().cleanup()]
        if self._admin is not None:
            await self.stop_accepting()
            await self._admin[0].stop_accepting()
            drains.append(self._admin[0].cleanup())
        # Not `TaskGroup`: if one fails, the clients of the other still get their responses.
        ended = await asyncio.gather(*drains, return_exceptions=True)
        if self._on_end is not None:
            self._on_end()
        for problem in ended:
            if problem is not None:
                raise problem


def _open_metrics(settings: Settings, processes: int) -> "Metrics | None":
    if settings.metrics_listen is None:
        return None
    from licserver.web.metrics import Metrics  # noqa: PLC0415 - loads its library only where it is used

    host, _, port = settings.metrics_listen.rpartition(":")
    try:
        return Metrics(bind(host.strip("[]"), int(port)), settings, processes)
    except OSError as problem:
        message = f"cannot listen on {settings.metrics_listen} for metrics: {problem.strerror}"
        raise OSError(problem.errno, message) from None


def _make_runner(
    services: Services,
    metrics: "Metrics | None",
    admin_socks: Sequence[socket.socket],
    on_end: Callable[[], None] | None = None,
) -> ServerRunner:
    settings = services.settings
    meter = None if metrics is None else metrics.meter()
    app = create_app(services, meter=meter)
    if metrics is not None:
        app.cleanup_ctx.append(metrics.serve)
    more: dict[str, Any] = {
        "access_log_class": access_logger(ClientAddresses(settings), RequestIds(settings)),
        "access_log": logging.getLogger("licserver.access") if settings.access_log else None,
        "shutdown_timeout": settings.drain_timeout,
        "held": OpenConnections(settings, raise_descriptor_limit()),
    }
    admin = None
    if admin_socks:
        admin = DrainingRunner(create_admin_app(services, meter=meter), settings, **more), admin_socks
    return ServerRunner(app, settings, admin=admin, on_end=on_end, **more)


def _tune_interpreter() -> None:
    """Set how often threads switch and garbage is collected; little here is garbage in cycles."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def serve(
    services: Services,
    socks: Sequence[socket.socket],
    announce: Announce,
    admin_socks: Sequence[socket.socket] = (),
) -> None:
    """Serve in this process until SIGTERM or Ctrl-C; `announce` is called once it accepts connections."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends asyncio.run instead
            loop.add_signal_handler(name, stop.set)
    if hasattr(signal, "SIGHUP"):  # its default would kill the process
        loop.add_signal_handler(signal.SIGHUP, _log.warning, "SIGHUP is for serve --workers; going on")
    runner = _make_runner(services, _open_metrics(services.settings, 1), admin_socks)
    try:
        await runner.setup()
        _tune_interpreter()
        await _listen(runner, socks)
        announce()
        await stop.wait()
    finally:
        await runner.cleanup()


def serve_with_workers(
    settings: Settings,
    socks: Sequence[socket.socket],
    workers: int,
    announce: Announce,
    admin_socks: Sequence[socket.socket] = (),
) -> None:
    """Serve with several processes that share the listening sockets, until SIGTERM or Ctrl-C.

    SIGHUP replaces the processes by new ones; `workers` describes what happens when one cannot start. Each
    opens the data folder itself: database connections do not survive a fork. The first one calls `announce`.
    """
    from gunicorn.app.base import BaseApplication  # noqa: PLC0415 - does not exist on Windows
    from gunicorn.glogging import Logger  # noqa: PLC0415 - the same

    from licserver.web.workers import WorkerStartup, run  # noqa: PLC0415 - the same

    metrics = _open_metrics(settings, workers)
    # gunicorn closes them: a copy that stays open would go on accepting connections.
    listeners = [sock.detach() for sock in socks]
    for admin_sock in admin_socks:
        # The flag is shared by all processes, and `dup` copies the object's own: a new worker would make the
        # others block in `accept` for a connection that it takes itself.
        admin_sock.setblocking(False)  # noqa: FBT003 - the standard library's
    turn_read, turn_write = os.pipe()  # holds one byte: the worker that reads it announces
    os.write(turn_write, b"!")
    os.set_blocking(turn_read, False)

    async def make_runner() -> DrainingRunner:
        services = open_services(settings)
        admin = [admin_sock.dup() for admin_sock in admin_socks]  # each worker closes its own
        runner = _make_runner(services, metrics, admin, services.close)

        async def announce_once(_app: web.Application) -> None:
            _tune_interpreter()
            with contextlib.suppress(BlockingIOError):
                os.read(turn_read, 1)
                asyncio.get_running_loop().call_soon(announce)

        runner.app.on_startup.append(announce_once)
        return runner

    startup = WorkerStartup(make_runner, turn_read)

    class MaskedLogger(Logger):  # type: ignore[misc] # gunicorn is not typed
        def setup(self, cfg: Any) -> None:
            super().setup(cfg)
            for handler in self.error_log.handlers:
                handler.setFormatter(make_formatter(settings.log_format, self.error_fmt, self.datefmt))

    class Manager(BaseApplication):  # type: ignore[misc] # gunicorn is not typed
        def load_config(self) -> None:
            options: dict[str, Any] = {
                "bind": [f"fd://{listener}" for listener in listeners],
                "workers": workers,
                "worker_class": "aiohttp.GunicornWebWorker",
                "graceful_timeout": math.ceil(settings.drain_timeout + 2 * _LINGER),
                "loglevel": "warning",
                "logger_class": MaskedLogger,
                "proc_name": "licserver",
                "control_socket_disable": True,
                "post_fork": startup.note,
            }
            for name, value in options.items():
                if name in self.cfg.settings:
                    self.cfg.set(name, value)

        def load(self) -> Callable[[], Any]:
            return startup.begin

    run(Manager(), settings)
