"""What httpx leaves to do: a deadline for a whole call, our own address, and the system's proxies."""

import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from licclient._protocol.requests import shown_ip

POLL_SECONDS: Final = 0.1
"""How often a waiting thread checks whether it was cancelled."""

_T = TypeVar("_T")


def run_with_deadline(
    seconds: float,
    work: Callable[[], _T],
    on_timeout: Callable[[], None] = lambda: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> _T:
    """Run a function on a thread, and return or raise what it does; `TimeoutError` when time is up.

    A deadline for all of it, which limits per read are not: a name look-up may be slow, and headers may
    arrive byte by byte. When time is up, or `is_cancelled` (checked ten times a second), `on_timeout` is to
    make `work` end.
    """
    done: list[tuple[_T] | BaseException] = []

    def run() -> None:
        try:
            done.append((work(),))
        except BaseException as problem:  # noqa: BLE001 - raised in the waiting thread
            done.append(problem)

    deadline = monotonic() + seconds
    thread = start_thread(run)
    try:
        while thread.is_alive() and not is_cancelled() and (left := deadline - monotonic()) > 0:
            thread.join(min(left, POLL_SECONDS))
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


async def on_daemon_thread(work: Callable[[], _T]) -> _T:
    """Run what may take half a minute on a thread that neither program nor loop waits for at its end."""
    import asyncio  # noqa: PLC0415 - the synchronous client does not pay for it

    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def run_work() -> None:
        try:
            settle = partial(done.set_result, work())
        except BaseException as problem:  # noqa: BLE001 - raised where it is awaited
            settle = partial(done.set_exception, problem)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(lambda: done.done() or settle())

    start_thread(run_work)
    return await done


WAITS: Final = "licclient.waits"
"""An event of ours beside httpcore's: its `end` ends what a request waits for."""


class Connection:
    """The connection of one request, which another thread can shut down."""

    def __init__(self) -> None:
        self._end: Callable[[], object] = lambda: None
        self._is_shut_down = False

    def watch(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the socket: httpcore reports every step of a request to its `trace` extension."""
        if event == WAITS:
            self._end = info["end"]
        elif event.endswith(("connect_tcp.complete", "start_tls.complete")):
            line = info["return_value"].get_extra_info("socket")
            if line is not None:
                # Not SSLSocket.shutdown: that discards the TLS state while another thread may be reading.
                self._end = partial(socket.socket.shutdown, line, socket.SHUT_RDWR)
        if self._is_shut_down:
            self.shut_down()

    def shut_down(self) -> None:
        """Make every read and write on the connection end now."""
        self._is_shut_down = True
        with suppress(OSError):
            self._end()


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

    Return its address with a scheme, maybe with a password in it; None for none.
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
