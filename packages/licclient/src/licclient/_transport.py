"""Send requests by httpx, from threads; and what `_async_transport` has in common with that.

Loaded for the first call, since it loads httpx. The license key is part of addresses and bodies, so nobody
else may see these:

- Requests go to httpx's transports and not through an `httpx.Client`: what an application adds to clients
  (event hooks, sentry) would see them (D-121).
- Errors have texts of our own, since an httpx error knows the address.
- httpcore's log records of our calls are dropped.

A call has one deadline for everything from the name look-up to the last byte, and for its retries (D-54).
httpx has time limits per read only, so it works on a thread of its own, and the waiting thread shuts the
connection down when time is up.
"""

import logging
import ssl
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cached_property, partial
from time import monotonic
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import httpx
import truststore

from licclient._model import Settings
from licclient._network import Connection, own_ip, run_with_deadline, system_proxy
from licclient._pace import PASSING
from licclient._protocol.downloads import add_promises, read_sha256
from licclient._protocol.requests import Call, is_protected, redirect_target, shown_ip
from licclient._protocol.responses import REDIRECTS, Attempt, Head, Reply, read_retry_after, unusable_response
from licclient.errors import ServiceUnavailableError

MAX_REDIRECTS: Final = 3
"""Downloads only: a store may keep its files elsewhere. The two endpoints are never redirected (D-40)."""

LOOK_UP_SECONDS: Final = 1.0
"""How long finding our own address may take: it is checked for its form only (D-05).

With the time limit of ten seconds a call ends within twelve, also while the system answers no look-up.
"""

LIMITS: Final = httpx.Limits(max_keepalive_connections=0)
"""One call or two a day: a kept connection would only be stale."""

T = TypeVar("T", httpx.BaseTransport, httpx.AsyncBaseTransport)

# --- logs and errors --------------------------------------------------------------------------

_our_call: ContextVar[bool] = ContextVar("licclient_call", default=False)


