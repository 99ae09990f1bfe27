"""Signed responses for requests that ask for a signature (D-60)."""

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiohttp import web

from licserver.clock import Clock
from licserver.protocol import public_api
from licserver.protocol.ed25519_keys import SigningKey
from licserver.protocol.response_signatures import (
    MAX_FIELD,
    AcceptSignatureReader,
    SignedRequest,
    matches_digest,
    normalise_base_url,
    sign_response,
)
from licserver.web.app_state import Handler
from licserver.web.responses import CONTENT_TYPE, WholeResponse, send

_TOO_MANY: Final = 429


class AnswerSigner:
    """Signs the responses of a handler to requests with ``Accept-Signature``.

    Args:
        keys: All of the server; without an active one nothing is signed.
        clock: The instant of signing.
        read_body: Reads a request's body within the limits.
        base_url: Returns the public address of a request (D-30).
    """

    def __init__(
        self,
        keys: Sequence[SigningKey],
        clock: Clock,
        read_body: Callable[[web.Request], Awaitable[bytes]],
        base_url: Callable[[web.Request], str],
    ) -> None:
        self._keys = [key for key in keys if key.retired_at is None]
        self._read_wanted = AcceptSignatureReader(self._keys)
        self._clock = clock
        self._read_body = read_body
        self._base_url = base_url
        self._normal_base = functools.lru_cache(maxsize=64)(normalise_base_url)

    def signing(self, handler: Handler) -> Handler:
        """Return a handler that signs what `handler` returns.

        What it raises is no verdict (too large, too slow, no database) and is not signed. If signing fails,
        the client gets a 500 and never the unsigned response.
        """
        if not self._keys:
            return handler

        @functools.wraps(handler)
        async def signing_handler(request: web.Request) -> web.StreamResponse:
            if "Accept-Signature" not in request.headers:
                return await handler(request)
            return await self._sign(request, handler)

        return signing_handler

    async def _sign(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        wanted = self._read_wanted(", ".join(request.headers.getall("Accept-Signature")))
        digest = ", ".join(request.headers.getall("Content-Digest", ()))
        # Nothing to sign, or nothing that can be signed: as if there were no such header (D-61).
        if wanted is None or not 0 < len(digest) <= MAX_FIELD or not request.raw_path.isascii():
            return await handler(request)
        # Before the handler: a request that contradicts its digest must not take a slot.
        if not matches_digest(digest, await self._read_body(request)):
            return send(
                public_api.error_response(
                    400, "bad_digest", "The Content-Digest is not that of the request's body."
                )
            )
        signed_request = SignedRequest(
            request.method, self._normal_base(self._base_url(request)) + request.raw_path, digest
        )
        response = await handler(request)
        if not isinstance(response, WholeResponse):
            raise TypeError("only a WholeResponse can be signed")
        if response.status == _TOO_MANY:  # no verdict (D-70)
            return response
        response.headers.update(
            sign_response(
                wanted,
                signed_request,
                response.status,
                CONTENT_TYPE,
                response.content,
                self._clock(),
            )
        )
        return response
