"""JSON responses, sent whole in one write; every exception as one `ApiError`; and reading a body.

The admin API and the console write the same errors as problem details and as pages (`ErrorFormat`).

"""

import asyncio
import json
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from time import monotonic
from types import MappingProxyType
from typing import Any, Final

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.abc import AbstractStreamWriter
from pydantic import ValidationError

from licserver.errors import (
    ArtifactsError,
    ConflictError,
    InvalidInputError,
    LicserverError,
    NotFoundError,
    StoreUnavailableError,
)
from licserver.limits import MAX_PUBLIC_BODY_BYTES, MAX_TARGET_CHARS
from licserver.protocol import public_api
from licserver.security.redaction import mask

CONTENT_TYPE: Final = "application/json"
HSTS: Final = "max-age=31536000"  # a year
NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def send(response: public_api.ApiResponse, headers: Mapping[str, str] = NO_HEADERS) -> web.StreamResponse:
    """Make the response of aiohttp, with headers besides those that every response has."""
    return WholeResponse(response, headers)


class WholeResponse(web.StreamResponse):
    """A short response of known bytes.

    aiohttp's own, made for streams, cookies and compression, takes a third of the time of a request. This one
    overrides only what aiohttp documents.
    """

    def __init__(self, response: public_api.ApiResponse, headers: Mapping[str, str]) -> None:
        super().__init__(status=response.status)
        self.content = response.content
        if headers:
            self.headers.update(headers)
        self._is_last = False
        self._is_sent = False

    @property
    def keep_alive(self) -> bool:
        """Whether the connection is kept after this response."""
        return not self._is_last

    def force_close(self) -> None:
        """Make this response the last one on its connection."""
        self._is_last = True

    @property
    def body_length(self) -> int:
        """Length of the body in bytes."""
        return len(self.content)

    @property
    def prepared(self) -> bool:
        """Whether it was sent."""
        return self._is_sent

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send all of it."""
        if self._is_sent:
            return None
        transport = request.transport
        if transport is None:
            raise ConnectionResetError("the client has disconnected")
        self._is_last = self._is_last or not request.keep_alive
        head = (
            f"{_fixed_head(self.status, int(monotonic()))}Content-Length: {len(self.content)}\r\n"
            f"{self._connection(request)}{self._own_headers()}\r\n"
        )
        self._is_sent = True
        transport.write(head.encode() + (b"" if request.method == "HEAD" else self.content))
        if transport.get_write_buffer_size():  # wait for a client that does not read
            await request.writer.drain()
        return None

    def _own_headers(self) -> str:
        if not self.headers:
            return ""
        return "".join([f"{name}: {_clean(value)}\r\n" for name, value in self.headers.items()])

    def _connection(self, request: web.BaseRequest) -> str:
        """Write the ``Connection`` header where it differs from the version's default (RFC 9112 9.3)."""
        if request.version >= HttpVersion11:
            return "Connection: close\r\n" if self._is_last else ""
        return "" if self._is_last else "Connection: keep-alive\r\n"

    async def write_eof(self, data: bytes = b"") -> None:
        """Do nothing: the response was sent whole."""


_NOT_A_PAGE: Final = "".join([f"{name}: {value}\r\n" for name, value in public_api.NOT_A_PAGE.items()])


@lru_cache(maxsize=64)
def _fixed_head(status: int, _second: int) -> str:
    """Write the headers that are the same for a second."""
    return (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
        f"Date: {formatdate(usegmt=True)}\r\n"
        f"Content-Type: {CONTENT_TYPE}\r\n"
        "Cache-Control: no-store\r\n"
        f"{_NOT_A_PAGE}"
    )


def _clean(value: str) -> str:
    if "\r" in value or "\n" in value:
        raise ValueError("a header must not contain a line break")
    return value


NO_ENCODING: Final[Mapping[str, str]] = MappingProxyType({"Accept-Encoding": "identity"})
"""Headers of a 415 (RFC 9110, 12.5.3)."""