class _DropOurCalls(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002 - the name is the base's
        return not _our_call.get()


_drop_our_calls: Final = _DropOurCalls()
# By name, one by one: a filter of a parent logger does not see what its children log.
for _name in ("connection", "http11", "http2", "proxy", "socks"):
    logging.getLogger(f"httpcore.{_name}").addFilter(_drop_our_calls)


@contextmanager
def unlogged() -> Generator[None]:
    """Keep the block's calls out of every log; other threads and tasks go on logging theirs."""
    token = _our_call.set(True)
    try:
        yield
    finally:
        _our_call.reset(token)


def failure(problem: BaseException) -> ServiceUnavailableError:
    """Return what went wrong without saying where: the address is a credential."""
    match problem:
        case ServiceUnavailableError():
            return problem
        case httpx.TimeoutException() | TimeoutError():
            return ServiceUnavailableError("The license service did not answer in time.")
        case httpx.ConnectError():
            return ServiceUnavailableError("The license service could not be reached.")
        case httpx.ProxyError():
            return ServiceUnavailableError(
                "The proxy in this computer's settings did not let the call through."
            )
        case _:
            return ServiceUnavailableError(
                f"The license service gave no usable answer ({type(problem).__name__})."
            )


def _has_cause(problem: BaseException | None, kind: type[BaseException]) -> bool:
    """Return whether this is behind a problem, as a refused connection is, which may be a restart."""
    while problem is not None:
        if isinstance(problem, kind):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


# --- what both transports share ---------------------------------------------------------------


class BaseTransport(Generic[T]):
    """Build requests, find what sends them, and read what comes back."""

    def __init__(self, settings: Settings, agent: str, given: T | None = None) -> None:
        self._settings = settings
        # No content encoding: few bytes could be made to unpack into many.
        self._headers = {"Accept": "*/*", "Accept-Encoding": "identity", "User-Agent": agent}
        self._given: T | None = given
        self._seconds = settings.timeout.total_seconds()
        self._guard = threading.Lock()  # two threads may make the first call
        self._open: dict[str | None, T] = {}  # proxy → what sends through it
        self._is_closed = False

    def _create(self, proxy: str | None) -> T:
        raise NotImplementedError

    @cached_property
    def _certificates(self) -> ssl.SSLContext | bool:
        """What the operating system trusts; where that cannot be asked, the list that httpx brings."""
        try:
            return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        except (OSError, ImportError, NotImplementedError):
            return True

    def _find_proxy(self, url: str) -> str | None:
        return system_proxy(url) if self._given is None else None

    def _sender(self, proxy: str | None) -> T:
        """Return the httpx transport that sends through a proxy, or directly for None (D-143)."""
        with self._guard:
            if self._is_closed:  # stays closed: a retry on its way must not open it again
                raise ServiceUnavailableError("The client is closed.")
            if proxy not in self._open:
                try:
                    self._open[proxy] = self._create(proxy) if self._given is None else self._given
                except ImportError:
                    raise ServiceUnavailableError(
                        "The proxy in this computer's settings is a SOCKS proxy, which this app cannot use."
                    ) from None
                except (httpx.InvalidURL, ValueError):  # its words may hold a password
                    raise ServiceUnavailableError(
                        "The proxy in this computer's settings has an address that cannot be read."
                    ) from None
            return self._open[proxy]

    def _close_all(self) -> list[T]:
        """Allow no further request, and return what is to be closed."""
        with self._guard:
            self._is_closed = True
            return list(self._open.values())

    def _request(
        self,
        trace: Callable[[str, Mapping[str, Any]], object],
        url: str,
        headers: Mapping[str, str],
        method: str = "GET",
        body: bytes | None = None,
    ) -> httpx.Request:
        extensions = {"trace": trace, "timeout": httpx.Timeout(self._seconds).as_dict()}
        every = {**self._headers, **headers}
        return httpx.Request(method, url, headers=every, content=body, extensions=extensions)

    def _attempt(self, outcome: Reply | Exception) -> Attempt:
        """Describe a response, or why there is none."""
        if isinstance(outcome, Reply):
            return Attempt(outcome, may_retry=outcome.status in PASSING)
        if self._is_closed:
            message = "The client was closed before the license service had answered."
            return Attempt(ServiceUnavailableError(message), was_closed=True)
        broken = isinstance(outcome, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))
        refused = isinstance(outcome, httpx.ConnectError) and _has_cause(outcome, ConnectionError)
        return Attempt(failure(outcome), may_retry=broken or refused)


def body_stream(response: httpx.Response) -> httpx.SyncByteStream | httpx.AsyncByteStream:
    """Return the body, which a transport of the application may have read already."""
    return httpx.ByteStream(response.content) if response.is_stream_consumed else response.stream


def read_reply(response: httpx.Response, body: bytes) -> Reply:
    """Return a response with its body."""
    headers = response.headers
    return Reply(response.status_code, body, dict(headers), read_retry_after(headers))


class Body(bytearray):
    """A small body, as it arrives; `ServiceUnavailableError` for one that is encoded, or too long."""

    def __init__(self, response: httpx.Response, max_bytes: int) -> None:
        check_encoding(response)
        self._status, self._max_bytes = response.status_code, max_bytes

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        self.extend(chunk)
        if len(self) > self._max_bytes:
            raise unusable_response(self._status)


def check_encoding(response: httpx.Response, requested: str = "") -> None:
    """Raise `ServiceUnavailableError` for a content encoding that was not requested."""
    if response.headers.get("Content-Encoding", "").strip().lower() not in ("", "identity", requested):
        raise unusable_response(response.status_code)


# --- for threads ------------------------------------------------------------------------------


