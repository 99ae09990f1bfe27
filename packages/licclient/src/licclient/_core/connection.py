"""The connection of one request from a thread: addresses side by side, TLS, and an end from another thread.

httpcore's own one tries addresses one after the other, and cannot be ended while it connects or shakes hands.
"""

import errno
import os
import select
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from typing import Any, Final

import httpcore
import httpx

from licclient._core import happy_eyeballs
from licclient._core.clock import monotonic
from licclient._core.network import POLL_SECONDS

WAITS: Final = "licclient.waits"
"""An event of ours beside httpcore's: its `end` ends what a request waits for."""

_RECORD_BYTES: Final = 16 * 1024
"""Longest TLS record, without its head."""


class Connection(httpcore.NetworkBackend):
    """The connection of one request, which another thread can shut down."""

    def __init__(self) -> None:
        self._end: Callable[[], object] = lambda: None
        self.is_shut_down = False

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,  # noqa: ARG002 - none is given
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002 - as above
    ) -> httpcore.NetworkStream:
        """Connect to that address of a host which answers first."""
        seconds = threading.TIMEOUT_MAX if timeout is None else timeout
        with _renamed(httpcore.ConnectTimeout, httpcore.ConnectError):
            line = happy_eyeballs.connect(host, port, seconds, lambda: self.is_shut_down)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return _Stream(line, self)

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of a step of the application's transport, as its `trace` extension reports it."""
        if event == WAITS:
            self.note(info["end"])
        elif event.endswith(("connect_tcp.complete", "start_tls.complete")):
            line = info["return_value"].get_extra_info("socket")
            if line is not None:
                self.note_socket(line)

    def note_socket(self, line: socket.socket) -> None:
        """Take note of the socket that the request waits for."""
        # Not SSLSocket.shutdown: that discards the TLS state while another thread may be reading.
        self.note(partial(socket.socket.shutdown, line, socket.SHUT_RDWR))

    def note(self, end: Callable[[], object]) -> None:
        """Take note of what ends the request's waiting; do it now if that was wanted before."""
        self._end = end
        if self.is_shut_down:
            self.shut_down()

    def shut_down(self) -> None:
        """Make every read and write on the connection end now."""
        self.is_shut_down = True
        with suppress(OSError):
            self._end()


class _Stream(httpcore.NetworkStream):
    def __init__(self, line: "socket.socket | _TLSInTLS", connection: Connection) -> None:
        self._line, self._connection = line, connection
        if isinstance(line, socket.socket):
            connection.note_socket(line)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        with _renamed(httpcore.ReadTimeout, httpcore.ReadError):
            if os.name == "nt":
                self._wait_until_readable(timeout)
            self._line.settimeout(timeout)
            return self._line.recv(max_bytes)

    def _wait_until_readable(self, timeout: float | None) -> None:
        """Wait for the other side in slices: on Windows a shutdown ends no read (python/cpython#91913).

        Nor is the socket closed under it: its number might be another one's by then.
        """
        line = self._line
        if not isinstance(line, socket.socket) or (isinstance(line, ssl.SSLSocket) and line.pending()):
            return
        deadline = monotonic() + (threading.TIMEOUT_MAX if timeout is None else timeout)
        while not select.select([line], [], [], max(min(POLL_SECONDS, deadline - monotonic()), 0))[0]:
            if self._connection.is_shut_down:
                raise ConnectionAbortedError(errno.ECONNABORTED, "The request was cancelled")
            if monotonic() >= deadline:
                raise TimeoutError

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        with _renamed(httpcore.WriteTimeout, httpcore.WriteError):
            self._line.settimeout(timeout)
            remaining = memoryview(buffer)
            while remaining:
                remaining = remaining[self._line.send(remaining) :]

    def close(self) -> None:
        self._line.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        line = self._line
        try:
            with _renamed(httpcore.ConnectTimeout, httpcore.ConnectError):
                line.settimeout(timeout)
                if isinstance(line, ssl.SSLSocket):
                    return _Stream(_TLSInTLS(line, ssl_context, server_hostname), self._connection)
                assert isinstance(line, socket.socket)  # noqa: S101 - no third layer exists
                # A handshake has the socket for itself: only a second one for the connection can end it.
                with line.dup() as second:
                    self._connection.note_socket(second)
                    secured = ssl_context.wrap_socket(line, server_hostname=server_hostname)
                    return _Stream(secured, self._connection)
        except BaseException:
            line.close()
            raise

    def get_extra_info(self, info: str) -> Any:
        match info:
            case "socket" if isinstance(self._line, socket.socket):
                return self._line
            case "ssl_object" if isinstance(self._line, ssl.SSLSocket):
                return self._line
            case _:
                return None


