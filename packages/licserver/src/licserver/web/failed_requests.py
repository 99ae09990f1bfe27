"""Failed logins and refused tokens, in the log and in the audit log; bounded, however many (D-168)."""

import asyncio
import contextlib
import logging
from typing import Final

from licserver.errors import LicserverError
from licserver.services import Services
from licserver.services.phrases import plural
from licserver.web.worker_threads import WorkerThreads

_log = logging.getLogger("licserver.logins")

PAUSE: Final = 60.0
"""Seconds in which each kind of failure of each user or token is written once."""

_WORDS: Final = {
    "user.sign_in_failed": "wrong password",
    "user.sign_in_throttled": "refused sign-in after too many attempts",
    "user.code_failed": "wrong code of a second factor",
    "token.refused": "refused token",
    "token.forbidden": "insufficient token",
}


class FailureReport:
    """Counts failures, and writes them: the first one at once, those that follow once a minute.

    Subjects are existing users and tokens only: their number bounds what is held and what is written.

    Args:
        services: Writes the audit log.
        off_loop: Where it does so.
    """

    def __init__(self, services: Services, off_loop: WorkerThreads) -> None:
        self._services, self._off_loop = services, off_loop
        self._counts: dict[tuple[str, str | None], tuple[int, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, action: str, subject: str | None, address: str) -> None:
        """Count a failure.

        Args:
            action: As the audit log names it.
            subject: An existing user or token. Never what a caller typed: that may be a password.
            address: Where it came from.
        """
        count, _ = self._counts.get((action, subject), (0, ""))
        self._counts[action, subject] = (count + 1, address)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_in_turns())

    async def close(self, _app: object = None) -> None:
        """Write what is left."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._write()

    async def _write_in_turns(self) -> None:
        while self._counts:
            await self._write()
            await asyncio.sleep(PAUSE)

    async def _write(self) -> None:
        counts, self._counts = self._counts, {}
        for (action, subject), (count, address) in counts.items():
            of = f" of {subject}" if subject else ""
            times = f"{count} {plural(count, 'time')}"
            _log.warning("%s%s, %s, the last from %s", _WORDS[action], of, times, address)
            try:
                await self._off_loop.run(
                    self._services.logins.record_failures, action, subject, count, address
                )
            except LicserverError as problem:
                _log.warning("the audit log has no line of it: %s", problem)
