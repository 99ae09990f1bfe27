"""Connections with the limits that aiohttp lacks: slow clients hold one for a bounded time (D-72).

Private names of aiohttp used here: `RequestHandler._force_close`, `_next_keepalive_close_time`, `_paused`,
`_request_count` and `_waiter`, `AppRunner._make_server` and `_reg_site`, `Server.request_handler`,
`SockSite._sock` and `_backlog`.
"""

import asyncio
import logging
import re
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, cast

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from licserver.protocol.response_signatures import MAX_FIELD
from licserver.settings import Settings
from licserver.web.admin import ROOT, respond_with_problem
from licserver.web.app import HSTS, HotRoutes, is_https
from licserver.web.app_state import HOT_ROUTES
from licserver.web.open_connections import ACCEPTED_AT_ONCE, OpenConnections
from licserver.web.responses import ApiError, respond_as_json, send_error

IDLE_TIMEOUT: Final = 75.0
"""Seconds between a response and the next request's whole head; proxies expect a minute."""

_DISCARD_SECONDS: Final = 2.0
_DISCARD_BYTES: Final = 4 << 20
"""How much of an unread body is discarded after its response, so that an honest client reads the response
before the connection closes (D-153)."""


class ThrottledLog:
    """Logs what any client can cause at any rate: a line a second, with the number of events."""

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._count = 0

    def add(self, logger: logging.Logger, what: str) -> None:
        """Log an event, or count it for the next line."""
        self._count += 1
        if (now := time.monotonic()) < self._quiet_until:
            return
        others = f", and {self._count - 1} more since the last such line" if self._count > 1 else ""
        logger.info("unreadable request: %s%s", what, others)
        self._quiet_until, self._count = now + 1, 0


_MAX_HEADERS: Final = 64  # fields of a request's head
_MAX_HEAD: Final = 32 << 10  # bytes of a head before its end: what a connection without a request may hold
_UNREADABLE: Final = ThrottledLog()


