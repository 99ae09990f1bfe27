"""The fast path of the two hot routes, verify and update check: past aiohttp's router.

They have the same middlewares as all other routes, put around their handlers once. Routing would cost a
known verify 8 % more instructions (of 358,000), and aiohttp's own responses instead of `WholeResponse` 16 %.
Beyond its documented interface, `connections` uses `AppRunner._make_server` and `Server.request_handler`.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, cast

from aiohttp import hdrs, web

from licserver.web.admin import ROOT, respond_with_problem
from licserver.web.app_state import METER, Handler
from licserver.web.errors import ApiError, respond_as_json, send_error
from licserver.web.middlewares import PUBLIC_ERRORS, create_guard

RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
HotRoutes = Mapping[tuple[str, str], Handler]
"""Handlers by method and path."""

_AMBIGUOUS: Final = re.compile(r"%2f|%5c|\\|%00|\0|(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
"""What a proxy in front may read as another path than aiohttp does (D-155)."""

_BAD_PATH: Final = ApiError(
    400, "A path must not contain %2F, %5C, %00, a backslash, or a segment of one or two dots."
)


def create_hot_routes(app: web.Application, routes: HotRoutes) -> HotRoutes:
    """Put middlewares and metrics around the handlers of hot routes, which the router must have as well."""
    guard = create_guard(app, PUBLIC_ERRORS)
    hot = {(method, path): partial(guard, handler=handler) for (method, path), handler in routes.items()}
    if METER not in app:
        return hot
    return {(method, path): app[METER].measuring(path, one) for (method, path), one in hot.items()}


def create_request_handler(routes: HotRoutes, router: RequestHandler) -> RequestHandler:
    """Create a handler of all requests: hot routes, then ambiguous paths, then the router."""

    def handle(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
        handler = routes.get((request.method, request.rel_url.raw_path))
        if handler is None or hdrs.EXPECT in request.headers:
            path = request.rel_url.raw_path
            if _AMBIGUOUS.search(path):
                handler = _refuse_path
            elif path.startswith("/"):
                return router(request)
            else:
                handler = _refuse_target
        return handler(cast("web.Request", request))  # the application creates all requests

    return handle


async def _refuse_path(request: web.Request) -> web.StreamResponse:
    respond = respond_with_problem if request.rel_url.raw_path.startswith(ROOT) else respond_as_json
    return await respond(request, _BAD_PATH)


async def _refuse_target(_request: web.Request) -> web.StreamResponse:
    """Refuse CONNECT and ``OPTIONS *``, to which aiohttp would respond by itself."""
    return send_error(404)
