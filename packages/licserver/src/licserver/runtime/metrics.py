"""Metrics of requests, for Prometheus.

They have an address of their own, `LICSERVER_METRICS_LISTEN` (D-101). No label holds a key, a domain,
an address or a product: all values of labels are defined here.

The counters are in memory that all worker processes share. Each process writes its own block, and a reader
adds up all blocks: no lock is needed. A block outlives its process, and the next process continues it, so
that counters never decrease. Counters and a histogram of prometheus_client cost a request 8.4 us, in
multiprocess mode or not; these cost 1.9.
"""

import mmap
import sys
import tempfile
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import wraps
from itertools import accumulate
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Final, cast

from aiohttp import web
from aiohttp.typedefs import Handler

from licserver import __version__, libraries
from licserver.domain.decisions import VerifyRefusal
from licserver.protocol import feeds, public_api
from licserver.services.queues import QueueState

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.registry import Collector

OTHER: Final = "other"
FEED: Final = "feed"
ADMIN: Final = "admin"
CONSOLE: Final = "console"
ACCOUNT: Final = "account"
ENDPOINTS: Final = (
    *("verify", "update_check", "download", "manifest", FEED, "health"),
    *(ADMIN, CONSOLE, ACCOUNT, OTHER),
)
STATUSES: Final = (
    *(200, 201, 204, 206, 302, 303, 304),
    *(400, 401, 403, 404, 405, 408, 409, 413, 415, 416, 417, 422, 429, 499),
    *(500, 503),
)
"""The statuses of this server; any other is counted as `OTHER`."""

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
"""Upper bounds of the duration buckets, in seconds."""

BUCKETS: Final = (*map(str, BOUNDS), "+Inf")
VERDICTS: Final = ("valid", *(refusal.name.lower() for refusal in VerifyRefusal))

_PATHS: Final[Mapping[str, str]] = {
    public_api.VERIFY_PATH: "verify",
    public_api.UPDATE_CHECK_PATH: "update_check",
    public_api.DOWNLOAD_PATH: "download",
    public_api.MANIFEST_PATH: "manifest",
    "/healthz": "health",
    "/readyz": "health",
    **{area: area for area in (ADMIN, CONSOLE, ACCOUNT)},
}
_COUNTERS: Final = [
    *(("verifies", verdict, "") for verdict in VERDICTS),
    *(("requests", endpoint, str(status)) for endpoint in ENDPOINTS for status in (*STATUSES, OTHER)),
    *(("durations", endpoint, bucket) for endpoint in ENDPOINTS for bucket in BUCKETS),
    *(("microseconds", endpoint, "") for endpoint in ENDPOINTS),
]
_AT: Final = {name: at for at, name in enumerate(_COUNTERS)}
_REFUSED: Final = {
    public_api.verify_response(refusal).content: _AT["verifies", refusal.name.lower(), ""]
    for refusal in VerifyRefusal
}
_VALID: Final = _AT["verifies", "valid", ""]
_BLOCK_BYTES: Final = len(_COUNTERS) * 8


class Meter:
    """The counters of a process, in its block."""

    def __init__(self, cells: memoryview) -> None:
        self._cells = cells

    def measuring(self, path: str, handler: Handler) -> Handler:
        """Wrap a handler so that its responses and their durations are counted; unknown paths as `OTHER`."""
        cells = self._cells
        endpoint = _PATHS.get(path) or (FEED if path.startswith(feeds.PREFIX) else OTHER)
        is_verify = endpoint == "verify"
        statuses = {status: _AT["requests", endpoint, str(status)] for status in STATUSES}
        other_status = _AT["requests", endpoint, OTHER]
        durations = _AT["durations", endpoint, BUCKETS[0]]
        microseconds = _AT["microseconds", endpoint, ""]

        @wraps(handler)
        async def measured(request: web.Request) -> web.StreamResponse:
            began = perf_counter()
            response = await handler(request)
            took = perf_counter() - began
            status = response.status
            cells[statuses.get(status, other_status)] += 1
            cells[durations + bisect_left(BOUNDS, took)] += 1
            cells[microseconds] += int(took * 1_000_000)
            if is_verify:
                if status == 200:  # noqa: PLR2004 - valid
                    cells[_VALID] += 1
                elif (verdict := _REFUSED.get(getattr(response, "content", b""))) is not None:
                    cells[verdict] += 1
            return response

        return measured


