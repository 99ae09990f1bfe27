"""Misses counted by several servers together in a Redis; needs the extra ``licserver[redis]``."""

import asyncio
import logging
from time import monotonic
from typing import Final

from licserver.errors import SettingsError

try:
    from limits import RateLimitItemPerMinute
    from limits.aio.storage import RedisStorage
    from limits.aio.strategies import SlidingWindowCounterRateLimiter
    from limits.errors import ConfigurationError
    from redis.exceptions import RedisError
except ImportError:
    raise SettingsError(
        "LICSERVER_REDIS_URL needs the extra redis; run: pip install 'licserver[redis]'"
    ) from None

_log = logging.getLogger("licserver.web")

_TIMEOUT: Final = 0.25  # seconds that the response to a miss may wait for the Redis
_RETRY_AFTER: Final = 5.0  # seconds without a call after one that failed


class RedisCounter:
    """Counts by address in a sliding minute, together with all servers that use the same Redis.

    Raises:
        SettingsError: when the URL cannot be used; without the URL, which may hold a password.
    """

    def __init__(self, url: str) -> None:
        try:
            self._storage = RedisStorage(
                f"async+{url}",
                implementation="redispy",
                key_prefix="licserver",
                socket_timeout=_TIMEOUT,
                socket_connect_timeout=_TIMEOUT,
            )
            # Connects nothing, but raises for an unknown option.
            self._storage.bridge.get_connection().connection_pool.make_connection()  # type: ignore[attr-defined]
        except (ConfigurationError, ValueError, TypeError, RedisError):  # their messages quote the URL
            raise SettingsError("LICSERVER_REDIS_URL must look like redis://host:6379/0") from None
        self._limiter = SlidingWindowCounterRateLimiter(self._storage)
        self._retry_at = 0.0

    async def take(self, name: str, address: str, limit: int) -> bool | None:
        """Count one of `limit` a minute; return None while the Redis is away or slow."""
        if monotonic() < self._retry_at:
            return None
        try:
            async with asyncio.timeout(_TIMEOUT):
                return await self._limiter.hit(RateLimitItemPerMinute(limit), name, address)
        except Exception as problem:  # noqa: BLE001 - whatever it is, a customer waits
            if monotonic() >= self._retry_at:  # else another request has logged it
                self._retry_at = monotonic() + _RETRY_AFTER
                _log.warning(
                    "Redis failed (%s); this process counts misses by itself for %g s",
                    type(problem).__name__,
                    _RETRY_AFTER,
                )
            return None

    async def close(self) -> None:
        """Close the connections."""
        await self._storage.bridge.get_connection().aclose()  # type: ignore[attr-defined]
