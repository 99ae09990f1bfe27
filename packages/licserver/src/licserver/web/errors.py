"""What goes wrong, as JSON: every answer of this server has one of the specified shapes."""

import functools
import logging
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from aiohttp import HttpVersion11, hdrs, web

from licserver.errors import StoreUnavailable
from licserver.protocol import public_api
from licserver.web.app_state import Drain, Handler
from licserver.web.request_ids import RequestIds
from licserver.web.responses import send

_log = logging.getLogger("licserver.web")

_CALLER_GONE = 499
"""What proxies write into the access log when nobody is left to be answered."""

NO_ENCODING: Final[Mapping[str, str]] = MappingProxyType({"Accept-Encoding": "identity"})
"""Headers of a 415 (RFC 9110, 12.5.3)."""

BAD_PATH: Final = "A path must not contain %2F, %5C, %00, a backslash, or a segment of one or two dots."

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

_CODES = {
    400: ("bad_request", "The request cannot be read."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take this method."),
    408: ("timeout", "The request's body did not arrive in time."),
    413: ("too_large", f"The request's body is longer than {public_api.MAX_BODY_BYTES} bytes."),
    415: ("unsupported_media_type", "Content-Encoding is not supported; send the body as it is."),
    417: ("expectation_failed", "This expectation is not supported."),
    429: ("too_many_requests", "Too many requests from this address; wait as long as Retry-After says."),
}


def send_error(status: int, headers: Mapping[str, str] = _NO_HEADERS) -> web.StreamResponse:
    """Make the response of an error that the specification does not name."""
    problem = _CODES.get(status, ("error", "The request was refused."))
    return send(public_api.answer_error(status, *problem), headers)


async def expect(request: web.Request) -> web.StreamResponse | None:
    """Refuse an ``Expect`` header with anything but `100-continue`; aiohttp calls this before the handler."""
    if request.version >= HttpVersion11 and request.headers["Expect"].lower() != "100-continue":
        return send_error(417)
    return None


async def send_continue(request: web.Request) -> None:
    """Ask for the body, if the client waits to be asked; call this before the body is read (D-153)."""
    if hdrs.EXPECT not in request.headers or request.version < HttpVersion11 or request.content.is_eof():
        return
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer has not begun


def send_unavailable(what: str = "service") -> web.StreamResponse:
    """Make the response of a service that cannot decide now; it is never a verdict."""
    answer = public_api.answer_error(503, "unavailable", f"The {what} is not available now; try again.")
    return send(answer, {"Retry-After": "5"})


def send_too_many(delay: int) -> web.StreamResponse:
    """Make the response to a client that calls too often; it is never a verdict (D-70, D-71).

    Args:
        delay: Seconds after which it may call again.
    """
    return send_error(429, {"Retry-After": str(delay)})


def send_failure() -> web.StreamResponse:
    """Make the response of a fault of ours."""
    message = "The service failed; the operator will find why in the log."
    return send(public_api.answer_error(500, "internal", message))


def guarded(
    handler: Handler, drain: Drain, flood_delay: Callable[[web.Request], int], request_ids: RequestIds
) -> Handler:
    """Answer whatever a handler raises, and keep the request's text out of the log.

    Put on each handler by hand: aiohttp's middlewares cost as much a request as all the rules do.

    Args:
        handler: The one to guard.
        drain: While it is active each answer is its connection's last.
        flood_delay: Seconds to wait, of a request that is one too many; called before anything else (D-71).
        request_ids: Names a request that something is written about.
    """

    @functools.wraps(handler)
    async def guarded_handler(request: web.Request) -> web.StreamResponse:
        try:
            if delay := flood_delay(request):
                response = send_too_many(delay)
            elif hdrs.CONTENT_ENCODING in request.headers:
                response = send_error(415, NO_ENCODING)
            else:
                response = await handler(request)
        except Exception as problem:  # noqa: BLE001 - the last resort; logged with its traceback
            response = _answer_problem(request, problem, request_ids)
        if drain.active:
            response.force_close()
        return response

    return guarded_handler


def not_allowed(allow: str) -> Handler:
    """Make the handler of an address for all methods but those that it takes."""

    async def method_not_allowed(_request: web.Request) -> web.StreamResponse:
        return send_error(405, {"Allow": allow})

    return method_not_allowed


async def not_found(_request: web.Request) -> web.StreamResponse:
    """Answer at every address that is none."""
    return send_error(404)


async def refuse_path(_request: web.Request) -> web.StreamResponse:
    """Refuse a path that a proxy may read as another one (D-155)."""
    return send(public_api.answer_error(400, "bad_request", BAD_PATH))


def _answer_problem(request: web.Request, problem: Exception, request_ids: RequestIds) -> web.StreamResponse:
    """Put a problem into an answer, and into the log where the operator can do something about it."""
    match problem:
        case web.HTTPException():
            return send_error(problem.status)
        case web.RequestPayloadError():  # a body that breaks its own framing or encoding
            return send_error(400)
        case StoreUnavailable():
            return request_ids.note(_log, request, send_unavailable(), ": %s", problem)
        case ConnectionError():  # the caller has gone: no answer, and nothing for the log of errors
            if request.transport is not None:
                request.transport.abort()
            return web.Response(status=_CALLER_GONE)
        case _:
            return request_ids.note(_log, request, send_failure(), " failed", exc_info=problem)
