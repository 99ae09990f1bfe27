"""Limits by client address: misses in a sliding minute, and a token bucket for all requests (D-70, D-71)."""

import math
import time
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from licserver.protocol import public_api
from licserver.settings import Settings
from licserver.web.client_addresses import ClientAddresses
from licserver.web.errors import send_too_many
from licserver.web.responses import send

if TYPE_CHECKING:
    from licserver.web.redis_limits import RedisCounter

WINDOW: Final = 60.0
"""Seconds in which calls are counted."""

MISS_DELAY: Final = int(WINDOW) + 1
"""Seconds after which whoever was refused a miss, and has made none since, may make one."""

_MAX_COUNTED: Final = 100_000
"""Addresses counted at a time: some 20 MB, however many addresses a flood comes from."""

_MAX_KNOWN: Final = 32_768
"""Installations of a generation that are remembered; two of these are 6 MB."""

_ROUNDING: Final = 1e-6
"""Seconds that sums of a bucket's intervals may be off."""


class Counter:
    """Counts by key in a sliding minute, at the cost of two look-ups.

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
        self._counts: dict[Hashable, int] = {}
        self._before: dict[Hashable, int] = {}

    def take(self, key: Hashable) -> bool:
        """Count one; False, and not counted, when the limit is reached."""
        passed = self._clock() - self._began
        if passed >= WINDOW:
            passed = self._turn(passed)
        count = self._counts.get(key, 0)
        if count + self._before.get(key, 0) * (1 - passed / WINDOW) >= self._limit:
            return False
        if count == 0 and len(self._counts) >= _MAX_COUNTED:
            self._turn(WINDOW)  # too early, which forgets something; it bounds what is held
        self._counts[key] = count + 1
        return True

    def _turn(self, passed: float) -> float:
        """Begin a window; returns the seconds that have passed of it."""
        self._before = self._counts if passed < 2 * WINDOW else {}
        self._counts = {}
        into = passed % WINDOW
        self._began = self._clock() - into
        return into


class TokenBucket:
    """A bucket of tokens for each address, as long as it is not full (the generic cell rate algorithm).

    Args:
        limit: Tokens that a bucket holds, and that it gets in a minute.
        clock: Seconds, never backwards.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = WINDOW / limit
        self._clock = clock
        self._full_at: dict[str, float] = {}  # when each bucket will be full again
        self._before: dict[str, float] = {}  # those that were last taken from before the last turn
        self._turn_at = clock() + WINDOW

    def take(self, address: str) -> float:
        """Take a token.

        Returns:
            0.0, or the seconds until there is one; then none was taken.
        """
        now = self._clock()
        if now >= self._turn_at:
            self._turn(now)
        full_at = self._full_at.get(address)
        if full_at is None:
            full_at = self._before.get(address, now)
            if len(self._full_at) >= _MAX_COUNTED:
                self._turn(now)  # too early, which forgets something; it bounds what is held
        full_at = (full_at if full_at > now else now) + self._interval  # noqa: FURB136 - `max` costs twice as much
        if full_at - now > WINDOW + _ROUNDING:
            return full_at - now - WINDOW
        self._full_at[address] = full_at
        return 0.0

    def _turn(self, now: float) -> None:
        """Forget the buckets that are full: those from which nothing was taken for a whole window."""
        self._before, self._full_at = self._full_at, {}
        self._turn_at = now + WINDOW


class KnownDomains:
    """Which installations have shown a valid key at which address lately; bounded, and only hashes."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._before: set[int] = set()

    def add(self, address: str, domain: str) -> None:
        """Remember a pair; the oldest half is forgotten when there are too many."""
        pair = hash((address, domain))
        if pair not in self._recent:
            if len(self._recent) >= _MAX_KNOWN:
                self._before, self._recent = self._recent, set()
            self._recent.add(pair)

    def __contains__(self, pair: int) -> bool:
        return pair in self._recent or pair in self._before


class Misses:
    """Shares out the misses that an address may make in a minute (D-70, D-162).

    All of them together never exceed the limit. One domain gets half of it at most, so that one machine
    that guesses does not use it up for an office; a sixth is kept for installations that have shown
    a valid key, against a machine that guesses under ever new domains.

    Args:
        limit: How many a minute, for an address.
        shared: Counts in their stead where several servers share a Redis; the halves by domain are each
            process's own.
    """

    def __init__(self, limit: int, shared: "RedisCounter | None") -> None:
        self.known = KnownDomains()
        kept = limit // 6
        self._domains = Counter(math.ceil(limit / 2))
        self._limits = {"miss": limit - kept, "known": kept}
        self._own = {name: Counter(share) for name, share in self._limits.items()}
        self._shared = shared

    async def take(self, address: str, domain: str) -> bool:
        """Count a miss; False when there were too many.

        Args:
            address: Of the client.
            domain: The installation that the request named; all that name none, "", count as one.
        """
        pair = hash((address, domain))
        if not self._domains.take(pair):
            return False
        return await self._take("miss", address) or (
            pair in self.known and await self._take("known", address)
        )

    async def _take(self, name: str, address: str) -> bool:
        limit = self._limits[name]
        shared = None if self._shared is None else await self._shared.take(name, address, limit)
        return self._own[name].take(address) if shared is None else shared

    async def close(self) -> None:
        """Close the connections to the Redis."""
        if self._shared is not None:
            await self._shared.close()


class Limits:
    """Refuses floods and guesses.

    Args:
        settings: How much is too much, and where several servers count together.
        callers: Finds out who calls.

    Raises:
        SettingsError: when the Redis cannot be used as it is named, or the extra is not installed.
    """

    def __init__(self, settings: Settings, callers: ClientAddresses) -> None:
        self._callers = callers
        self._flood = TokenBucket(settings.flood_limit) if settings.flood_limit else None
        self._misses = Misses(settings.miss_limit, _open_shared(settings)) if settings.miss_limit else None

    def flood_delay(self, request: web.Request) -> int:
        """Count a request; return 0, or the seconds after which its address may send one (D-71).

        This machine's own address is not counted: a proxy here that the settings do not name would
        have all customers counted as one.
        """
        if self._flood is None:
            return 0
        caller = self._callers.find(request)
        return 0 if caller.is_here else math.ceil(self._flood.take(caller.counted))

    def address(self, request: web.Request) -> str:
        """Return the address whose calls are counted."""
        return self._callers.find(request).counted

    def note_valid(self, address: str, domain: str) -> None:
        """Remember an installation that has shown a valid key (D-162)."""
        if self._misses is not None:
            self._misses.known.add(address, domain)

    async def answer_miss(
        self, request: web.Request, answer: public_api.Answer, domain: str = ""
    ) -> web.StreamResponse:
        """Answer a miss, or say that there were too many from this address (D-70)."""
        return send(answer) if await self.may_miss(request, domain) else send_too_many(MISS_DELAY)

    async def may_miss(self, request: web.Request, domain: str = "") -> bool:
        """Count a miss; False when there were too many from this address, or this installation (D-70)."""
        return self._misses is None or await self._misses.take(self._callers.find(request).counted, domain)

    async def close(self) -> None:
        """Close the connections to the Redis."""
        if self._misses is not None:
            await self._misses.close()


def _open_shared(settings: Settings) -> "RedisCounter | None":
    if settings.redis_url is None:
        return None
    # Here, not at the top: it comes with the extra `redis` only.
    from licserver.web.redis_limits import RedisCounter  # noqa: PLC0415

    return RedisCounter(settings.redis_url.get_secret_value())
