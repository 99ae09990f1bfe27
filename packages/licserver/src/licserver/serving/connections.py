"""Connections with the limits that aiohttp lacks.

A slow client holds a connection for a bounded time (D-72); each client holds a bounded number of them; idle
connections are closed when descriptors are scarce (D-163).

Private names of aiohttp used here: `RequestHandler._request_count`, `AppRunner._make_server` and `_reg_site`,
`SockSite._sock` and `_backlog`.
"""

import asyncio
import errno
import heapq
import logging
import re
import socket
import sys
import time
from collections.abc import Awaitable, Coroutine, Iterable
from contextlib import suppress
from functools import lru_cache, partial
from operator import attrgetter
from typing import Any, Final

from aiohttp import StreamReader, hdrs, web
from aiohttp.http import RawRequestMessage, StreamWriter
from aiohttp.http_exceptions import HttpProcessingError

from licserver.domain.environments import IpNetwork, normalise_ip, parse_ip
from licserver.limits import (
    MAX_DISCARD_SECONDS,
    MAX_DISCARDED_BYTES,
    MAX_FIELD_CHARS,
    MAX_HEAD_BYTES,
    MAX_HEADER_FIELDS,
    MAX_IDLE_SECONDS,
    MAX_SMALL_CHUNKS,
)
from licserver.runtime.logging import ThrottledLog
from licserver.serving.hot_requests import HotRequestParser, request_beginnings
from licserver.serving.name_lookups import install_threaded_resolver
from licserver.settings import Settings
from licserver.web.client_addresses import ONE_CUSTOMER
from licserver.web.middlewares import HOT_ROUTES, HotRoutes, RequestHandler, create_request_handler
from licserver.web.responses import HSTS, send_error

_BREAK_OFF_SECONDS: Final = 0.5  # for a request that is broken off, such as to remove its upload

_UNREADABLE: Final = ThrottledLog()
_FEW_LINES: Final = 64  # line ends in a read; a request without a body has fewer
_SMALL_CHUNK: Final = re.compile(rb"\r\n0*[0-9A-Fa-f]{1,2}(?:;[^\r\n]*)?\r\n")


_ACCEPTED_AT_ONCE: Final = 8
"""Connections accepted in a turn of the event loop; they are counted up to three turns later."""

_CLOSED_AT_ONCE: Final = 32
_REMEMBERED: Final = 4096  # addresses whose client is cached: 0.7 us instead of 3.5
_LARGEST_RESERVE: Final = 1024
_SHORTAGE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PROXIES: Final = ""  # the client of all proxies, and of a proxy on this machine that no setting names

_log = logging.getLogger("licserver.web")


