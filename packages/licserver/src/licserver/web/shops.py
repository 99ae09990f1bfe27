"""Deliveries of shops, `POST /events/in/NAME`: stored before the response, processed after it."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

from aiohttp import hdrs, web

from licserver.errors import NotFoundError
from licserver.limits import MAX_DELIVERY_BODY_BYTES
from licserver.protocol import public_api
from licserver.runtime.worker_threads import WorkerThreads
from licserver.services.installation import Services
from licserver.services.sources import BadSignatureError, MissingSecretError
from licserver.web.rate_limits import MISS_DELAY, RateLimiter
from licserver.web.responses import ApiError, read_body, send, send_too_many

PATH: Final = "/events/in/{name}"
PATH_SECRET: Final = ":path-secret"  # no header of a request has such a name

LARGE_BYTES: Final = 128 << 10  # nearly all deliveries are smaller, and so are never refused
MAX_LARGE: Final = 16
"""Large deliveries that are read at a time: any client can send some, before the signature is verified."""
MAX_SENDERS: Final = 1_000  # addresses that are remembered, of shops and of refused clients each

_log = logging.getLogger("licserver.sales")


@dataclass(eq=False, slots=True)
class _Reading:
    """A delivery that is being read; `turn` is expired when it gives way to another one."""

    address: str
    source: str
    turn: asyncio.Timeout
    began: float
    size: int = 0

    def speed(self, now: float) -> float:
        """Return the bytes a second since the body was asked for."""
        return self.size / max(now - self.began, 1e-3)


class LargeDeliveries:
    """Bounds the memory of deliveries that are being read, without letting strangers keep shops out.

    Beyond `most` large ones, one gives way with 429 (D-305): that of a client which has never sent a signed
    delivery, before all if its last one was refused; of the address with the most of them, of the source with
    the most, and then the slowest. Each process decides by what it has seen.
    """

    def __init__(self, size: int = LARGE_BYTES, limit: int = MAX_LARGE) -> None:
        self._size, self._limit = size, limit
        self._large: list[_Reading] = []
        self._senders = dict[str, None]()
        self._refused = dict[str, None]()

    def is_large(self, length: int | None) -> bool:
        """Return whether a delivery of a declared length may become large; None: the length is unknown."""
        return length is None or length > self._size

    def note_signed(self, address: str) -> None:
        """Remember an address that has sent a signed delivery."""
        self._refused.pop(address, None)
        _remember(self._senders, address)

    def note_refused(self, address: str) -> None:
        """Remember an address whose delivery had no right signature, or no source."""
        _remember(self._refused, address)

    @asynccontextmanager
    async def reading(self, address: str, source: str) -> AsyncIterator[Callable[[int], None]]:
        """Give the function that is called with the size of a delivery as it grows; 429 if it gives way."""
        try:
            async with asyncio.timeout(None) as turn:
                delivery = _Reading(address, source, turn, asyncio.get_running_loop().time())
                try:
                    yield lambda size: self._grow(delivery, size)
                finally:
                    if delivery in self._large:
                        self._large.remove(delivery)
        except TimeoutError:
            raise _too_many() from None

    def _grow(self, delivery: _Reading, size: int) -> None:
        is_first = delivery.size <= self._size < size
        delivery.size = size
        if not is_first:
            return
        self._large.append(delivery)
        if len(self._large) > self._limit:
            last = self._find_last()
            self._large.remove(last)
            if last is delivery:
                raise _too_many()
            last.turn.reschedule(0)

    def _find_last(self) -> _Reading:
        """Return the delivery that gives way."""
        now = asyncio.get_running_loop().time()
        addresses = Counter(delivery.address for delivery in self._large)
        sources = Counter(delivery.source for delivery in self._large)
        return max(
            self._large,
            key=lambda delivery: (
                delivery.address not in self._senders,
                delivery.address in self._refused,
                addresses[delivery.address],
                sources[delivery.source],
                -delivery.speed(now),
            ),
        )


def _remember(addresses: dict[str, None], address: str) -> None:
    """Add an address as the newest; forget the oldest beyond `MAX_SENDERS`."""
    addresses.pop(address, None)
    addresses[address] = None
    if len(addresses) > MAX_SENDERS:
        del addresses[next(iter(addresses))]


def _too_many() -> ApiError:
    return ApiError(429, "Too many large requests are read already.", {hdrs.RETRY_AFTER: "10"})


@dataclass(frozen=True, slots=True)
class SaleDeliveries:
    """Takes deliveries; `threads` verify and store them, and `wake` has them processed."""

    services: Services
    wake: Callable[[], None]
    rate_limiter: RateLimiter
    threads: WorkerThreads
    large: LargeDeliveries = field(default_factory=LargeDeliveries)

    async def receive(self, request: web.Request) -> web.StreamResponse:
        """Respond once the delivery is stored; a shop repeats what gets no 2xx."""
        timeout = self.services.settings.body_timeout
        address, name = self.rate_limiter.address(request), request.match_info["name"]
        sources = self.services.sources
        try:
            if self.large.is_large(request.content_length):
                await self.threads.run(sources.get, name)  # a body without a source is not read
            async with self.large.reading(address, name) as grow:
                body = await read_body(request, MAX_DELIVERY_BODY_BYTES, timeout, grow)
            headers = {header.lower(): value for header, value in request.headers.items()}
            headers[PATH_SECRET] = request.query.get("secret", "")  # of shops that sign nothing
            receipt = await self.threads.run(sources.receive, name, headers, body)
        except NotFoundError:
            self.large.note_refused(address)
            response = public_api.error_response(404, "not_found", "There is no such source.")
            return await self.rate_limiter.respond_to_miss(request, response)
        except MissingSecretError:
            if not await self.rate_limiter.count_miss(request):  # or any caller could fill the log
                return send_too_many(MISS_DELAY)
            raise
        except BadSignatureError as wrong:
            self.large.note_refused(address)
            if not await self.rate_limiter.count_miss(request):  # likewise
                return send_too_many(MISS_DELAY)
            _log.warning("a delivery for the source %s was refused: %s", name, wrong)
            return send(
                public_api.error_response(
                    401,
                    "bad_signature",
                    "The signature is missing, wrong or too old; the server's log has more.",
                )
            )
        if receipt.status in {"accepted", "duplicate"}:  # an ignored one may be a ping, which is not signed
            self.large.note_signed(address)
        if receipt.status == "accepted":
            self.wake()
        elif receipt.status == "unreadable":
            _log.warning("a delivery of the source %s cannot be read: %s", name, receipt.reason)
        content = {"status": receipt.status, **({"reason": receipt.reason} if receipt.reason else {})}
        return send(public_api.json_response(200, content))
