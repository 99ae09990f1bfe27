"""What goes wrong, as JSON: every answer of this server has one of the specified shapes."""

import logging
from collections.abc import Awaitable, Callable

from aiohttp import HttpVersion11, web

from licserver import wire
from licserver.errors import StoreUnavailable

_log = logging.getLogger("licserver.web")

_CALLER_GONE = 499
"""What proxies write into the access log when nobody is left to be answered."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_CODES = {
    400: ("bad_request", "The request cannot be read."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not take this method."),
    408: ("timeout", "The request's body did not arrive in time."),
    413: ("too_large", f"The request's body is longer than {wire.MAX_BODY_BYTES} bytes."),
    417: ("expectation_failed", "This expectation is not supported."),
}


def send(answer: wire.Answer) -> web.Response:
    """Make the response of an answer."""
    return web.Response(
        status=answer.status,
        body=answer.to_bytes(),
        headers={"Content-Type": "application/json", "Cache-Control": "no-store"},
    )


def send_error(status: int) -> web.Response:
    """Make the response of an error that the specification does not name."""
    return send(wire.answer_error(status, *_CODES.get(status, ("error", "The request was refused."))))


async def expect(request: web.Request) -> web.StreamResponse | None:
    """Answer an ``Expect`` header, which aiohttp looks at before any middleware."""
    if request.version < HttpVersion11:
        return None
    if request.headers["Expect"].lower() != "100-continue":
        return send_error(417)
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer has not begun
    return None


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer whatever a handler raises, and keep the request's text out of the log."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        response = send_error(refusal.status)
        if allow := refusal.headers.get("Allow"):
            response.headers["Allow"] = allow
        return response
    except web.RequestPayloadError:  # a body that breaks its own framing or encoding
        return send_error(400)
    except StoreUnavailable as problem:
        _log.error("%s %s: %s", request.method, request.rel_url.raw_path, problem)
        response = send(wire.answer_error(503, "unavailable", "The service is not available now; try again."))
        response.headers["Retry-After"] = "5"
        return response
    except ConnectionError:  # the caller has gone: no answer, and nothing for the log of errors
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=_CALLER_GONE)
    except Exception:  # noqa: BLE001 - the last resort; logged with its traceback
        _log.exception("%s %s failed", request.method, request.rel_url.raw_path)
        return send(
            wire.answer_error(500, "internal", "The service failed; the operator will find why in the log.")
        )
