"""Limits of a client's requests, and of its misses.

A miss is a request whose key, link or token is not valid.
"""

import asyncio
import heapq
import logging
import math
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple, TypeVar

from aiohttp import web

from licserver.domain import decisions
from licserver.errors import SettingsError
from licserver.protocol import public_api
from licserver.settings import Settings
from licserver.web.client_addresses import ClientAddress, ClientAddresses
from licserver.web.responses import send, send_too_many

_log = logging.getLogger("licserver.web")
_T = TypeVar("_T")


WINDOW: Final = 60.0  # seconds in which calls are counted
MISS_DELAY: Final = int(WINDOW) + 1
"""Seconds after which a client that has made no miss since its last refused one may make one."""

_MAX_COUNTED: Final = 100_000  # addresses counted at a time: 20 MB at most
_MAX_KNOWN: Final = 32_768  # installations remembered in each of two generations: 6 MB at most
_ROUNDING: Final = 1e-6  # rounding error of sums of intervals, in seconds


class SlidingWindowCounter:
    """Counts by key in a sliding minute: the last window counts by the share of it within the minute.

    Not the library `limits`, which counts in a Redis: its memory storage visits all addresses at each call.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._limit = limit
        self._clock = clock
        self._began = clock()
        self._counts: dict[Hashable, int] = {}
        self._before: dict[Hashable, int] = {}

    def take(self, key: Hashable) -> bool:
        """Count one; return False, and count nothing, if the limit is reached."""
        passed = self._clock() - self._began
        if passed >= WINDOW:
            passed = self._turn(passed)
        count = self._counts.get(key, 0)
        if count + self._before.get(key, 0) * (1 - passed / WINDOW) >= self._limit:
            return False
        if count == 0 and len(self._counts) >= _MAX_COUNTED:
            self._turn(WINDOW)  # too early: some counts are lost, and memory stays bounded
        self._counts[key] = count + 1
        return True

    def _turn(self, passed: float) -> float:
        """Start a window; return the seconds of it that have passed."""
        self._before = self._counts if passed < 2 * WINDOW else {}
        self._counts = {}
        into = passed % WINDOW
        self._began = self._clock() - into
        return into


DAY: Final = 86_400.0  # seconds


class TokenBucket:
    """A bucket of `limit` tokens for each address, refilled in a window (generic cell rate algorithm)."""

    def __init__(
        self, limit: int, clock: Callable[[], float] = time.monotonic, window: float = WINDOW
    ) -> None:
        self._interval, self._window = window / limit, window
        self._clock = clock
        self._full_at: dict[str, float] = {}  # when each bucket will be full again
        self._before: dict[str, float] = {}
        self._turn_at = clock() + window
        self.taken: dict[str, int] | None = None
        """Tokens taken by address since they were last shared; None where there is no other process."""

    def take(self, address: str, tokens: float = 1) -> float:
        """Take a token, or some; return 0.0, or the seconds until there are so many."""
        now = self._clock()
        if now >= self._turn_at:
            self._turn(now)
        full_at = self._full_at.get(address)
        if full_at is None:
            full_at = self._before.get(address, now)
            if len(self._full_at) >= _MAX_COUNTED:
                self._turn(now)  # too early: some buckets are refilled, and memory stays bounded
        full_at = (full_at if full_at > now else now) + tokens * self._interval  # noqa: FURB136 - `max` costs twice as much
        if full_at - now > self._window + _ROUNDING:
            return full_at - now - self._window
        self._full_at[address] = full_at
        if self.taken is not None:
            self.taken[address] = self.taken.get(address, 0) + 1
        return 0.0

    def empty(self, address: str, seconds: float) -> None:
        """Take tokens until the bucket is full again after so many seconds; it may be emptier already."""
        full_at = self._clock() + seconds
        self._full_at[address] = max(full_at, self._full_at.get(address, full_at))

    def _turn(self, now: float) -> None:
        """Drop the buckets that are full: nothing was taken from them for a whole window."""
        self._before, self._full_at = self._full_at, {}
        self._turn_at = now + self._window


_REDIS_TIMEOUT: Final = 0.25  # seconds that the response to a miss may wait for the Redis
_REDIS_PAUSE: Final = 5.0  # seconds without a call after one that failed


_TAKE_TOGETHER: Final = """
local now = redis.call('TIME')
local ms = now[1] * 1000 + math.floor(now[2] / 1000)
local full_at = math.max(ms, tonumber(redis.call('GET', KEYS[1]) or 0)) + tonumber(ARGV[1])
redis.call('SET', KEYS[1], string.format('%.0f', full_at), 'PX', string.format('%.0f', full_at - ms + 1000))
return math.floor(full_at - ms)
"""
"""Takes tokens worth so many milliseconds from the bucket of all servers; returns when it is full again."""


class RedisCounter:
    """Counts by address in a sliding minute, together with all servers that use the same Redis.

    Raises:
        SettingsError: when the extra is missing or the URL, which may hold a password, cannot be used.
    """

    def __init__(self, url: str) -> None:
        try:
            from limits import RateLimitItemPerMinute  # noqa: PLC0415 - the extra `redis`
            from limits.aio.storage import RedisStorage  # noqa: PLC0415
            from limits.aio.strategies import SlidingWindowCounterRateLimiter  # noqa: PLC0415
            from limits.errors import ConfigurationError  # noqa: PLC0415
            from redis.exceptions import RedisError  # noqa: PLC0415
        except ImportError:
            raise SettingsError(
                "LICSERVER_REDIS_URL needs the extra redis; run: pip install 'licserver[redis]'"
            ) from None
        try:
            storage = RedisStorage(
                f"async+{url}",
                implementation="redispy",
                key_prefix="licserver",
                socket_timeout=_REDIS_TIMEOUT,
                socket_connect_timeout=_REDIS_TIMEOUT,
            )
            self._client = storage.bridge.get_connection()  # type: ignore[attr-defined]
            self._client.connection_pool.make_connection()  # connects nothing; raises for an unknown option
        except (ConfigurationError, ValueError, TypeError, RedisError):  # their messages quote the URL
            raise SettingsError("LICSERVER_REDIS_URL must look like redis://host:6379/0") from None
        self._limiter, self._per_minute = SlidingWindowCounterRateLimiter(storage), RateLimitItemPerMinute
        self._retry_at = 0.0

    async def take(self, name: str, address: str, limit: int) -> bool | None:
        """Count one of `limit` a minute; return None while the Redis is away or slow."""
        return await self._ask(lambda: self._limiter.hit(self._per_minute(limit), name, address))

    async def take_together(self, seconds: Mapping[str, float]) -> Mapping[str, float]:
        """Take tokens worth so many seconds from addresses' buckets; return the seconds until each is full.

        Returns nothing while the Redis is away or slow.
        """
        pipeline = self._client.pipeline(transaction=False)
        for address, worth in seconds.items():
            pipeline.eval(_TAKE_TOGETHER, 1, f"licserver/flood/{address}", round(worth * 1000))
        waits = await self._ask(pipeline.execute)
        return {} if waits is None else dict(zip(seconds, (ms / 1000 for ms in waits), strict=True))

    async def _ask(self, call: Callable[[], Awaitable[_T]]) -> _T | None:
        if time.monotonic() < self._retry_at:
            return None
        try:
            async with asyncio.timeout(_REDIS_TIMEOUT):
                return await call()
        except Exception as problem:  # noqa: BLE001 - for any exception: a customer waits
            if time.monotonic() >= self._retry_at:  # else another request has logged it
                self._retry_at = time.monotonic() + _REDIS_PAUSE
                message = "Redis failed (%s); this process counts misses and floods by itself for %g s"
                _log.warning(message, type(problem).__name__, _REDIS_PAUSE)
            return None

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()


class KnownInstallations:
    """Hashes of address and domain that have sent a valid key lately, or of these and the key; bounded."""

    def __init__(self) -> None:
        self._recent: set[int] = set()
        self._before: set[int] = set()

    def add(self, *parts: str) -> None:
        """Remember an installation; drop the older half when there are too many."""
        subject = hash(parts)
        if subject not in self._recent:
            if len(self._recent) >= _MAX_KNOWN:
                self._before, self._recent = self._recent, set()
            self._recent.add(subject)

    def __contains__(self, subject: int) -> bool:
        return subject in self._recent or subject in self._before


_SHARE_SECONDS: Final = 1.0
_MAX_SHARED: Final = 1_000  # addresses a second
_SHARED_FROM: Final = 0.1  # of the tokens that come back in that time; less is no flood


class SharedBuckets:
    """Exchanges with other servers, once a second, which addresses take many tokens (D-257).

    No request waits for it: a flood passes for up to a second at each server, and then at none.
    """

    def __init__(self, buckets: TokenBucket, limit: int, redis: RedisCounter) -> None:
        self._buckets, self._redis = buckets, redis
        self._interval = WINDOW / limit
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin to share."""
        self._buckets.taken = {}
        self._task = asyncio.create_task(self._share_repeatedly())

    async def stop(self) -> None:
        """Share no more."""
        self._is_stopped = True  # a cancellation may be lost: redis uses `wait_for`, which does so until 3.12
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _share_repeatedly(self) -> None:
        while not self._is_stopped:
            await asyncio.sleep(_SHARE_SECONDS)
            try:
                await self._share()
            except Exception:  # noqa: BLE001 - the next time
                _log.exception("floods of the last second are counted by this process alone")

    async def _share(self) -> None:
        taken, self._buckets.taken = self._buckets.taken or {}, {}
        least = _SHARED_FROM * _SHARE_SECONDS / self._interval
        many = heapq.nlargest(_MAX_SHARED, ((n, address) for address, n in taken.items() if n >= least))
        if many:
            worth = {address: count * self._interval for count, address in many}
            for address, seconds in (await self._redis.take_together(worth)).items():
                self._buckets.empty(address, seconds)


