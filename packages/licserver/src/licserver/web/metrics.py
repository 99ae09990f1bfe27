"""Prometheus metrics at an address of their own, `LICSERVER_METRICS_LISTEN` (D-101).

No label holds a key, a domain, an address or a product: all values of labels are known here.
"""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import accumulate
from typing import Final

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from licserver import __version__
from licserver.errors import StoreUnavailableError
from licserver.settings import Settings
from licserver.web.app_state import HOT_ROUTES, QUERIES
from licserver.web.connections import Runner
from licserver.web.metric_counters import BUCKETS, ENDPOINTS, Meter, Meters
from licserver.web.public import READY_TIMEOUT

PATH: Final = "/metrics"


class Metrics:
    """Counts requests in every process of a server, and serves the sums; create it before the fork."""

    def __init__(self, listening: Sequence[socket.socket], settings: Settings, processes: int = 1) -> None:
        self._listening, self._settings = listening, settings
        self._meters = Meters(processes)
        self._began = time.monotonic()

    def meter(self) -> Meter:
        """Return this process's meter."""
        return self._meters.claim()

    async def serve(self, app: web.Application) -> AsyncIterator[None]:
        """Serve metrics while an application runs; for its `cleanup_ctx`."""
        metrics_app = web.Application()

        async def respond(request: web.Request) -> web.Response:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
            registry = CollectorRegistry(auto_describe=False)
            registry.register(
                _Snapshot(self._meters, time.monotonic() - self._began, is_ready=await _is_ready(app))
            )
            return web.Response(body=encode(registry), headers={"Content-Type": content_type})

        metrics_app.router.add_get(PATH, respond)
        metrics_app[HOT_ROUTES] = {}
        runner = Runner(metrics_app, self._settings, access_log=None, shutdown_timeout=1)
        await runner.setup()
        for sock in self._listening:
            # A duplicate: each process closes its own.
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
    except (StoreUnavailableError, TimeoutError):
        return False
    return True


class _Snapshot(Collector):
    """All metrics at one moment."""

    def __init__(self, meters: Meters, age: float, *, is_ready: bool) -> None:
        self._totals, self._live = meters.totals(), meters.count_live()
        self._age, self._is_ready = age, is_ready

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        requests = CounterMetricFamily(
            "licserver_requests", "Requests answered, by endpoint and status.", labels=["endpoint", "status"]
        )
        verifies = CounterMetricFamily(
            "licserver_verifies", "Verify calls that got a verdict, by verdict.", labels=["verdict"]
        )
        durations = HistogramMetricFamily(
            "licserver_request_duration_seconds",
            "From the head of a request to the end of its answer; of a download, to its last byte.",
            labels=["endpoint"],
        )
        for (metric, label, detail), count in self._totals.items():
            if metric == "verifies":
                verifies.add_metric([label], count)
            elif metric == "requests" and count:
                requests.add_metric([label, detail], count)
        for endpoint in ENDPOINTS:
            counts = accumulate(float(self._totals["durations", endpoint, bucket]) for bucket in BUCKETS)
            seconds = self._totals["microseconds", endpoint, ""] / 1e6
            durations.add_metric([endpoint], list(zip(BUCKETS, counts, strict=True)), seconds)
        yield from (requests, verifies, durations)
        yield GaugeMetricFamily("licserver_workers", "Processes that answer.", self._live)
        yield GaugeMetricFamily(
            "licserver_database_up", "1 when the database answers.", float(self._is_ready)
        )
        yield GaugeMetricFamily("licserver_uptime_seconds", "Since the server was started.", self._age)
        version = GaugeMetricFamily("licserver_build_info", "1, with the version.", labels=["version"])
        version.add_metric([__version__], 1)
        yield version
