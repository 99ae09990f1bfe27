"""The application: its routes and its sub-applications."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from aiohttp import hdrs, web

from licserver.clock import Clock, system_clock
from licserver.database.hot_path.batcher import PublicQueries
from licserver.database.hot_path.store import BatchStore
from licserver.database.repositories.clock import SettledClock
from licserver.database.repositories.webhooks import SubscribedEvents
from licserver.limits import MAX_PUBLIC_BODY_BYTES
from licserver.protocol import public_api
from licserver.protocol.feeds import SPARKLE_PATH, TAURI_PATH, VELOPACK_PATH
from licserver.protocol.webhooks import EventType
from licserver.runtime.customer_threads import CustomerThreads
from licserver.runtime.logging import FAILURES, REQUEST_IDS, FailureReport, RequestIds
from licserver.runtime.metrics import METER, Meter
from licserver.runtime.periodic import CLOCK_SECONDS, PeriodicWork
from licserver.runtime.worker_threads import WorkerThreads
from licserver.security.link_secrets import watch_link_secrets
from licserver.services.context import CUSTOMER
from licserver.services.installation import Services
from licserver.settings import Settings
from licserver.web.account.app import create_account
from licserver.web.admin.app import create_admin_api
from licserver.web.console.app import create_console
from licserver.web.customer_api import CustomerEndpoints
from licserver.web.downloads import Downloads
from licserver.web.feeds import Feeds
from licserver.web.host_names import HostNames
from licserver.web.middlewares import (
    ADMIN_ROOT,
    DRAIN,
    ERRORS,
    HOST_NAMES,
    HOT_ROUTES,
    PUBLIC_ERRORS,
    Drain,
    add_not_found,
    add_route,
    create_counter,
    create_hot_routes,
    create_middleware,
    get,
)
from licserver.web.public import QUERIES, AnswerSigner, PublicEndpoints, healthz, readyz
from licserver.web.rate_limits import RATE_LIMITER, RateLimiter
from licserver.web.responses import HSTS
from licserver.web.shops import PATH as SALES_PATH
from licserver.web.shops import SaleDeliveries
from licserver.web.statistics import STATISTICS, StatisticsCounter

REFRESH_SECONDS: Final = 5.0  # after which an endpoint that was added gets events of public endpoints


def create_app(
    services: Services,
    clock: Clock = system_clock,
    meter: Meter | None = None,
    wake: Callable[[], None] = lambda: None,
) -> web.Application:
    """Create the application; the vendor's side is part of it unless the settings give that its own address.

    `wake` is called when a job has been queued; `serving.server.create_app_with_jobs` does jobs as well.

    The caller closes the services after it. Any aiohttp runner can run it; only `connections.Runner` bounds
    how long a connection is held.

    Raises:
        SettingsError: when the settings name a Redis or a logo that cannot be used.
    """
    settings = services.settings
    app = _create_root(settings, meter, HostNames(settings.base_url, settings.allowed_hosts))
    # For mail to customers.
    always = [EventType.ACTIVATION_CREATED] if settings.mails_activations else []
    subscribed = SubscribedEvents(services.repositories.webhooks, always)
    app[QUERIES] = queries = PublicQueries(BatchStore(services.database, subscribed))
    app[STATISTICS] = statistics = StatisticsCounter(
        services.database, clock, subscribed, services.settings.last_seen_days
    )
    app.cleanup_ctx.append(statistics.running)
    app.cleanup_ctx.append(_run_queries)
    refreshing = PeriodicWork("background")
    refreshing.every(REFRESH_SECONDS, subscribed.refresh)
    settled = SettledClock(services.database, clock)
    if clock is system_clock:  # one that a test moves is meant
        refreshing.every(CLOCK_SECONDS, settled.refresh)
    app.cleanup_ctx.append(refreshing.running)
    threads = WorkerThreads()
    app.on_cleanup.append(threads.close)
    deliveries = SaleDeliveries(services, wake, app[RATE_LIMITER], threads)
    public = PublicEndpoints(
        queries=queries,
        vault=services.vault,
        links=watch_link_secrets(services.settings, services.vault),
        settings=services.settings,
        clock=clock,
        settle=settled.settle,
        callers=app[RATE_LIMITER].clients,
        rate_limiter=app[RATE_LIMITER],
        statistics=statistics,
        moves=services.acting_as(CUSTOMER).moves,
        threads=CustomerThreads(is_remote=services.database.is_remote),
    )
    signer = AnswerSigner(services.vault.signing_keys, clock, public.keep_body, public.base_url)
    verify, update_check = signer.signing(public.verify), signer.signing(public.update_check)
    hot = {("POST", public_api.VERIFY_PATH): verify, ("GET", public_api.UPDATE_CHECK_PATH): update_check}
    app[HOT_ROUTES] = create_hot_routes(app, hot)
    add_route(app, public_api.VERIFY_PATH, {"POST": verify})
    customer_api = CustomerEndpoints(services, public)
    app.on_cleanup.append(public.threads.close)
    for path, endpoint in customer_api.endpoints.items():
        handler = customer_api.create_handler(endpoint)
        add_route(app, path, {"POST": signer.signing(handler) if endpoint.is_signed else handler})
    add_route(app, public_api.UPDATE_CHECK_PATH, get(update_check))
    downloads = Downloads(public, services)
    add_route(app, public_api.DOWNLOAD_PATH, get(downloads.send_file))
    add_route(app, public_api.MANIFEST_PATH, get(downloads.send_manifest))
    feeds = Feeds(public)
    add_route(app, TAURI_PATH, get(feeds.tauri))
    add_route(app, SPARKLE_PATH, get(feeds.appcast))
    add_route(app, VELOPACK_PATH, get(feeds.velopack))
    add_route(app, SALES_PATH, {"POST": deliveries.receive})
    add_route(app, "/healthz", get(healthz))
    add_route(app, "/readyz", get(readyz))
    if services.settings.account:
        app.add_subapp("/account", create_account(services, clock, public))
    if services.settings.admin_listen is None:
        _add_vendors_side(app, services, clock)
    add_not_found(app, "/{anything:.*}")
    return app


def create_admin_app(
    services: Services, clock: Clock = system_clock, meter: Meter | None = None
) -> web.Application:
    """Create the application of the vendor's side, where that has an address of its own; as `create_app`."""
    # The base URL is that of customers: this side may have any name.
    app = _create_root(services.settings, meter, HostNames(None, ()))
    add_route(app, "/healthz", get(healthz))
    _add_vendors_side(app, services, clock)
    add_not_found(app, "/{anything:.*}")
    return app


