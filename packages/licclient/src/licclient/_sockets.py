"""What the HTTP library leaves to do with sockets: a deadline for a whole call, and our own address."""

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

from licclient._wire import shown_ip

_T = TypeVar("_T")


def within(seconds: float, work: Callable[[], _T], on_timeout: Callable[[], None] = lambda: None) -> _T:
    """Do something on a thread of its own, and wait for it so long and no longer.

    This is what holds when limits per read do not: a slow name look-up, headers that drip in byte by byte.

    Args:
        seconds: How long to wait.
        work: Must end by itself in the end; its result, or what it raised, is handed over.
        on_timeout: Called when time is up, to make `work` end.

    Raises:
        TimeoutError: Time is up.
    """
    done: list[tuple[_T] | BaseException] = []

    def run() -> None:
        try:
            done.append((work(),))
        except BaseException as problem:  # noqa: BLE001 - handed to whoever waits
            done.append(problem)

    thread = threading.Thread(target=run, name="licclient-call", daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    except BaseException:  # Ctrl-C: leave no connection behind
        on_timeout()
        raise
    if not done:
        on_timeout()
        raise TimeoutError
    if isinstance(done[0], BaseException):
        raise done[0]
    return done[0][0]


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
