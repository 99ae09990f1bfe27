"""The transport for an event loop: requests by `httpx.AsyncClient`, everything that blocks on threads.

Beside `_transport`, from which it has the rules, this names httpx. Import it on a thread: that takes a third
of a second, in which a window would stand still.
"""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar

import httpx

from licclient._model import Settings
from licclient._pace import PASSING
from licclient._protocol.requests import Call, shown_ip
from licclient._protocol.responses import Attempt, Reply, read_retry_after, unusable_response
from licclient._sockets import own_ip, start_thread, system_proxy
from licclient._transport import (
    LOOK_UP_SECONDS,
    Transport,
    demand_plain,
    failed,
    for_proxy,
    limits,
    sealed,
    trust,
    unlogged,
    veil,
)

with suppress(ImportError):  # httpx loads it in the event loop with the first request
    import_module("anyio._backends._asyncio")

_T = TypeVar("_T")

AnyTransport = httpx.BaseTransport | httpx.AsyncBaseTransport


class AsyncTransport:
    """Sends requests from event loops. Create it on a thread: reading the trusted certificates takes long.

    Args:
        settings: Whom to call, and how long that may take.
        agent: What we call ourselves.
        given: Sends the requests, if the application passed one.
    """

    def __init__(self, settings: Settings, agent: str, given: AnyTransport | None = None) -> None:
        self._made_with: Final = settings, agent
        self._given = given
        self._seconds = settings.timeout.total_seconds()
        self._routes = _Routes(given)
        self._http = httpx.AsyncClient(
            transport=self._routes,
            headers={"User-Agent": agent, "Accept-Encoding": "identity"},
            timeout=self._seconds,
        )
        self._opening = threading.Lock()
        self._for_downloads: Transport | None = None
        self._is_closed = False

    async def own_ip(self) -> str:
        """As `Transport.own_ip`."""
        if self._given is not None:
            return shown_ip("")
        try:
            async with asyncio.timeout(min(LOOK_UP_SECONDS, self._seconds)):
                return await on_daemon_thread(partial(own_ip, self._made_with[0].server))
        except (TimeoutError, RuntimeError):  # too slow; no more threads
            return shown_ip("")

    async def send(self, call: Call, seconds: float) -> Attempt:
        """As `Transport.send`; a cancelled task closes its connection."""
        try:
            with unlogged():
                async with asyncio.timeout(seconds):
                    reply = await self._send(call)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return failed(problem, was_closed=self._is_closed)
        return Attempt(reply, may_retry=reply.status in PASSING)

    async def _send(self, call: Call) -> Reply:
        if self._is_closed:
            raise RuntimeError
        proxy = None if self._given is not None else await on_daemon_thread(partial(self._prepare, call.url))
        connection = _Connection()
        headers, extensions = dict(call.headers), {"trace": connection.watch}
        request = self._http.build_request(
            call.method, call.url, headers=headers, content=call.body, extensions=extensions
        )
        try:
            response = await self._http.send(veil(request, proxy), stream=True)
            try:
                body = await _read_body(response, call.max_bytes)
                headers = dict(response.headers)
                return Reply(response.status_code, body, headers, read_retry_after(response.headers))
            finally:
                await response.aclose()
        except asyncio.CancelledError:
            await connection.aclose()
            raise

    def _prepare(self, url: str) -> str | None:
        """Find the proxy, and look the host up: httpx does so again in the loop's own threads.

        A loop waits for those at its end, and the system's resolver may take half a minute. If it does so
        here, httpx does not begin.
        """
        proxy = system_proxy(url)
        self._routes.open(proxy)
        target = httpx.URL(proxy or url)
        with suppress(OSError):  # httpx fails as well, and says so
            socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        return proxy

    def for_downloads(self, loop: asyncio.AbstractEventLoop) -> Transport:
        """Return what a download uses on its thread."""
        given = self._given
        if given is not None and not isinstance(given, httpx.BaseTransport):
            return Transport(*self._made_with, _FromThread(given, loop))
        with self._opening:
            if self._for_downloads is None:
                self._for_downloads = Transport(*self._made_with, given)
            return self._for_downloads

    async def aclose(self) -> None:
        """Close what is open; what is on its way ends without a response."""
        self._is_closed = True
        await self._http.aclose()
        with self._opening:
            if self._for_downloads is not None:
                self._for_downloads.close()


