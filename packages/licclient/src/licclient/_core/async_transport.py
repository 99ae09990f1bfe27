"""Send requests in an event loop; everything that blocks is done on threads, downloads included.

Import it on a thread: loading httpx takes a third of a second, in which a window would stand still.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from typing import Any, Final, Self

import httpx

from licclient._core.connection import WAITS
from licclient._core.incoming import Incoming
from licclient._core.model import Settings
from licclient._core.network import on_daemon_thread
from licclient._core.requests import Call, shown_ip
from licclient._core.responses import Attempt
from licclient._core.transport import (
    BaseTransport,
    Body,
    Transport,
    body_stream,
    create_ssl_context,
    read_reply,
    through,
    unlogged,
)

LIMITS: Final = httpx.Limits(max_keepalive_connections=0)
"""One call or two a day: a kept connection would only be stale."""

with suppress(ImportError):  # httpx loads it in the event loop with the first request
    import_module("anyio._backends._asyncio")


class AsyncTransport(BaseTransport[httpx.AsyncBaseTransport]):
    """Sends requests in the running event loop; on threads if the application's transport is synchronous."""

    def __init__(
        self,
        settings: Settings,
        agent: str,
        given: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        in_loop, on_threads = (given, None) if isinstance(given, httpx.AsyncBaseTransport) else (None, given)
        super().__init__(settings, agent, in_loop)
        self._agent = agent
        self._is_in_loop = on_threads is None
        self._on_threads = Transport(settings, agent, on_threads)
        self._on_their_way = set[tuple[asyncio.AbstractEventLoop, asyncio.Timeout]]()
        self._open: dict[str | None, httpx.AsyncBaseTransport] = {}  # proxy → what sends through it

    def _create(self, proxy: str | None) -> httpx.AsyncBaseTransport:
        """Return what sends through a proxy, or directly for None."""
        if proxy not in self._open:
            given = None if proxy is None else httpx.Proxy(proxy)
            if given is not None and given.url.scheme == "https":
                given.ssl_context = create_ssl_context()
            self._open[proxy] = httpx.AsyncHTTPTransport(
                verify=create_ssl_context(), limits=LIMITS, proxy=given
            )
        return self._open[proxy]

    async def own_ip(self) -> str:
        """As `Transport.own_ip`."""
        if self._given is None:
            with suppress(RuntimeError):  # no more threads
                return await on_daemon_thread(self._on_threads.own_ip)
        return shown_ip("")

    async def send(self, call: Call, seconds: float) -> Attempt:
        """As `Transport.send`; a cancelled task closes its connection."""
        if not self._is_in_loop:
            return await self._send_on_thread(call, seconds)
        try:
            with unlogged():
                async with self._until(seconds), _Watch() as watch:
                    sender, proxy = await on_daemon_thread(partial(self._prepare, call.url))
                    request = self._request(watch, call.url, call.headers, call.method, call.body)
                    with through(proxy):
                        response = await _send(sender, request)
                    try:
                        body = Body(response, call.max_bytes)
                        async for chunk in _read_stream(response):
                            body.add(chunk)
                        reply = read_reply(response, bytes(body))
                    finally:
                        await response.aclose()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return self._attempt(problem)
        return self._attempt(reply)

    @asynccontextmanager
    async def _until(self, seconds: float) -> AsyncGenerator[None]:
        """Raise `TimeoutError` when time is up, or the client is closed."""
        async with asyncio.timeout(seconds) as limit:
            on_its_way = asyncio.get_running_loop(), limit
            self._on_their_way.add(on_its_way)
            try:
                yield
            finally:
                self._on_their_way.discard(on_its_way)

    async def _send_on_thread(self, call: Call, seconds: float) -> Attempt:
        is_over = False
        try:
            return await on_daemon_thread(lambda: self._on_threads.send(call, seconds, lambda: is_over))
        finally:
            is_over = True

    def _prepare(self, url: str) -> tuple[httpx.AsyncBaseTransport, str | None]:
        """Return what sends to an address, and the proxy on the way, after looking the host up.

        httpx does so again in the loop's own threads. A loop waits for those at its end, and the system's
        resolver may take half a minute. If it does so here, httpx does not begin.
        """
        proxy = self._find_proxy(url)
        sender = self._sender(lambda: self._create(proxy))
        if self._given is None:
            target = httpx.URL(proxy or url)
            with suppress(OSError):  # httpx fails as well, and reports it
                socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        return sender, proxy

    def start_download(self, incoming: Incoming) -> None:
        """Request a file, on a thread: over TLS reading in the event loop takes 2.7 times the processor."""
        self.blocking(asyncio.get_running_loop()).start_download(incoming)

    def blocking(self, loop: asyncio.AbstractEventLoop) -> Transport:
        """Return what sends from threads; an application's asynchronous transport does so in the loop."""
        if self._given is None:
            return self._on_threads
        return Transport(self._settings, self._agent, _InLoop(self._sender(lambda: self._create(None)), loop))

    def refuse(self) -> None:
        """Send nothing any more; as `Transport.refuse`."""
        super().refuse()
        self._on_threads.refuse()

    async def aclose(self) -> None:
        """Close all connections; requests on their way end without a response."""
        await on_daemon_thread(self._on_threads.close)
        self.refuse()
        for loop, limit in list(self._on_their_way):
            with suppress(RuntimeError):  # another loop, which was closed
                loop.call_soon_threadsafe(_end_now, loop, limit)
        for sender in [*self._open.values(), *filter(None, [self._given])]:
            await sender.aclose()


def _end_now(loop: asyncio.AbstractEventLoop, limit: asyncio.Timeout) -> None:
    with suppress(RuntimeError):  # it has ended meanwhile
        limit.reschedule(loop.time())


class _Watch:
    """Takes note of a request's connection: httpx leaves it open when it is cancelled in a TLS handshake."""

    def __init__(self) -> None:
        self._streams: list[Any] = []

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the socket: httpcore reports every step of a request to its `trace` extension."""
        if event.endswith("connect_tcp.complete"):
            self._streams.append(info["return_value"])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is asyncio.CancelledError:
            for stream in self._streams:  # closing it twice is no error
                await stream.aclose()


async def _send(sender: httpx.AsyncBaseTransport, request: httpx.Request) -> httpx.Response:
    """Return a response whose body can be read in the loop, also if the transport has read it already."""
    response = await sender.handle_async_request(request)
    response.stream = body_stream(response)
    return response


def _read_stream(response: httpx.Response) -> httpx.AsyncByteStream:
    if not isinstance(response.stream, httpx.AsyncByteStream):
        raise TypeError("an asynchronous transport returned a synchronous response")
    return response.stream


# --- an application's asynchronous transport, called from the thread of a download ------------------


class _InLoop(httpx.BaseTransport):
    def __init__(self, given: httpx.AsyncBaseTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._given, self._loop = given, loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        watch = request.extensions.pop("trace")  # an asynchronous transport takes no plain function

        def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            watch(WAITS, {"end": future.cancel})
            return future.result()

        response: httpx.Response = wait_for(_send(self._given, request))
        response.stream = _BodyInLoop(_read_stream(response), wait_for, self._loop)
        return response


class _BodyInLoop(httpx.SyncByteStream):
    def __init__(
        self,
        stream: httpx.AsyncByteStream,
        wait_for: Callable[[Coroutine[Any, Any, Any]], Any],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._stream, self._wait_for, self._loop = stream, wait_for, loop

    def __iter__(self) -> Iterator[bytes]:
        chunks = aiter(self._stream)

        async def read() -> bytes | None:
            return await anext(chunks, None)

        while (chunk := self._wait_for(read())) is not None:
            yield chunk

    def close(self) -> None:
        if not self._loop.is_closed():  # not waited for: the loop may be about to end
            asyncio.run_coroutine_threadsafe(self._stream.aclose(), self._loop)
