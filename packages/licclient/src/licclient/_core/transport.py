"""Send requests by httpx from threads: TLS, redirects, failures, also for `async_transport`.

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
import socket
import ssl
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from hashlib import sha256
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

import httpx
import truststore

from licclient._core.clock import monotonic
from licclient._core.connection import Connection, OneRequest
from licclient._core.download_headers import add_promises, is_encoded, read_sha256
from licclient._core.incoming import Incoming
from licclient._core.model import Outage, Settings
from licclient._core.network import own_ip, run_with_deadline, system_proxy
from licclient._core.pace import PASSING
from licclient._core.requests import Call, is_protected, redirect_target, shown_ip
from licclient._core.responses import REDIRECTS, Attempt, Head, Reply, read_retry_after, unusable_response
from licclient.errors import ServiceUnavailableError

MAX_REDIRECTS: Final = 3
"""Downloads only: a store may keep its files elsewhere. The two endpoints are never redirected (D-40)."""

LOOK_UP_SECONDS: Final = 1.0
"""How long finding our own address may take: it is checked for its form only (D-05).

With the time limit of ten seconds a call ends within twelve, also while the system answers no look-up.
"""

MAX_REFUSAL_BYTES: Final = 64 * 1024
"""Longest body of a refused download that is read."""

READ_BYTES: Final = 120 * 1024
"""How much is read at once; for more, malloc calls the kernel each time, though over TLS only 16 KiB come."""

NOT_YET_VALID: Final = 9
"""OpenSSL's number for a certificate that begins in the future: the clock of this computer is wrong."""

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
            message = "The license service did not answer in time."
            return ServiceUnavailableError(message, outage=Outage.TIMED_OUT)
        case httpx.ConnectError() if refused := _find_cause(problem, ssl.SSLCertVerificationError):
            is_early = getattr(refused, "verify_code", None) == NOT_YET_VALID
            return ServiceUnavailableError(
                "The certificate of the license service cannot be trusted.",
                outage=Outage.CLOCK if is_early else Outage.CERTIFICATE,
            )
        case httpx.ConnectError() if _find_cause(problem, ConnectionRefusedError):
            message = "The license service could not be reached: the connection was refused."
            return ServiceUnavailableError(message, outage=Outage.CONNECTION_REFUSED)
        case httpx.ConnectError() if _find_cause(problem, socket.gaierror):
            message = "The license service could not be reached: no address was found for its name."
            return ServiceUnavailableError(message, outage=Outage.NAME_NOT_FOUND)
        case httpx.ConnectError():
            return ServiceUnavailableError("The license service could not be reached.")
        case httpx.ProxyError():
            return ServiceUnavailableError(
                "The proxy in this computer's settings did not let the call through.", outage=Outage.PROXY
            )
        case _:
            return ServiceUnavailableError(
                f"The license service gave no usable answer ({type(problem).__name__}).",
                outage=Outage.UNUSABLE,
            )


