"""Open connections: a limit for each client; idle ones are closed when descriptors are scarce (D-163)."""

import asyncio
import errno
import heapq
import logging
import socket
import sys
import time
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, Final, Protocol

from licserver.domain.environments import IpNetwork, normalise_ip, parse_ip
from licserver.settings import Settings
from licserver.web.rate_limits import ONE_CUSTOMER

if sys.platform != "win32":
    import resource

ACCEPTED_AT_ONCE: Final = 8
"""Connections accepted in a turn of the event loop; they are counted up to three turns later."""

_CLOSED_AT_ONCE: Final = 32
_REMEMBERED: Final = 4096  # addresses whose client is cached: 0.7 us instead of 3.5
_MOST_DESCRIPTORS: Final = 65_536
_LARGEST_RESERVE: Final = 1024
_SHORTAGE: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PROXIES: Final = ""  # the client of all proxies, and of a proxy on this machine that no setting names

_log = logging.getLogger("licserver.web")


class IdleConnection(Protocol):
    """What `OpenConnections` needs of a connection."""

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request."""

    @property
    def idle_until(self) -> float:
        """When it would be closed for being idle."""

    def force_close(self) -> None:
        """Close it."""


class OpenConnections:
    """The open connections of a process, by client; of so many `descriptors`, if known."""

    def __init__(self, settings: Settings, descriptors: int | None = None) -> None:
        self._client = lru_cache(maxsize=_REMEMBERED)(partial(_client, settings.trusted_proxies))
        self._by_client: dict[str, set[IdleConnection]] = {}
        self._closed: bool | None = None  # the result of `close_idle` in this turn of the event loop
        self._quiet_until = 0.0
        self._limit = settings.connection_limit
        self._scarce_from = self._none_from = 1 << 30
        if descriptors is not None:
            # The reserve is for files, the database, and connections that are accepted and not yet counted.
            reserve = min(descriptors // 4, _LARGEST_RESERVE)
            self._scarce_from, self._none_from = descriptors - reserve, descriptors - reserve // 2
            if self._limit:
                self._limit = min(self._limit, max(1, self._scarce_from // 4))

    def add(self, connection: IdleConnection, transport: asyncio.BaseTransport) -> str | None:
        """Count a connection; close idle ones if its client has too many, or descriptors are scarce.

        Returns the client, for `remove`; None when the connection must be closed, because none is idle.
        """
        # The system assigns the lowest free number: it shows how many are in use.
        descriptor = _descriptor(transport)
        if descriptor >= self._scarce_from and not self.close_idle() and descriptor >= self._none_from:
            return None
        peername = transport.get_extra_info("peername")
        client = self._client(peername[0] if peername else "")
        held = self._by_client.setdefault(client, set())
        if self._limit and client != _PROXIES and len(held) >= self._limit:
            oldest = min(_idle(held), key=_idle_until, default=None)
            if oldest is None:
                return None
            oldest.force_close()
        held.add(connection)
        return client

    def remove(self, connection: IdleConnection, client: str) -> None:
        """Remove a closed connection."""
        held = self._by_client[client]
        held.discard(connection)
        if not held:
            del self._by_client[client]

    def close_idle(self) -> bool:
        """Close the sixteenth of the idle connections that has been idle longest; return False if none is.

        Those of proxies come last: many clients share them, and a proxy may not notice in time.
        """
        if self._closed is not None:  # in this turn; the descriptors are free in the next one
            return self._closed
        idle = _idle(one for client, held in self._by_client.items() if client != _PROXIES for one in held)
        idle = idle or _idle(self._by_client.get(_PROXIES, ()))
        oldest = heapq.nsmallest(max(_CLOSED_AT_ONCE, len(idle) // 16), idle, key=_idle_until)
        for connection in oldest:
            connection.force_close()
        self._closed = bool(oldest)
        asyncio.get_running_loop().call_soon(self._allow_closing)
        self._warn(len(oldest))
        return self._closed

    def _allow_closing(self) -> None:
        self._closed = None

    def _warn(self, closed: int) -> None:
        if (now := time.monotonic()) < self._quiet_until:
            return
        self._quiet_until = now + 1
        _log.warning(
            "file descriptors are scarce: closed %d idle connections; if this goes on, raise the limit "
            "(LimitNOFILE, ulimit -n)",
            closed,
        )

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Handle an error of the event loop: where `accept` lacks descriptors, close idle connections.

        asyncio accepts again a second later.
        """
        problem = context.get("exception")
        if isinstance(problem, OSError) and problem.errno in _SHORTAGE and "socket" in context:
            self.close_idle()
        else:
            loop.default_exception_handler(context)


def raise_descriptor_limit() -> int | None:
    """Raise the soft limit of descriptors to the hard one, at most 65,536; return it."""
    if sys.platform == "win32":
        return None  # there is no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return _MOST_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def _descriptor(transport: asyncio.BaseTransport) -> int:
    sock: socket.socket | None = transport.get_extra_info("socket")
    return -1 if sock is None else sock.fileno()


def _client(trusted: Iterable[IpNetwork], host: str) -> str:
    """Return the client of an address: the address itself, of IPv6 the /64; "" for a proxy."""
    address = parse_ip(host.partition("%")[0])
    if address is None or str(address) in {"127.0.0.1", "::1"} or any(address in one for one in trusted):
        return _PROXIES
    return normalise_ip(address, ONE_CUSTOMER)


def _idle(connections: Iterable[IdleConnection]) -> list[IdleConnection]:
    return [one for one in connections if one.is_idle]


def _idle_until(connection: IdleConnection) -> float:
    return connection.idle_until
