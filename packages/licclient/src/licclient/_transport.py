"""Calls go out, replies come in. With `_async_transport` the only module that names httpx; loaded for a call.

Whatever goes wrong is `ServiceUnavailableError` in our own words: an httpx error knows the address, and the
address holds the license key. For the same reason httpx's client is sent a veiled request: what an app hangs
onto it (hooks, loggers, a crash reporter) sees the endpoint, not what is asked there.

A call has one deadline for everything from the name look-up to the last byte, and for its retries (D-54).
httpx has time limits per read only, so it works on a thread of its own, and whoever waits closes the
connection when time is up.
"""

import logging
import ssl
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import Final, TypeVar

import httpx
import truststore

from licclient._model import Settings
from licclient._pace import PASSING
from licclient._protocol.downloads import add_promises
from licclient._protocol.links import redirect_target
from licclient._protocol.requests import Call, shown_ip
from licclient._protocol.responses import REDIRECTS, Attempt, Reply, read_retry_after, unusable_response
from licclient._sockets import Line, own_ip, system_proxy, within
from licclient.errors import ServiceUnavailableError

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
def unlogged() -> Generator[None]:
    """Keep the block's calls out of every log; other threads and tasks go on logging theirs."""
    token = _our_call.set(True)
    try:
        yield
    finally:
        _our_call.reset(token)


limits: Final = httpx.Limits(max_keepalive_connections=0)
"""One call or two a day: a kept connection would only be stale."""

MAX_REDIRECTS: Final = 3
"""Downloads only: a store may keep its files elsewhere. The two endpoints are never redirected (D-40)."""

LOOK_UP_SECONDS: Final = 1.0
"""How long finding our own address may take: it is checked for its form only (D-05).

With the time limit of ten seconds a call ends within twelve, also while the system answers no look-up.
"""


def trust() -> ssl.SSLContext | bool:
    """Trust what the operating system trusts; where that cannot be asked, the list that httpx brings."""
    try:
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    except (OSError, ImportError, NotImplementedError):
        return True


CLOSED: Final = "The client was closed before the license service had answered."


def failed(problem: BaseException, *, was_closed: bool) -> Attempt:
    if was_closed:
        return Attempt(ServiceUnavailableError(CLOSED), was_closed=True)
    broken = isinstance(problem, (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError))
    refused = isinstance(problem, httpx.ConnectError) and _has_cause(problem, ConnectionError)
    return Attempt(failure(problem), may_retry=broken or refused)


def failure(problem: BaseException) -> ServiceUnavailableError:
    """Say what went wrong without saying where: the address is a credential."""
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
    """Tell a refused connection, which may be a restart, from an unknown name or a bad certificate."""
    while problem is not None:
        if isinstance(problem, kind):
            return True
        problem = problem.__cause__ or problem.__context__
    return False


def demand_plain(response: httpx.Response) -> None:
    """Refuse encodings: we ask for none, and few bytes can be made to unpack into many."""
    if response.headers.get("Content-Encoding", "identity").strip().lower() not in ("", "identity"):
        raise unusable_response(response.status_code)


# --- the veil ---------------------------------------------------------------------------------

_WHOLE: Final = "licclient"


class _Sealed:
    """The request as it goes out; of no repr, because it holds the license key."""

    __slots__ = ("proxy", "whole")

    def __init__(self, whole: httpx.Request, proxy: str | None) -> None:
        self.whole = whole
        self.proxy = proxy


def veil(whole: httpx.Request, proxy: str | None = None) -> httpx.Request:
    """Make the request that may be seen, of method and bare address; the whole one lies in it, sealed."""
    shown = whole.url.copy_with(query=None, fragment=None)
    return httpx.Request(whole.method, shown, extensions={_WHOLE: _Sealed(whole, proxy)})


def sealed(request: httpx.Request) -> tuple[httpx.Request, str | None]:
    """Return the whole request in a veiled one, and the proxy for it."""
    inside: _Sealed = request.extensions[_WHOLE]
    return inside.whole, inside.proxy


_Way = TypeVar("_Way")


def for_proxy(make: Callable[[str | None], _Way], proxy: str | None) -> _Way:
    """Make what sends requests through a proxy; an error says which setting to look at, not what it holds."""
    try:
        return make(proxy)
    except ImportError:
        raise ServiceUnavailableError(
            "The proxy in this computer's settings is a SOCKS proxy, which this app cannot use."
        ) from None
    except (httpx.InvalidURL, ValueError):  # its words may hold a password
        raise ServiceUnavailableError(
            "The proxy in this computer's settings has an address that cannot be read."
        ) from None