def _find_cause(problem: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """Return the cause of a problem, such as a refused connection, which may be a restart."""
    if isinstance(problem, BaseExceptionGroup):  # of several addresses
        return next((cause for each in problem.exceptions if (cause := _find_cause(each, kind))), None)
    if problem is None or isinstance(problem, kind):
        return problem
    return _find_cause(problem.__cause__ or problem.__context__, kind)


@contextmanager
def through(proxy: str | None) -> Generator[None]:
    """Blame the proxy, if there is one, for a connection that cannot be made within the block."""
    try:
        yield
    except httpx.ConnectError as problem:
        if proxy is None or _find_cause(problem, ssl.SSLError):
            raise
        raise httpx.ProxyError("the proxy could not be reached") from problem


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
        self._is_closed = False

    def refuse(self) -> None:
        """Send nothing any more: the client is closed."""
        with self._guard:
            self._is_closed = True

    def _find_proxy(self, url: str) -> str | None:
        return system_proxy(url) if self._given is None else None

    def _sender(self, create: Callable[[], T]) -> T:
        """Return the httpx transport of the application, or create ours (D-143)."""
        with self._guard:
            if self._is_closed:  # stays closed: a retry on its way must not open it again
                raise ServiceUnavailableError("The client is closed.")
            if self._given is not None:
                return self._given
            try:
                return create()
            except ImportError:
                raise ServiceUnavailableError(
                    "The proxy in this computer's settings is a SOCKS proxy, which this app cannot use.",
                    outage=Outage.PROXY,
                ) from None
            except (httpx.InvalidURL, ValueError):  # its words may hold a password
                raise ServiceUnavailableError(
                    "The proxy in this computer's settings has an address that cannot be read.",
                    outage=Outage.PROXY,
                ) from None

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
        """Describe a response, or the reason for its absence."""
        if isinstance(outcome, Reply):
            return Attempt(outcome, may_retry=outcome.status in PASSING)
        if self._is_closed:
            message = "The client was closed before the license service had answered."
            return Attempt(ServiceUnavailableError(message), was_closed=True)
        broken = isinstance(outcome, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))
        is_connecting = isinstance(outcome, (httpx.ConnectError, httpx.ProxyError))
        refused = is_connecting and _find_cause(outcome, ConnectionError) is not None
        return Attempt(failure(outcome), may_retry=broken or refused)


def create_ssl_context() -> ssl.SSLContext:
    """Return a context that trusts what the operating system trusts; else the list that httpx brings.

    Each connection from a thread has its own: truststore locks a context during a handshake, which may hang.
    """
    try:
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except (OSError, ImportError, NotImplementedError):
        return httpx.create_ssl_context()


def body_stream(response: httpx.Response) -> httpx.SyncByteStream | httpx.AsyncByteStream:
    """Return the body, which a transport of the application may have read already."""
    return httpx.ByteStream(response.content) if response.is_stream_consumed else response.stream


def read_reply(response: httpx.Response, body: bytes) -> Reply:
    """Return a response with its body; `ServiceUnavailableError` if that is encoded and no digest fits."""
    headers = response.headers
    if is_encoded(headers) and read_sha256(headers.get("Content-Digest")) != sha256(body).hexdigest():
        raise unusable_response(response.status_code)
    return Reply(response.status_code, body, dict(headers), read_retry_after(headers))


class Body(bytearray):
    """A small body, as it arrives; `ServiceUnavailableError` for one that is too long."""

    def __init__(self, response: httpx.Response, max_bytes: int) -> None:
        self._status, self._max_bytes = response.status_code, max_bytes

    def add(self, chunk: bytes) -> None:
        """Append a chunk."""
        self.extend(chunk)
        if len(self) > self._max_bytes:
            raise unusable_response(self._status)


# --- for threads ------------------------------------------------------------------------------


