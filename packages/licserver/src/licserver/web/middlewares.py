"""Middlewares around every request: metrics, flood limits, errors, draining; and the routes of hot requests.

The public endpoints, the admin API and the console share them. Each names the format of its errors (`ERRORS`)
and the label of its requests in the metrics (`ENDPOINT`).
"""

import logging
import mmap
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, NamedTuple, cast

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from licserver.domain.text import AMBIGUOUS_PATH
from licserver.errors import LicserverError
from licserver.limits import MAX_PATH_SEGMENTS, MAX_TARGET_CHARS
from licserver.runtime.logging import REQUEST_IDS, RequestIds
from licserver.runtime.metrics import METER
from licserver.web.host_names import HostNames
from licserver.web.rate_limits import RATE_LIMITER
from licserver.web.responses import (
    NO_ENCODING,
    ApiError,
    expect,
    respond_as_json,
    respond_with_problem,
    send_error,
    to_api_error,
)

ADMIN_ROOT: Final = "/admin/api/v1"

_CLIENT_GONE: Final = 499  # what proxies log when the client has disconnected


@dataclass(slots=True)
class Drain:
    """The progress of the process's shutdown.

    `active`: it finishes its requests and accepts no more. Before that, while the byte of `not_ready` is 1,
    it accepts, and only `/readyz` differs (D-255); worker processes share the byte with the first process.
    """

    active: bool = False
    not_ready: bytearray | mmap.mmap = field(default_factory=lambda: bytearray(1))


class ErrorFormat(NamedTuple):
    """The format of errors, and the log of server errors."""

    log: logging.Logger
    respond: Callable[[web.Request, ApiError], Awaitable[web.StreamResponse]]


DRAIN = web.AppKey("drain", Drain)
ERRORS = web.AppKey("errors", ErrorFormat)
ENDPOINT = web.AppKey("endpoint", str)
"""The label of an application's requests in the metrics; without one, each path has its own."""

HotRoutes = Mapping[tuple[str, str], Handler]  # handlers by method and path

HOST_NAMES = web.AppKey("host_names", HostNames)
HOT_ROUTES: web.AppKey[HotRoutes] = web.AppKey("hot_routes")

PUBLIC_ERRORS: Final = ErrorFormat(logging.getLogger("licserver.web"), respond_as_json)


_NO_CODING: Final = "Transfer-Encoding may only be chunked."


def create_middleware(app: web.Application, errors: ErrorFormat | None = None) -> Middleware:
    """Create the middleware around every handler: limits, errors, draining.

    One for all three, because each layer costs a hot route 0.5 us. Without `errors`, these have the format
    of the sub-application to which the request was routed.
    """
    drain, rate_limiter, request_ids, names = app[DRAIN], app[RATE_LIMITER], app[REQUEST_IDS], app[HOST_NAMES]

    @web.middleware
    async def handle_request(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if delay := rate_limiter.count_request(request):
                raise ApiError(429, headers={"Retry-After": str(delay)})  # noqa: TRY301 - written as others
            if not names.allow(request):
                raise ApiError(421)  # noqa: TRY301
            if hdrs.CONTENT_ENCODING in request.headers:
                raise ApiError(415, headers=NO_ENCODING)  # noqa: TRY301
            if hdrs.TRANSFER_ENCODING in request.headers and not _is_chunked(request):
                raise ApiError(400, _NO_CODING)  # noqa: TRY301
            response = await handler(request)
        except Exception as problem:  # noqa: BLE001 - the last resort; logged with its traceback
            error_format = errors or request.match_info.apps[-1][ERRORS]
            response = await _respond_to_error(request, problem, error_format, request_ids)
        if drain.active:  # each response is its connection's last while the process shuts down
            response.force_close()
        return response

    return handle_request


def _is_chunked(request: web.Request) -> bool:
    """Return whether a body has no other transfer coding: a proxy may decode it, and this server does not."""
    return ",".join(request.headers.getall(hdrs.TRANSFER_ENCODING)).strip().lower() == "chunked"


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
    if error.message is _NO_CODING:  # a proxy may see the next request begin elsewhere (RFC 9112, 6.1)
        response.force_close()
    if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        is_expected = isinstance(problem, LicserverError)  # its message has the advice
        suffix, cause = (f": {problem}", None) if is_expected else (" failed", problem)
        request_ids.log_error(errors.log, request, response, suffix, cause)
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


# --- the two hot routes, past aiohttp's router -----------------------------------------------

RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_LONG_TARGET: Final = ApiError(414)
_DEEP_PATH: Final = ApiError(404)
_BAD_PATH: Final = ApiError(
    400, "A path must not contain %2F, %5C, %00, a backslash, or a segment of one or two dots."
)


def create_hot_routes(app: web.Application, routes: HotRoutes) -> HotRoutes:
    """Put middlewares and metrics around the handlers of hot routes, once.

    Routing would cost a known verify 8 % more instructions (of 358,000). The router must have them as well.
    """
    middleware = create_middleware(app, PUBLIC_ERRORS)
    hot = {(method, path): partial(middleware, handler=handler) for (method, path), handler in routes.items()}
    if METER not in app:
        return hot
    return {(method, path): app[METER].measuring(path, handler) for (method, path), handler in hot.items()}


def create_request_handler(routes: HotRoutes, router: RequestHandler) -> RequestHandler:
    """Create a handler of all requests: hot routes, then ambiguous paths, then the router."""

    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        path = request.rel_url.raw_path
        handler = routes.get((request.method, path))
        if handler is None or hdrs.EXPECT in request.headers:
            if len(request.raw_path) > MAX_TARGET_CHARS:
                handler = partial(_refuse_target, problem=_LONG_TARGET)
            elif path.count("/") > MAX_PATH_SEGMENTS:
                handler = partial(_refuse_target, problem=_DEEP_PATH)
            elif AMBIGUOUS_PATH.search(path):
                handler = partial(_refuse_target, problem=_BAD_PATH)
            elif path.startswith("/"):
                return router(request)
            else:
                handler = _refuse_form
        return handler(cast("web.Request", request))  # the application creates all requests

    return handle


async def _refuse_target(request: web.Request, problem: ApiError) -> web.StreamResponse:
    respond = respond_with_problem if request.rel_url.raw_path.startswith(ADMIN_ROOT) else respond_as_json
    return await respond(request, problem)


async def _refuse_form(_request: web.Request) -> web.StreamResponse:
    """Refuse CONNECT and ``OPTIONS *``, to which aiohttp would respond by itself."""
    return send_error(404)
