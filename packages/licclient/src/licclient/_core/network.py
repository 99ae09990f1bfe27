"""The deadline of a whole call, our own address, and the system's proxies, which httpx leaves to us."""

import socket
import sys
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from contextvars import copy_context
from fnmatch import fnmatchcase
from functools import partial
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from licclient._core.clock import monotonic
from licclient._core.lazy import lazy
from licclient._core.requests import shown_ip

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy("asyncio")

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
        while thread.is_alive() and not is_cancelled() and (remaining := deadline - monotonic()) > 0:
            thread.join(min(remaining, POLL_SECONDS))
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
    """Start a thread that keeps no program from ending; raise `RuntimeError` if there can be none."""
    if sys.is_finalizing():  # until Python 3.12 `start` would wait for ever
        raise RuntimeError("the interpreter ends")
    thread = threading.Thread(target=work, name="licclient-call", daemon=True)
    thread.start()
    return thread


async def on_daemon_thread(work: Callable[[], _T]) -> _T:
    """Run what may take half a minute on a thread that neither program nor loop waits for at its end."""
    loop, context = asyncio.get_running_loop(), copy_context()
    done: asyncio.Future[_T] = loop.create_future()

    def run_work() -> None:
        try:
            settle = partial(done.set_result, context.run(work))
        except BaseException as problem:  # noqa: BLE001 - raised where it is awaited
            settle = partial(done.set_exception, problem)
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(lambda: done.done() or settle())

    start_thread(run_work)
    return await done


def start_task(work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
    """Start a task that nobody awaits: what it raises goes to the loop's exception handler as it ends."""
    loop = asyncio.get_running_loop()

    def report(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (problem := task.exception()) is not None:
            loop.call_exception_handler({"message": f"the task {name} failed", "exception": problem})

    task = loop.create_task(work, name=name)
    task.add_done_callback(report)
    return task


def own_ip(server: str) -> str:
    """Return the address of the interface that routes to the service; `0.0.0.0` without a route (D-45).

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
    if any(_is_exception(host, entry) for entry in exceptions.lower().replace(",", " ").split()):
        return True
    shown = f"[{host}]" if ":" in host else host
    return bool(proxy_bypass(host) or (port is not None and proxy_bypass(f"{shown}:{port}")))


def _is_exception(host: str, entry: str) -> bool:
    """Return whether an entry that urllib does not know excepts a host: a network, or a pattern (D-143)."""
    if "*" in entry:
        return fnmatchcase(host, entry)
    try:
        return "/" in entry and ip_address(host) in ip_network(entry, strict=False)
    except ValueError:  # a host with a name; no network
        return False