class Transport(BaseTransport[httpx.BaseTransport]):
    """Sends requests and receives downloads. Safe to share among threads."""

    def __init__(self, settings: Settings, agent: str, given: httpx.BaseTransport | None = None) -> None:
        super().__init__(settings, agent, given)
        self._connections = WeakSet[Connection]()  # of requests on their way

    @contextmanager
    def _exchange(
        self, connection: Connection, url: str, headers: Mapping[str, str], **content: Any
    ) -> Generator[httpx.Response]:
        """Send one request over a connection of its own, and close that after the response."""
        with self._guard:
            self._connections.add(connection)
        proxy = self._find_proxy(url)
        sender = self._sender(lambda: OneRequest(connection, proxy, create_ssl_context))
        try:
            with through(proxy):
                response = sender.handle_request(self._request(connection.watch, url, headers, **content))
            try:
                yield response
            finally:
                with suppress(Exception):
                    response.close()
        finally:
            if sender is not self._given:
                sender.close()

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

        def work() -> Reply:
            content = {"method": call.method, "body": call.body}
            with unlogged(), self._exchange(connection, call.url, call.headers, **content) as response:
                return read_reply(response, read_body(response, call.max_bytes, deadline))

        try:
            return self._attempt(run_with_deadline(seconds, work, connection.shut_down, is_cancelled))
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return self._attempt(problem)

    # --- downloads ----------------------------------------------------------------------------

    def start_download(self, incoming: Incoming) -> None:
        """Request a file, on a thread."""
        connection = Connection()
        incoming.start(partial(self._receive, connection), connection.shut_down)

    def _receive(self, connection: Connection, incoming: Incoming) -> None:
        try:
            with unlogged(), self._follow(connection, incoming.link, incoming.headers) as opened:
                response, promised, protected = opened
                status, retry_after = response.status_code, read_retry_after(response.headers)
                if status not in (200, 206):
                    refusal = read_body(response, MAX_REFUSAL_BYTES)
                    incoming.put(Head(status, response.headers, refusal, retry_after))
                    return
                declared = response.headers.copy()
                declared.update(promised)  # by the service, so it precedes what another place declares (D-34)
                head = Head(status, declared, retry_after=retry_after, is_protected=protected)
                incoming.put(head)
                for chunk in _file_chunks(response, self._find_reader(response, head)):
                    if not incoming.put(chunk):
                        return
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may contain the address
            incoming.put(failure(problem))
        else:
            incoming.put(None)

    @contextmanager
    def _follow(
        self, connection: Connection, link: str, headers: Mapping[str, str]
    ) -> Generator[tuple[httpx.Response, dict[str, str], bool]]:
        """Request a file along a few safe redirects.

        Yield the response, what the redirects promise of the file, and whether each address on the way
        was protected (D-55).
        """
        promised: dict[str, str] = {}
        protected = True
        for redirects_left in reversed(range(MAX_REDIRECTS + 1)):
            protected &= is_protected(link, self._settings)
            with self._exchange(connection, link, headers) as response:
                target = None
                if redirects_left and response.status_code in REDIRECTS:
                    target = redirect_target(link, response.headers.get("Location", ""), self._settings)
                if target is None:
                    yield response, promised, protected
                    return
                add_promises(promised, response.headers)
            link = target

    def _find_reader(self, response: httpx.Response, head: Head) -> Callable[[int], Any] | None:
        """Return what reads a file from its connection, past h11, whose copies take as long as SHA-256.

        None if the body is framed otherwise, or no digest would show that a byte is missing.
        """
        headers, stream = response.headers, response.extensions.get("network_stream")
        is_plain = self._given is None and "Transfer-Encoding" not in headers and "Content-Length" in headers
        if not is_plain or stream is None or read_sha256(head.headers.get("Repr-Digest")) is None:
            return None
        return partial(stream.read, timeout=self._seconds)

    def close(self) -> None:
        """Close all connections; requests of other threads end without a response."""
        with self._guard:
            self._is_closed = True
            connections = list(self._connections)
        for connection in connections:
            connection.shut_down()  # a thread that reads does not notice that its socket was closed
        if self._given is not None:
            self._given.close()


def _file_chunks(response: httpx.Response, read: Callable[[int], Any] | None) -> Iterator[bytes]:
    """Return the body as it comes; all but the first chunk by `read`, if that is given."""
    chunks = iter(_body_chunks(response))
    if read is None:
        yield from chunks
        return
    remaining = int(response.headers["Content-Length"])
    chunk = next(chunks, b"")  # everything that h11 has by now
    while chunk:
        yield chunk
        remaining -= len(chunk)
        chunk = read(min(remaining, READ_BYTES)) if remaining else b""


def _body_chunks(response: httpx.Response) -> Iterable[bytes]:
    """Return the body as it comes."""
    stream = body_stream(response)
    if not isinstance(stream, httpx.SyncByteStream):
        raise TypeError("a synchronous transport returned an asynchronous response")
    return stream


def read_body(response: httpx.Response, max_bytes: int, deadline: float = float("inf")) -> bytes:
    """Read a small body; `ServiceUnavailableError` or `TimeoutError` for one that is too long or too slow."""
    body = Body(response, max_bytes)
    for chunk in _body_chunks(response):
        body.add(chunk)
        if monotonic() > deadline:
            raise TimeoutError
    return bytes(body)
