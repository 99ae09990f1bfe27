"""Connections that end: who is slow to ask, or to read, holds one for a bounded time (D-72)."""

import asyncio
import logging
import socket
import time
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, Final

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from licserver.protocol.response_signatures import MAX_FIELD
from licserver.settings import Settings
from licserver.web.app import HSTS, is_https, take_shortcuts
from licserver.web.app_state import SHORTCUTS
from licserver.web.errors import send_error, send_failure
from licserver.web.open_connections import ACCEPTED_AT_ONCE, OpenConnections

IDLE_TIMEOUT: Final = 75.0
"""Seconds between an answer and the next whole head of a request; proxies expect a minute."""


_DISCARD_SECONDS: Final = 2.0
_DISCARD_BYTES: Final = 4 << 20
"""How much of an unread body is discarded after its response, so that an honest client reads the response
before the connection closes (D-153)."""


class ThrottledLog:
    """Writes of what anybody can cause as often as he likes: a line a second, with how many there were."""

    def __init__(self) -> None:
        self._quiet_until = 0.0
        self._untold = 0

    def note(self, logger: logging.Logger, what: str) -> None:
        """Write it, or count it."""
        self._untold += 1
        if (now := time.monotonic()) < self._quiet_until:
            return
        others = f", and {self._untold - 1} more since the last such line" if self._untold > 1 else ""
        logger.info("unreadable request: %s%s", what, others)
        self._quiet_until, self._untold = now + 1, 0


_MAX_HEADERS: Final = 64
"""Fields of a request's head."""
_MAX_HEAD: Final = 32 << 10
"""Bytes of a head that may come before its end does: what an unanswered connection holds."""

_UNREADABLE: Final = ThrottledLog()


class _Discarded:
    """Counts the bytes of a body that nobody reads; aiohttp calls it in the place of its parser."""

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
    """A connection of a customer or of a proxy; aiohttp's, with the limits that it lacks.

    aiohttp itself closes a connection on which no whole head has come for `IDLE_TIMEOUT` since it was
    opened or since its last answer. What is added costs a timer for each connection, and a
    microsecond for each request.

    Args:
        server: Whose it is.
        held: Counts it.
        header_timeout: Seconds from the connection to the end of the first request's head.
        send_timeout: Seconds in which a caller must take some of what waits to be sent.
        is_https: Whether customers reach us by https.
        more: aiohttp's own.
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
        """Begin to wait for the first request, unless the connection is one too many (D-163)."""
        super().connection_made(transport)
        self._client = self._held.add(self, transport)
        if self._client is None:
            self.force_close()
            return
        self._first_head = self._loop.call_later(self._header_timeout, self._end_unless_asked)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Wait for nothing more."""
        for timer in (self._first_head, self._stalled):
            if timer is not None:
                timer.cancel()
        if self._client is not None:
            self._held.remove(self, self._client)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come; close the connection when a head does not end within its bytes."""
        super().data_received(data)
        waiter = self._waiter
        if self._request_count and (waiter is None or waiter.done()):
            self._head_size = 0  # a request is under way: its head was whole
            return
        self._head_size += len(data)
        if self._head_size > _MAX_HEAD and not self._force_close:
            _UNREADABLE.note(self.logger, "HeadTooLong")
            self.force_close()

    @property
    def is_idle(self) -> bool:
        """Whether it waits for the client's next request."""
        if self._force_close:
            return False
        return self._request_count == 0 or (self._waiter is not None and not self._waiter.done())

    @property
    def idle_until(self) -> float:
        """When aiohttp will close it for being idle."""
        return self._next_keepalive_close_time

    def _end_unless_asked(self) -> None:
        if self._request_count == 0:
            self.force_close()

    def pause_writing(self) -> None:
        """Begin to wait for a caller who does not read what we have for him."""
        super().pause_writing()
        self._stalled = self._loop.call_later(self._send_timeout, self._break_off)

    def resume_writing(self) -> None:
        """He reads."""
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None
        if self._paused:  # asyncio's way of sending a file over TLS resumes also who was not paused
            super().resume_writing()

    def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        """Send a response; it is the last one if the request's body has not arrived whole."""
        # Every response comes by here, also the one to what is no HTTP (D-73).
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

    def _break_off(self) -> None:
        if self.transport is not None:
            self.transport.abort()  # `close` would wait for him to read

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 - aiohttp's shape; it quotes what was sent
    ) -> web.StreamResponse:
        """Answer what never became a request, in our own shape; it is the connection's last answer."""
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun already")
        if isinstance(exc, HttpProcessingError):
            _UNREADABLE.note(self.logger, type(exc).__name__)
            response = send_error(400)
        else:
            self.logger.error("a request failed (%d)", status, exc_info=exc)
            response = send_failure()
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Write what nobody foresaw; a body that is broken was answered before its end was seen."""
        problem = kw.get("exc_info")
        if isinstance(problem, web.RequestPayloadError):
            _UNREADABLE.note(self.logger, type(problem).__name__)
        else:
            super().log_exception(*args, **kw)


class ConnectionServer(web.Server):
    """Makes a `Connection` for everybody who connects.

    Args:
        like: What answers the requests: an application's own server.
        loop: The event loop.
        arguments: Of each connection.
    """

    def __init__(self, like: web.Server, loop: asyncio.AbstractEventLoop, arguments: dict[str, Any]) -> None:
        super().__init__(like.request_handler, request_factory=like.request_factory, loop=loop)
        self._arguments = {**arguments, "loop": loop}

    def __call__(self) -> web.RequestHandler:
        """Make one."""
        return Connection(self, **self._arguments)


class Runner(web.AppRunner):
    """Runs an application on such connections, past its router for what all customers call.

    Args:
        app: From `create_app`.
        settings: The times.
        shutdown_timeout: Seconds that running requests get in the end.
        held: Counts the connections; one for all runners of a process.
        more: Of each connection: `access_log`, and what else aiohttp takes.
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
            "auto_decompress": False,  # a packed body is refused (D-153)
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
        """Have a site accept few connections at a time: asyncio takes as many as it lets wait (D-163)."""
        super()._reg_site(site)
        sock = getattr(site, "_sock", None)  # of `SockSite`: ours, and those that gunicorn's workers make
        if sock is not None:
            waiting, site._backlog = site._backlog, ACCEPTED_AT_ONCE  # noqa: SLF001 - no other way to it
            asyncio.get_running_loop().call_soon(_listen, sock, waiting)  # once asyncio has begun to

    async def _make_server(self) -> web.Server:  # the one hook that aiohttp leaves to its runners
        server = await super()._make_server()
        server.request_handler = take_shortcuts(self.app[SHORTCUTS], server.request_handler)
        return ConnectionServer(server, asyncio.get_running_loop(), self._arguments)


def _listen(sock: socket.socket, waiting: int) -> None:
    with suppress(OSError):  # it was closed in the meantime
        sock.listen(waiting)
