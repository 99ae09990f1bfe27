"""What the HTTP library leaves to do with sockets: a deadline for a whole call, and our own address."""

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import monotonic, sleep
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from licclient._protocol.requests import shown_ip

GLANCE_SECONDS: Final = 0.1
"""How often whoever waits looks whether it should still wait."""

_T = TypeVar("_T")


def within(
    seconds: float,
    work: Callable[[], _T],
    on_timeout: Callable[[], None] = lambda: None,
    is_off: Callable[[], bool] | None = None,
) -> _T:
    """Do something on a thread of its own, and wait for it so long and no longer.

    This is what holds when limits per read do not: a slow name look-up, headers that drip in byte by byte.

    Args:
        seconds: How long to wait.
        work: Must end by itself in the end; its result, or what it raised, is handed over.
        on_timeout: Called when time is up, to make `work` end.
        is_off: Looked at ten times a second; when it is true, time is up.

    Raises:
        TimeoutError: Time is up.
    """
    done: list[tuple[_T] | BaseException] = []

    def run() -> None:
        try:
            done.append((work(),))
        except BaseException as problem:  # noqa: BLE001 - handed to whoever waits
            done.append(problem)

    thread = start_thread(run)
    try:
        if is_off is None:
            thread.join(seconds)
        else:
            _join(thread, seconds, is_off)
    except BaseException:  # Ctrl-C: leave no connection behind
        on_timeout()
        raise
    if not done:
        on_timeout()
        raise TimeoutError
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0][0]


def start_thread(work: Callable[[], object]) -> threading.Thread:
    """Start a thread that keeps no program from ending."""
    thread = threading.Thread(target=work, name="licclient-call", daemon=True)
    thread.start()
    return thread


def _join(thread: threading.Thread, seconds: float, is_off: Callable[[], bool]) -> None:
    deadline = monotonic() + seconds
    while thread.is_alive() and not is_off() and (left := deadline - monotonic()) > 0:
        thread.join(min(left, GLANCE_SECONDS))


def nap(seconds: float, is_off: Callable[[], bool] | None = None) -> None:
    """Wait, and wake up early when `is_off` says so."""
    deadline = monotonic() + seconds
    while (left := deadline - monotonic()) > 0 and not (is_off is not None and is_off()):
        sleep(left if is_off is None else min(left, GLANCE_SECONDS))


class Line:
    """The connection of one call, so that somebody else can cut it."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_cut = False

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the socket: httpcore tells every step of a request to its `trace` extension."""
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            self._socket = info["return_value"].get_extra_info("socket")
            if self._is_cut:
                self.cut()

    def cut(self) -> None:
        """Make every read and write on the connection end now."""
        self._is_cut = True
        if self._socket is not None:
            with suppress(OSError):
                # The plain socket's: an SSLSocket's own would pull the rug from under the thread that reads.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def own_ip(server: str) -> str:
    """Return the address of the interface that routes to the service; `0.0.0.0` when there is none (D-45).

    Connecting a datagram socket sends nothing: it only asks the system for the route. The name look-up may
    take long.
    """
    parts = urlsplit(server)
    with suppress(OSError, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            parts.hostname, parts.port or 443, type=socket.SOCK_DGRAM
        ):
            with suppress(OSError), socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return shown_ip(probe.getsockname()[0])
    return shown_ip("")


def system_proxy(url: str) -> str | None:
    """Ask the environment, or on Windows and macOS the system, for the proxy on the way to an address.

    Args:
        url: An `http` or `https` address.

    Returns:
        The proxy's address with its scheme, as it was set, maybe with a password in it; None for none.
    """
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or _is_direct(parts.hostname or "", parts.port, proxies.get("no", "")):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_direct(host: str, port: int | None, exceptions: str) -> bool:
    if "*" in map(str.strip, exceptions.split(",")) or proxy_bypass(host):
        return True
    shown = f"[{host}]" if ":" in host else host
    return port is not None and bool(proxy_bypass(f"{shown}:{port}"))
