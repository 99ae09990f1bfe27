"""The only file that names httpx: calls go out, replies come in. Imported when a call is really made.

Whatever goes wrong is `ServiceUnavailable` in our own words: an httpx error knows the address, and the
address holds the license key. Both flavours stand side by side; keep them alike.

A call has one deadline for everything from the name look-up to the last byte. httpx has time limits per
read only, so the synchronous flavour works on a thread of its own, and whoever waits cuts the connection
when time is up.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from datetime import timedelta
from functools import cached_property
from time import monotonic
from typing import Any, Final

import httpx
import truststore

from licclient._errors import ServiceUnavailable
from licclient._headers import add_promises
from licclient._sockets import Line, own_ip, within
from licclient._wire import Call, Head, Reply, no_word, redirect_target, shown_ip

MAX_REFUSAL_BYTES: Final = 64 * 1024
"""Longest body of a refused download that is read."""

MAX_REDIRECTS: Final = 3
"""Downloads only: a store may keep its files elsewhere. The two endpoints are never redirected (D-40)."""

LOOK_UP_SECONDS: Final = 2.0
"""How long finding our own address may take: it is checked for its form only (D-05)."""

_OK: Final = frozenset({200, 206})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


# --- no license key in anybody's log ----------------------------------------------------------

_our_call: ContextVar[bool] = ContextVar("licclient_call", default=False)


class _DropOurCalls(logging.Filter):
    """httpx logs every address, httpcore every header: of our calls, nothing may get there."""

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - the name is the base's
        return not _our_call.get()


_drop_our_calls: Final = _DropOurCalls()
# By name, one by one: a filter of a parent logger does not see what its children log.
for _name in ("httpx", *(f"httpcore.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
    logging.getLogger(_name).addFilter(_drop_our_calls)


@contextmanager
def _unlogged() -> Generator[None]:
    token = _our_call.set(True)
    try:
        yield
    finally:
        _our_call.reset(token)


# --- what both flavours share -----------------------------------------------------------------


def _options(timeout: timedelta, agent: str) -> dict[str, Any]:
    return {
        "verify": _trust(),
        "timeout": timeout.total_seconds(),
        "follow_redirects": False,
        # One call or two a day: a kept connection would only be stale.
        "limits": httpx.Limits(max_keepalive_connections=0),
        "headers": {"User-Agent": agent, "Accept-Encoding": "identity"},
    }


def _trust() -> ssl.SSLContext | bool:
    """Trust what the operating system trusts; where that cannot be asked, the list that httpx brings."""
    try:
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except (OSError, ImportError, NotImplementedError):
        return True


def _failure(problem: BaseException) -> ServiceUnavailable:
    """Say what went wrong without saying where: the address is a credential."""
    match problem:
        case ServiceUnavailable():
            return problem
        case httpx.TimeoutException() | TimeoutError():
            return ServiceUnavailable("The license service did not answer in time.")
        case httpx.ConnectError():
            return ServiceUnavailable("The license service could not be reached.")
        case _:
            return ServiceUnavailable(
                f"The license service gave no usable answer ({type(problem).__name__})."
            )


def _demand_plain(response: httpx.Response) -> None:
    """Refuse encodings: we ask for none, and few bytes can be made to unpack into many."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise no_word(response.status_code)


def _next_hop(response: httpx.Response, link: str, server: str) -> str | None:
    """Return where a redirect leads; None to stay, which makes a redirect we must not follow a failure."""
    if response.status_code not in _REDIRECTS:
        return None
    return redirect_target(link, response.headers.get("Location", ""), server)


def _with(promised: dict[str, str], response: httpx.Response) -> httpx.Headers:
    """Let what the service promised of the file go before what the place says to which it sent us."""
    headers = response.headers.copy()
    headers.update(promised)
    return headers


# --- sync -------------------------------------------------------------------------------------


