"""Running the application: a socket, one process or several, and an orderly end."""

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
from licserver.web.client_addresses import ClientAddresses
from licserver.web.connections import Runner
from licserver.web.logging import access_logger, make_formatter
from licserver.web.open_connections import OpenConnections, raise_descriptor_limit
from licserver.web.request_ids import RequestIds

if TYPE_CHECKING:
    from licserver.web.metrics import Metrics

_log = logging.getLogger("licserver.serving")

_BACKLOG = 2048
_LINGER = 2.0
"""Seconds that an idle connection may still bring a request while the process is on its way out."""

_PORT_TRIES = 10
_NO_SUCH_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

_TURN = 0.0005
"""Seconds that a thread may run Python while another one waits to."""

Announce = Callable[[], None]


def bind(host: str, port: int) -> list[socket.socket]:
    """Open a listening socket on each address of a host, all on one port; port 0 lets the system choose one.

    An address that this machine does not have is left out, unless there is no other: `localhost` often is
    ``::1`` as well where IPv6 is switched off.

    Raises:
        OSError: when an address cannot be had.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    for _ in range(_PORT_TRIES - 1):
        try:
            return _bind_each(addresses, port)
        except OSError as problem:
            # The port that the system chose for the first address may be taken at the next one.
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
    """The address of a listening socket, as a URL."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def _listen(runner: Runner, socks: Sequence[socket.socket]) -> None:
    for sock in socks:
        await web.SockSite(runner, sock, backlog=_BACKLOG).start()


async def _pause_listening(site: web.BaseSite) -> None:
    """Accept nobody more, and let those who were accepted in this moment become connections.

    asyncio opens a connection one turn of the loop after it has accepted it. Where its server is closed in
    between, it forgets the connection, and the caller's request is answered with a reset.
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
    """Ends in order: nobody who is connected loses an answer.

    Nothing new is accepted, which is then another process's to do, and readiness turns false. Who
    holds a connection gets one more answer on it, with ``Connection: close``; a connection on which
    nothing is asked is closed after a moment. What runs has the settings' time to finish.
    """

    async def cleanup(self) -> None:
        """Drain, then end."""
        await self.refuse()
        deadline = time.monotonic() + _LINGER
        while True:  # aiohttp has no event for it
            # First of all: who was accepted a moment ago is not among the connections yet.
            await asyncio.sleep(_LINGER / 40)
            if self.server is None or not self.server.connections or time.monotonic() >= deadline:
                break
        await super().cleanup()

    async def refuse(self) -> None:
        """Accept nothing new, and say so to who asks whether we do."""
        self.app[DRAIN].active = True
        for site in list(self.sites):
            await _pause_listening(site)
            await site.stop()


class BothSidesRunner(DrainingRunner):
    """Runs the customers' side, and the vendor's beside it where that has an address of its own.

    Both end together, and so within the time of one: a supervisor kills who takes much longer.

    Args:
        app: From `create_app`.
        settings: The times.
        beside: What runs `create_admin_app`, and its sockets.
        end: Called when neither side answers anybody any more.
        more: As `Runner`.
    """

    def __init__(
        self,
        app: web.Application,
        settings: Settings,
        *,
        beside: tuple[DrainingRunner, Sequence[socket.socket]] | None,
        end: Callable[[], None] | None,
        **more: Any,
    ) -> None:
        super().__init__(app, settings, **more)
        self._beside, self._end = beside, end

    async def setup(self) -> None:
        """Prepare the customers' side, whose sites are the caller's to start, and serve the vendor's."""
        await super().setup()
        if self._beside is not None:
            runner, socks = self._beside
            await runner.setup()
            await _listen(runner, socks)

    async def cleanup(self) -> None:
        """Drain both, then end."""
        drains = [super().cleanup()]
        if self._beside is not None:
            await self.refuse()  # both first: neither goes on while the other one ends
            await self._beside[0].refuse()
            drains.append(self._beside[0].cleanup())
        # Not `TaskGroup`: where one side fails to end, the other one's callers still get their answers.
        ended = await asyncio.gather(*drains, return_exceptions=True)
        if self._end is not None:
            self._end()
        for problem in ended:
            if problem is not None:
                raise problem


def _open_metrics(settings: Settings, processes: int) -> "Metrics | None":
    """Listen for Prometheus and prepare to count, if the settings say where.

    Raises:
        OSError: when the address cannot be had.
    """
    if settings.metrics_listen is None:
        return None
    from licserver.web.metrics import Metrics  # noqa: PLC0415 - only who counts pays for its library

    host, _, port = settings.metrics_listen.rpartition(":")
    try:
        return Metrics(bind(host.strip("[]"), int(port)), settings, processes)
    except OSError as problem:
        said = f"cannot listen on {settings.metrics_listen} for metrics: {problem.strerror}"
        raise OSError(problem.errno, said) from None


