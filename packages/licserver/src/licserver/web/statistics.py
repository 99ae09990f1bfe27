"""Statistics of the public endpoints: counted in memory, and written every few seconds.

No request waits for it; a killed process loses its last seconds (D-99).
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
from licserver.database.hot_path.store import Lookup
from licserver.database.repositories.statistics import (
    CountKey,
    Seen,
    add_counts,
    note_seen,
    published_versions,
)
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

FLUSH_SECONDS: Final = 10.0  # the greatest age of a number in a chart
MAX_SEEN: Final = 20_000  # environments between two flushes; more are written the next day
MAX_VERSIONS: Final = 500  # versions between two flushes: clients may invent one at each request
_BATCH: Final = 500  # activations updated in one transaction; new activations wait for it
_LABELS: Final = {
    VerifyRefusal.FORMAT: "malformed",
    VerifyRefusal.NOT_FOUND: "unknown",
    VerifyRefusal.REVOKED: "revoked",
    VerifyRefusal.EXPIRED: "expired",
    VerifyRefusal.ENVIRONMENT: "slots full",
    True: "valid",
    False: "valid",
}
"""By refusal; a valid verdict by whether it took a slot."""

OTHER: Final = "other"  # versions that were never published here

_Verdicts = Counter[VerifyRefusal | bool]
_Versions = dict[tuple[str, str], int]
_Seen = dict[Lookup, EnvironmentPolicy]

_log = logging.getLogger("licserver.web")


class StatisticsCounter:
    """The counts of one process; `clock` gives the day that they are added to."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database, self._clock = database, clock
        self._verdicts: _Verdicts = Counter()
        self._seen: _Seen = {}
        self._versions: _Versions = {}
        self._thread = ThreadPoolExecutor(1, "statistics")

    def count_verify(self, verdict: VerifyVerdict, lookup: Lookup | None, today: date) -> None:
        """Count a final verdict: `takes_slot` means that a slot was taken.

        If it is valid, mark its environment as seen, once a day. There is no lookup for text that is no
        license key.
        """
        if type(verdict) is Valid:
            self._verdicts[verdict.takes_slot] += 1
            license_ = verdict.license
            if lookup is not None and license_.seen_on != today and len(self._seen) < MAX_SEEN:
                self._seen[lookup] = license_.policy
        else:
            self._verdicts[verdict] += 1  # type: ignore[index] # a refusal: `Valid` was above

    def count_update_check(self, verdict: UpdateVerdict, version: str) -> None:
        """Count the installed version of an update check with a valid license."""
        if type(verdict) is Offer:
            counted = verdict.product.slug, version
            if counted in self._versions:
                self._versions[counted] += 1
            elif len(self._versions) < MAX_VERSIONS and len(version) <= 64:  # noqa: PLR2004 - a version's length
                self._versions[counted] = 1

    async def flush(self) -> None:
        """Write the counts; keep them while the database is away."""
        counts, versions, seen = self._verdicts, self._versions, self._seen
        self._verdicts, self._versions, self._seen = Counter(), {}, {}
        if not (counts or versions or seen):
            return
        loop, now = asyncio.get_running_loop(), self._clock()
        try:
            await loop.run_in_executor(self._thread, self._write, now, counts, versions, seen)
        except LicserverError as problem:
            _log.warning("statistics will be written later: %s", problem)
            self._put_back(counts, versions, seen)
        except Exception:  # noqa: BLE001 - the task goes on; the same counts would fail again
            _log.exception("statistics of the last %.0f seconds are lost", FLUSH_SECONDS)

    def _put_back(self, counts: _Verdicts, versions: _Versions, seen: _Seen) -> None:
        self._verdicts.update(counts)
        for version, count in versions.items():
            if version in self._versions or len(self._versions) < MAX_VERSIONS:
                self._versions[version] = self._versions.get(version, 0) + count
        for lookup, policy in seen.items():
            if len(self._seen) < MAX_SEEN:
                self._seen.setdefault(lookup, policy)

    def _write(self, now: datetime, counts: _Verdicts, versions: _Versions, seen: _Seen) -> None:
        """Write all; clear the counts once they are committed, so that none is added twice."""
        add_counts(self._database, now.date(), self._named(counts, versions))
        counts.clear()
        versions.clear()
        # An activation may be updated twice on a day.
        batch = [Seen(one.license_id, one.environment, now, policy) for one, policy in seen.items()]
        for start in range(0, len(batch), _BATCH):
            note_seen(self._database, batch[start : start + _BATCH])

    def _named(self, counts: _Verdicts, versions: _Versions) -> Mapping[CountKey, int]:
        """Name the counts as the database does; versions that were never published are `OTHER`."""
        named = Counter[CountKey]()
        for verdict, count in counts.items():
            named[CountKey("verify", "", _LABELS[verdict])] += count
            if verdict is True:
                named[CountKey("activation", "", "")] += count
        published = published_versions(self._database, {slug for slug, _ in versions})
        for (slug, version), count in versions.items():
            parsed = parse_version(version)
            key = None if parsed is None else version_key(parsed)
            named[CountKey("update", slug, published.get((slug, key), OTHER))] += count
        return named

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Flush every few seconds while an application runs, and at its end; for its `cleanup_ctx`."""
        task = asyncio.create_task(self._flush_repeatedly())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await self.flush()
        self._thread.shutdown(wait=False)

    async def _flush_repeatedly(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            await self.flush()


STATISTICS = web.AppKey("statistics", StatisticsCounter)
