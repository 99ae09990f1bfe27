"""Middlewares around every request: metrics, flood limits, errors, draining; and how routes are added.

The public endpoints, the admin API and the console share them. Each names the format of its errors (`ERRORS`)
and the label of its requests in the metrics (`ENDPOINT`).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from licserver.errors import LicserverError
from licserver.web.app_state import DRAIN, LIMITS, METER, REQUEST_IDS, Handler
from licserver.web.logging import RequestIds
from licserver.web.rate_limits import Limits
from licserver.web.responses import NO_ENCODING, ApiError, expect, respond_as_json, to_api_error

_CLIENT_GONE: Final = 499  # what proxies log when the client has disconnected


class ErrorFormat(NamedTuple):
    """How errors are written, and where server errors are logged."""

    log: logging.Logger
    respond: Callable[[web.Request, ApiError], Awaitable[web.StreamResponse]]


ERRORS = web.AppKey("errors", ErrorFormat)
ENDPOINT = web.AppKey("endpoint", str)
"""The label of an application's requests in the metrics; without one, each path has its own."""

PUBLIC_ERRORS: Final = ErrorFormat(logging.getLogger("licserver.web"), respond_as_json)


def create_guard(app: web.Application, errors: ErrorFormat | None = None) -> Middleware:
    """Create the middleware around every handler: limits, errors, draining.

    One for all three, because each layer costs a hot route 0.5 us. Without `errors`, these have the format
    of the sub-application to which the request was routed.
    """
    drain, limits, request_ids = app[DRAIN], app[LIMITS], app[REQUEST_IDS]

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            _check_limits(request, limits)
            response = await handler(request)
        except Exception as problem:  # noqa: BLE001 - the last resort; logged with its traceback
            error_format = errors or request.match_info.apps[-1][ERRORS]
            response = await _respond_to_error(request, problem, error_format, request_ids)
        if drain.active:  # each response is its connection's last while the process shuts down
            response.force_close()
        return response

    return guard


def _check_limits(request: web.Request, limits: Limits) -> None:
    """Refuse a client that calls too often (D-71), before anything else is done for it."""
    if delay := limits.flood_delay(request):
        raise ApiError(429, headers={"Retry-After": str(delay)})
    if hdrs.CONTENT_ENCODING in request.headers:
        raise ApiError(415, headers=NO_ENCODING)


async def _respond_to_error(
    request: web.Request, problem: Exception, errors: ErrorFormat, request_ids: RequestIds
) -> web.StreamResponse:
    """Turn an exception into a response; log a server error under the id that the response carries."""
    if isinstance(problem, ConnectionError):
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=_CLIENT_GONE)
    error = to_api_error(problem)
    response = await errors.respond(request, error)
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        is_expected = isinstance(problem, LicserverError)  # its message says what to do
        what, cause = (f": {problem}", None) if is_expected else (" failed", problem)
        request_ids.log_error(errors.log, request, response, what, cause)
    return response


def create_counter(app: web.Application) -> Middleware:
    """Create the middleware that counts and times requests."""
    meter = app[METER]

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        match = request.match_info
        resource = match.route.resource
        path = "" if resource is None else resource.canonical
        return await meter.measuring(match.apps[-1].get(ENDPOINT, path), handler)(request)

    return count


def get(handler: Handler) -> dict[str, Handler]:
    """Return the methods of a path that is only read."""
    return {"GET": handler, "HEAD": handler}


def add_route(app: web.Application, path: str, handlers: Mapping[str, Handler]) -> None:
    """Add the handlers of a path, by method; other methods are answered 405."""
    resource = app.router.add_resource(path)
    for method, handler in handlers.items():
        resource.add_route(method, handler, expect_handler=expect)
    refuse = partial(_refuse, 405, {hdrs.ALLOW: ",".join(handlers)})
    resource.add_route("*", refuse, expect_handler=expect)


def add_not_found(app: web.Application, *paths: str) -> None:
    """Answer 404 wherever no route matches; to be called last."""
    for path in paths:
        app.router.add_route("*", path, partial(_refuse, 404, {}), expect_handler=expect)


async def _refuse(status: int, headers: dict[str, str], _request: web.Request) -> web.StreamResponse:
    raise ApiError(status, headers=headers)