MESSAGES: Final[Mapping[int, tuple[str, str]]] = MappingProxyType(
    {
        400: ("bad_request", "The request cannot be read."),
        401: ("unauthorized", "Authentication is required."),
        403: ("forbidden", "This is not allowed."),
        404: ("not_found", "There is nothing at this address."),
        405: ("method_not_allowed", "This address does not take this method."),
        408: ("timeout", "The request's body did not arrive in time."),
        413: ("too_large", f"The request's body is longer than {MAX_PUBLIC_BODY_BYTES} bytes."),
        414: ("uri_too_long", f"An address must be at most {MAX_TARGET_CHARS} characters long."),
        415: ("unsupported_media_type", "Content-Encoding is not supported; send the body as it is."),
        417: ("expectation_failed", "This expectation is not supported."),
        421: ("misdirected_request", "This server has another name; use the address that you were given."),
        429: ("too_many_requests", "Too many requests from this address; wait as Retry-After states."),
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
    """A request that fails, with a sentence for the caller, or the status's own; `errors` by field."""

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
            return ApiError(503, "The database is not available now; try again.", _RETRY_LATER)
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
    for error in invalid.errors(include_input=False, include_url=False, include_context=False):
        field = ".".join(str(part) for part in error["loc"][:2]) or "body"
        name = mask(field)[:100].encode(errors="replace").decode()
        errors.setdefault(name, []).append(error["msg"].removeprefix("Value error, "))
    return errors


def send_error(status: int, headers: Mapping[str, str] = NO_HEADERS) -> web.StreamResponse:
    """Make the JSON response of an error that the specification does not name."""
    return send(public_api.error_response(status, *MESSAGES.get(status, _DEFAULT)), headers)


def send_unavailable(subject: str = "service") -> web.StreamResponse:
    """Make the response of a service that cannot decide now; it is never a verdict."""
    response = public_api.error_response(
        503, "unavailable", f"The {subject} is not available now; try again."
    )
    return send(response, _RETRY_LATER)


def send_too_many(delay: int, message: str | None = None) -> web.StreamResponse:
    """Make the response to a client that calls too often; it may call again after `delay` seconds.

    `message` is for a limit that is not of the address.
    """
    code, usual = MESSAGES[429]
    return send(public_api.error_response(429, code, message or usual), {hdrs.RETRY_AFTER: str(delay)})


async def respond_as_json(_request: web.Request, error: ApiError) -> web.StreamResponse:
    """Write an error for a public endpoint; a server error without details."""
    code, message = MESSAGES.get(error.status, _DEFAULT)
    if error.status < 500:  # noqa: PLR2004 - the first status that means a fault of the server
        message = error.message
    return send(public_api.error_response(error.status, code, message), error.headers)


async def respond_with_problem(_request: web.Request, error: ApiError) -> web.StreamResponse:
    """Write an error as problem details (RFC 9457)."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(error.status).phrase,
        "status": error.status,
        "detail": error.message,
    }
    if error.errors:
        body["errors"] = error.errors
    content = json.dumps(body).encode()
    return send_content(error.status, content, "application/problem+json", error.headers)


def send_content(
    status: int, content: bytes, content_type: str = CONTENT_TYPE, headers: Mapping[str, str] = NO_HEADERS
) -> web.Response:
    """Make a response that no cache keeps and no browser shows as a page."""
    common = {"Content-Type": content_type, "Cache-Control": "no-store", **public_api.NOT_A_PAGE}
    return web.Response(status=status, body=content, headers={**common, **headers})


# --- reading a body ---------------------------------------------------------------------------


async def expect(request: web.Request) -> web.StreamResponse | None:
    """Refuse an ``Expect`` header other than `100-continue`; aiohttp calls this before the handler."""
    if request.version >= HttpVersion11 and request.headers[hdrs.EXPECT].lower() != "100-continue":
        return send_error(417)
    return None


async def send_continue(request: web.Request) -> None:
    """Send ``100 Continue`` if the client waits for it; call this before the body is read."""
    if hdrs.EXPECT not in request.headers or request.version < HttpVersion11 or request.content.is_eof():
        return
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the response has not begun


async def read_body(
    request: web.Request, limit: int, seconds: float, grow: Callable[[int], None] = lambda _size: None
) -> bytes:
    """Read a body of at most `limit` bytes within `seconds`; otherwise an `ApiError`, 413 or 408.

    `grow` is called with the size so far after each piece; what it raises ends the reading.
    """
    body = bytearray()
    await send_continue(request)
    try:
        async with asyncio.timeout(seconds):
            async for piece in request.content.iter_any():
                body += piece
                if len(body) > limit:
                    raise ApiError(413, f"The request's body is longer than {limit} bytes.")
                grow(len(body))
    except TimeoutError:
        raise ApiError(408) from None
    return bytes(body)
