"""Putting the application together."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Final, cast

from aiohttp import hdrs, web

from licserver.clock import Clock, system_clock
from licserver.database.hot_path.batch_store import BatchStore
from licserver.database.hot_path.batcher import PublicQueries
from licserver.protocol import public_api
from licserver.security.rotation import open_ring
from licserver.services import Vendor
from licserver.settings import Settings
from licserver.web import admin, console
from licserver.web.app_state import (
    ARTIFACTS,
    CLOCK,
    DRAIN,
    FAILURES,
    LIMITS,
    LINKS,
    METER,
    QUERIES,
    REQUEST_IDS,
    SEND_TIMEOUT,
    SHORTCUTS,
    STATISTICS,
    Drain,
    Handler,
)
from licserver.web.client_addresses import ClientAddresses
from licserver.web.errors import expect, guarded, not_allowed, not_found, refuse_path
from licserver.web.failed_requests import FailureReport
from licserver.web.health import healthz, readyz
from licserver.web.metric_counters import Meter
from licserver.web.public import download
from licserver.web.public.endpoints import PublicEndpoints
from licserver.web.public.signed_responses import AnswerSigner
from licserver.web.rate_limits import Limits
from licserver.web.request_ids import RequestIds
from licserver.web.statistics import StatisticsCounter
from licserver.web.worker_threads import WorkerThreads

RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_AMBIGUOUS: Final = re.compile(r"%2f|%5c|\\|%00|\0|(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
"""What a proxy in front may read as another path than we do (D-155)."""

_HSTS: Final = "max-age=31536000"  # a year


def create_app(vendor: Vendor, clock: Clock = system_clock, meter: Meter | None = None) -> web.Application:
    """Make the application that answers the specified endpoints.

    Args:
        vendor: The opened data folder; it stays the caller's to close, after the application.
        clock: Every decision's `now` comes from here.
        meter: Counts what is answered; without one nothing is counted.

    Returns:
        The application, ready for any aiohttp runner; `connections.Runner` is the one that bounds how
        long a connection is held.

    Raises:
        SettingsError: when the settings name a Redis that cannot be used.
    """
    app = web.Application(client_max_size=public_api.MAX_BODY_BYTES)
    app[LINKS] = links = open_ring(vendor.settings, vendor.vault)
    app[ARTIFACTS] = vendor.artifacts
    app[QUERIES] = desk = PublicQueries(BatchStore(vendor.database))
    app[CLOCK] = clock
    app[DRAIN] = Drain()
    app[REQUEST_IDS] = RequestIds(vendor.settings)
    if meter is not None:
        app[METER] = meter
    app[SEND_TIMEOUT] = vendor.settings.send_timeout
    callers = ClientAddresses(vendor.settings)
    app[LIMITS] = limits = Limits(vendor.settings, callers)
    app[STATISTICS] = tally = StatisticsCounter(vendor.database, clock)
    app.cleanup_ctx.append(tally.running)
    public = PublicEndpoints(desk, vendor.vault, links, vendor.settings, clock, callers, limits, tally)
    signer = AnswerSigner(vendor.vault.signing_keys, clock, public.keep_body, public.base_url)
    verify = _add(app, "POST", public_api.VERIFY_PATH, signer.signing(public.verify))
    update_check = _add(app, "GET", public_api.UPDATE_CHECK_PATH, signer.signing(public.update_check))
    app[SHORTCUTS] = {
        ("POST", public_api.VERIFY_PATH): verify,
        ("GET", public_api.UPDATE_CHECK_PATH): update_check,
    }
    _add(app, "GET", public_api.DOWNLOAD_PATH, download.update_download)
    _add(app, "GET", public_api.MANIFEST_PATH, download.update_manifest)
    _add(app, "GET", "/healthz", healthz)
    _add(app, "GET", "/readyz", readyz)
    if vendor.settings.admin_listen is None:
        _add_vendors_side(app, vendor, clock)
    nowhere = not_found if meter is None else meter.measuring("", not_found)
    app.router.add_route("*", "/{anything:.*}", nowhere, expect_handler=expect)
    app.cleanup_ctx.append(_desk_closed)
    if is_https(vendor.settings):
        app.on_response_prepare.append(_only_https)
    return app


def create_admin_app(
    vendor: Vendor, clock: Clock = system_clock, meter: Meter | None = None
) -> web.Application:
    """Make the application for the vendor's own side, where that has an address of its own.

    Args and Raises: as `create_app`.
    """
    app = web.Application(client_max_size=public_api.MAX_BODY_BYTES)
    app[DRAIN] = Drain()
    app[REQUEST_IDS] = RequestIds(vendor.settings)
    app[LIMITS] = Limits(vendor.settings, ClientAddresses(vendor.settings))
    app[SHORTCUTS] = {}
    if meter is not None:
        app[METER] = meter
    _add_vendors_side(app, vendor, clock)
    _add(app, "GET", "/healthz", healthz)
    nowhere = not_found if meter is None else meter.measuring("", not_found)
    app.router.add_route("*", "/{anything:.*}", nowhere, expect_handler=expect)
    app.cleanup_ctx.append(_limits_closed)
    if is_https(vendor.settings):
        app.on_response_prepare.append(_only_https)
    return app


def _add_vendors_side(app: web.Application, vendor: Vendor, clock: Clock) -> None:
    """Add the admin API and the console; what takes every address must be added after this."""
    off_loop = WorkerThreads()
    app[FAILURES] = FailureReport(vendor, off_loop)
    app.on_cleanup.append(app[FAILURES].close)
    admin.mount(app, vendor, app[LIMITS], app[DRAIN], off_loop)
    console.mount(app, vendor, clock, app[LIMITS], app[DRAIN], off_loop)
    app.on_cleanup.append(off_loop.close)


def take_shortcuts(shortcuts: Mapping[tuple[str, str], Handler], router: RequestHandler) -> RequestHandler:
    """Make a request handler that lets a few addresses go past the router, and refuses ambiguous ones.

    Routing costs as much as finding a license. Whatever is not plain goes the long way, to the same end.

    Args:
        shortcuts: Method and path, and their handler, which the router would find as well.
        router: Takes everything else.
    """

    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        handler = shortcuts.get((request.method, request.rel_url.raw_path))
        if handler is None or hdrs.EXPECT in request.headers:
            path = request.rel_url.raw_path
            if _AMBIGUOUS.search(path):
                handler = admin.refuse_path if path.startswith(admin.ROOT) else refuse_path
            elif path.startswith("/"):
                return router(request)
            else:
                handler = not_found  # CONNECT, OPTIONS *: aiohttp would answer by itself
        return handler(cast("web.Request", request))  # the application makes all requests

    return handle


def _add(app: web.Application, method: str, path: str, handler: Handler) -> Handler:
    """Answer one method at an address, and say 405 to all others."""
    resource = app.router.add_resource(path)
    answering = guarded(handler, app[DRAIN], app[LIMITS].flood_delay, app[REQUEST_IDS])
    refusing = not_allowed("GET,HEAD" if method == "GET" else method)
    if METER in app:
        answering, refusing = (app[METER].measuring(path, one) for one in (answering, refusing))
    for one in ("GET", "HEAD") if method == "GET" else (method,):
        resource.add_route(one, answering, expect_handler=expect)
    resource.add_route("*", refusing, expect_handler=expect)
    return answering


async def _desk_closed(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[QUERIES].close()
    await app[LIMITS].close()


async def _limits_closed(app: web.Application) -> AsyncIterator[None]:
    yield
    await app[LIMITS].close()


def is_https(settings: Settings) -> bool:
    """Tell whether customers reach us by https."""
    return (settings.base_url or "").startswith("https:")


def only_https(handler: RequestHandler) -> RequestHandler:
    """Let whoever was answered over https never come by http again (D-73).

    For answers that are sent when their handler is done; what is sent before, as files are, gets it
    from the application's signal.
    """

    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        response = await handler(request)
        if not response.prepared:
            response.headers[hdrs.STRICT_TRANSPORT_SECURITY] = _HSTS
        return response

    return handle


async def _only_https(_request: web.Request, response: web.StreamResponse) -> None:
    response.headers[hdrs.STRICT_TRANSPORT_SECURITY] = _HSTS