class _Connection:
    """The connection of one request: httpx leaves it open when it is cancelled during a TLS handshake."""

    def __init__(self) -> None:
        self._streams: list[Any] = []

    async def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the socket: httpcore reports every step of a request to its `trace` extension."""
        if event.endswith("connect_tcp.complete"):
            self._streams.append(info["return_value"])

    async def aclose(self) -> None:
        """Close it; closing it twice is no error."""
        for stream in self._streams:
            await stream.aclose()


class _Routes(httpx.AsyncBaseTransport):
    """Sends the request in a veiled one, on the way that was prepared for it."""

    def __init__(self, given: AnyTransport | None) -> None:
        self._given = given
        self._trust = None if given is not None else trust()
        self._opening = threading.Lock()
        self._open: dict[str | None, AnyTransport] = {}
        self.open(None)

    def open(self, proxy: str | None) -> None:
        """Open the way through a proxy, or the direct one."""
        with self._opening:
            if proxy not in self._open:
                self._open[proxy] = self._given or for_proxy(self._make, proxy)

    def _make(self, proxy: str | None) -> httpx.AsyncHTTPTransport:
        return httpx.AsyncHTTPTransport(verify=self._trust or True, limits=limits, proxy=proxy)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        whole, proxy = sealed(request)
        transport = self._open[proxy]
        if isinstance(transport, httpx.AsyncBaseTransport):
            response = await transport.handle_async_request(whole)
        else:
            response = await asyncio.to_thread(transport.handle_request, whole)
        if not isinstance(response.stream, httpx.AsyncByteStream):
            response.stream = _FromSync(response.stream)
        return response

    async def aclose(self) -> None:
        for transport in self._open.values():
            if isinstance(transport, httpx.AsyncBaseTransport):
                await transport.aclose()
            else:
                await asyncio.to_thread(transport.close)


class _FromSync(httpx.AsyncByteStream):
    """The body of a synchronous transport, read on threads."""

    def __init__(self, stream: httpx.SyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks = iter(self._stream)
        while (chunk := await asyncio.to_thread(next, chunks, None)) is not None:
            yield chunk

    async def aclose(self) -> None:
        await asyncio.to_thread(self._stream.close)


class _FromThread(httpx.BaseTransport, httpx.SyncByteStream):
    """An application's asynchronous transport for a download's thread; also the body of its response."""

    def __init__(
        self,
        given: httpx.AsyncBaseTransport,
        loop: asyncio.AbstractEventLoop,
        stream: httpx.AsyncByteStream | None = None,
    ) -> None:
        self._given, self._loop, self._stream = given, loop, stream

    def _in_loop(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = self._in_loop(self._given.handle_async_request(request))
        if isinstance(response.stream, httpx.SyncByteStream):
            return response
        body = _FromThread(self._given, self._loop, response.stream)
        headers, extensions = response.headers, response.extensions
        return httpx.Response(response.status_code, headers=headers, stream=body, extensions=extensions)

    def __iter__(self) -> Iterator[bytes]:
        chunks = aiter(self._stream) if self._stream is not None else None

        async def following() -> bytes | None:
            return None if chunks is None else await anext(chunks, None)

        while (chunk := self._in_loop(following())) is not None:
            yield chunk

    def close(self) -> None:
        if self._stream is not None:
            self._in_loop(self._stream.aclose())


async def _read_body(response: httpx.Response, most: int) -> bytes:
    """Read a small body.

    Raises:
        ServiceUnavailableError: It is too long, or encoded.
    """
    demand_plain(response)
    if response.is_stream_consumed:  # by a `httpx.MockTransport`
        return response.content[:most]
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > most:
            raise unusable_response(response.status_code)
    return bytes(body)


# --- threads ----------------------------------------------------------------------------------


async def on_daemon_thread(work: Callable[[], _T]) -> _T:
    """Run what may take half a minute on a thread that neither program nor loop waits for at its end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def settle(result: _T | None, problem: BaseException | None) -> None:
        if done.cancelled():
            return
        if problem is None:
            done.set_result(result)  # type: ignore[arg-type] # the work's own
        else:
            done.set_exception(problem)

    def run_work() -> None:
        try:
            outcome: tuple[_T | None, BaseException | None] = work(), None
        except BaseException as problem:  # noqa: BLE001 - raised where it is awaited
            outcome = None, problem
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(settle, *outcome)

    start_thread(run_work)
    return await done


class Stop:
    """Set when the app's own event is set, or the task was cancelled.

    Args:
        event: The app's, or None; only its `is_set` is called.
    """

    def __init__(self, event: Any = None) -> None:
        self._event = event
        self._ended = threading.Event()

    def set(self) -> None:
        """Stop the work."""
        self._ended.set()

    def is_set(self) -> bool:
        """Return whether the work must stop."""
        return self._ended.is_set() or (self._event is not None and self._event.is_set())


async def run_download(work: Callable[[], _T], stop: Stop) -> _T:
    """Run a download on a thread of its own; a cancelled task waits until it has let go of its part.

    Args:
        work: Ends a tenth of a second after `stop` is set.
        stop: Set when the waiting task is cancelled.
    """
    running = asyncio.ensure_future(on_daemon_thread(work))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        if not running.cancelled():
            running.exception()  # the task's own end is what counts
        raise


def in_loop(call: Callable[..., object], stop: Stop) -> Callable[..., None]:
    """Turn a callback of the app into one that a thread may call: it runs in the loop, and is waited for.

    What it raises is raised in the thread. After `stop` it is not called any more.
    """
    loop = asyncio.get_running_loop()

    async def run(*told: object) -> None:
        if not stop.is_set():
            call(*told)

    def send(*told: object) -> None:
        asyncio.run_coroutine_threadsafe(run(*told), loop).result()

    return send
