"""Misses counted by several servers together, in a Redis, which the extra ``licserver[redis]`` brings."""

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
        "LICSERVER_REDIS_URL needs more libraries; install them with: pip install 'licserver[redis]'"
    ) from None

_log = logging.getLogger("licserver.web")

_PATIENCE: Final = 0.25
"""Seconds that an answer to a miss may wait for the Redis."""

_PAUSE: Final = 5.0
"""Seconds in which it is not asked again after it has failed."""


class RedisCounter:
    """Counts by address in a sliding minute, together with all who use the same Redis.

    Args:
        url: The Redis's; may hold a password.

    Raises:
        SettingsError: when the address cannot be used.
    """

    def __init__(self, url: str) -> None:
        try:
            self._storage = RedisStorage(
                f"async+{url}",
                implementation="redispy",
                key_prefix="licserver",
                socket_timeout=_PATIENCE,
                socket_connect_timeout=_PATIENCE,
            )
            # Nothing is connected yet; but an option that there is not is found out here only.
            self._storage.bridge.get_connection().connection_pool.make_connection()  # type: ignore[attr-defined]
        except (ConfigurationError, ValueError, TypeError, RedisError):  # their messages quote the address
            raise SettingsError("LICSERVER_REDIS_URL must look like redis://host:6379/0") from None
        self._limiter = SlidingWindowCounterRateLimiter(self._storage)
        self._asks_again_at = 0.0

    async def take(self, name: str, address: str, limit: int) -> bool | None:
        """Count one.

        Args:
            name: Of what is counted.
            address: Of the client.
            limit: How many a minute.

        Returns:
            False when the limit is reached; None when the Redis cannot say: it is away, slow or
            has failed a moment ago.
        """
        if monotonic() < self._asks_again_at:
            return None
        try:
            async with asyncio.timeout(_PATIENCE):
                return await self._limiter.hit(RateLimitItemPerMinute(limit), name, address)
        except Exception as problem:  # noqa: BLE001 - whatever it is, a customer waits for an answer
            if monotonic() >= self._asks_again_at:  # else somebody who waited beside us has said so
                self._asks_again_at = monotonic() + _PAUSE
                _log.warning(
                    "the Redis failed (%s); this process counts misses by itself for %g s",
                    type(problem).__name__,
                    _PAUSE,
                )
            return None

    async def close(self) -> None:
        """Close the connections."""
        await self._storage.bridge.get_connection().aclose()  # type: ignore[attr-defined]
