"""Health and readiness, for load balancers and supervisors."""

import asyncio
import logging
from typing import Final

from aiohttp import web

from licserver.errors import StoreUnavailableError
from licserver.protocol import public_api
from licserver.web.app_state import DRAIN, QUERIES
from licserver.web.errors import send_unavailable
from licserver.web.responses import send

_log = logging.getLogger("licserver.web")

READY_TIMEOUT: Final = 1.5
"""Seconds in which the database must answer."""


async def healthz(_request: web.Request) -> web.StreamResponse:
    """Respond that the process runs."""
    return send(public_api.json_response(200, {"status": "ok"}))


async def readyz(request: web.Request) -> web.StreamResponse:
    """Respond whether to send requests here: not without a database, and not while shutting down."""
    if request.app[DRAIN].active:
        return send_unavailable()
    try:
        async with asyncio.timeout(READY_TIMEOUT):
            await request.app[QUERIES].ping()
    except StoreUnavailableError as problem:
        _log.warning("not ready: %s", problem)
        return send_unavailable()
    except TimeoutError:
        _log.warning("not ready: the database did not answer within %s s", READY_TIMEOUT)
        return send_unavailable()
    return send(public_api.json_response(200, {"status": "ready"}))