class _Unveiling(httpx.BaseTransport):
    """Sends the whole request in the place of its veil."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._inner.handle_request(sealed(request)[0])


class Http(httpx.Client):
    """httpx's client for veiled requests, on the way that the system's settings name for each (D-143).

    httpx has no public way to choose a transport by request. Its versions are bounded in `pyproject.toml`;
    should one not ask here any more, the bare endpoint is called, with no key.

    Args:
        make: Makes what sends requests: through a proxy, or directly for None.
        agent: What we call ourselves.
        seconds: Limit of each read and write.
    """

    def __init__(self, make: Callable[[str | None], httpx.BaseTransport], agent: str, seconds: float) -> None:
        headers = {"User-Agent": agent, "Accept-Encoding": "identity"}
        super().__init__(transport=make(None), headers=headers, timeout=seconds, follow_redirects=False)
        self._make = make
        self._making = threading.Lock()
        self._proxied: dict[str, httpx.BaseTransport] = {}

    def _transport_for_url(self, url: httpx.URL) -> httpx.BaseTransport:
        proxy = system_proxy(str(url))
        return _Unveiling(self._transport if proxy is None else self._through(proxy))

    def _through(self, proxy: str) -> httpx.BaseTransport:
        with self._making:
            if proxy not in self._proxied:
                self._proxied[proxy] = for_proxy(self._make, proxy)
            return self._proxied[proxy]

    def close(self) -> None:
        """Close what is open."""
        super().close()
        for transport in self._proxied.values():
            transport.close()


# --- calls ------------------------------------------------------------------------------------


class Transport:
    """Makes calls and downloads, from threads. Safe to share among them.

    Args:
        settings: Whom to call, and how long that may take.
        agent: What we call ourselves.
        given: Sends the requests, if the application passed one.
    """

    def __init__(self, settings: Settings, agent: str, given: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._given = given
        self._agent = agent
        self._seconds = settings.timeout.total_seconds()
        self._opening = threading.Lock()
        self._open: Http | None = None
        self._is_closed = False

    @property
    def _http(self) -> Http:
        with self._opening:  # two threads may make the first call; `cached_property` has no lock from 3.12 on
            if self._open is None:
                self._open = self._make()
            return self._open

    def _make(self) -> Http:
        given = self._given
        if given is not None:
            return Http(lambda _: given, self._agent, self._seconds)
        certificates = trust()

        def make(proxy: str | None) -> httpx.BaseTransport:
            return httpx.HTTPTransport(verify=certificates, limits=limits, proxy=proxy)

        return Http(make, self._agent, self._seconds)

    def own_ip(self, is_off: Callable[[], bool] | None = None) -> str:
        """Return our address on the way to the service, without waiting long for it (D-45).

        Args:
            is_off: As for `within`.
        """
        if self._given is not None:  # the route is the application's
            return shown_ip("")
        seconds = min(LOOK_UP_SECONDS, self._seconds)
        try:
            return within(seconds, lambda: own_ip(self._settings.server), is_off=is_off)
        except (TimeoutError, RuntimeError):  # too slow; no more threads
            return shown_ip("")

    def send(self, call: Call, seconds: float, is_off: Callable[[], bool] | None = None) -> Attempt:
        """Send one request, once, and read the whole response; never raises.

        Args:
            call: What to send.
            seconds: The deadline for all of it.
            is_off: As for `within`.
        """
        if is_off is not None and is_off():
            return Attempt(ServiceUnavailableError("The request was cancelled."))
        line, deadline = Line(), monotonic() + seconds

        def work() -> Reply:
            with unlogged():
                request = self._request(line, call.method, call.url, call.headers, call.body)
                response = self._http.send(request, stream=True)
                try:
                    body = read_body(response, call.max_bytes, deadline)
                    headers = response.headers
                    return Reply(response.status_code, body, dict(headers), read_retry_after(headers))
                finally:
                    response.close()

        try:
            reply = within(seconds, work, line.cut, is_off)
        except Exception as problem:  # noqa: BLE001 - whatever it is, it may know the address
            return failed(problem, was_closed=self._is_closed)
        return Attempt(reply, may_retry=reply.status in PASSING)

    def follow(
        self, line: Line, link: str, headers: Mapping[str, str]
    ) -> tuple[httpx.Response, dict[str, str]]:
        """Send a request for a file along a few safe redirects.

        Returns:
            The answer at the end, and what the redirects promised of the file (D-34).
        """
        request, promised = self._request(line, "GET", link, headers, None), dict[str, str]()
        response = self._http.send(request, stream=True)
        for _ in range(MAX_REDIRECTS):
            target = None
            if response.status_code in REDIRECTS:
                target = redirect_target(link, response.headers.get("Location", ""), self._settings)
            if target is None:
                break
            response.close()
            add_promises(promised, response.headers)
            link, request = target, self._request(line, "GET", target, headers, None)
            response = self._http.send(request, stream=True)
        return response, promised

    def _request(
        self, line: Line, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> httpx.Request:
        request = self._http.build_request(
            method, url, headers=dict(headers), content=body, extensions={"trace": line.watch}
        )
        return veil(request)

    def close(self) -> None:
        """Close what is open."""
        with self._opening:  # stays closed: a retry on its way must not open it again
            self._is_closed = True
            if self._open is not None:
                self._open.close()


def raw_chunks(response: httpx.Response) -> Iterable[bytes]:
    """Return the body as it comes; a `httpx.MockTransport` may return it read already."""
    return [response.content] if response.is_stream_consumed else response.iter_raw()


def read_body(response: httpx.Response, most: int, deadline: float = float("inf")) -> bytes:
    """Read a small body.

    Raises:
        ServiceUnavailableError: It is too long, or encoded.
        TimeoutError: It is too slow.
    """
    demand_plain(response)
    body = bytearray()
    for chunk in raw_chunks(response):
        body += chunk
        if len(body) > most:
            raise unusable_response(response.status_code)
        if monotonic() > deadline:
            raise TimeoutError
    return bytes(body)