def _make_runner(
    services: Services,
    metrics: "Metrics | None",
    admin_socks: Sequence[socket.socket],
    end: Callable[[], None] | None = None,
) -> BothSidesRunner:
    settings = services.settings
    meter = None if metrics is None else metrics.meter()
    app = create_app(services, meter=meter)
    if metrics is not None:
        app.cleanup_ctx.append(metrics.tell)
    more: dict[str, Any] = {
        "access_log_class": access_logger(ClientAddresses(settings), RequestIds(settings)),
        "access_log": logging.getLogger("licserver.access") if settings.access_log else None,
        "shutdown_timeout": settings.drain_timeout,
        "held": OpenConnections(settings, raise_descriptor_limit()),
    }
    beside = None
    if admin_socks:
        beside = DrainingRunner(create_admin_app(services, meter=meter), settings, **more), admin_socks
    return BothSidesRunner(app, settings, beside=beside, end=end, **more)


def _share_interpreter() -> None:
    """Have a thread that makes a page of the console give the interpreter back sooner (D-136).

    It is asked for after this time. With Python's 5 ms each request that comes meanwhile would wait as
    long, and more than once: a request is several turns of the loop.
    """
    sys.setswitchinterval(_TURN)


def _calm_collector() -> None:
    """Have the garbage collector look less often, and never again at what was there at the start.

    Hardly anything here is garbage in cycles. Its usual rhythm, every 700 objects, is once in a few
    requests, and costs each of them a tenth.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def serve(
    services: Services,
    socks: Sequence[socket.socket],
    announce: Announce,
    admin_socks: Sequence[socket.socket] = (),
) -> None:
    """Serve in this process until SIGTERM or Ctrl-C, then let running requests finish.

    Args:
        services: The opened data folder.
        socks: From `bind`.
        announce: Called once the server answers.
        admin_socks: From `bind`, where the settings name an address for the admin API.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends asyncio.run instead
            loop.add_signal_handler(name, stop.set)
    if hasattr(signal, "SIGHUP"):  # else it would end us in the midst of a request
        loop.add_signal_handler(signal.SIGHUP, _log.warning, "SIGHUP is for serve --workers; going on")
    runner = _make_runner(services, _open_metrics(services.settings, 1), admin_socks)
    try:
        await runner.setup()
        _calm_collector()
        _share_interpreter()
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

    SIGHUP replaces the processes by fresh ones, one generation after the other; `workers` has what
    happens when one cannot begin.

    Args:
        settings: Each worker opens the data folder for itself: a database connection does not
            survive a fork.
        socks: From `bind`; they are used up.
        workers: How many processes.
        announce: Called once, by the first worker that answers.
        admin_socks: As `serve`; all workers share them.
    """
    from gunicorn.app.base import BaseApplication  # noqa: PLC0415 - does not exist on Windows
    from gunicorn.glogging import Logger  # noqa: PLC0415 - the same

    from licserver.web.workers import WorkerStartup, run  # noqa: PLC0415 - the same

    metrics = _open_metrics(settings, workers)
    # gunicorn's, to close: a copy kept open would go on taking callers in.
    listeners = [sock.detach() for sock in socks]
    for admin_sock in admin_socks:
        # All processes share what is set of it, and `dup` sets it like the original: a fresh worker would
        # have the others wait in `accept` for a caller whom it takes itself.
        admin_sock.setblocking(False)  # noqa: FBT003 - the standard library's
    turn_read, turn_write = os.pipe()  # holds one byte: who gets it announces
    os.write(turn_write, b"!")
    os.set_blocking(turn_read, False)

    async def make_runner() -> DrainingRunner:
        services = open_services(settings)
        admin = [admin_sock.dup() for admin_sock in admin_socks]  # each worker closes its own
        runner = _make_runner(services, metrics, admin, services.close)

        async def announce_once(_app: web.Application) -> None:
            _calm_collector()
            _share_interpreter()
            with contextlib.suppress(BlockingIOError):
                os.read(turn_read, 1)
                asyncio.get_running_loop().call_soon(announce)

        runner.app.on_startup.append(announce_once)
        return runner

    beginning = WorkerStartup(make_runner, turn_read)

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
                "post_fork": beginning.note,
            }
            for name, value in options.items():
                if name in self.cfg.settings:
                    self.cfg.set(name, value)

        def load(self) -> Callable[[], Any]:
            return beginning.begin

    run(Manager(), settings)