class _Discarded:
    """Counts the bytes of an unread body; takes the place of aiohttp's parser."""

    def __init__(self, end: asyncio.Event) -> None:
        self._left, self._end = MAX_DISCARDED_BYTES, end

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
    """A client's connection. aiohttp itself closes one without a request for `MAX_IDLE_SECONDS`.

    What is added costs a timer a connection, and a microsecond a request.
    """

    idle_since: float  # by the monotonic clock

    def __init__(
        self,
        server: web.Server,
        settings: Settings,
        held: "OpenConnections",
        *,
        hot_beginnings: tuple[bytes, ...] = (),
        is_https: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(server, **more)
        self._settings, self._held, self._is_https = settings, held, is_https
        self._server = server
        self._head_size = self._answered = self._small_chunks = self._hot_requests = 0
        self._is_chunked = self._is_discarding = False
        self._is_closing = False
        self._is_reading_paused = False
        self._running: asyncio.Task[Any] | None = None
        self._client: str | None = None
        # Until Python 3.12 each look for the running loop is a system call.
        self._event_loop = asyncio.get_running_loop()
        # None after data that is not for it: from then on all is parsed by aiohttp.
        self._hot: HotRequestParser | None = HotRequestParser(self, hot_beginnings)
        self._early = b""  # arrived before the response to a hot request
        self._no_head: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the first request, unless the connection is one too many."""
        super().connection_made(transport)
        self.idle_since = time.monotonic()
        self._client = self._held.add(self, transport)
        if self._client is None:
            self.force_close()
            return
        wait = self._event_loop.call_later
        self._no_head = wait(self._settings.header_timeout, self._close_without_request)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Cancel the timers."""
        for timer in (self._no_head, self._stalled):
            if timer is not None:
                timer.cancel()
        if self._client is not None:
            self._held.remove(self, self._client)
        self._hot = None  # it refers to the connection
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse data; close the connection when a head is too long, or a body comes in very many chunks."""
        if data.count(b"\r\n") > _FEW_LINES and self._has_many_chunks(data):
            _UNREADABLE.add(self.logger, "ManyChunks")
            self.force_close()
            return
        if self._hot is not None and self._take_hot(data):
            return
        super().data_received(data)
        if self._is_answering:
            self._head_size = 0  # the head of a request was whole
            return
        self._head_size += len(data)
        if self._head_size > MAX_HEAD_BYTES and not self._is_closing:
            _UNREADABLE.add(self.logger, "HeadTooLong")
            self.force_close()

    def _has_many_chunks(self, data: bytes) -> bool:
        """Count the small chunks of a body before they are parsed: 16,000 of a byte took 13 ms."""
        is_chunked = self._is_chunked or b"chunked" in data.lower()
        if self._is_discarding or not is_chunked:
            return False
        self._small_chunks += len(_SMALL_CHUNK.findall(data))
        return self._small_chunks > MAX_SMALL_CHUNKS

    def _take_hot(self, data: bytes) -> bool:
        """Begin to answer a hot request; return False for data that aiohttp has to parse."""
        if self._is_closing:
            return False
        if self._is_answering:
            self._early += data
            if self.transport is not None:
                self.transport.pause_reading()
            return True
        request = None if self._hot is None else self._hot.parse(data)
        if request is None:
            self._hot = None
            return False
        if not self._hot_requests:
            self.keep_alive(val=False)  # ends aiohttp's timer, which does not know of them
        self._hot_requests += 1
        _begin_task(self._answer(*request), self._event_loop)
        return True

    async def _answer(self, head: RawRequestMessage, body: StreamReader) -> None:
        """Answer a hot request as aiohttp's `start` answers others."""
        loop = self._event_loop
        began, is_last = loop.time(), True
        task: Any = asyncio.current_task(loop)
        try:
            request = self._server.request_factory(head, body, self, StreamWriter(self, loop), task)
            response = await self._server.request_handler(request)
            _, is_lost = await self.finish_response(request, response, began)
            is_last = is_lost or not response.keep_alive
        except Exception as problem:  # noqa: BLE001 - as aiohttp does
            self.log_exception("a response failed", exc_info=problem)
        finally:
            if is_last or self._is_closing:
                self.force_close()
            elif self._early:
                self._receive_early()

    def _receive_early(self) -> None:
        data, self._early = self._early, b""
        self.data_received(data)
        if self.transport is not None and not self._early:
            self.transport.resume_reading()

    @property
    def _is_answering(self) -> bool:
        return self._request_count + self._hot_requests != self._answered

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request."""
        return not self._is_closing and not self._is_answering

    def begin_request(self, request: web.BaseRequest) -> None:
        """Note the task that handles a request; called as its handler begins."""
        self._running = asyncio.current_task(self._event_loop)
        self._is_chunked = hdrs.TRANSFER_ENCODING in request.headers

    def log_access(
        self, request: web.BaseRequest, response: web.StreamResponse, request_start: float | None
    ) -> None:
        """Log a request, and note that it was answered; aiohttp calls this after each response."""
        super().log_access(request, response, request_start)
        self._answered += 1
        self._running = None
        self._small_chunks = 0
        self.idle_since = time.monotonic()

    def force_close(self) -> None:
        """Close it, whatever is under way."""
        self._is_closing = True
        super().force_close()

    def close(self) -> None:
        """Close it after the request that is being answered."""
        self._is_closing = True
        super().close()

    def _close_without_request(self) -> None:
        """Close it where no head has come in time: the first one, or the next one after a hot request."""
        if self._request_count:  # since then, aiohttp's timer is set
            return
        remaining = 0.0
        if self._hot_requests:
            idle = 0.0 if self._is_answering else time.monotonic() - self.idle_since
            remaining = MAX_IDLE_SECONDS - idle
        if remaining > 0:
            self._no_head = self._event_loop.call_later(remaining, self._close_without_request)
        else:
            self.force_close()

    def pause_reading(self) -> None:
        """Note that a body has filled its buffer."""
        self._is_reading_paused = True
        super().pause_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on, unless reading was never paused.

        aiohttp asks for it after each body that is read, and then parses nothing: 2 us a verify.
        """
        if self._is_reading_paused:
            self._is_reading_paused = False
            super().resume_reading(resume_parser)

    def pause_writing(self) -> None:
        """Start the timer for a client that does not read."""
        super().pause_writing()
        self._stalled = self._event_loop.call_later(self._settings.send_timeout, self._abort)

    def resume_writing(self) -> None:
        """Cancel the timer."""
        if self._stalled is None:  # sending a file over TLS, asyncio resumes what was not paused
            return
        self._stalled.cancel()
        self._stalled = None
        super().resume_writing()

    def add_headers(self, response: web.StreamResponse) -> None:
        """Have browsers use HTTPS only."""
        if self._is_https and not response.prepared:
            response.headers[hdrs.STRICT_TRANSPORT_SECURITY] = HSTS

    def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> Coroutine[Any, Any, tuple[web.StreamResponse, bool]]:
        """Send a response; the last one if the request's body has not arrived whole."""
        # Every response comes by here, also the one to what is not HTTP (D-73).
        self.add_headers(resp)
        sending = super().finish_response
        if request.content.is_eof():
            return sending(request, resp, start_time)
        return self._finish_early(sending(request, resp, start_time), resp)

    async def _finish_early(
        self, sending: Coroutine[Any, Any, tuple[web.StreamResponse, bool]], resp: web.StreamResponse
    ) -> tuple[web.StreamResponse, bool]:
        """Send a response, discard what still comes within bounds, without parsing it, and close."""
        if isinstance(resp, web.StreamResponse):
            resp.force_close()
        sent = await sending
        self._answered -= 1  # it is not idle yet
        transport = self.transport
        if transport is None:
            return sent
        closed = asyncio.Event()
        self._is_discarding = True
        self.set_parser(_Discarded(closed))  # type: ignore[arg-type] # aiohttp declares the one for websockets
        with suppress(OSError, RuntimeError):  # the client has closed the connection already
            transport.write_eof()
        self.resume_reading(resume_parser=False)
        with suppress(TimeoutError):
            async with asyncio.timeout(MAX_DISCARD_SECONDS):
                await closed.wait()
        self.force_close()
        return sent

    async def shutdown(self, timeout: float | None = 15.0) -> None:  # noqa: ASYNC109 - aiohttp's argument
        """Let a running request end within the timeout, then break it off.

        aiohttp waits as long once more for what reads no body, and without bound if the timeout is 0.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(None if timeout is None else timeout + _BREAK_OFF_SECONDS):
                if self._hot is not None and self._running is not None:
                    await asyncio.wait([self._running], timeout=timeout)  # aiohttp does not know of it
                await super().shutdown(timeout)
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running], timeout=_BREAK_OFF_SECONDS)
        self._abort()  # last: asyncio bears no `abort` while it sends a file

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


class OpenConnections:
    """The open connections of a process, by client; of so many `descriptors`, if known."""

    def __init__(self, settings: Settings, descriptors: int | None = None) -> None:
        self._client = lru_cache(maxsize=_REMEMBERED)(partial(_client, settings.trusted_proxies))
        self._by_client: dict[str, set[Connection]] = {}
        self._closed: bool | None = None  # the result of `close_idle` in this turn of the event loop
        self._quiet_until = 0.0
        self._limit = settings.connection_limit
        self._scarce_from = self._none_from = 1 << 30
        if descriptors is not None:
            # The reserve is for files, the database, and connections that are accepted and not yet counted.
            reserve = min(descriptors // 4, _LARGEST_RESERVE)
            self._scarce_from, self._none_from = descriptors - reserve, descriptors - reserve // 2
            if self._limit:
                self._limit = min(self._limit, max(1, self._scarce_from // 4))

    def add(self, connection: Connection, transport: asyncio.BaseTransport) -> str | None:
        """Count a connection; close idle ones if its client has too many, or descriptors are scarce.

        Returns the client, for `remove`; None when the connection must be closed, because none is idle.
        """
        # The system assigns the lowest free number: it shows how many are in use.
        sock = transport.get_extra_info("socket")
        descriptor = -1 if sock is None else sock.fileno()
        if descriptor >= self._scarce_from and not self.close_idle() and descriptor >= self._none_from:
            return None
        peername = transport.get_extra_info("peername")
        client = self._client(peername[0] if peername else "")
        held = self._by_client.setdefault(client, set())
        if self._limit and client != _PROXIES and len(held) >= self._limit:
            oldest = min(_idle(held), key=attrgetter("idle_since"), default=None)
            if oldest is None:
                return None
            oldest.force_close()
        held.add(connection)
        return client

    def remove(self, connection: Connection, client: str) -> None:
        """Remove a closed connection."""
        held = self._by_client[client]
        held.discard(connection)
        if not held:
            del self._by_client[client]

    def close_idle(self) -> bool:
        """Close the sixteenth of the idle connections that has been idle longest; return False if none is.

        Those of proxies come last: many clients share them, and a proxy may not notice in time.
        """
        if self._closed is not None:  # in this turn; the descriptors are free in the next one
            return self._closed
        idle = _idle(
            connection
            for client, held in self._by_client.items()
            if client != _PROXIES
            for connection in held
        )
        idle = idle or _idle(self._by_client.get(_PROXIES, ()))
        oldest = heapq.nsmallest(max(_CLOSED_AT_ONCE, len(idle) // 16), idle, key=attrgetter("idle_since"))
        for connection in oldest:
            connection.force_close()
        self._closed = bool(oldest)
        asyncio.get_running_loop().call_soon(self._allow_closing)
        self._warn(len(oldest))
        return self._closed

    def _allow_closing(self) -> None:
        self._closed = None

    def _warn(self, closed: int) -> None:
        if (now := time.monotonic()) < self._quiet_until:
            return
        self._quiet_until = now + 1
        _log.warning(
            "file descriptors are scarce: closed %d idle connections; if this goes on, raise the limit "
            "(LimitNOFILE, ulimit -n)",
            closed,
        )

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: where `accept` lacks descriptors, close idle connections.

        asyncio accepts again a second later.
        """
        problem = context.get("exception")
        if isinstance(problem, OSError) and problem.errno in _SHORTAGE and "socket" in context:
            self.close_idle()
        else:
            loop.default_exception_handler(context)


def _client(trusted: Iterable[IpNetwork], host: str) -> str:
    """Return the client of an address: the address itself, of IPv6 the /64; "" for a proxy."""
    address = parse_ip(host.partition("%")[0])
    if (
        address is None
        or str(address) in {"127.0.0.1", "::1"}
        or any(address in network for network in trusted)
    ):
        return _PROXIES
    return normalise_ip(address, ONE_CUSTOMER)


def _begin_task(coroutine: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
    """Create a task, at once begun if Python can do that."""
    if sys.version_info >= (3, 12):
        asyncio.Task(coroutine, loop=loop, eager_start=True)
    else:
        loop.create_task(coroutine)


def _idle(connections: Iterable[Connection]) -> list[Connection]:
    return [connection for connection in connections if connection.is_idle]


class ConnectionServer(web.Server):
    """aiohttp's server, with our connections; `arguments` are for each of them."""

    def __init__(self, handle: RequestHandler, create_request: Any, arguments: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()

        def begin(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
            connection: Any = request.protocol
            connection.begin_request(request)
            return handle(request)

        super().__init__(begin, request_factory=create_request, loop=loop)
        self._arguments = {**arguments, "loop": loop}

    def __call__(self) -> web.RequestHandler:
        """Create a connection."""
        return Connection(self, **self._arguments)


class Runner(web.AppRunner):
    """Runs an application on our connections.

    `listening` are the sockets of its sites. `held` counts the connections of all runners of a process;
    `more` is what aiohttp takes for each of them.
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
        self.listening: list[socket.socket] = []
        self._held = held or OpenConnections(settings)
        hot_routes: HotRoutes = app.get(HOT_ROUTES, {})
        self._arguments = {
            "settings": settings,
            "is_https": settings.is_https,
            "keepalive_timeout": MAX_IDLE_SECONDS,
            "lingering_time": 0,  # it would parse; `Connection.finish_response` discards
            "auto_decompress": False,  # a compressed body is refused
            "max_headers": MAX_HEADER_FIELDS,
            "max_line_size": MAX_FIELD_CHARS,
            "max_field_size": MAX_FIELD_CHARS,
            "held": self._held,
            "hot_beginnings": request_beginnings(hot_routes),
            **more,
        }

    async def setup(self) -> None:
        """Prepare to serve."""
        await super().setup()
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._held.handle_loop_error)
        install_threaded_resolver(loop)

    def _reg_site(self, site: web.BaseSite) -> None:
        """Accept few connections at a time: asyncio accepts a whole backlog."""
        super()._reg_site(site)
        sock = getattr(site, "_sock", None)  # of `SockSite`: ours and gunicorn's
        if sock is not None:
            self.listening.append(sock)
            waiting, site._backlog = site._backlog, _ACCEPTED_AT_ONCE  # noqa: SLF001 - no other way to it
            asyncio.get_running_loop().call_soon(_listen, sock, waiting)  # after asyncio has called it

    async def _make_server(self) -> web.Server:  # the one hook that aiohttp leaves to its runners
        server = await super()._make_server()
        handle = create_request_handler(self.app.get(HOT_ROUTES, {}), server.request_handler)
        return ConnectionServer(handle, server.request_factory, self._arguments)


def _listen(sock: socket.socket, waiting: int) -> None:
    with suppress(OSError):  # it was closed in the meantime
        sock.listen(waiting)
