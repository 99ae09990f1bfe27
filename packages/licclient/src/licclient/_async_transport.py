"""Send requests and receive downloads in an event loop; everything that blocks is done on threads.

Import it on a thread: loading httpx takes a third of a second, in which a window would stand still.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib import import_module
from time import monotonic
from typing import Any, Self, cast

import httpx

from licclient._incoming import (
    LOOK_SECONDS,
    MAX_REFUSAL_BYTES,
    Arrived,
    Incoming,
    Queue,
    Received,
    is_file,
    read_head,
)
from licclient._model import Settings
from licclient._network import Connection, on_daemon_thread, own_ip
from licclient._protocol.links import is_protected
from licclient._protocol.requests import Call, shown_ip
from licclient._protocol.responses import Attempt
from licclient._transport import (
    LIMITS,
    LOOK_UP_SECONDS,
    MAX_REDIRECTS,
    BaseTransport,
    Body,
    Transport,
    Way,
    body_stream,
    failure,
    read_reply,
    unlogged,
)

with suppress(ImportError):  # httpx loads it in the event loop with the first request
    import_module("anyio._backends._asyncio")


class AsyncTransport(BaseTransport[httpx.AsyncBaseTransport]):
    """Sends requests and receives downloads in the running event loop."""

    def __init__(
        self,
        settings: Settings,
        agent: str,
        given: httpx.BaseTransport | httpx.AsyncBaseTransport | None = None,
    ) -> None:
        if given is not None and not isinstance(given, httpx.AsyncBaseTransport):
            given = _OnThreads(given)
        super().__init__(settings, agent, given)
        self._on_threads = Transport(settings, agent)

    def _create(self, proxy: str | None) -> httpx.AsyncBaseTransport:
        return httpx.AsyncHTTPTransport(verify=self._certificates, limits=LIMITS, proxy=proxy)

    async def own_ip(self) -> str:
        """As `Transport.own_ip`."""
        if self._given is not None:
            return shown_ip("")
        try:
            async with asyncio.timeout(min(LOOK_UP_SECONDS, self._seconds)):
                return await on_daemon_thread(partial(own_ip, self._settings.server))
        except (TimeoutError, RuntimeError):  # too slow; no more threads
            return shown_ip("")

    async def send(self, call: Call, seconds: float) -> Attempt:
        """As `Transport.send`; a cancelled task closes its connection."""
        try:
            with unlogged():
                async with asyncio.timeout(seconds), _Watch() as watch:
                    sender = await on_daemon_thread(partial(self._prepare, call.url))
                    request = self._request(watch, call.url, call.headers, call.method, call.body)
                    response = await _send(sender, request)
                    try:
                        reply = read_reply(response, await _read_body(response, call.max_bytes))
                    finally:
                        await response.aclose()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return self._attempt(problem)
        return self._attempt(reply)

    def _prepare(self, url: str) -> httpx.AsyncBaseTransport:
        """Find what sends to an address, and look its host up: httpx does so again in the loop's own threads.

        A loop waits for those at its end, and the system's resolver may take half a minute. If it does so
        here, httpx does not begin.
        """
        proxy = self._find_proxy(url)
        sender = self._sender(proxy)
        if self._given is None:
            target = httpx.URL(proxy or url)
            with suppress(OSError):  # httpx fails as well, and reports it
                socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        return sender

    def download(self, link: str, headers: Mapping[str, str]) -> "AsyncIncoming | IncomingOnThread":
        """Request a file, on a thread: over TLS reading in the event loop takes 2.7 times the processor.

        Only the transport of an application is used in the loop.
        """
        if self._given is None:
            return IncomingOnThread(self._on_threads, link, headers)
        return AsyncIncoming(self, link, headers)

    @asynccontextmanager
    async def follow(
        self, link: str, headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[httpx.Response, Way]]:
        """As `Transport.follow`."""
        way = Way()
        async with _Watch() as watch:
            for redirects_left in reversed(range(MAX_REDIRECTS + 1)):
                way.is_protected &= is_protected(link, self._settings)
                sender = await on_daemon_thread(partial(self._prepare, link))
                response = await _send(sender, self._request(watch, link, headers))
                try:
                    target = self._redirect(link, response, way) if redirects_left else None
                    if target is None:
                        yield response, way
                        return
                finally:
                    with suppress(Exception):
                        await response.aclose()
                link = target

    async def aclose(self) -> None:
        """Close what is open; what is on its way ends without a response."""
        self._on_threads.close()
        for sender in self._close_all():
            await sender.aclose()


class IncomingOnThread(Incoming):
    """A response to a download, received ahead on a thread, for an event loop."""

    async def receive(self, seconds: float) -> Received:  # type: ignore[override]
        """As `Incoming.receive`; ends at the latest when it is left."""
        return await on_daemon_thread(
            lambda: super(IncomingOnThread, self).receive(seconds, lambda: self._is_closed)
        )


class AsyncIncoming:
    """A response to a download, received ahead in a task. Leaving it, on any thread, ends the task."""

    def __init__(self, transport: AsyncTransport, link: str, headers: Mapping[str, str]) -> None:
        self._arrived = Queue()
        self._has_batch, self._has_room = asyncio.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._run = partial(self._receive_ahead, transport, link, headers)
        self._task: asyncio.Task[None] | None = None  # begun by `receive`: until then nobody would end it

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._task is not None:
            with suppress(RuntimeError):  # the loop was closed meanwhile
                self._loop.call_soon_threadsafe(self._task.cancel)

    async def receive(self, seconds: float) -> Received:
        """As `Incoming.receive`."""
        self._task = self._task or self._loop.create_task(self._run(), name="licclient-download")
        deadline = monotonic() + seconds
        while True:
            left = deadline - monotonic()
            if not self._arrived.has_batch():
                self._has_batch.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, min(left, LOOK_SECONDS))):
                        await self._has_batch.wait()
            if self._arrived or left <= 0:
                received = self._arrived.take()
                self._has_room.set()
                return received

    async def _put(self, arrived: Arrived) -> None:
        self._arrived.put(arrived)
        if self._arrived.has_batch():
            self._has_batch.set()
        if self._arrived.is_full():
            self._has_room.clear()
            await self._has_room.wait()

    async def _receive_ahead(self, transport: AsyncTransport, link: str, headers: Mapping[str, str]) -> None:
        try:
            with unlogged():
                async with transport.follow(link, headers) as (response, way):
                    if not is_file(response, headers):
                        refusal = await _read_body(response, MAX_REFUSAL_BYTES)
                        await self._put(read_head(response, Way(), refusal))
                        return
                    await self._put(read_head(response, way))
                    async for chunk in _chunks(response):
                        await self._put(chunk)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may contain the address
            await self._put(failure(problem))
        else:
            await self._put(None)


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
    """Return a response whose body can be read in the event loop."""
    response = await sender.handle_async_request(request)
    stream = body_stream(response)
    response.stream = stream if isinstance(stream, httpx.AsyncByteStream) else _BodyOnThreads(stream)
    return response


def _chunks(response: httpx.Response) -> AsyncIterable[bytes]:
    return cast("httpx.AsyncByteStream", response.stream)  # by `_send`


async def _read_body(response: httpx.Response, max_bytes: int) -> bytes:
    """Read a small body; `ServiceUnavailableError` for one that is too long, or encoded."""
    body = Body(response, max_bytes)
    async for chunk in _chunks(response):
        body.add(chunk)
    return bytes(body)


# --- threads ----------------------------------------------------------------------------------


class _OnThreads(httpx.AsyncBaseTransport):
    """An application's synchronous transport, called on threads."""

    def __init__(self, given: httpx.BaseTransport) -> None:
        self._given = given

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection = Connection()
        request.extensions["trace"] = connection.watch  # a synchronous transport takes no coroutine
        try:
            return await asyncio.to_thread(self._given.handle_request, request)
        except asyncio.CancelledError:
            connection.shut_down()
            raise

    async def aclose(self) -> None:
        await asyncio.to_thread(self._given.close)


class _BodyOnThreads(httpx.AsyncByteStream):
    """The body of a synchronous transport."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = iter(self._stream)
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield chunk

    async def aclose(self) -> None:
        await asyncio.to_thread(self._stream.close)