class _TLSInTLS:
    """TLS inside that of a proxy, which `SSLContext.wrap_socket` cannot do."""

    def __init__(self, line: ssl.SSLSocket, context: ssl.SSLContext, host: str | None) -> None:
        self._line = line
        self._received, self._to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._received, self._to_send, server_hostname=host)
        self.settimeout, self.close = line.settimeout, line.close
        self._perform(self._tls.do_handshake)

    def recv(self, size: int) -> bytes:
        received: bytes = self._perform(partial(self._tls.read, size))
        return received

    def send(self, data: memoryview) -> int:
        sent: int = self._perform(partial(self._tls.write, data))
        return sent

    def _perform(self, step: Callable[[], Any]) -> Any:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                self._line.sendall(self._to_send.read())
                if received := self._line.recv(_RECORD_BYTES):
                    self._received.write(received)
                else:
                    self._received.write_eof()
            else:
                self._line.sendall(self._to_send.read())
                return result


@contextmanager
def _renamed(timeout: type[Exception], other: type[Exception]) -> Generator[None]:
    """Raise httpcore's exceptions for those of sockets."""
    try:
        yield
    except TimeoutError as problem:
        raise timeout from problem
    except (OSError, UnicodeError) as problem:  # the second: an invalid host name
        raise other from problem


# --- httpx transport ----------------------------------------------------------------------------


class OneRequest(httpx.BaseTransport):
    """Sends one request over a connection. Close it after the response."""

    def __init__(self, connection: Connection, proxy: str | None, make_context: Callable[[], Any]) -> None:
        self._pool = _create_pool(connection, proxy, make_context)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send it."""
        with _as_httpx():
            response = self._pool.handle_request(
                httpcore.Request(
                    request.method,
                    _url(request.url),
                    headers=request.headers.raw,
                    content=request.stream,
                    extensions=request.extensions,
                )
            )
        return httpx.Response(
            response.status,
            headers=response.headers,
            stream=_Body(response),
            extensions=response.extensions,
        )

    def close(self) -> None:
        """Close the connection."""
        self._pool.close()


class _Body(httpx.SyncByteStream):
    def __init__(self, response: httpcore.Response) -> None:
        self._response = response

    def __iter__(self) -> Iterator[bytes]:
        with _as_httpx():
            yield from self._response.iter_stream()

    def close(self) -> None:
        self._response.close()


def _create_pool(
    connection: Connection, proxy: str | None, make_context: Callable[[], Any]
) -> httpcore.ConnectionPool:
    """Return what sends through a proxy, or directly for None.

    Raise `ValueError` for an invalid address, `ImportError` for SOCKS without its package.
    """
    common: dict[str, Any] = {
        "ssl_context": make_context(),
        "network_backend": connection,
        "max_keepalive_connections": 0,
    }
    if proxy is None:
        return httpcore.ConnectionPool(**common)
    given = httpx.Proxy(proxy)
    common |= {"proxy_url": _url(given.url), "proxy_auth": given.raw_auth}
    if given.url.scheme.startswith("socks"):
        if find_spec("socksio") is None:
            raise ImportError("socksio")
        return httpcore.SOCKSProxy(**common)
    if given.url.scheme == "https":
        common["proxy_ssl_context"] = make_context()
    return httpcore.HTTPProxy(**common)


def _url(url: httpx.URL) -> httpcore.URL:
    return httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path)


@contextmanager
def _as_httpx() -> Generator[None]:
    """Raise httpx's exceptions for httpcore's, which have the same names."""
    try:
        yield
    except (
        httpcore.TimeoutException,
        httpcore.NetworkError,
        httpcore.ProxyError,
        httpcore.ProtocolError,
        httpcore.UnsupportedProtocol,
    ) as problem:
        raise getattr(httpx, type(problem).__name__)(str(problem)) from problem
