"""Requests to hosts from user input, such as webhook endpoints.

They must not reach our own network. Addresses are checked for each connection, not when an endpoint is
added: a name may resolve to another address later.
"""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from licserver.security.outbound_addresses import Network, is_listed, is_permitted, parse_address

TIMEOUT: Final = 15.0  # seconds from the first look-up to the last byte
MAX_ANSWER: Final = 2048  # bytes of a response that are read; the connection is closed then


class OutboundResponse(NamedTuple):
    """The result of a request: a status and the beginning of the body, or the reason of a failure."""

    status: int | None
    text: str


class AddressDeniedError(OSError):
    """A host has an address that must not be connected to."""


class _DenyingResolver(AbstractResolver):
    """A resolver and socket factory that permits only public or listed addresses."""

    def __init__(self, url: URL, allowed: Sequence[Network]) -> None:
        self._resolver = aiohttp.ThreadedResolver()
        self._is_encrypted, self._allowed = url.scheme == "https", allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a name; raise an `AddressDeniedError` if any of its addresses is denied."""
        results = await self._resolver.resolve(host, port, family)
        for result in results:
            self._check(result["host"])
        return results

    def open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Create the socket of a connection, after checking its address; also for URLs with an IP address."""
        family, kind, protocol, _, (ip, *_) = address
        self._check(ip)
        return socket.socket(family, kind, protocol)

    def _check(self, ip: str) -> None:
        address = parse_address(ip)
        if not is_permitted(address, self._allowed):
            raise AddressDeniedError(f"{address} is not a public address")
        if not self._is_encrypted and not is_listed(address, self._allowed):
            raise AddressDeniedError("http is for networks of LICSERVER_WEBHOOK_NETWORKS only; use https")

    async def close(self) -> None:
        """Close the resolver."""
        await self._resolver.close()


async def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    allowed: Sequence[Network] = (),
    timeout: float = TIMEOUT,  # noqa: ASYNC109 - for all steps of a request together
) -> OutboundResponse:
    """Post JSON to a URL as it was typed, without redirects, proxies and cookies; never raise.

    Addresses in `allowed` networks are permitted although they are not public, also by http.
    """
    try:
        target = URL(url, encoded=True)
        resolver = _DenyingResolver(target, allowed)
        connector = aiohttp.TCPConnector(
            resolver=resolver, socket_factory=resolver.open_socket, use_dns_cache=False, force_close=True
        )
        async with (
            aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=timeout, ceil_threshold=timeout + 1),
                auto_decompress=False,
                trust_env=False,
            ) as session,
            session.post(
                target, data=body, headers={**_HEADERS, **headers}, allow_redirects=False
            ) as response,
        ):
            return OutboundResponse(response.status, await _read(response))
    except TimeoutError:
        return OutboundResponse(None, f"no complete response within {timeout:.0f} seconds")
    except aiohttp.ClientConnectorError as problem:
        cause = problem.os_error
        is_ours = isinstance(cause, AddressDeniedError)
        reason = str(cause) if is_ours else f"cannot connect: {cause.strerror or type(cause).__name__}"
        return OutboundResponse(None, reason)
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        return OutboundResponse(None, f"the connection failed ({type(problem).__name__})")


_HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": "licserver",
    "Accept-Encoding": "identity",
}


async def _read(response: aiohttp.ClientResponse) -> str:
    """Read the beginning of a body as printable text; a body that breaks off is not an error."""
    content = b""
    try:
        while len(content) < MAX_ANSWER and (more := await response.content.read(MAX_ANSWER - len(content))):
            content += more
    except (aiohttp.ClientError, asyncio.IncompleteReadError):
        pass
    text = content.decode("utf-8", "replace")
    return "".join(
        char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in text
    )
