"""Putting the application together."""

from collections.abc import AsyncIterator
from contextlib import suppress

from aiohttp import web

from licserver import wire
from licserver.clock import Clock, system_clock
from licserver.desk import Desk
from licserver.store import BatchStore
from licserver.vendor import Vendor
from licserver.web import download, public
from licserver.web.errors import errors_as_json, expect
from licserver.web.state import ARTIFACTS, CLOCK, DESK, SETTINGS, VAULT


def create_app(vendor: Vendor, clock: Clock = system_clock) -> web.Application:
    """Make the application that answers the specified endpoints.

    Args:
        vendor: The opened data folder; it stays the caller's to close, after the application.
        clock: Every decision's `now` comes from here.

    Returns:
        The application, ready for any aiohttp runner.
    """
    app = web.Application(middlewares=[errors_as_json], client_max_size=wire.MAX_BODY_BYTES)
    app[SETTINGS] = vendor.settings
    app[VAULT] = vendor.vault
    app[ARTIFACTS] = vendor.artifacts
    app[DESK] = Desk(BatchStore(vendor.database))
    app[CLOCK] = clock
    app.router.add_post(wire.VERIFY_PATH, public.verify, expect_handler=expect)
    app.router.add_get(wire.UPDATE_CHECK_PATH, public.update_check, expect_handler=expect)
    app.router.add_get(wire.DOWNLOAD_PATH, download.update_download, expect_handler=expect)
    app.router.add_get("/healthz", public.healthz, expect_handler=expect)
    app.cleanup_ctx.append(_desk_closed)
    return app


async def _desk_closed(app: web.Application) -> AsyncIterator[None]:
    yield
    with suppress(RuntimeError):
        app[DESK].close()
