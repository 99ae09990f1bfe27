"""Parses requests of hot routes past aiohttp, which runs two tasks for each.

A request wakes the task of its connection, which creates another task and is woken by its end: three turns of
the event loop more, until Python 3.12 begins tasks at once.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.http import HttpProcessingError, HttpRequestParser, RawRequestMessage

from licserver.limits import MAX_HEAD_BYTES, MAX_PUBLIC_BODY_BYTES

_MAX_BYTES: Final = MAX_HEAD_BYTES + MAX_PUBLIC_BODY_BYTES
_LAST: Final = b"\r\nConnection: close\r\n"
"""In a request after which aiohttp's task ends by itself: cancelling it takes 20 us, more than is gained."""


def request_beginnings(routes: Iterable[tuple[str, str]]) -> tuple[bytes, ...]:
    """Return how requests of routes begin, given as methods and paths."""
    return tuple([f"{method} {path}{end}".encode() for method, path in routes for end in "? "])


class HotRequestParser:
    """Parses a connection's requests, as long as each is of a hot route and arrives whole and alone.

    Args:
        protocol: The connection.
        beginnings: Those of hot requests.
    """

    def __init__(self, protocol: web.RequestHandler, beginnings: tuple[bytes, ...]) -> None:
        self._protocol, self._beginnings = protocol, beginnings
        self._http: HttpRequestParser | None = None

    def parse(self, data: bytes) -> tuple[RawRequestMessage, StreamReader] | None:
        """Return the head and the body of a request; None for other data, which ends the parser's use."""
        if not data.startswith(self._beginnings) or len(data) > _MAX_BYTES or _LAST in data:
            return None
        parser = self._http = self._http or self._create_parser()
        try:
            requests, _, _ = parser.feed_data(data)
        except HttpProcessingError:
            return None
        if len(requests) != 1:
            return None
        head, body = requests[0]
        if head.chunked or head.upgrade or not body.is_eof():
            return None
        # The parser holds the beginning of a further request without a word.
        is_alone = len(data) == data.find(b"\r\n\r\n") + 4 + body.total_bytes
        return (head, body) if is_alone else None

    def _create_parser(self) -> HttpRequestParser:
        return HttpRequestParser(
            self._protocol,
            asyncio.get_running_loop(),
            _MAX_BYTES,  # of a body: where the connection would be paused
            max_line_size=self._protocol.max_line_size,
            max_headers=self._protocol.max_headers,
            max_field_size=self._protocol.max_field_size,
            payload_exception=web.RequestPayloadError,
            auto_decompress=False,
        )
