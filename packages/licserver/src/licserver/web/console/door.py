"""Signing in: a page that anybody may see, and a throttle in front of the passwords (D-97)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from licserver.model import Actor, ActorKind
from licserver.vendor import Vendor
from licserver.vendor.users import SignedIn

R = TypeVar("R")

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
        return await self._try(address, name, lambda: self._vendor.sign_in(name, password))

    async def change_password(self, address: str, who: SignedIn, old: str, new: str) -> SignedIn | None:
        """Change one's own password; gives a new session, or None when the old password is wrong.

        Raises:
            TooManyTriesError: as for `sign_in`: a session left open is no place to guess.
            WrongUse: when the new one is too weak.
        """
        acting = self._vendor.acting_as(Actor(ActorKind.USER, who.name))
        return await self._try(address, who.name, lambda: acting.change_password(who, old, new))

    async def _try(self, address: str, name: str, compare: Callable[[], R]) -> R:
        """Count a try, and compare, both on the one thread.

        Not even counted when many are waiting: so what is written is bounded by what one thread can hash.
        """
        if self._waiting >= _QUEUE:
            raise TooManyTriesError

        def count_and_compare() -> R:
            if not self._vendor.may_try(address, name):
                raise TooManyTriesError
            return compare()

        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, count_and_compare)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """Let the thread end."""
        self._thread.shutdown(wait=False, cancel_futures=True)