class _Discarded:
    """Counts the bytes of an unread body; takes the place of aiohttp's parser."""

    def __init__(self, end: asyncio.Event) -> None:
        self._left, self._end = _DISCARD_BYTES, end

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Count the bytes; the first value is True after the last one."""
        self._left -= len(data)
        if self._left <= 0:
            self._end.set()
        return self._left <= 0, b""

    def feed_eof(self) -> None:
        """Note that the client has closed the connection."""
        self._end.set()


class Connection(web.RequestHandler):
    """A client's connection. aiohttp itself closes one without a request for `IDLE_TIMEOUT`.

    What is added costs a timer a connection, and a microsecond a request.

    Args:
        server: aiohttp's.
        held: Counts the connection.
        header_timeout: Seconds from the connection to the end of the first request's head.
        send_timeout: Seconds in which a client must read some of what waits to be sent.
        is_https: Whether clients reach the server by https.
    """

    __slots__ = (
        "_client",
        "_first_head",
        "_head_size",
        "_header_timeout",
        "_held",
        "_is_https",
        "_send_timeout",
        "_stalled",
    )

    def __init__(
        self,
        server: web.Server,
        *,
        held: OpenConnections,
        header_timeout: float,
        send_timeout: float,
        is_https: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(server, **more)
        self._held, self._is_https = held, is_https
        self._head_size = 0
        self._client: str | None = None
        self._header_timeout, self._send_timeout = header_timeout, send_timeout
        self._first_head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request, unless the connection is one too many (D-163)."""
        super().connection_made(transport)
        self._client = self._held.add(self, transport)
        if self._client is None:
            self.force_close()
            return
        self._first_head = self._loop.call_later(self._header_timeout, self._close_without_request)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the timers."""
        for timer in (self._first_head, self._stalled):
            if timer is not None:
                timer.cancel()
        if self._client is not None:
            self._held.remove(self, self._client)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; close the connection when a head is too long."""
        super().data_received(data)
        waiter = self._waiter
        if self._request_count and (waiter is None or waiter.done()):
            self._head_size = 0  # a request is being answered: its head was whole
            return
        self._head_size += len(data)
        if self._head_size > _MAX_HEAD and not self._force_close:
            _UNREADABLE.add(self.logger, "HeadTooLong")
            self.force_close()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        if self._force_close:
            return False
        return self._request_count == 0 or (self._waiter is not None and not self._waiter.done())

    @property
    def idle_until(self) -> float:
        """When aiohttp will close it for being idle."""
        return self._next_keepalive_close_time

    def _close_without_request(self) -> None:
        if self._request_count == 0:
            self.force_close()

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read."""
        super().pause_writing()
        self._stalled = self._loop.call_later(self._send_timeout, self._abort)

    def resume_writing(self) -> None:
        """Cancel the timer."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self._paused:  # sending a file over TLS, asyncio resumes what was not paused
            super().resume_writing()

    def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        """Send a response; the last one if the request's body has not arrived whole."""
        # Every response comes by here, also the one to what is not HTTP (D-73).
        if self._is_https and not resp.prepared:
            resp.headers[hdrs.STRICT_TRANSPORT_SECURITY] = HSTS
        sending = super().finish_response
        if request.content.is_eof():
            return sending(request, resp, start_time)
        return self._finish_early(sending(request, resp, start_time), resp)

    async def _finish_early(
        self, sending: Coroutine[Any, Any, tuple[web.StreamResponse, bool]], resp: web.StreamResponse
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response, discard what still comes within bounds, without parsing it, and close (D-153)."""
        if isinstance(resp, web.StreamResponse):
            resp.force_close()
        sent = await sending
        transport = self.transport
        if transport is None:
            return sent
        closed = asyncio.Event()
        self.set_parser(_Discarded(closed))  # type: ignore[arg-type] # aiohttp declares the one for websockets
        with suppress(OSError, RuntimeError):  # the client has closed the connection already
            transport.write_eof()
        self.resume_reading(resume_parser=False)
        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                await closed.wait()
        self.force_close()
        return sent

    def _abort(self) -> None:
        if self.transport is not None:
            self.transport.abort()  # `close` would wait for the client to read

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - it quotes what was sent
    ) -> web.StreamResponse:
        """Respond to what cannot be parsed as a request; the connection's last response."""
        if request.writer.output_size > 0:
            raise ConnectionError("a response has begun already")
        if isinstance(exc, HttpProcessingError):
            _UNREADABLE.add(self.logger, type(exc).__name__)
            response = send_error(400)
        else:
            self.logger.error("a request failed (%d)", status, exc_info=exc)
            response = send_error(500)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log an unexpected exception; a malformed body has had its response already."""
        problem = kw.get("exc_info")
        if isinstance(problem, web.RequestPayloadError):
            _UNREADABLE.add(self.logger, type(problem).__name__)
        else:
            super().log_exception(*args, **kw)


class ConnectionServer(web.Server):
    """aiohttp's server of an application, with our connections; `arguments` are for each of them."""

    def __init__(self, like: web.Server, loop: asyncio.AbstractEventLoop, arguments: dict[str, Any]) -> None:
        super().__init__(like.request_handler, request_factory=like.request_factory, loop=loop)
        self._arguments = {**arguments, "loop": loop}

    def __call__(self) -> web.RequestHandler:
        """Create a connection."""
        return Connection(self, **self._arguments)


class Runner(web.AppRunner):
    """Runs an application on our connections, with its fast path.

    Args:
        settings: The time limits.
        shutdown_timeout: Seconds for running requests at the end.
        held: Counts the connections of all runners of a process.
        more: For each connection: `access_log`, and what else aiohttp takes.
    """

    def __init__(
        self,
        app: web.Application,
        settings: Settings,
        *,
        shutdown_timeout: float,
        held: OpenConnections | None = None,
        **more: Any,
    ) -> None:
        super().__init__(app, shutdown_timeout=shutdown_timeout)
        self._held = held or OpenConnections(settings)
        self._arguments = {
            "header_timeout": settings.header_timeout,
            "send_timeout": settings.send_timeout,
            "is_https": is_https(settings),
            "keepalive_timeout": IDLE_TIMEOUT,
            "lingering_time": 0,  # it would parse; `Connection.finish_response` discards
            "auto_decompress": False,  # a compressed body is refused (D-153)
            "max_headers": _MAX_HEADERS,
            "max_line_size": MAX_FIELD,
            "max_field_size": MAX_FIELD,
            "held": self._held,
            **more,
        }

    async def setup(self) -> None:
        """Prepare to serve."""
        await super().setup()
        asyncio.get_running_loop().set_exception_handler(self._held.handle_loop_error)

    def _reg_site(self, site: web.BaseSite) -> None:
        """Accept few connections at a time: asyncio accepts a whole backlog (D-163)."""
        super()._reg_site(site)
        sock = getattr(site, "_sock", None)  # of `SockSite`: ours and gunicorn's
        if sock is not None:
            waiting, site._backlog = site._backlog, ACCEPTED_AT_ONCE  # noqa: SLF001 - no other way to it
            asyncio.get_running_loop().call_soon(_listen, sock, waiting)  # after asyncio has called it

    async def _make_server(self) -> web.Server:  # the one hook that aiohttp leaves to its runners
        server = await super()._make_server()
        server.request_handler = create_request_handler(self.app[HOT_ROUTES], server.request_handler)
        return ConnectionServer(server, asyncio.get_running_loop(), self._arguments)


def _listen(sock: socket.socket, waiting: int) -> None:
    with suppress(OSError):  # it was closed in the meantime
        sock.listen(waiting)


# --- the two hot routes, past aiohttp's router -----------------------------------------------

RequestHandler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]

_AMBIGUOUS: Final = re.compile(r"%2f|%5c|\\|%00|\0|(?:^|/)(?:\.|%2e){1,2}(?:/|$)", re.IGNORECASE)
"""What a proxy in front may read as another path than aiohttp does (D-155)."""

_BAD_PATH: Final = ApiError(
    400, "A path must not contain %2F, %5C, %00, a backslash, or a segment of one or two dots."
)


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
