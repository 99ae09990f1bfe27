"""The client's address: that of the connection, or the one that trusted proxies forward (D-05)."""

import logging
from functools import lru_cache
from typing import Final, NamedTuple

from aiohttp import web

from licserver.domain.environments import client_ip, normalise_ip, parse_ip
from licserver.settings import Settings

_NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - means no address
ONE_CUSTOMER: Final = 64
"""Leading bits of IPv6 that are counted together: a client with one address of a /64 has them all."""

_REMEMBERED: Final = 65_536
_REMEMBERED_BEHIND_PROXIES: Final = 16_384
_LONGEST_REMEMBERED: Final = 96
"""Characters of ``X-Forwarded-For``, enough for two hops: clients may write one of any length."""

_log = logging.getLogger("licserver.web")


class ClientAddress(NamedTuple):
    """A client's address.

    `ip` is as activations have it, `counted` as limits do: the same for all addresses of an IPv6 /64.
    """

    ip: str
    counted: str
    is_here: bool


class ClientAddresses:
    """Finds the address of a request's client."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._behind_proxies = bool(settings.trusted_proxies)
        size = _REMEMBERED_BEHIND_PROXIES if self._behind_proxies else _REMEMBERED
        self._known = lru_cache(maxsize=size)(self._read)
        self._has_warned = False

    def find(self, request: web.Request) -> ClientAddress:
        """Return the connection's address, or the one that a trusted proxy forwards."""
        peername = request.protocol.peername  # kept by the connection: no system call
        peer = peername[0] if peername else _NO_ADDRESS
        if not self._behind_proxies:
            return self._known(peer)
        forwarded = request.headers.getall("X-Forwarded-For", ())
        if len(forwarded) == 1:
            hops = forwarded[0]
            if len(hops) <= _LONGEST_REMEMBERED:
                return self._known(peer, hops)
        return self._read(peer, *forwarded)

    def look_for_a_proxy(self, request: web.Request) -> None:
        """Warn once of a proxy that the settings do not name: all its customers share its address (D-127).

        Called only for requests that take a slot: a check of every request would cost too much.
        """
        if self._behind_proxies or self._has_warned or "X-Forwarded-For" not in request.headers:
            return
        self._has_warned = True
        _log.warning(
            "a request from %s has X-Forwarded-For, and LICSERVER_TRUSTED_PROXIES names no proxy; if it is "
            "one, name it: until then all its customers have one address, for slots and for limits",
            request.protocol.peername and request.protocol.peername[0],
        )

    def _read(self, peer: str, *forwarded: str) -> ClientAddress:
        believed = client_ip(peer.partition("%")[0], forwarded, self._settings.trusted_proxies)
        address = parse_ip(believed)
        if address is None:
            return ClientAddress(_NO_ADDRESS, _NO_ADDRESS, is_here=False)
        return ClientAddress(
            normalise_ip(address, self._settings.ipv6_prefix),
            normalise_ip(address, ONE_CUSTOMER),
            address.is_loopback,
        )