class MissLimiter:
    """Limits the misses of an address to `limit` a minute (D-70, D-162).

    One domain gets half of them at most, so that a machine that guesses does not use them up for an office. A
    sixth is reserved for installations that have sent a valid key, against guesses under ever new domains.
    `shared` counts in a Redis instead; the halves by domain are counted by each process.
    """

    def __init__(
        self, limit: int, shared: RedisCounter | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.known = KnownInstallations()
        reserved = limit // 6
        self._domains = SlidingWindowCounter(math.ceil(limit / 2))
        self._limits = {"miss": limit - reserved, "known": reserved}
        self._own = {name: SlidingWindowCounter(share) for name, share in self._limits.items()}
        self._shared = shared
        self._clock = clock
        self._refused: dict[Hashable, float] = {}
        self._refused_before: dict[Hashable, float] = {}

    async def take(self, address: str, domain: str) -> bool:
        """Count a miss; return False if there were too many. Requests without a domain count as one, ""."""
        pair = hash((address, domain))
        if not self._domains.take(pair):
            self._note_refused(pair)
            return False
        if await self._take("miss", address):
            return True
        self._note_refused(address)
        return pair in self.known and await self._take("known", address)

    @property
    def has_refused(self) -> bool:
        """Whether any miss was refused since the process began; most have none."""
        return bool(self._refused or self._refused_before)

    def is_used_up(self, address: str, domain: str, key: str) -> bool:
        """Return whether a miss was refused within the last minute, unless this key was valid there."""
        pair, since = hash((address, domain)), self._clock() - WINDOW
        return hash((address, domain, key)) not in self.known and any(
            self._refused.get(subject, self._refused_before.get(subject, -math.inf)) > since
            for subject in (address, pair)
        )

    def _note_refused(self, subject: Hashable) -> None:
        if len(self._refused) >= _MAX_KNOWN:
            self._refused_before, self._refused = self._refused, {}
        self._refused[subject] = self._clock()

    async def _take(self, name: str, address: str) -> bool:
        limit = self._limits[name]
        shared = None if self._shared is None else await self._shared.take(name, address, limit)
        return self._own[name].take(address) if shared is None else shared


class Write(NamedTuple):
    """A request that writes: its license, if it names one, and what that had to do with it."""

    license_id: bytes | None
    size: int = 0
    """Slots and floating seats of the license, as far as they are known."""
    weight: float = 1.0
    seat: bytes | None = None
    """The seat that is taken or renewed."""


_WRITES: Final = 60
"""Writes in a minute that any license may cause; a computer that is moved writes twice."""
_WRITES_PER_SIZE: Final = 2
"""For each slot and each floating seat: all of them may be taken and released within a minute."""
USE_WEIGHT: Final = 0.05
RENEWALS: Final = 6
"""How often within its lease a seat may be renewed without being counted: apps do so three times."""


class WriteBudget:
    """Limits what a license, and an address, can have written in a minute (D-301).

    A loop of seats, or of slots that are taken and freed, holds the one writer of SQLite, and each turn costs
    as much as ten verifies. Counted by each process. Renewals of seats are not counted: licenses with many
    seats would need a budget without effect.
    """

    def __init__(self, address_limit: int, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._addresses, self._licenses = TokenBucket(address_limit, clock), TokenBucket(1, clock)
        self._clock, self._pause = clock, lease / RENEWALS
        self._sizes = lru_cache(_MAX_KNOWN)(lambda _license_id: [0])
        self._held: dict[int, float] = {}
        self._held_before: dict[int, float] = {}

    def take(self, write: Write, address: str | None) -> float:
        """Count a request, before its work; return 0.0, or the seconds until there is room for it.

        `address` is None for a client that is not counted.
        """
        license_id, size, weight, seat = write
        if license_id is not None:
            if seat is not None and self._consume_renewal(license_id, seat):
                return 0.0
            size = max(size, self._sizes(license_id)[0])
            tokens = weight / (_WRITES + _WRITES_PER_SIZE * size)
            if delay := self._licenses.take(license_id.hex(), tokens):
                return delay
        return 0.0 if address is None else self._addresses.take(address, weight)

    def note_seat(self, license_id: bytes, seats: int, seat: bytes | None = None) -> None:
        """Remember how many floating seats a license has, and one of them that was granted."""
        self._sizes(license_id)[0] = seats
        if seat is not None:
            if len(self._held) >= _MAX_KNOWN:
                self._held_before, self._held = self._held, {}
            self._held[hash((license_id, seat))] = self._clock()

    def _consume_renewal(self, license_id: bytes, seat: bytes) -> bool:
        """Return whether a seat was granted a while ago; it then has to be granted again."""
        pair = hash((license_id, seat))
        granted_at = self._held.get(pair, self._held_before.get(pair, math.inf))
        if self._clock() < granted_at + self._pause:
            return False
        self._held.pop(pair, None)
        self._held_before.pop(pair, None)
        return True


class RateLimiter:
    """Refuses floods and guesses; a `SettingsError` when the Redis cannot be used as it is named."""

    def __init__(self, settings: Settings) -> None:
        self.clients = ClientAddresses(settings)
        self._flood = TokenBucket(settings.flood_limit) if settings.flood_limit else None
        self._activations, self._uses = map(_of_day, (settings.activation_limit, settings.use_limit))
        self._writes = (
            WriteBudget(settings.write_limit, settings.seat_lease) if settings.write_limit else None
        )
        redis_url = settings.redis_url and settings.redis_url.get_secret_value()
        is_limited = settings.miss_limit or settings.flood_limit
        self._redis = redis = RedisCounter(redis_url) if redis_url and is_limited else None
        self._misses = MissLimiter(settings.miss_limit, redis) if settings.miss_limit else None
        self._shared = None
        if self._flood is not None and redis is not None:
            self._shared = SharedBuckets(self._flood, settings.flood_limit, redis)

    def count_request(self, request: web.Request) -> int:
        """Count a request; return 0, or the seconds after which its address may send one (D-71).

        Requests from this machine are not counted: a proxy here that the settings do not name would have all
        customers counted as one.
        """
        if self._flood is None:
            return 0
        caller = self.clients.find(request)
        return 0 if caller.is_here else math.ceil(self._flood.take(caller.counted))

    def count_write(self, write: Write, caller: ClientAddress) -> int:
        """Count a request that writes, before its work; return as `count_request`."""
        if self._writes is None:
            return 0
        return math.ceil(self._writes.take(write, None if caller.is_here else caller.counted))

    def note_seat(self, license_id: bytes, seats: int, seat: bytes | None = None) -> None:
        """Remember how many floating seats a license has, and one that was granted."""
        if self._writes is not None:
            self._writes.note_seat(license_id, seats, seat)

    def count_activation(self, license_id: bytes) -> int:
        """Count a new activation of a license without a limit; return as `count_request`."""
        return _take(self._activations, license_id, "LICSERVER_ACTIVATION_LIMIT")

    def count_use(self, license_id: bytes) -> int:
        """Count a use of a metered entitlement; return as `count_request`."""
        return _take(self._uses, license_id, "LICSERVER_USE_LIMIT")

    def address(self, request: web.Request) -> str:
        """Return the address whose calls are counted."""
        return self.clients.find(request).counted

    def note_valid(self, address: str, domain: str, imported_key: str | None) -> None:
        """Remember an installation that has sent a valid key; of another system's keys also which one."""
        if self._misses is not None:
            self._misses.known.add(address, domain)
            if imported_key is not None:
                self._misses.known.add(address, domain, imported_key)

    def refuses_guess(self, request: web.Request, key: str, domain: str = "") -> bool:
        """Return whether a key is not even looked up: one of another system, after too many misses (D-70).

        Such keys may be short: a response that shows a valid key lets a client try all. Keys of this system
        cannot be guessed, and are looked up, so that no customer waits for a neighbour that guesses.
        """
        return (
            self._misses is not None
            and self._misses.has_refused  # first: it costs least, and is seldom true
            and not decisions.is_license_key(key)
            and decisions.is_imported_key(key)
            and self._misses.is_used_up(self.clients.find(request).counted, domain, key)
        )

    async def respond_to_miss(
        self, request: web.Request, response: public_api.ApiResponse, domain: str = ""
    ) -> web.StreamResponse:
        """Make the response to a miss; 429 after too many."""
        return send(response) if await self.count_miss(request, domain) else send_too_many(MISS_DELAY)

    async def count_miss(self, request: web.Request, domain: str = "") -> bool:
        """Count a miss; return False after too many from this address or installation."""
        return self._misses is None or await self._misses.take(self.clients.find(request).counted, domain)

    def start(self) -> None:
        """Begin to share what is counted with other servers."""
        if self._shared is not None:
            self._shared.start()

    async def close(self) -> None:
        """Close the connections to the Redis."""
        if self._shared is not None:
            await self._shared.stop()
        if self._redis is not None:
            await self._redis.close()


def _of_day(limit: int) -> TokenBucket | None:
    """Return the bucket of a day's limit: half of it at once, half refilled over the day (D-296)."""
    return TokenBucket(max(1, limit // 2), window=DAY) if limit else None


def _take(bucket: TokenBucket | None, license_id: bytes, setting: str) -> int:
    delay = 0 if bucket is None else math.ceil(bucket.take(license_id.hex()))
    if delay:
        _log.warning("license %s has reached %s, the limit of a day", license_id.hex(), setting)
    return delay


RATE_LIMITER = web.AppKey("rate_limiter", RateLimiter)