class Meters:
    """The counters of all processes, in shared memory; create it before the workers are forked.

    The workflow:

    1. The main process creates `Meters` with the number of workers.
    2. Each worker calls `claim` once, and wraps its handlers by `Meter.measuring`.
    3. `create_app` serves the sums of all blocks to Prometheus.

    >>> meters = Meters(processes=2)
    >>> meter = meters.claim()
    >>> handler = meter.measuring("/healthz", handler)

    Nothing is raised: without a free block, `claim` returns a meter that is not summed. There are more blocks
    than processes, because new processes start while others end.
    """

    def __init__(self, processes: int = 1) -> None:
        self._began = monotonic()
        self._count = 1 if processes == 1 else 3 * processes + 1
        self._own: int | None = None
        if processes == 1:
            self._file = None
            memory: mmap.mmap | bytearray = bytearray(_BLOCK_BYTES)
        else:
            # A file for its locks, which show the blocks in use and end with their process.
            self._file = tempfile.TemporaryFile(prefix="licserver-meters-")  # noqa: SIM115 - as long as the server
            self._file.truncate(self._count * _BLOCK_BYTES)
            memory = mmap.mmap(self._file.fileno(), self._count * _BLOCK_BYTES)
        self._cells = memoryview(memory).cast("Q")

    def claim(self) -> Meter:
        """Return a meter with the first free block, for as long as this process lives."""
        for index in range(self._count):
            if self._lock(index):
                self._own = index
                return Meter(self._block(index))
        return Meter(memoryview(bytearray(_BLOCK_BYTES)).cast("Q"))  # never read; there should be a free one

    def count_live(self) -> int:
        """Return the number of processes that are counting."""
        return sum(self._is_live(index) for index in range(self._count))

    def totals(self) -> dict[tuple[str, str, str], int]:
        """Return the sums of all blocks, by the names in `_COUNTERS`."""
        blocks = [self._block(index) for index in range(self._count)]
        return {name: sum(cells) for name, cells in zip(_COUNTERS, zip(*blocks, strict=True), strict=True)}

    def create_app(
        self,
        is_ready: Callable[[], Awaitable[bool]],
        measure: Callable[[], Awaitable[Sequence[QueueState]]],
    ) -> web.Application:
        """Create the application that serves the sums; both functions query the database."""
        choose_encoder = libraries.prometheus_exposition.choose_encoder

        async def respond(request: web.Request) -> web.Response:
            encode, content_type = choose_encoder(request.headers.get("Accept", ""))
            ready = await is_ready()
            queues = await measure() if ready else ()
            snapshot = MetricsSnapshot(self, monotonic() - self._began, queues, is_ready=ready)
            content = encode(cast("Collector", snapshot))
            return web.Response(body=content, headers={"Content-Type": content_type})

        app = web.Application()
        app.router.add_get("/metrics", respond)
        return app

    def close(self) -> None:
        """Close the file; later counts are lost."""
        if self._file is not None:
            self._file.close()

    def _block(self, index: int) -> memoryview:
        return self._cells[index * len(_COUNTERS) : (index + 1) * len(_COUNTERS)]

    def _is_live(self, index: int) -> bool:
        if index == self._own:
            return True  # to lock and unlock one's own block would lose it
        if not self._lock(index):
            return True
        if self._file is not None:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, index)
        return False

    def _lock(self, index: int) -> bool:
        if self._file is None:
            return self._own is None
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, index)
        except OSError:
            return False
        return True


METER = web.AppKey("meter", Meter)


class MetricsSnapshot:
    """All metrics at one moment; a collector as prometheus_client's registries take it."""

    def __init__(self, meters: Meters, age: float, queues: Sequence[QueueState], *, is_ready: bool) -> None:
        self._totals, self._live = meters.totals(), meters.count_live()
        self._age, self._queues, self._is_ready = age, queues, is_ready

    def collect(self) -> "Iterator[Metric]":
        """Yield all metrics."""
        core = libraries.prometheus_core
        requests = core.CounterMetricFamily(
            "licserver_requests", "Requests answered, by endpoint and status.", labels=["endpoint", "status"]
        )
        verifies = core.CounterMetricFamily(
            "licserver_verifies", "Verify calls that got a verdict, by verdict.", labels=["verdict"]
        )
        durations = core.HistogramMetricFamily(
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
        for name, about, values in (
            ("oldest_due_seconds", "For how long the oldest due job has been due.", "oldest_due"),
            ("waiting", "Jobs that run, wait or are to be repeated, up to 10,000.", "waiting"),
            ("dead", "Jobs that were given up, up to 10,000.", "dead"),
        ):
            gauge = core.GaugeMetricFamily(f"licserver_queue_{name}", about, labels=["queue"])
            for queue in self._queues:
                gauge.add_metric([queue.name], getattr(queue, values))
            yield gauge
        problems = sum(queue.problems for queue in self._queues)
        yield core.GaugeMetricFamily(
            "licserver_sale_problems", "Sales that wait for a person, up to 10,000.", problems
        )
        yield core.GaugeMetricFamily("licserver_workers", "Processes that answer.", self._live)
        yield core.GaugeMetricFamily("licserver_database_up", "1 when the database answers.", self._is_ready)
        yield core.GaugeMetricFamily("licserver_uptime_seconds", "Since the server was started.", self._age)
        version = core.GaugeMetricFamily("licserver_build_info", "1, with the version.", labels=["version"])
        version.add_metric([__version__], 1)
        yield version
