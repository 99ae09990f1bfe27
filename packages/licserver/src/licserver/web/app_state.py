"""Shared state of an application, each under a typed key."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from licserver.artifacts import Artifacts
from licserver.clock import Clock
from licserver.database.hot_path.batcher import PublicQueries
from licserver.security.rotation import LinkSecrets

if TYPE_CHECKING:
    from licserver.web.logging import FailureReport, RequestIds
    from licserver.web.metric_counters import Meter
    from licserver.web.rate_limits import Limits
    from licserver.web.statistics import StatisticsCounter

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

LINKS = web.AppKey("links", LinkSecrets)


@dataclass(slots=True)
class Drain:
    """Whether the process is shutting down: it finishes its requests and accepts no more."""

    active: bool = False


QUERIES = web.AppKey("queries", PublicQueries)
ARTIFACTS: web.AppKey[Artifacts] = web.AppKey("artifacts")
CLOCK: web.AppKey[Clock] = web.AppKey("clock")
LIMITS: "web.AppKey[Limits]" = web.AppKey("limits")
FAILURES: "web.AppKey[FailureReport]" = web.AppKey("failures")
STATISTICS: "web.AppKey[StatisticsCounter]" = web.AppKey("statistics")
METER: "web.AppKey[Meter]" = web.AppKey("meter")
REQUEST_IDS: "web.AppKey[RequestIds]" = web.AppKey("request_ids")
SEND_TIMEOUT = web.AppKey("send_timeout", float)
HOT_ROUTES: web.AppKey[Mapping[tuple[str, str], Handler]] = web.AppKey("shortcuts")
DRAIN = web.AppKey("drain", Drain)
