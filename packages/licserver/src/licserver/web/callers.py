"""Who calls: the address that is believed (D-05), as an environment's half and as whose calls are counted."""

from functools import lru_cache
from typing import Final, NamedTuple

from aiohttp import web

from licserver.environment import connection_ip, normalise_ip, parse_ip
from licserver.settings import Settings

_NO_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - stands for none; nobody listens there
_ONE_CUSTOMER: Final = 64
"""Leading bits of IPv6 that are counted together: who has one address of a /64 has them all (D-70)."""


class Caller(NamedTuple):
    """One address, read.

    Args:
        ip: The half of an environment (D-05).
        counted: Whose calls are counted: the same for all addresses of an IPv6 /64.
        is_here: Whether it is this machine's own.
    """

    ip: str
    counted: str
    is_here: bool


class Callers:
    """Finds out who calls.

    Args:
        settings: Whom to believe, and which IPv6 addresses are one environment.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._behind_proxies = bool(settings.trusted_proxies)
        self._known = lru_cache(maxsize=65536)(self._read)

    def find(self, request: web.Request) -> Caller:
        """Read the connection's address, behind the trusted proxies if there are any."""
        peername = request.protocol.peername  # kept by the connection: no system call
        peer = peername[0] if peername else _NO_ADDRESS
        if not self._behind_proxies:
            return self._known(peer)
        return self._known(peer, *request.headers.getall("X-Forwarded-For", ()))

    def _read(self, peer: str, *forwarded: str) -> Caller:
        believed = connection_ip(peer.partition("%")[0], forwarded, self._settings.trusted_proxies)
        address = parse_ip(believed)
        if address is None:
            return Caller(_NO_ADDRESS, _NO_ADDRESS, is_here=False)
        return Caller(
            normalise_ip(address, self._settings.ipv6_prefix),
            normalise_ip(address, _ONE_CUSTOMER),
            address.is_loopback,
        )
