"""What goes wrong in the admin API, as problem details (RFC 9457)."""

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

from aiohttp import web
from pydantic import ValidationError

from licserver.errors import (
    ArtifactsError,
    Conflict,
    StoreUnavailable,
    Unknown,
    WrongUse,
)
from licserver.protocol.public_api import NOT_A_PAGE
from licserver.security.redaction import mask
from licserver.web.app_state import REQUEST_IDS
from licserver.web.uploads import TooLarge

CONTENT_TYPE: Final = "application/problem+json"

_log = logging.getLogger("licserver.admin")
_NONE: Final[Mapping[str, str]] = MappingProxyType({})
_CALLER_GONE: Final = 499
_UNAVAILABLE: Final = 503
_STATUSES: Final = ((TooLarge, 413), (Unknown, 404), (Conflict, 409))


class ApiError(Exception):
    """An answer that is no success.

    Args:
        status: Of HTTP.
        detail: One sentence for the caller.
        headers: What the status needs beside.
        errors: What is wrong with which field.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] = _NONE,
        errors: Mapping[str, list[str]] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.errors = status, detail, headers, errors


def respond(status: int, body: bytes, content_type: str = "application/json", **headers: str) -> web.Response:
    """Make a response that nobody keeps."""
    return web.Response(
        status=status,
        body=body,
        headers={
            "Content-Type": content_type,
            "Cache-Control": "no-store",
            **NOT_A_PAGE,
            **headers,
        },
    )


def answer(problem: Exception, request: web.Request) -> web.StreamResponse:
    """Put whatever was raised into a response, and into the log where the operator can do something."""
    if isinstance(problem, ConnectionError):  # the caller has gone
        if request.transport is not None:
            request.transport.abort()
        return web.Response(status=_CALLER_GONE)
    refused = _refused(problem)
    if refused is None:
        refused = ApiError(500, "The service failed; the operator will find why in the log.")
        return request.app[REQUEST_IDS].note(_log, request, _respond(refused), " failed", exc_info=problem)
    if refused.status == _UNAVAILABLE:
        return request.app[REQUEST_IDS].note(_log, request, _respond(refused), ": %s", problem)
    return _respond(refused)


def _refused(problem: Exception) -> ApiError | None:
    match problem:
        case ApiError():
            return problem
        case ValidationError():
            return ApiError(422, "Some of what was sent cannot be.", errors=_by_field(problem))
        case web.HTTPException():
            return ApiError(problem.status, HTTPStatus(problem.status).phrase + ".")
        case WrongUse():
            status = next((status for kind, status in _STATUSES if isinstance(problem, kind)), 422)
            return ApiError(status, _sentence(problem))
        case TimeoutError():
            return ApiError(408, "The request's body did not arrive in time.")
        case web.RequestPayloadError():  # a body that breaks its own framing or encoding
            return ApiError(400, "The request cannot be read.")
        case StoreUnavailable() | ArtifactsError() | OSError():
            detail = "Database or files cannot be reached now; try again."
            return ApiError(_UNAVAILABLE, detail, {"Retry-After": "5"})
        case _:
            return None


def _respond(refused: ApiError) -> web.Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(refused.status).phrase,
        "status": refused.status,
        "detail": refused.detail,
    }
    if refused.errors:
        body["errors"] = refused.errors
    return respond(refused.status, json.dumps(body).encode(), CONTENT_TYPE, **refused.headers)


def _sentence(problem: Exception) -> str:
    text = mask(str(problem))  # it may quote what was sent, and that may be a key in the wrong place
    name = text.partition(" ")[0]  # of a field stays as it is sent
    return (text if "_" in name else text[:1].upper() + text[1:]) + "."


def _by_field(invalid: ValidationError) -> dict[str, list[str]]:
    errors: dict[str, list[str]] = {}
    for one in invalid.errors(include_input=False, include_url=False, include_context=False):
        field = ".".join(str(part) for part in one["loc"][:2]) or "body"
        errors.setdefault(mask(field)[:100].encode(errors="replace").decode(), []).append(
            one["msg"].removeprefix("Value error, ")
        )
    return errors
