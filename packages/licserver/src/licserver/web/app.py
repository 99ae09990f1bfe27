"""Putting the application together."""

from collections.abc import AsyncIterator

from aiohttp import web

from licserver import wire
from licserver.clock import Clock, system_clock
from licserver.desk import Desk
from licserver.rotation import open_ring
from licserver.store import BatchStore
from licserver.vendor import Vendor
from licserver.web import download
from licserver.web.errors import Handler, expect, guarded, not_allowed, not_found
from licserver.web.health import healthz, readyz
from licserver.web.public import PublicEndpoints
from licserver.web.signed import AnswerSigner
from licserver.web.state import ARTIFACTS, CLOCK, DESK, DRAIN, LINKS, Drain


def create_app(vendor: Vendor, clock: Clock = system_clock) -> web.Application:
    """Make the application that answers the specified endpoints.

    Args:
        vendor: The opened data folder; it stays the caller's to close, after the application.
        clock: Every decision's `now` comes from here.

    Returns:
        The application, ready for any aiohttp runner.
    """
    app = web.Application(client_max_size=wire.MAX_BODY_BYTES)
    app[LINKS] = links = open_ring(vendor.settings, vendor.vault)
    app[ARTIFACTS] = vendor.artifacts
    app[DESK] = desk = Desk(BatchStore(vendor.database))
    app[CLOCK] = clock
    app[DRAIN] = Drain()
    public = PublicEndpoints(desk, vendor.vault, links, vendor.settings, clock)
    signer = AnswerSigner(vendor.vault.signing_keys, clock, public.read_body, public.base_url)
    _add(app, "POST", wire.VERIFY_PATH, signer.signing(public.verify))
    _add(app, "GET", wire.UPDATE_CHECK_PATH, signer.signing(public.update_check))
    _add(app, "GET", wire.DOWNLOAD_PATH, download.update_download)
    _add(app, "GET", wire.MANIFEST_PATH, download.update_manifest)
    _add(app, "GET", "/healthz", healthz)
    _add(app, "GET", "/readyz", readyz)
    app.router.add_route("*", "/{anything:.*}", not_found, expect_handler=expect)
    app.cleanup_ctx.append(_desk_closed)
    return app


def _add(app: web.Application, method: str, path: str, handler: Handler) -> None:
    """Answer one method at an address, and say 405 to all others."""
    resource = app.router.add_resource(path)
    for one in ("GET", "HEAD") if method == "GET" else (method,):
        resource.add_route(one, guarded(handler, app[DRAIN]), expect_handler=expect)
    resource.add_route("*", not_allowed("GET,HEAD" if method == "GET" else method), expect_handler=expect)


async def _desk_closed(app: web.Application) -> AsyncIterator[None]:
    yield
    app[DESK].close()
