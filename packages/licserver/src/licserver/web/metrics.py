"""What Prometheus reads, at an address of its own: `LICSERVER_METRICS_LISTEN` (D-101).

No label holds a key, a domain, an address or a product: each has a few values, all of them known here.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from licserver import __version__
from licserver.errors import StoreUnavailable
from licserver.settings import Settings
from licserver.web.app_state import QUERIES, SHORTCUTS
from licserver.web.connections import Runner
from licserver.web.health import READY_TIMEOUT
from licserver.web.metric_counters import Meter, Meters

PATH: Final = "/metrics"


class Metrics:
    """Counts in every process of a server, and tells it in any of them.

    To be made before the processes are.

    Args:
        listening: The sockets on which Prometheus asks; used up.
        settings: How long a connection may take.
        processes: How many there will be.
    """

    def __init__(self, listening: Sequence[socket.socket], settings: Settings, processes: int = 1) -> None:
        self._listening, self._settings = listening, settings
        self._meters = Meters(processes)
        self._began = time.monotonic()

    def meter(self) -> Meter:
        """Take this process's meter."""
        return self._meters.claim()

    async def tell(self, app: web.Application) -> AsyncIterator[None]:
        """Answer Prometheus while an application runs; goes into its `cleanup_ctx`."""
        metrics_app = web.Application()

        async def answer(request: web.Request) -> web.Response:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
            registry = CollectorRegistry(auto_describe=False)
            registry.register(_Told(self._meters, time.monotonic() - self._began, ready=await _is_ready(app)))
            return web.Response(body=encode(registry), headers={"Content-Type": content_type})

        metrics_app.router.add_get(PATH, answer)
        metrics_app[SHORTCUTS] = {}
        runner = Runner(metrics_app, self._settings, access_log=None, shutdown_timeout=1)
        await runner.setup()
        for sock in self._listening:
            # A copy: each process closes its own when it ends.
            await web.SockSite(runner, socket.socket(fileno=os.dup(sock.fileno()))).start()
        yield
        await runner.cleanup()
        for sock in self._listening:
            sock.close()
        self._meters.close()


async def _is_ready(app: web.Application) -> bool:
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            await app[QUERIES].ping()
    except (StoreUnavailable, TimeoutError):
        return False
    return True


class _Told(Collector):
    """Everything that there is to tell, at one moment."""

    def __init__(self, meters: Meters, age: float, *, ready: bool) -> None:
        self._totals, self._live = meters.totals(), meters.live()
        self._age, self._ready = age, ready

    def collect(self) -> Iterator[Metric]:
        """Tell it."""
        requests = CounterMetricFamily(
            "licserver_requests", "Requests answered, by endpoint and status.", labels=["endpoint", "status"]
        )
        for endpoint, status, count in self._totals.requests():
            requests.add_metric([endpoint, status], count)
        yield requests
        verifies = CounterMetricFamily(
            "licserver_verifies", "Verify calls that got a verdict, by verdict.", labels=["verdict"]
        )
        for verdict, count in self._totals.verdicts():
            verifies.add_metric([verdict], count)
        yield verifies
        durations = HistogramMetricFamily(
            "licserver_request_duration_seconds",
            "From the head of a request to the end of its answer; of a download, to its last byte.",
            labels=["endpoint"],
        )
        for endpoint, classes, seconds in self._totals.durations():
            durations.add_metric([endpoint], classes, seconds)
        yield durations
        yield GaugeMetricFamily("licserver_workers", "Processes that answer.", self._live)
        yield GaugeMetricFamily("licserver_database_up", "1 when the database answers.", float(self._ready))
        yield GaugeMetricFamily("licserver_uptime_seconds", "Since the server was started.", self._age)
        version = GaugeMetricFamily("licserver_build_info", "1, with the version.", labels=["version"])
        version.add_metric([__version__], 1)
        yield version
