"""What is counted beside the hot paths: a step in memory for each request, and now and then a batch.

A process that is killed loses what it counted in the last seconds: plots bear that, and a customer
would not bear to wait for a statistic (D-99).
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from typing import Final

from aiohttp import web

from licserver.clock import Clock
from licserver.database.engine import Database
from licserver.database.hot_path.batch_store import Lookup
from licserver.database.repositories.last_seen import Seen, note_seen
from licserver.database.repositories.statistics import CountKey, add_counts, published_versions
from licserver.domain.decisions import (
    Offer,
    UpdateVerdict,
    Valid,
    VerifyRefusal,
    VerifyVerdict,
    parse_version,
    version_key,
)
from licserver.domain.records import EnvironmentPolicy
from licserver.errors import LicserverError

FLUSH_SECONDS: Final = 10.0
"""How old a number in a plot may be."""

MAX_SEEN: Final = 20_000
"""Environments remembered between two batches; who calls beyond them is noted the next day."""

MAX_VERSIONS: Final = 500
"""Versions counted between two batches: callers name them, and may invent one at each call."""

_BATCH: Final = 500
"""Activations noted in one transaction: claims wait for it."""

_LABELS: Final = {
    VerifyRefusal.FORMAT: "malformed",
    VerifyRefusal.NOT_FOUND: "unknown",
    VerifyRefusal.REVOKED: "revoked",
    VerifyRefusal.EXPIRED: "expired",
    VerifyRefusal.ENVIRONMENT: "slots full",
}

OTHER: Final = "other"
"""Versions that were never published here: builds of the vendor's own, or inventions."""

_Verdicts = dict[VerifyRefusal | bool, int]
"""How often each; of good ones, whether they took a slot."""
_Versions = dict[tuple[str, str], int]
_Sightings = dict[Lookup, EnvironmentPolicy]

_log = logging.getLogger("licserver.web")


class StatisticsCounter:
    """Counts of one process, for the event loop that it serves.

    Args:
        database: Where batches go.
        clock: Whose day they are added to.
    """

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._verdicts: _Verdicts = dict.fromkeys((*VerifyRefusal, True, False), 0)
        self._seen: _Sightings = {}
        self._versions: _Versions = {}
        self._thread = ThreadPoolExecutor(1, "tally")

    # --- beside the hot paths -----------------------------------------------------------------

    def verified(self, verdict: VerifyVerdict, sighting: Lookup | None, today: date) -> None:
        """Count a verify; of a good one, that its environment was seen, unless that was noted today.

        Args:
            verdict: The answer, after an admission if there was one: `takes_slot` says that one was taken.
            sighting: Who asked; None for a key without the shape of one.
            today: In UTC.
        """
        if type(verdict) is Valid:
            self._verdicts[verdict.takes_slot] += 1
            license_ = verdict.license
            if sighting is not None and license_.seen_on != today and len(self._seen) < MAX_SEEN:
                self._seen[sighting] = license_.policy
        else:
            self._verdicts[verdict] += 1  # type: ignore[index] # a refusal: `Valid` was above

    def checked(self, verdict: UpdateVerdict, version: str) -> None:
        """Count the version that an installed copy says it is; only of who holds a license."""
        if type(verdict) is Offer:
            counted = verdict.product.slug, version
            if counted in self._versions:
                self._versions[counted] += 1
            elif len(self._versions) < MAX_VERSIONS and len(version) <= 64:  # noqa: PLR2004 - a version's length
                self._versions[counted] = 1

    # --- now and then -------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write what has been counted; while the database is away, the counts are kept for the next time."""
        counts, versions, seen = self._take()
        if not (counts or versions or seen):
            return
        loop, now = asyncio.get_running_loop(), self._clock()
        try:
            await loop.run_in_executor(self._thread, self._write, now, counts, versions, seen)
        except LicserverError as problem:
            _log.warning("statistics wait for the next time: %s", problem)
            self._put_back(counts, versions, seen)
        except Exception:  # noqa: BLE001 - the task goes on; the same counts would fail again
            _log.exception("statistics of the last %.0f seconds are lost", FLUSH_SECONDS)

    def _take(self) -> tuple[_Verdicts, _Versions, _Sightings]:
        """Take what has been counted, and begin anew."""
        taken = (
            {verdict: count for verdict, count in self._verdicts.items() if count},
            self._versions,
            self._seen,
        )
        self._verdicts = dict.fromkeys(self._verdicts, 0)
        self._versions, self._seen = {}, {}
        return taken

    def _put_back(self, counts: _Verdicts, versions: _Versions, seen: _Sightings) -> None:
        for verdict, count in counts.items():
            self._verdicts[verdict] += count
        for version, count in versions.items():
            if version in self._versions or len(self._versions) < MAX_VERSIONS:
                self._versions[version] = self._versions.get(version, 0) + count
        for sighting, policy in seen.items():
            if len(self._seen) < MAX_SEEN:
                self._seen.setdefault(sighting, policy)

    def _write(self, now: datetime, counts: _Verdicts, versions: _Versions, seen: _Sightings) -> None:
        """Write all; the counts are emptied once they are committed, so that nothing is added twice."""
        add_counts(self._database, now.date(), self._named(counts, versions))
        counts.clear()
        versions.clear()
        # Noting an activation twice on one day changes nothing.
        batch = [Seen(one.license_id, one.environment, now, policy) for one, policy in seen.items()]
        for start in range(0, len(batch), _BATCH):
            note_seen(self._database, batch[start : start + _BATCH])

    def _named(self, counts: _Verdicts, versions: _Versions) -> Mapping[CountKey, int]:
        """Give what was counted the names of the totals; versions only those that were published."""
        named = Counter[CountKey]()
        for verdict, count in counts.items():
            named[CountKey("verify", "", _label(verdict))] += count
            if verdict is True:
                named[CountKey("activation", "", "")] += count
        published = published_versions(self._database, {slug for slug, _ in versions})
        for (slug, version), count in versions.items():
            parsed = parse_version(version)
            key = None if parsed is None else version_key(parsed)
            named[CountKey("update", slug, published.get((slug, key), OTHER))] += count
        return named

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Flush every few seconds while an application runs, and once more at its end."""
        task = asyncio.create_task(self._flush_for_ever())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await self.flush()
        self._thread.shutdown(wait=False)

    async def _flush_for_ever(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()


def _label(verdict: VerifyRefusal | bool) -> str:
    return _LABELS[verdict] if isinstance(verdict, VerifyRefusal) else "valid"
