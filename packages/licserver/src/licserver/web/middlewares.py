"""What runs around every request: metrics, draining, errors, flood limits.

One list for the public endpoints, the admin API and the console. Each of them names the shape of its errors
(`ERRORS`) and what its requests are counted as (`ENDPOINT`). The two hot routes go past the router and have
the same list around them (`wrap`).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from licserver.web.app_state import DRAIN, LIMITS, METER, REQUEST_IDS, Handler
from licserver.web.errors import NO_ENCODING, ApiError, expect, respond_as_json, to_api_error
from licserver.web.request_ids import RequestIds

_CLIENT_GONE: Final = 499
"""What proxies write into the access log when nobody is left to be answered."""


class ErrorFormat(NamedTuple):
    """How errors are written, and where those are logged about which the operator can do something."""

    log: logging.Logger
    respond: Callable[[web.Request, ApiError], Awaitable[web.StreamResponse]]


ERRORS = web.AppKey("errors", ErrorFormat)
ENDPOINT = web.AppKey("endpoint", str)
"""The label of an application's requests in the metrics; without one, each path has its own."""

PUBLIC_ERRORS: Final = ErrorFormat(logging.getLogger("licserver.web"), respond_as_json)


def create_middlewares(app: web.Application, errors: ErrorFormat | None = None) -> list[Middleware]:
    """Create the middlewares that the hot routes have as well, the outermost first.

    Without `errors`, these have the format of the sub-application to which the request was routed.
    """
    drain, limits, request_ids = app[DRAIN], app[LIMITS], app[REQUEST_IDS]

    @web.middleware
    async def close_when_draining(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Make each response its connection's last while the process shuts down."""
        response = await handler(request)
        if drain.active:
            response.force_close()
        return response

    @web.middleware
    async def handle_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Turn exceptions into responses; log a server error under the id that its response carries."""
        try:
            return await handler(request)
        except ConnectionError:
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=_CLIENT_GONE)
        except Exception as problem:  # noqa: BLE001 - the last resort; logged with its traceback
            its_errors = errors or request.match_info.apps[-1][ERRORS]
            return await _answer_error(request, problem, its_errors, request_ids)

    @web.middleware
    async def refuse_floods(request: web.Request, handler: Handler) -> web.StreamResponse:
        """Refuse a client that calls too often (D-71), before anything else is done for it."""
        if delay := limits.flood_delay(request):
            raise ApiError(429, headers={hdrs.RETRY_AFTER: str(delay)})
        if hdrs.CONTENT_ENCODING in request.headers:
            raise ApiError(415, headers=NO_ENCODING)
        return await handler(request)

    return [close_when_draining, handle_errors, refuse_floods]


async def _answer_error(
    request: web.Request, problem: Exception, errors: ErrorFormat, request_ids: RequestIds
) -> web.StreamResponse:
    error = to_api_error(problem)
    response = await errors.respond(request, error)
    if error.status == HTTPStatus.SERVICE_UNAVAILABLE:
        request_ids.log_error(errors.log, request, response, f": {problem}")
    elif error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        request_ids.log_error(errors.log, request, response, " failed", problem)
    return response


def measure(app: web.Application) -> list[Middleware]:
    """Create the middleware that counts and times requests, if the application has a meter."""
    if METER not in app:
        return []
    meter = app[METER]

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        match = request.match_info
        resource = match.route.resource
        path = "" if resource is None else resource.canonical
        return await meter.measuring(match.apps[-1].get(ENDPOINT, path), handler)(request)

    return [count]


def wrap(middlewares: Sequence[Middleware], handler: Handler) -> Handler:
    """Put middlewares around a handler that is called past the router."""
    for middleware in reversed(middlewares):
        handler = partial(middleware, handler=handler)  # as aiohttp itself does
    return handler


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
