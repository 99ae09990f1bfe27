"""The login throttle: passwords and codes, off the event loop and not too often (D-97, D-165)."""

import asyncio
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from licserver.domain.environments import network_of
from licserver.domain.records import Actor, ActorKind
from licserver.services import Vendor
from licserver.services.users import SignedIn
from licserver.web.worker_threads import WorkerThreads

R = TypeVar("R")

_QUEUE: Final = 20
"""Attempts that may wait for a thread that hashes: two seconds of work."""
_SHARE: Final = 5
"""Of them, those of one network."""


class TooManyTriesError(Exception):
    """Too many attempts for this address, for this name, or altogether; nothing was compared."""


class LoginThrottle:
    """Verifies passwords and codes.

    Two threads hash: one for users at addresses from which they have signed in before, one for everybody
    else, who never make the former wait. However many attempts there are, they hold 64 MiB a thread.

    Args:
        vendor: Knows the users.
        off_loop: Reads the database.
    """

    def __init__(self, vendor: Vendor, off_loop: WorkerThreads) -> None:
        self._vendor, self._off_loop = vendor, off_loop
        self._queues = {is_known: _Queue(f"console-logins-{is_known}") for is_known in (False, True)}

    async def sign_in(self, address: str, name: str, password: str) -> SignedIn | None:
        """Verify a password, and begin a session.

        Args:
            address: Whose attempts are counted (`ClientAddress.counted`).
            name: As typed.
            password: As typed.

        Returns:
            The user, or None for a wrong name or password.

        Raises:
            TooManyTriesError: before anything was compared, so that the response tells nothing.
        """
        return await self._try(address, name, lambda _: self._vendor.sign_in(name, password, address))

    async def sign_in_with_code(self, address: str, who: SignedIn, code: str) -> SignedIn | None:
        """Verify a code, and begin a session; None for a wrong code.

        Raises:
            TooManyTriesError: as for `sign_in`.
            WrongUse: after too many wrong codes.
        """

        def compare(is_known: bool) -> SignedIn | None:
            return self._vendor.sign_in_with_code(who, code, address, is_known=is_known)

        return await self._try(address, who.name, compare)

    async def change_password(self, address: str, who: SignedIn, old: str, new: str) -> SignedIn | None:
        """Change one's own password; returns a new session, or None when the old password is wrong.

        Raises:
            TooManyTriesError: as for `sign_in`: a session left open must be no place to guess.
            WrongUse: when the new one is too weak.
        """
        acting = self._vendor.acting_as(Actor(ActorKind.USER, who.name))
        return await self._try(address, who.name, lambda _: acting.change_password(who, old, new))

    async def begin_enrolment(self, address: str, who: SignedIn, password: str) -> bool:
        """Draw the secret of a second factor; False for a wrong password.

        Raises:
            TooManyTriesError: as for `sign_in`.
            WrongUse: when the user has a second factor.
        """
        return await self._try(address, who.name, lambda _: self._vendor.begin_enrolment(who, password))

    async def disable_second_factor(
        self, address: str, who: SignedIn, password: str, code: str
    ) -> SignedIn | None:
        """Remove one's own second factor; None for a wrong password or code.

        Raises:
            TooManyTriesError: as for `sign_in`.
            WrongUse: after too many wrong codes.
        """

        def compare(is_known: bool) -> SignedIn | None:
            return self._vendor.disable_second_factor(who, password, code, is_known=is_known)

        return await self._try(address, who.name, compare)

    async def _try(self, address: str, name: str, compare: Callable[[bool], R]) -> R:
        """Count an attempt, and compare, both on one thread.

        Not even counted when many are waiting: so what is written is bounded by what a thread can hash.
        """
        is_known = await self._off_loop.run(self._vendor.is_known_address, address, name)

        def count_and_compare() -> R:
            if not self._vendor.may_try(address, name, is_known=is_known):
                raise TooManyTriesError
            return compare(is_known)

        return await self._queues[is_known].run(network_of(address), count_and_compare)

    def close(self) -> None:
        """Let the threads end."""
        for queue in self._queues.values():
            queue.close()


class _Queue:
    """One thread, and those who wait for it."""

    def __init__(self, name: str) -> None:
        self._thread = ThreadPoolExecutor(1, name)
        self._waiting = Counter[str]()

    async def run(self, network: str, work: Callable[[], R]) -> R:
        """Run `work` on the thread, unless too many are waiting, or too many of this network."""
        if self._waiting.total() >= _QUEUE or self._waiting[network] >= _SHARE:
            raise TooManyTriesError
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
