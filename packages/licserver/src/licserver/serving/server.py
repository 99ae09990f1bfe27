"""Run the application in a process: listening sockets, metrics, graceful shutdown."""

import asyncio
import contextlib
import errno
import gc
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from ipaddress import IPv6Address
from typing import Any, NamedTuple

from aiohttp import web

from licserver.clock import Clock, system_clock
from licserver.database.deadlines import waiting_until
from licserver.domain.environments import parse_ip
from licserver.errors import LicserverError
from licserver.jobs.process import BackgroundProcess, create_job_worker
from licserver.runtime.logging import REQUEST_IDS
from licserver.runtime.metrics import Meters
from licserver.runtime.shutdown import END_SECONDS, ProcessEnd, exit_at_next_signal
from licserver.runtime.worker_threads import WorkerThreads
from licserver.services.installation import Services
from licserver.services.queues import QueueState, measure_queues
from licserver.serving.access_log import access_logger
from licserver.serving.connections import OpenConnections, Runner
from licserver.settings import Settings
from licserver.web.app import create_admin_app, create_app
from licserver.web.middlewares import DRAIN
from licserver.web.public import find_database_fault
from licserver.web.rate_limits import RATE_LIMITER

if sys.platform != "win32":
    import resource

_log = logging.getLogger("licserver.serving")

_BACKLOG = 2048
LINGER = 2.0  # seconds in which an idle connection may still bring a request while the process shuts down
_PORT_TRIES = 10
_MOST_DESCRIPTORS = 65_536
_NO_SUCH_ADDRESS = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

_MEASURE_SECONDS = 1.5  # in which the queues are measured, or left out of the metrics

_SWITCH_INTERVAL = 0.0005
"""Seconds after which a thread that makes a page gives the interpreter back to the event loop.

With Python's 5 ms a request would wait as long more than once: it takes several turns of the loop.
"""


def take_supervisor() -> Callable[[str], None]:
    """Take NOTIFY_SOCKET out of the environment; return a function that sends it a message, in any process.

    gunicorn would notify it before the server accepts connections. Without the variable, nothing is sent.
    """
    address = os.environ.pop("NOTIFY_SOCKET", None)

    def notify(message: str) -> None:
        if address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                # A leading @ means an abstract socket (sd_notify(3)).
                sock.sendto(message.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError as problem:  # systemd will end the server; the log then has the reason
            _log.error("cannot send %s to systemd: %s", message, problem)

    return notify


def bind(host: str, port: int) -> list[socket.socket]:
    """Open a listening socket on each address of a host, all on one port; 0 lets the system choose it.

    Addresses that this machine lacks are left out, unless there is no other: `localhost` may be ``::1`` as
    well where IPv6 is switched off. ``::`` is each address of the machine, those of IPv4 as well.
    """
    host = host.removeprefix("[").removesuffix("]")  # as in a URL
    ipv4 = ("0.0.0.0",) if parse_ip(host) == IPv6Address(0) else ()  # noqa: S104 - the user says so
    resolved = [
        entry
        for name in (host, *ipv4)
        for entry in socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    ]
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in resolved))
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


async def _pause_listening(socks: Sequence[socket.socket]) -> None:
    """Stop accepting, and wait for connections that were accepted in this turn of the loop.

    asyncio opens a connection one turn after it has accepted it, and forgets one whose server is closed in
    between: the client would get a reset.
    """
    loop = asyncio.get_running_loop()
    for sock in socks:
        with contextlib.suppress(NotImplementedError):  # Windows
            loop.remove_reader(sock.fileno())
    await asyncio.sleep(0)


def create_app_with_jobs(services: Services, clock: Clock = system_clock) -> web.Application:
    """Create the application; this event loop and a thread do the jobs as well."""
    worker = create_job_worker(services, clock)
    app = create_app(services, clock, wake=worker.wake)
    app.cleanup_ctx.append(worker.running)
    return app


class DrainingRunner(Runner):
    """Shuts down without losing a response.

    It stops accepting, and readiness turns false. Each open connection gets one more response, with
    ``Connection: close``; an idle one is closed after `LINGER`. Running requests have `drain_timeout`; then
    `on_drained` is called.
    """

    on_drained: Callable[["DrainingRunner"], None] | None = None

    async def setup(self) -> None:
        """Prepare to serve."""
        self.app.on_cleanup.insert(0, self._note_drain)
        await super().setup()

    async def cleanup(self) -> None:
        """Drain, then shut down."""
        await self.stop_accepting()
        deadline = time.monotonic() + LINGER
        while True:  # aiohttp has no event for it
            # First: a connection that was accepted a moment ago is not counted yet.
            await asyncio.sleep(LINGER / 40)
            if self.server is None or not self.server.connections or time.monotonic() >= deadline:
                break
        await super().cleanup()

    async def _note_drain(self, _app: web.Application) -> None:
        """Call `on_drained`; aiohttp cleans an application up when its last request has ended."""
        if self.on_drained is not None:
            self.on_drained(self)

    async def stop_accepting(self) -> None:
        """Accept no more connections, and report not ready."""
        self.app[DRAIN].active = True
        await _pause_listening(self.listening)
        for site in list(self.sites):
            await site.stop()
        self.listening.clear()


