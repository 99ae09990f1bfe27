"""Requests to hosts that somebody else has chosen, such as webhook endpoints (D-209).

They must not reach our own network. Addresses are checked when a connection is made, not when an endpoint
is added: by then a name may lead elsewhere.
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


class Answer(NamedTuple):
    """What a request came to: a status and the beginning of the body, or why there is none."""

    status: int | None
    text: str


class AddressDeniedError(OSError):
    """A host has an address that must not be connected to."""


class _Guard(AbstractResolver):
    """Resolves names, and creates the sockets of connections: only for permitted addresses."""

    def __init__(self, url: URL, allowed: Sequence[Network]) -> None:
        self._resolver = aiohttp.ThreadedResolver()
        self._is_encrypted, self._allowed = url.scheme == "https", allowed

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve a name. If any of its addresses is denied, so is the name."""
        found = await self._resolver.resolve(host, port, family)
        for one in found:
            self._check(one["host"])
        return found

    def open_socket(self, address: tuple[Any, ...]) -> socket.socket:
        """Create a socket for a connection. Each passes here, also those to a URL with a bare address."""
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
    timeout: float = TIMEOUT,  # noqa: ASYNC109 - one for all steps of a request
) -> Answer:
    """Send JSON to a URL as it was typed, without redirects, proxies and cookies; never raise.

    Networks that are `allowed` may be connected to although they are not public, and by http.
    """
    try:
        target = URL(url, encoded=True)
        guard = _Guard(target, allowed)
        connector = aiohttp.TCPConnector(
            resolver=guard, socket_factory=guard.open_socket, use_dns_cache=False, force_close=True
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
            return Answer(response.status, await _read(response))
    except TimeoutError:
        return Answer(None, f"no complete response within {timeout:.0f} seconds")
    except aiohttp.ClientConnectorError as problem:
        cause = problem.os_error
        is_ours = isinstance(cause, AddressDeniedError)
        what = str(cause) if is_ours else f"cannot connect: {cause.strerror or type(cause).__name__}"
        return Answer(None, what)
    except (aiohttp.ClientError, OSError, ValueError) as problem:
        return Answer(None, f"the connection failed ({type(problem).__name__})")


_HEADERS: Final = {
    "Content-Type": "application/json",
    "User-Agent": "licserver",
    "Accept-Encoding": "identity",
}


async def _read(response: aiohttp.ClientResponse) -> str:
    """Read the beginning of a body as printable text; a body that breaks off does not undo its status."""
    content = b""
    try:
        while len(content) < MAX_ANSWER and (more := await response.content.read(MAX_ANSWER - len(content))):
            content += more
    except (aiohttp.ClientError, asyncio.IncompleteReadError):
        pass
    text = content.decode("utf-8", "replace")
    return "".join(one if one.isprintable() or one == "\n" else "\N{REPLACEMENT CHARACTER}" for one in text)