class Transport:
    """Makes calls for `LicenseClient`. Safe to share among threads.

    Args:
        server: Base URL, normalised.
        timeout: For a whole call; for a download, until its head is there and then for every read.
        agent: What we call ourselves.
    """

    def __init__(self, server: str, timeout: timedelta, agent: str) -> None:
        self._server = server
        self._agent = agent
        self._timeout = timeout
        self._seconds = timeout.total_seconds()

    @cached_property
    def _http(self) -> httpx.Client:
        return httpx.Client(**_options(self._timeout, self._agent))

    def own_ip(self) -> str:
        """Return our address on the way to the service, without waiting long for it (D-45)."""
        try:
            return within(min(LOOK_UP_SECONDS, self._seconds), lambda: own_ip(self._server))
        except (TimeoutError, RuntimeError):  # too slow; no more threads
            return shown_ip("")

    def send(self, call: Call) -> Reply | ServiceUnavailable:
        """Make one call; never raises."""
        line, deadline = Line(), monotonic() + self._seconds

        def work() -> Reply:
            with _unlogged():
                response = self._send(line, call.method, call.url, call.headers, call.body)
                try:
                    return Reply(response.status_code, _read(response, call.max_bytes, deadline))
                finally:
                    response.close()

        try:
            return within(self._seconds, work, line.cut)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return _failure(problem)

    @contextmanager
    def stream(self, link: str, headers: Mapping[str, str]) -> Generator[tuple[Head, Iterator[bytes]]]:
        """Open a download, following a few safe redirects.

        Yields:
            The head, and the file's bytes as they come; no bytes when the head is a refusal.

        Raises:
            ServiceUnavailable: No connection; also from the iterator, when the connection breaks.
        """
        try:
            response, promised = self._open(link, headers)
        except Exception as problem:  # noqa: BLE001 - as above
            raise _failure(problem) from None
        try:
            yield self._head(response, promised)
        finally:
            with _unlogged():
                response.close()

    def _open(self, link: str, headers: Mapping[str, str]) -> tuple[httpx.Response, dict[str, str]]:
        response, promised = self._get(link, headers), dict[str, str]()
        for _ in range(MAX_REDIRECTS):
            target = _next_hop(response, link, self._server)
            if target is None:
                break
            response.close()
            add_promises(promised, response.headers)
            link, response = target, self._get(target, headers)
        return response, promised

    def _get(self, link: str, headers: Mapping[str, str]) -> httpx.Response:
        line = Line()

        def work() -> httpx.Response:
            with _unlogged():
                return self._send(line, "GET", link, headers, None)

        return within(self._seconds, work, line.cut)

    def _send(
        self, line: Line, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> httpx.Response:
        request = self._http.build_request(
            method, url, headers=dict(headers), content=body, extensions={"trace": line.watch}
        )
        return self._http.send(request, stream=True)

    def _head(self, response: httpx.Response, promised: dict[str, str]) -> tuple[Head, Iterator[bytes]]:
        if response.status_code in _OK:
            return Head(response.status_code, _with(promised, response)), _chunks(response)
        deadline = monotonic() + self._seconds
        try:
            refusal = _read(response, MAX_REFUSAL_BYTES, deadline)
        except Exception as problem:  # noqa: BLE001 - as above
            raise _failure(problem) from None
        return Head(response.status_code, response.headers, refusal), iter(())

    def close(self) -> None:
        """Close what is open."""
        if "_http" in self.__dict__:
            self._http.close()


def _read(response: httpx.Response, most: int, deadline: float) -> bytes:
    """Read a small body.

    Raises:
        ServiceUnavailable: It is too long, or encoded.
        TimeoutError: It is too slow.
    """
    _demand_plain(response)
    body = bytearray()
    for chunk in response.iter_raw():
        body += chunk
        if len(body) > most:
            raise no_word(response.status_code)
        if monotonic() > deadline:
            raise TimeoutError
    return bytes(body)


def _chunks(response: httpx.Response) -> Iterator[bytes]:
    try:
        _demand_plain(response)
        yield from response.iter_raw()
    except Exception as problem:  # noqa: BLE001 - as above
        raise _failure(problem) from None


# --- async ------------------------------------------------------------------------------------


class AsyncTransport:
    """Makes calls for `AsyncLicenseClient`; arguments as for `Transport`."""

    def __init__(self, server: str, timeout: timedelta, agent: str) -> None:
        self._server = server
        self._agent = agent
        self._timeout = timeout
        self._seconds = timeout.total_seconds()

    @cached_property
    def _http(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(**_options(self._timeout, self._agent))

    async def own_ip(self) -> str:
        """Return our address on the way to the service, without waiting long for it (D-45)."""
        try:
            async with asyncio.timeout(min(LOOK_UP_SECONDS, self._seconds)):
                return await asyncio.to_thread(own_ip, self._server)
        except TimeoutError:
            return shown_ip("")

    async def send(self, call: Call) -> Reply | ServiceUnavailable:
        """Make one call; never raises."""
        try:
            with _unlogged():
                async with asyncio.timeout(self._seconds):
                    response = await self._send(call.method, call.url, call.headers, call.body)
                    try:
                        return Reply(response.status_code, await _aread(response, call.max_bytes))
                    finally:
                        await response.aclose()
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return _failure(problem)

    @asynccontextmanager
    async def stream(
        self, link: str, headers: Mapping[str, str]
    ) -> AsyncGenerator[tuple[Head, AsyncIterator[bytes]]]:
        """Open a download; as `Transport.stream`."""
        try:
            response, promised = await self._open(link, headers)
        except Exception as problem:  # noqa: BLE001 - as above
            raise _failure(problem) from None
        try:
            yield await self._head(response, promised)
        finally:
            with _unlogged():
                await response.aclose()

    async def _open(self, link: str, headers: Mapping[str, str]) -> tuple[httpx.Response, dict[str, str]]:
        response, promised = await self._get(link, headers), dict[str, str]()
        for _ in range(MAX_REDIRECTS):
            target = _next_hop(response, link, self._server)
            if target is None:
                break
            await response.aclose()
            add_promises(promised, response.headers)
            link, response = target, await self._get(target, headers)
        return response, promised

    async def _get(self, link: str, headers: Mapping[str, str]) -> httpx.Response:
        with _unlogged():
            async with asyncio.timeout(self._seconds):
                return await self._send("GET", link, headers, None)

    async def _send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> httpx.Response:
        request = self._http.build_request(method, url, headers=dict(headers), content=body)
        return await self._http.send(request, stream=True)

    async def _head(
        self, response: httpx.Response, promised: dict[str, str]
    ) -> tuple[Head, AsyncIterator[bytes]]:
        if response.status_code in _OK:
            return Head(response.status_code, _with(promised, response)), _achunks(response)
        try:
            async with asyncio.timeout(self._seconds):
                refusal = await _aread(response, MAX_REFUSAL_BYTES)
        except Exception as problem:  # noqa: BLE001 - as above
            raise _failure(problem) from None
        return Head(response.status_code, response.headers, refusal), _nothing()

    async def aclose(self) -> None:
        """Close what is open."""
        if "_http" in self.__dict__:
            await self._http.aclose()


async def _aread(response: httpx.Response, most: int) -> bytes:
    """Read a small body; as `_read`, with the deadline around it."""
    _demand_plain(response)
    body = bytearray()
    async for chunk in response.aiter_raw():
        body += chunk
        if len(body) > most:
            raise no_word(response.status_code)
    return bytes(body)


async def _achunks(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        _demand_plain(response)
        async for chunk in response.aiter_raw():
            yield chunk
    except Exception as problem:  # noqa: BLE001 - as above
        raise _failure(problem) from None


async def _nothing() -> AsyncIterator[bytes]:
    for chunk in tuple[bytes, ...]():
        yield chunk
