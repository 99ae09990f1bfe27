"""Connect to that address of a host which answers first (RFC 8305).

Many computers have an IPv6 route that leads nowhere. If addresses are tried one after the other, the first
one may use up the whole time limit, and the host is never reached.
"""

import errno
import os
import selectors
import socket
from collections import deque
from collections.abc import Callable, Iterable
from itertools import zip_longest
from typing import Any, Final, Self

from licclient._core.clock import monotonic

STAGGER_SECONDS: Final = 0.25
"""Pause between the beginnings of two attempts (RFC 8305 8)."""

POLL_SECONDS: Final = 0.05
"""How often it is checked whether the caller cancelled."""

_PENDING: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN})

Address = tuple[Any, Any, int, str, Any]
"""As from `socket.getaddrinfo`."""


def connect(
    host: str, port: int, seconds: float, is_cancelled: Callable[[], bool] = lambda: False
) -> socket.socket:
    """Look a host up, and return a socket that is connected to it, with the rest of the time as its limit.

    The look-up itself cannot be interrupted. Raise `TimeoutError` when time is up, `ConnectionAbortedError`
    if the caller cancelled, or the `OSError` of an address when all have failed.
    """
    deadline = monotonic() + seconds
    addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    with _Race(sort_addresses(addresses)) as race:
        while (line := race.step(deadline)) is None:
            if is_cancelled():
                raise ConnectionAbortedError(errno.ECONNABORTED, "cancelled")
        line.settimeout(max(deadline - monotonic(), POLL_SECONDS))
        return line


def sort_addresses(addresses: Iterable[Address]) -> list[Address]:
    """Alternate the families, beginning with the one that the system prefers (RFC 8305 4)."""
    families: dict[Any, list[Address]] = {}
    for address in dict.fromkeys(addresses):
        families.setdefault(address[0], []).append(address)
    return [address for turn in zip_longest(*families.values()) for address in turn if address is not None]


class _Race:
    """The attempts of one host. Leaving it closes all sockets but the one that was returned."""

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._waiting = deque(addresses)
        self._next_at = float("-inf")
        self._problem: OSError = socket.gaierror(socket.EAI_NONAME, "no address")
        self._selector = selectors.DefaultSelector()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for attempt in list(self._selector.get_map().values()):
            attempt.fileobj.close()  # type: ignore[union-attr] # ours are sockets
        self._selector.close()

    def step(self, deadline: float) -> socket.socket | None:
        """Begin an attempt that is due, wait briefly, and return a socket that has connected."""
        now, running = monotonic(), self._selector.get_map()
        if now >= deadline:
            raise TimeoutError
        if not self._waiting and not running:
            raise self._problem
        if self._waiting and (not running or now >= self._next_at):
            self._begin(self._waiting.popleft())
            self._next_at = now + STAGGER_SECONDS
            return None
        until = min(deadline, now + POLL_SECONDS, self._next_at if self._waiting else deadline)
        for attempt, _ in self._selector.select(max(until - now, 0.0)):
            line: Any = attempt.fileobj
            self._selector.unregister(line)
            if (code := line.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) == 0:
                connected: socket.socket = line
                return connected
            self._fail(line, code)
        return None

    def _begin(self, address: Address) -> None:
        family, kind, protocol, _, place = address
        try:
            line = socket.socket(family, kind, protocol)
        except OSError as problem:  # such as a system without IPv6
            self._problem = problem
            return
        try:
            line.settimeout(0)
            code = line.connect_ex(place)
        except BaseException:
            line.close()
            raise
        if code in _PENDING:
            self._selector.register(line, selectors.EVENT_WRITE)
        else:
            self._fail(line, code)

    def _fail(self, line: socket.socket, code: int) -> None:
        """Close a socket, and let the next address begin at once."""
        line.close()
        self._next_at = float("-inf")
        # A refusal may be a restart, which is worth a retry; an unreachable network is not.
        if not isinstance(self._problem, ConnectionError):
            self._problem = OSError(code, os.strerror(code))
