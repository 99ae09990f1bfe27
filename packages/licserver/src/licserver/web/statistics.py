"""Statistics for the console: counted in memory, and written every few seconds.

No request waits for it; a killed process loses its last seconds.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from functools import partial
from typing import Final

from aiohttp import web

from licserver.clock import Clock
from licserver.database.engine import Database
from licserver.database.hot_path.lookups import Lookup
from licserver.database.repositories.statistics import (
    CountKey,
    Seen,
    add_counts,
    is_due,
    load_slugs,
    note_refusals,
    note_seen,
    published_versions,
)
from licserver.database.repositories.webhooks import SubscribedEvents
from licserver.domain.decisions import Offer, UpdateVerdict, Valid, VerifyRefusal, VerifyVerdict
from licserver.domain.records import EnvironmentPolicy, Machine
from licserver.domain.versions import parse_version, version_key
from licserver.errors import LicserverError, StatementRefusedError
from licserver.runtime.metrics import OTHER

FLUSH_SECONDS: Final = 10.0  # the greatest age of a number in a chart
MAX_SEEN: Final = 20_000  # environments between two flushes; more are written the next day
MAX_REFUSED: Final = 2_000  # environments that were refused between two flushes; more are only counted
MAX_VERSIONS: Final = 500  # versions between two flushes: clients may invent one at each request
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

_NOTED: Final = {VerifyRefusal.REVOKED, VerifyRefusal.EXPIRED, VerifyRefusal.ENVIRONMENT}
_Verdicts = Counter[tuple[int | None, VerifyRefusal | bool]]  # by the id of the license's product
_Versions = dict[tuple[str, str], int]
_Seen = dict[Lookup, tuple[EnvironmentPolicy, Machine | None]]
_Refused = Counter[tuple[Lookup, VerifyRefusal]]
_Pending = tuple[_Verdicts, _Versions, _Seen, _Refused]
_log = logging.getLogger("licserver.web")


class StatisticsCounter:
    """The counts of one process; `clock` gives the day that they are added to.

    A known environment is stored as seen every `seen_days`.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        subscribed: SubscribedEvents | None = None,
        seen_days: int = 1,
    ) -> None:
        self._database, self._clock, self._subscribed, self._seen_days = (
            database,
            clock,
            subscribed,
            seen_days,
        )
        self._verdicts: _Verdicts = Counter()
        self._seen: _Seen = {}
        self._versions: _Versions = {}
        self._refused: _Refused = Counter()
        self._thread = ThreadPoolExecutor(1, "statistics")

    def count_verify(
        self,
        verdict: VerifyVerdict,
        lookup: Lookup | None,
        product_id: int | None,
        today: date,
        machine: Machine | None = None,
    ) -> None:
        """Count a final verdict; mark a known environment as seen. Invalid keys have no lookup."""
        if type(verdict) is Valid:
            self._verdicts[product_id, verdict.takes_slot] += 1
            seen_on = verdict.license.seen_on
            if (
                lookup is not None
                and not verdict.takes_slot  # or it was stored as seen together with its slot
                and len(self._seen) < MAX_SEEN
                and is_due(lookup.license_id, seen_on, today, self._seen_days)
            ):
                _, previous_machine = self._seen.get(lookup, (None, None))
                self._seen[lookup] = verdict.license.policy, machine or previous_machine
        else:
            self._verdicts[product_id, verdict] += 1  # type: ignore[index] # a refusal: `Valid` was above
            if lookup is not None and verdict in _NOTED and len(self._refused) < MAX_REFUSED:
                self._refused[lookup, verdict] += 1

    def count_update_check(self, verdict: UpdateVerdict, version: str) -> None:
        """Count the installed version of an update check with a valid license."""
        if type(verdict) is Offer:
            counted = verdict.product.slug, version
            may_add = len(self._versions) < MAX_VERSIONS and len(version) <= 64  # noqa: PLR2004 - a version's length
            if may_add or counted in self._versions:
                self._versions[counted] = self._versions.get(counted, 0) + 1

    async def flush(self, *, is_last: bool = False) -> None:
        """Write the counts; keep them while the database is away, unless the process ends."""
        pending = self._verdicts, self._versions, self._seen, self._refused
        self._verdicts, self._versions, self._seen, self._refused = Counter(), {}, {}, Counter()
        if not any(pending):
            return
        problem = "others have locked rows"
        try:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self._write, self._clock(), pending)
        except LicserverError as error:
            problem = str(error)
        except Exception:  # noqa: BLE001 - the task goes on; the same counts would fail again
            _log.exception("statistics of the last %.0f seconds are lost", FLUSH_SECONDS)
            return
        if any(pending):
            outcome = (
                f"of the last {FLUSH_SECONDS:.0f} seconds are lost" if is_last else "will be written later"
            )
            _log.warning("statistics %s: %s", outcome, problem)
            self._put_back(pending)

    def _put_back(self, pending: _Pending) -> None:
        counts, versions, seen, refused = pending
        self._verdicts.update(counts)
        for version, count in versions.items():
            if version in self._versions or len(self._versions) < MAX_VERSIONS:
                self._versions[version] = self._versions.get(version, 0) + count
        for lookup, last_seen in seen.items():
            if len(self._seen) < MAX_SEEN:
                self._seen.setdefault(lookup, last_seen)
        if len(self._refused) + len(refused) <= MAX_REFUSED:
            self._refused.update(refused)

    def _write(self, now: datetime, pending: _Pending) -> None:
        """Write all; clear what is committed, so that nothing is added twice.

        What another transaction has locked remains.
        """
        counts, versions, seen, refused = pending
        steps: list[Callable[[], None]] = [
            partial(self._write_counts, now, counts, versions),
            partial(self._write_refusals, now, refused),
            partial(self._write_seen, now, seen),
        ]
        problem = None
        for step in steps:
            try:
                step()
            except StatementRefusedError as error:  # perhaps by a lock: the other steps need not wait for it
                problem = error
        if problem is not None:
            raise problem

    def _write_counts(self, now: datetime, counts: _Verdicts, versions: _Versions) -> None:
        add_counts(self._database, now.date(), self._named(counts, versions))
        counts.clear()
        versions.clear()

    def _write_refusals(self, now: datetime, refused: _Refused) -> None:
        full = (place for place, why in refused if why is VerifyRefusal.ENVIRONMENT)
        events = () if self._subscribed is None else self._subscribed.describe_refusals(full, now)
        counted = {(*place, _LABELS[why]): count for (place, why), count in refused.items()}
        locked = note_refusals(self._database, counted, now, events)
        for key in list(refused):
            if key[0].license_id not in locked:
                del refused[key]

    def _write_seen(self, now: datetime, seen: _Seen) -> None:
        batch = [Seen(*lookup, now, *last_seen) for lookup, last_seen in seen.items()]
        locked = {entry[:2] for entry in note_seen(self._database, batch, self._seen_days)}
        for lookup in list(seen):
            if tuple(lookup) not in locked:
                del seen[lookup]

    def _named(self, counts: _Verdicts, versions: _Versions) -> Mapping[CountKey, int]:
        """Name the counts as the database does; versions that were never published are `OTHER`."""
        named = Counter[CountKey]()
        slugs = load_slugs(self._database, {product_id for product_id, _ in counts})
        for (product_id, verdict), count in counts.items():
            named[CountKey("verify", slugs[product_id], _LABELS[verdict])] += count
            if verdict is True:
                named[CountKey("activation", slugs[product_id], "")] += count
        published = published_versions(self._database, {slug for slug, _ in versions})
        for (slug, version), count in versions.items():
            key = None if (parsed := parse_version(version)) is None else version_key(parsed)
            named[CountKey("update", slug, published.get((slug, key), OTHER))] += count
        return named

    async def running(self, _app: web.Application) -> AsyncIterator[None]:
        """Flush every few seconds while an application runs, and at its end; for its `cleanup_ctx`."""
        ending = asyncio.Event()  # a cancelled flush would not put back what it could not write
        task = asyncio.create_task(self._flush_until(ending))
        yield
        ending.set()
        await task
        await self.flush(is_last=True)
        self._thread.shutdown(wait=False)

    async def _flush_until(self, ending: asyncio.Event) -> None:
        while not ending.is_set():
            try:
                await asyncio.wait_for(ending.wait(), FLUSH_SECONDS)
            except TimeoutError:
                await self.flush()


STATISTICS = web.AppKey("statistics", StatisticsCounter)