def _create_root(settings: Settings, meter: Meter | None, names: HostNames) -> web.Application:
    """Create an application with what every request needs, and the middlewares around all of them."""
    app = web.Application(client_max_size=MAX_PUBLIC_BODY_BYTES)
    app[DRAIN] = Drain()
    app[HOST_NAMES] = names
    app[REQUEST_IDS] = RequestIds(settings)
    app[RATE_LIMITER] = RateLimiter(settings)
    app[ERRORS] = PUBLIC_ERRORS
    if meter is not None:
        app[METER] = meter
        app.middlewares.append(create_counter(app))
    app.middlewares.append(create_middleware(app))
    app.on_response_prepare.append(_set_common_headers(settings))
    app.cleanup_ctx.append(_run_rate_limiter)
    return app


def _add_vendors_side(app: web.Application, services: Services, clock: Clock) -> None:
    """Add the admin API and the console as sub-applications; `/` leads to the console."""
    threads = WorkerThreads()
    app[FAILURES] = failures = FailureReport(services, threads)
    app.on_cleanup.append(failures.close)
    app.add_subapp(ADMIN_ROOT, create_admin_api(services, app[RATE_LIMITER], failures, threads))
    app.add_subapp("/console", create_console(services, clock, app[RATE_LIMITER], failures, threads))
    add_route(app, "/", get(_to_console))
    app.on_cleanup.append(threads.close)


async def _to_console(_request: web.Request) -> web.StreamResponse:
    return web.Response(status=302, headers={hdrs.LOCATION: "/console"})


async def _run_queries(app: web.Application) -> AsyncIterator[None]:
    watching = asyncio.create_task(app[QUERIES].watch_hosts())
    yield
    watching.cancel()
    await asyncio.wait([watching])
    await app[QUERIES].close()


async def _run_rate_limiter(app: web.Application) -> AsyncIterator[None]:
    app[RATE_LIMITER].start()
    yield
    await app[RATE_LIMITER].close()


def _set_common_headers(settings: Settings) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Make the signal for responses that aiohttp writes; `connections` does it for all others."""

    async def set_headers(_request: web.Request, response: web.StreamResponse) -> None:
        response.headers.popall(hdrs.SERVER, None)  # it names versions
        if settings.is_https:
            response.headers[hdrs.STRICT_TRANSPORT_SECURITY] = HSTS

    return set_headers
