"""The login throttle: passwords and codes, off the event loop and not too often (D-97, D-165)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from licserver.domain.environments import provider_network
from licserver.services import Services
from licserver.web.worker_threads import WorkerThreads

R = TypeVar("R")

_QUEUE: Final = 20
"""Attempts that may wait for a thread that hashes: two seconds of work."""
_SHARE: Final = 5
"""Of them, those of one network."""


class TooManyAttemptsError(Exception):
    """Too many attempts for this address, for this name, or altogether; nothing was compared."""


class LoginThrottle:
    """Runs what verifies passwords and codes.

    Two threads hash: one for users at addresses from which they have signed in before, one for everybody
    else, so that guesses from elsewhere never delay the former. Each thread needs 64 MiB.

    Args:
        services: Counts attempts.
        threads: Read the database.
    """

    def __init__(self, services: Services, threads: WorkerThreads) -> None:
        self._services, self._threads = services, threads
        self._queues = {is_known: _Queue(f"console-logins-{is_known}") for is_known in (False, True)}

    async def attempt(self, address: str, name: str, compare: Callable[[bool], R]) -> R:
        """Count an attempt and run `compare`, both on one thread.

        An attempt that finds a full queue is not even counted: what is written is bounded by what a thread
        can hash.

        Args:
            address: Whose attempts are counted (`ClientAddress.counted`).
            name: As typed.
            compare: Takes whether the user has signed in from this address lately.

        Raises:
            TooManyAttemptsError: before anything was compared, so that the response reveals nothing.
        """
        is_known = await self._threads.run(self._services.logins.is_known_address, address, name)

        def count_and_compare() -> R:
            if not self._services.logins.count_attempt(address, name, is_known=is_known):
                raise TooManyAttemptsError
            return compare(is_known)

        return await self._queues[is_known].run(provider_network(address), count_and_compare)

    def close(self) -> None:
        """Let the threads end."""
        for queue in self._queues.values():
            queue.close()


class _Queue:
    """One thread, and the attempts that wait for it."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting = Counter[str]()

    async def run(self, network: str, work: Callable[[], R]) -> R:
        """Run `work` on the thread, unless too many are waiting, or too many of this network."""
        if self._waiting.total() >= _QUEUE or self._waiting[network] >= _SHARE:
            raise TooManyAttemptsError
        self._waiting[network] += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting[network] -= 1
            if not self._waiting[network]:
                del self._waiting[network]

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)
