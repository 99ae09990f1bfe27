"""The audit log of all changes, and the sweep of rows that are older than the settings allow."""

import logging
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from licserver.database.repositories.audit import AuditFilter, Entry, Retention, Stale
from licserver.domain.environments import is_printable
from licserver.errors import InvalidInputError
from licserver.protocol.webhooks import EventType
from licserver.services.context import REPEATABLE, Context, Service
from licserver.services.lists import Page, page_by_id
from licserver.services.mail import CODES
from licserver.services.sources import KEPT as DELIVERIES_KEPT
from licserver.services.tokens import RESPONSES_KEPT
from licserver.services.trials import TrialService

SWEPT_EVERY: Final = timedelta(hours=23)
CODES_KEPT: Final = timedelta(days=1)
"""How long the job of a mailed code is kept: it is of no use later, and any client may request codes."""

_ALL: Final = AuditFilter()
_log = logging.getLogger("licserver.background")


class AuditService(Service):
    """Reads and writes the audit log."""

    def record(self, action: str, object_: tuple[str, str], **details: Any) -> None:
        """Add a line about an operation that changes no row.

        Call it before data is exported, and after the secrets have changed, which are not in the database.
        """
        with self._context.transaction() as tx:
            tx.write_audit(action, object_, **details)

    def list_page(self, which: AuditFilter = _ALL, cursor: str | None = None, limit: int = 50) -> Page[Entry]:
        """Return a page of the audit log, the newest line first."""
        name = which.name if which.actor is None else which.actor.name
        if not all(map(is_printable, (*(which.object or ()), name or ""))):
            raise InvalidInputError("the name of an actor or an object must be one line of text")
        # An object's history is shown beside its state: both are read from the primary.
        context = self._context.for_lists() if which.object is None else self._context
        return page_by_id(partial(context.repositories.audit.list_page, which), cursor, limit)

    def count_today(self, license_id: bytes) -> dict[str, int]:
        """Return how often a license's customer has done today what can be repeated, by action (D-296).

        The audit log has only the first ones.
        """
        context, object_ = self._context, ("license", license_id.hex())
        read, today = context.repositories.daily_counts.read, context.now().date()
        counts = {action: read(context.repetitions_counter(action, object_), today) for action in REPEATABLE}
        return {action: count for action, count in counts.items() if count}


class SweepResult(NamedTuple):
    """The number of rows, by kind, that a sweep has deleted or would delete."""

    activations: int = 0
    audit: int = 0
    sessions: int = 0
    answers: int = 0
    deliveries: int = 0
    trials: int = 0
    names: int = 0  # duplicate rows, from several spellings of a domain


class RetentionService(Service):
    """Deletes rows after their retention period.

    1. `sweep_daily` begins a sweep unless a server has begun a sweep within `SWEPT_EVERY`.
    2. `sweep` frees slots that were not seen lately, in small transactions, and audits each license.
    3. It deletes old lines of the audit log, ended sessions, recorded responses, deliveries and trials.

    Example::

        result = services.retention.sweep(dry_run=True)
        print(result.activations, "slots would be freed")

    A `StoreError` ends the sweep; earlier transactions stay committed, and the next sweep continues.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._retention = Retention(context.database)

    def sweep(self, *, dry_run: bool = False) -> SweepResult:
        """Delete rows after their retention period, in small transactions, and audit each freed slot.

        Slots are freed only if the vendor has set a number of days (D-105).
        """
        now, settings = self._context.settled_now(), self._context.settings
        lines = now - timedelta(days=settings.audit_days) if settings.audit_days else None
        passes = self._passes(now)
        since = self._retention.watched_since(now) if passes else now
        if dry_run:
            stale = (self._retention.count_stale(stale_slots, since) for stale_slots in passes)
            removed = 0 if lines is None else self._retention.count_lines(lines)
            return SweepResult(activations=max(stale, default=0), audit=removed)
        freed = sum(self._free_slots(stale_slots, since) for stale_slots in passes)
        removed = 0 if lines is None else sum(self._retention.old_lines(lines))
        idle_since = now - timedelta(minutes=settings.session_idle_minutes)
        sessions, answers = self._retention.over(now, now - RESPONSES_KEPT, idle_since)
        names = self._retention.normalise_names()
        self._context.repositories.uses.sweep(now)
        self._context.repositories.queue.sweep(now - CODES_KEPT, CODES)
        deliveries = self._context.repositories.sales.sweep(now - DELIVERIES_KEPT)
        trials = TrialService(self._context).sweep()
        swept = SweepResult(freed, removed, sessions, answers, deliveries, trials, names)
        if freed or removed or trials or names:
            with self._context.transaction() as tx:
                tx.write_audit("sweep", ("database", "-"), **swept._asdict())
        return swept

    def sweep_daily(self) -> None:
        """Sweep once a day, by whichever server is first; the first time a day after the first start."""
        if self._retention.begin_sweep(self._context.settled_now(), SWEPT_EVERY):
            swept = self.sweep()
            _log.info("swept: %s", ", ".join(f"{name} {count}" for name, count in swept._asdict().items()))

    def _passes(self, now: datetime) -> list[Stale]:
        """Return the slots to free: by the setting for all licenses, and by that for unlimited licenses."""
        settings = self._context.settings
        days = (settings.activation_days, False), (settings.unlimited_activation_days, True)
        # A slot's last use is stored every `last_seen_days` only: it may have been used since.
        return [
            Stale(now - timedelta(days=number + settings.last_seen_days - 1), is_unlimited=is_unlimited)
            for number, is_unlimited in days
            if number
        ]

    def _free_slots(self, which: Stale, since: datetime) -> int:
        total, seen = 0, which.before.date()
        for freed in self._retention.stale(which, since):
            with self._context.transaction() as tx:
                for license_id, count in freed.items():
                    object_ = ("license", license_id.hex())
                    tx.write_audit("license.sweep", object_, freed=count, not_seen_since=seen)
                freed_of = (
                    {"license_id": license_id.hex(), "freed": count} for license_id, count in freed.items()
                )
                tx.add_events(EventType.ACTIVATION_FREED, *freed_of)
            total += freed.total()
        return total
