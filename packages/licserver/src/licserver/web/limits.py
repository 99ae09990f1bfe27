"""Who calls too often: guesses, counted by address, and floods (D-70, D-71)."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from licserver import wire
from licserver.settings import Settings
from licserver.web.answers import send
from licserver.web.callers import Callers
from licserver.web.errors import send_too_many

if TYPE_CHECKING:
    from licserver.web.shared import SharedCounter

WINDOW: Final = 60.0
"""Seconds in which calls are counted."""

_MAX_COUNTED: Final = 100_000
"""Addresses counted at a time: some 20 MB, however many addresses a flood comes from."""


class Counter:
    """Counts by address in a sliding minute, at the cost of two look-ups.

    The last whole window counts with the share of it that is still within the minute. Ours, because
    the memory of the library `limits` looks through all addresses at each call, which is what
    a flood from many of them would want; it counts where several servers share a Redis.

    Args:
        limit: How many a minute.
        clock: Seconds, never backwards.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._began = clock()
        self._counts: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def take(self, address: str) -> bool:
        """Count one; False, and not counted, when the limit is reached."""
        passed = self._clock() - self._began
        if passed >= WINDOW:
            passed = self._turn(passed)
        count = self._counts.get(address, 0)
        if count + self._before.get(address, 0) * (1 - passed / WINDOW) >= self._limit:
            return False
        if count == 0 and len(self._counts) >= _MAX_COUNTED:
            self._turn(WINDOW)  # too early, which forgets something; it bounds what is held
        self._counts[address] = count + 1
        return True

    def _turn(self, passed: float) -> float:
        """Begin a window; returns the seconds that have passed of it."""
        self._before = self._counts if passed < 2 * WINDOW else {}
        self._counts = {}
        into = passed % WINDOW
        self._began = self._clock() - into
        return into


class Limits:
    """Turns away who floods or guesses.

    Args:
        settings: How much is too much, and where several servers count together.
        callers: Finds out who calls.

    Raises:
        SettingsError: when the Redis cannot be used as it is named, or the extra is not installed.
    """

    def __init__(self, settings: Settings, callers: Callers) -> None:
        self._callers = callers
        self._flood = Counter(settings.flood_limit) if settings.flood_limit else None
        self._misses = Counter(settings.miss_limit) if settings.miss_limit else None
        self._shared = _open_shared(settings)

    def is_flood(self, request: web.Request) -> bool:
        """Count a request, and tell whether its address has sent too many (D-71).

        This machine's own address is not counted: a proxy here that the settings do not name would
        have all customers counted as one.
        """
        if self._flood is None:
            return False
        caller = self._callers.find(request)
        return not (caller.is_here or self._flood.take(caller.counted))

    def address(self, request: web.Request) -> str:
        """Return the address whose calls are counted."""
        return self._callers.find(request).counted

    async def answer_miss(self, request: web.Request, answer: wire.Answer) -> web.StreamResponse:
        """Answer a miss, or say that there were too many from this address (D-70)."""
        return send(answer) if await self.may_miss(request) else send_too_many()

    async def may_miss(self, request: web.Request) -> bool:
        """Count a miss; False when there were too many from this address (D-70)."""
        return self._misses is None or await self._may_miss(self._misses, self._callers.find(request).counted)

    async def _may_miss(self, own: Counter, address: str) -> bool:
        shared = None if self._shared is None else await self._shared.take(address)
        return own.take(address) if shared is None else shared

    async def close(self) -> None:
        """Let go of the Redis."""
        if self._shared is not None:
            await self._shared.close()


def _open_shared(settings: Settings) -> "SharedCounter | None":
    if settings.redis_url is None or not settings.miss_limit:
        return None
    # Here, not at the top: it comes with the extra `redis` only.
    from licserver.web.shared import SharedCounter  # noqa: PLC0415

    return SharedCounter(settings.redis_url.get_secret_value(), settings.miss_limit)
