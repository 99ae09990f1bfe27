"""Signing in: a page that anybody may see, and a throttle in front of the passwords (D-97)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from licserver.model import Actor, ActorKind
from licserver.vendor import Vendor
from licserver.vendor.users import SignedIn
from licserver.web.limits import Counter

R = TypeVar("R")

TRIES: Final = 20
"""Attempts a minute for one address, and for one name from wherever they come."""

_QUEUE: Final = 20
"""Attempts that may wait for the one thread that hashes: two seconds of work."""


class TooManyTriesError(Exception):
    """Too many attempts for this address, for this name, or altogether; nothing was compared."""


class Door:
    """Lets users in, off the event loop and not too often.

    One thread hashes: who tries many passwords at once waits in line, and holds 64 MiB and no more.

    Args:
        vendor: Knows who they are.
    """

    def __init__(self, vendor: Vendor) -> None:
        self._vendor = vendor
        self._by_address = Counter(TRIES)
        self._by_name = Counter(TRIES)
        self._thread = ThreadPoolExecutor(1, "console-passwords")
        self._waiting = 0

    async def sign_in(self, address: str, name: str, password: str) -> SignedIn | None:
        """Compare a password, and begin a session.

        Args:
            address: Whose tries are counted (`Caller.counted`).
            name: As typed.
            password: As typed.

        Returns:
            Who it is, or None for a wrong name or password.

        Raises:
            TooManyTriesError: before anything was compared, so that the answer tells nothing.
        """
        # Counted before the comparison: those that run at the same time count as well.
        self.count(address, name)
        return await self._hash(self._vendor.sign_in, name, password)

    async def change_password(self, address: str, who: SignedIn, old: str, new: str) -> SignedIn | None:
        """Change one's own password; gives a new session, or None when the old password is wrong.

        Raises:
            TooManyTriesError: as for `sign_in`: a session left open is no place to guess.
            WrongUse: when the new one is too weak.
        """
        self.count(address, who.name)
        acting = self._vendor.acting_as(Actor(ActorKind.USER, who.name))
        return await self._hash(acting.change_password, who, old, new)

    def count(self, address: str, name: str) -> None:
        """Count an attempt.

        Raises:
            TooManyTriesError: when it is one too many.
        """
        known_as = name.strip().lower()[:64]
        if self._waiting >= _QUEUE or not (self._by_address.take(address) and self._by_name.take(known_as)):
            raise TooManyTriesError

    async def _hash(self, work: Callable[..., R], *given: Any) -> R:
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work, *given)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)