class ServerRunner(DrainingRunner):
    """Runs the application, and the admin application where that has an address of its own.

    Both drain at the same time: a supervisor kills a process that takes twice as long. Then it closes the
    services. The process exits when that takes too long.
    """

    def __init__(
        self,
        app: web.Application,
        services: Services,
        *,
        admin: tuple[DrainingRunner, Sequence[socket.socket]] | None,
        **more: Any,
    ) -> None:
        super().__init__(app, services.settings, **more)
        self._services, self._admin = services, admin
        self._end = ProcessEnd(services.settings.drain_timeout + END_SECONDS)
        self._draining = [self, *([] if admin is None else [admin[0]])]
        for server in self._draining:
            server.on_drained = self._note_drained

    async def setup(self) -> None:
        """Start the admin application, and prepare the other, whose sites the caller starts."""
        await super().setup()
        if self._admin is not None:
            runner, socks = self._admin
            await runner.setup()
            await _listen(runner, socks)

    def _note_drained(self, runner: DrainingRunner) -> None:
        self._draining.remove(runner)
        if not self._draining:
            self._services.end_soon()

    async def cleanup(self) -> None:
        """Drain both, then shut down."""
        self._end.begin()
        drains = [super().cleanup()]
        if self._admin is not None:
            await self.stop_accepting()
            await self._admin[0].stop_accepting()
            drains.append(self._admin[0].cleanup())
        # Not `TaskGroup`: if one fails, the clients of the other still get their responses.
        ended = await asyncio.gather(*drains, return_exceptions=True)
        self._services.close()
        problems = [problem for problem in ended if problem is not None]
        self._end.finish(1 if problems else 0)
        for problem in problems:
            raise problem


class MetricsSite(NamedTuple):
    """The counters of all processes, and where Prometheus reads them; create it before the fork."""

    meters: Meters
    socks: Sequence[socket.socket]


def open_metrics(settings: Settings, processes: int) -> MetricsSite | None:
    """Bind the address of the metrics; None without one."""
    if settings.metrics_listen is None:
        return None
    host, _, port = settings.metrics_listen.rpartition(":")
    try:
        return MetricsSite(Meters(processes), bind(host.strip("[]"), int(port)))
    except OSError as problem:
        message = f"cannot listen on {settings.metrics_listen} for metrics: {problem.strerror}"
        raise OSError(problem.errno, message) from None


def _serving_metrics(
    metrics: MetricsSite, services: Services
) -> Callable[[web.Application], AsyncIterator[None]]:
    """Make the `cleanup_ctx` of an application that serves metrics while it runs."""

    async def serve_metrics(app: web.Application) -> AsyncIterator[None]:
        threads = WorkerThreads()

        async def is_ready() -> bool:
            return await find_database_fault(app) is None

        def measure() -> Sequence[QueueState]:
            try:
                with waiting_until(time.monotonic() + _MEASURE_SECONDS):
                    return measure_queues(services.repositories, services.settings, services.now())
            except LicserverError:
                return ()

        site = metrics.meters.create_app(is_ready, partial(threads.run, measure))
        runner = Runner(site, services.settings, access_log=None, shutdown_timeout=1)
        await runner.setup()
        # Duplicates: each process closes its own.
        await _listen(runner, [socket.socket(fileno=os.dup(sock.fileno())) for sock in metrics.socks])
        yield
        await runner.cleanup()
        await threads.close()
        for sock in metrics.socks:
            sock.close()
        metrics.meters.close()

    return serve_metrics


def make_runner(
    services: Services,
    metrics: MetricsSite | None,
    admin_socks: Sequence[socket.socket],
    wake: Callable[[], None] = lambda: None,
) -> ServerRunner:
    """Make the runner of one process, which closes the services at its end; as `create_app`."""
    settings = services.settings
    meter = None if metrics is None else metrics.meters.claim()
    app = create_app(services, meter=meter, wake=wake)
    if metrics is not None:
        app.cleanup_ctx.append(_serving_metrics(metrics, services))
    more: dict[str, Any] = {
        "access_log_class": access_logger(app[RATE_LIMITER].clients, app[REQUEST_IDS]),
        "access_log": logging.getLogger("licserver.access") if settings.access_log else None,
        "shutdown_timeout": settings.drain_timeout,
        "held": OpenConnections(settings, raise_descriptor_limit()),
    }
    admin = None
    if admin_socks:
        admin = DrainingRunner(create_admin_app(services, meter=meter), settings, **more), admin_socks
    return ServerRunner(app, services, admin=admin, **more)


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit of descriptors to the hard one, at most 65,536; return it."""
    if sys.platform == "win32":
        return None  # there is no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        return limit
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def tune_interpreter() -> None:
    """Set how often threads switch and garbage is collected; little here is garbage in cycles."""
    sys.setswitchinterval(_SWITCH_INTERVAL)
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


async def serve(
    services: Services,
    socks: Sequence[socket.socket],
    announce: Callable[[], None],
    admin_socks: Sequence[socket.socket] = (),
) -> None:
    """Serve in this process until SIGTERM or Ctrl-C, and close the services; another signal exits at once.

    `announce` is called once it accepts connections.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        with contextlib.suppress(NotImplementedError):  # Windows: Ctrl-C ends asyncio.run instead
            loop.add_signal_handler(name, stop.set)
    if hasattr(signal, "SIGHUP"):  # its default would kill the process
        loop.add_signal_handler(signal.SIGHUP, _log.warning, "SIGHUP is for serve --workers; going on")
    background = BackgroundProcess(services.settings)
    runner = make_runner(services, open_metrics(services.settings, 1), admin_socks, background.wake)
    runner.app.cleanup_ctx.append(background.running)
    try:
        await runner.setup()
        tune_interpreter()
        await _listen(runner, socks)
        announce()
        await stop.wait()
        if delay := services.settings.drain_delay:
            runner.app[DRAIN].not_ready[0] = 1
            stop.clear()
            with contextlib.suppress(TimeoutError):  # a second signal ends the delay
                async with asyncio.timeout(delay):
                    await stop.wait()
    finally:
        exit_at_next_signal()
        await runner.cleanup()
