"""Failed logins and refused tokens, in the log and the audit log, in few lines however many (D-168)."""

import asyncio
import contextlib
import logging
from typing import Final

from licserver.domain.text import plural
from licserver.errors import LicserverError
from licserver.services import Services
from licserver.web.worker_threads import WorkerThreads

_log = logging.getLogger("licserver.logins")

PAUSE: Final = 60.0  # seconds between two lines about the same failure of the same user or token
_LABELS: Final = {
    "user.sign_in_failed": "wrong password",
    "user.sign_in_throttled": "refused sign-in after too many attempts",
    "user.code_failed": "wrong code of a second factor",
    "token.refused": "refused token",
    "token.forbidden": "insufficient token",
}


class FailureReport:
    """Counts failures, and logs the first one at once and the following ones once a minute.

    Subjects are existing users and tokens only: their number bounds memory and log.
    """

    def __init__(self, services: Services, threads: WorkerThreads) -> None:
        self._services, self._threads = services, threads
        self._counts: dict[tuple[str, str | None], tuple[int, str]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, action: str, subject: str | None, address: str) -> None:
        """Count a failure, by its name in the audit log and the client's address.

        `subject` is an existing user or token. Never what a client typed: that may be a password.
        """
        count, _ = self._counts.get((action, subject), (0, ""))
        self._counts[action, subject] = (count + 1, address)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_every_minute())

    async def close(self, _app: object = None) -> None:
        """Log what is left."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._write()

    async def _write_every_minute(self) -> None:
        while self._counts:
            await self._write()
            await asyncio.sleep(PAUSE)

    async def _write(self) -> None:
        counts, self._counts = self._counts, {}
        for (action, subject), (count, address) in counts.items():
            of = f" of {subject}" if subject else ""
            times = f"{count} {plural(count, 'time')}"
            _log.warning("%s%s, %s, the last from %s", _LABELS[action], of, times, address)
            try:
                await self._threads.run(
                    self._services.logins.record_failures, action, subject, count, address
                )
            except LicserverError as problem:
                _log.warning("this failure is not in the audit log: %s", problem)
