"""Errors: every exception as one `ApiError`, and its JSON response on the public endpoints.

The admin API and the console write the same errors as problem details and as pages (`ErrorFormat`).
"""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from aiohttp import HttpVersion11, hdrs, web
from pydantic import ValidationError

from licserver.errors import (
    ArtifactsError,
    ConflictError,
    InvalidInputError,
    LicserverError,
    NotFoundError,
    StoreUnavailableError,
)
from licserver.protocol import public_api
from licserver.security.redaction import mask
from licserver.web.responses import send

NO_ENCODING: Final[Mapping[str, str]] = MappingProxyType({"Accept-Encoding": "identity"})
"""Headers of a 415 (RFC 9110, 12.5.3)."""

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})

MESSAGES: Final[Mapping[int, tuple[str, str]]] = MappingProxyType(
    {
        400: ("bad_request", "The request cannot be read."),
        401: ("unauthorized", "Authentication is required."),
        403: ("forbidden", "This is not allowed."),
        404: ("not_found", "There is nothing at this address."),
        405: ("method_not_allowed", "This address does not take this method."),
        408: ("timeout", "The request's body did not arrive in time."),
        413: ("too_large", f"The request's body is longer than {public_api.MAX_BODY_BYTES} bytes."),
        415: ("unsupported_media_type", "Content-Encoding is not supported; send the body as it is."),
        417: ("expectation_failed", "This expectation is not supported."),
        429: ("too_many_requests", "Too many requests from this address; wait as long as Retry-After says."),
        500: ("internal", "The service failed; the operator will find why in the log."),
        503: ("unavailable", "The service is not available now; try again."),
    }
)
"""Error code and message by status, where the code that raises has no better message."""

_DEFAULT: Final = ("error", "The request was refused.")
_RETRY_LATER: Final = MappingProxyType({"Retry-After": "5"})


class TooLargeError(InvalidInputError):
    """An upload is larger than the settings allow, or the disk has room for."""


class ApiError(Exception):
    """A request that fails.

    Args:
        status: HTTP status.
        message: A sentence for the caller; the status's own if empty.
        headers: Headers that the status requires.
        errors: Messages by field.
    """

    def __init__(
        self,
        status: int,
        message: str = "",
        headers: Mapping[str, str] = NO_HEADERS,
        errors: Mapping[str, list[str]] | None = None,
    ) -> None:
        self.status, self.headers, self.errors = status, headers, errors
        self.message = message or MESSAGES.get(status, _DEFAULT)[1]
        super().__init__(self.message)


def to_api_error(problem: Exception) -> ApiError:
    """Return the error for an exception; 500 for an unexpected one."""
    match problem:
        case ApiError():
            return problem
        case web.HTTPException():
            headers = {"Allow": problem.headers[hdrs.ALLOW]} if hdrs.ALLOW in problem.headers else {}
            return ApiError(problem.status, headers=headers)
        case web.RequestPayloadError():  # a body that breaks its own framing or encoding
            return ApiError(400)
        case ValidationError():
            return ApiError(422, "Request validation failed.", errors=_by_field(problem))
        case InvalidInputError():
            return ApiError(_status_of(problem), to_sentence(problem))
        case StoreUnavailableError():
            return ApiError(503, "The database cannot be reached; try again.", _RETRY_LATER)
        case ArtifactsError():
            return ApiError(503, to_sentence(problem), _RETRY_LATER)
        case OSError():
            return ApiError(503, "A file cannot be read or written; try again.", _RETRY_LATER)
        case LicserverError():  # as of the key vault: a sentence for the vendor
            return ApiError(503, to_sentence(problem))
        case _:
            return ApiError(500)


def _status_of(wrong: InvalidInputError) -> int:
    match wrong:
        case TooLargeError():
            return 413
        case NotFoundError():
            return 404
        case ConflictError():
            return 409
        case _:
            return 422


def to_sentence(problem: Exception | str) -> str:
    """Write a message as a sentence, with keys masked; a field's name at its beginning stays as it is."""
    text = mask(str(problem).strip())
    is_field = "_" in text.partition(" ")[0]
    text = text if is_field else text[:1].upper() + text[1:]
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _by_field(invalid: ValidationError) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for one in invalid.errors(include_input=False, include_url=False, include_context=False):
        field = ".".join(str(part) for part in one["loc"][:2]) or "body"
        name = mask(field)[:100].encode(errors="replace").decode()
        errors.setdefault(name, []).append(one["msg"].removeprefix("Value error, "))
    return errors


def send_error(status: int, headers: Mapping[str, str] = NO_HEADERS) -> web.StreamResponse:
    """Make the JSON response of an error that the specification does not name."""
    return send(public_api.error_response(status, *MESSAGES.get(status, _DEFAULT)), headers)


def send_unavailable(what: str = "service") -> web.StreamResponse:
    """Make the response of a service that cannot decide now; it is never a verdict."""
    answer = public_api.error_response(503, "unavailable", f"The {what} is not available now; try again.")
    return send(answer, _RETRY_LATER)


def send_too_many(delay: int) -> web.StreamResponse:
    """Make the response to a client that calls too often; it may call again after `delay` seconds."""
    return send_error(429, {hdrs.RETRY_AFTER: str(delay)})


def send_failure() -> web.StreamResponse:
    """Make the response of an unexpected error."""
    return send_error(500)


async def respond_as_json(_request: web.Request, error: ApiError) -> web.StreamResponse:
    """Write an error for a public endpoint; a server error without details."""
    code, message = MESSAGES.get(error.status, _DEFAULT)
    if error.status < 500:  # noqa: PLR2004 - the first status that means a fault of the server
        message = error.message
    return send(public_api.error_response(error.status, code, message), error.headers)


# --- reading a body ---------------------------------------------------------------------------


async def expect(request: web.Request) -> web.StreamResponse | None:
    """Refuse an ``Expect`` header other than `100-continue`; aiohttp calls this before the handler."""
    if request.version >= HttpVersion11 and request.headers[hdrs.EXPECT].lower() != "100-continue":
        return send_error(417)
    return None


async def send_continue(request: web.Request) -> None:
    """Send ``100 Continue`` if the client waits for it; call this before the body is read (D-153)."""
    if hdrs.EXPECT not in request.headers or request.version < HttpVersion11 or request.content.is_eof():
        return
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the response has not begun


async def read_body(request: web.Request, limit: int, seconds: float) -> bytes:
    """Read a body of at most `limit` bytes within `seconds`.

    Raises:
        ApiError: 413 or 408.
    """
    body = bytearray()
    await send_continue(request)
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > limit:
                    raise ApiError(413, f"The request's body is longer than {limit} bytes.")
    except TimeoutError:
        raise ApiError(408) from None
    return bytes(body)