class Transport(BaseTransport[httpx.BaseTransport]):
    """Sends requests and receives downloads. Safe to share among threads."""

    def __init__(self, settings: Settings, agent: str, given: httpx.BaseTransport | None = None) -> None:
        super().__init__(settings, agent, given)
        self._connections = WeakSet[Connection]()  # of what is on its way

    def _add(self, connection: Connection) -> None:
        with self._guard:
            self._connections.add(connection)

    def _create(self, proxy: str | None) -> httpx.BaseTransport:
        return httpx.HTTPTransport(verify=self._certificates, limits=LIMITS, proxy=proxy)

    def own_ip(self, is_cancelled: Callable[[], bool] = lambda: False) -> str:
        """Return our address on the way to the service, without waiting long for it (D-45)."""
        if self._given is not None:  # the route is the application's
            return shown_ip("")
        seconds = min(LOOK_UP_SECONDS, self._seconds)
        try:
            return run_with_deadline(
                seconds, lambda: own_ip(self._settings.server), is_cancelled=is_cancelled
            )
        except (TimeoutError, RuntimeError):  # too slow; no more threads
            return shown_ip("")

    def send(self, call: Call, seconds: float, is_cancelled: Callable[[], bool]) -> Attempt:
        """Send one request, once, and read the whole response within so many seconds; never raises."""
        connection, deadline = Connection(), monotonic() + seconds
        self._add(connection)

        def work() -> Reply:
            with unlogged():
                sender = self._sender(self._find_proxy(call.url))
                request = self._request(connection.watch, call.url, call.headers, call.method, call.body)
                response = sender.handle_request(request)
                try:
                    return read_reply(response, read_body(response, call.max_bytes, deadline))
                finally:
                    response.close()

        try:
            return self._attempt(run_with_deadline(seconds, work, connection.shut_down, is_cancelled))
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return self._attempt(problem)

    @contextmanager
    def follow(
        self, connection: Connection, link: str, headers: Mapping[str, str]
    ) -> Generator[tuple[httpx.Response, dict[str, str], bool]]:
        """Request a file along a few safe redirects.

        Yield the response, what the redirects promise of the file (D-34), and whether each address on the way
        was protected (D-55).
        """
        promised: dict[str, str] = {}
        protected = True
        self._add(connection)
        for redirects_left in reversed(range(MAX_REDIRECTS + 1)):
            protected &= is_protected(link, self._settings)
            sender = self._sender(self._find_proxy(link))
            response = sender.handle_request(self._request(connection.watch, link, headers))
            try:
                target = None
                if redirects_left and response.status_code in REDIRECTS:
                    target = redirect_target(link, response.headers.get("Location", ""), self._settings)
                if target is None:
                    yield response, promised, protected
                    return
                add_promises(promised, response.headers)
            finally:
                with suppress(Exception):
                    response.close()
            link = target

    def find_reader(self, response: httpx.Response, head: Head) -> Callable[[int], Any] | None:
        """Return what reads a file from its connection, past h11, whose copies take as long as SHA-256.

        None if the body is framed otherwise, or no digest would show that a byte is missing.
        """
        headers, stream = response.headers, response.extensions.get("network_stream")
        is_plain = self._given is None and "Transfer-Encoding" not in headers and "Content-Length" in headers
        if not is_plain or stream is None or read_sha256(head.headers.get("Repr-Digest")) is None:
            return None
        return partial(stream.read, timeout=self._seconds)

    def close(self) -> None:
        """Close what is open; what is on its way on other threads ends without a response."""
        senders = self._close_all()
        with self._guard:
            connections = list(self._connections)
        for connection in connections:
            connection.shut_down()  # a thread that reads does not notice that its socket was closed
        for sender in senders:
            sender.close()


def body_chunks(response: httpx.Response) -> Iterable[bytes]:
    """Return the body as it comes."""
    stream = body_stream(response)
    if not isinstance(stream, httpx.SyncByteStream):
        raise TypeError("a synchronous transport returned an asynchronous response")
    return stream


def read_body(response: httpx.Response, max_bytes: int, deadline: float = float("inf")) -> bytes:
    """Read a small body; `ServiceUnavailableError` or `TimeoutError` for one that is too long or too slow."""
    body = Body(response, max_bytes)
    for chunk in body_chunks(response):
        body.add(chunk)
        if monotonic() > deadline:
            raise TimeoutError
    return bytes(body)
