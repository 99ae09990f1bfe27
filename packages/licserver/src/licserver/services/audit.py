"""The audit log: who changed what; and the sweep of what is older than the settings allow."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, NamedTuple

from licserver.database.repositories.audit import AuditFilter, Entry, Retention
from licserver.domain.environments import is_printable
from licserver.errors import InvalidInputError
from licserver.protocol.webhooks import EventType
from licserver.services.account import TrialService
from licserver.services.context import Context, Service
from licserver.services.lists import Page, page_by_id
from licserver.services.sources import KEPT as DELIVERIES_KEPT
from licserver.services.tokens import RESPONSES_KEPT

_ALL: Final = AuditFilter()


class AuditService(Service):
    """Reads and writes the audit log."""

    def record(self, action: str, object_: tuple[str, str], **details: Any) -> None:
        """Add a line about something that changes no row.

        For data that is handed out, before it is handed out; and for changes of the secrets, which are not in
        the database, once they are done.
        """
        with self._context.transaction() as tx:
            tx.write_audit(action, object_, **details)

    def list_page(self, which: AuditFilter = _ALL, cursor: str | None = None, limit: int = 50) -> Page[Entry]:
        """Return a page of the audit log, the newest line first."""
        name = which.name if which.actor is None else which.actor.name
        if not all(map(is_printable, (*(which.object or ()), name or ""))):
            raise InvalidInputError("an actor or an object is named in one line of text")
        # The history of one object stands beside it as it is now.
        context = self._context.for_lists() if which.object is None else self._context
        return page_by_id(partial(context.repositories.audit.list_page, which), cursor, limit)


class SweepResult(NamedTuple):
    """How many rows a sweep has deleted, or would delete: slots freed, lines of the audit log, and so on."""

    activations: int = 0
    audit: int = 0
    sessions: int = 0
    answers: int = 0
    deliveries: int = 0
    trials: int = 0


class RetentionService(Service):
    """Runs sweeps."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._retention = Retention(context.database)

    def sweep(self, *, dry_run: bool = False) -> SweepResult:
        """Delete what is too old, a few rows at a time beside the server; the audit log has each freed slot.

        What was deleted before the database fails stays deleted.
        """
        now, settings = self._context.now(), self._context.settings
        unseen = lines = None
        if settings.activation_days:  # what was seen since it was last stored counts
            unseen = now - timedelta(days=settings.activation_days + settings.last_seen_days - 1)
        if settings.audit_days:
            lines = now - timedelta(days=settings.audit_days)
        since = now if unseen is None else self._retention.watched_since(now)
        if dry_run:
            return SweepResult(
                activations=0 if unseen is None else self._retention.count_stale(unseen, since),
                audit=0 if lines is None else self._retention.count_lines(lines),
            )
        freed = 0 if unseen is None else self._free_slots(unseen, since)
        removed = 0 if lines is None else sum(self._retention.old_lines(lines))
        idle_since = now - timedelta(minutes=settings.session_idle_minutes)
        sessions, answers = self._retention.over(now, now - RESPONSES_KEPT, idle_since)
        self._context.repositories.uses.sweep(now)
        deliveries = self._context.repositories.sales.sweep(now - DELIVERIES_KEPT)
        trials = TrialService(self._context).sweep()
        swept = SweepResult(freed, removed, sessions, answers, deliveries, trials)
        if freed or removed or trials:
            with self._context.transaction() as tx:
                tx.write_audit("sweep", ("database", "-"), **swept._asdict())
        return swept

    def _free_slots(self, before: datetime, since: datetime) -> int:
        total = 0
        for freed in self._retention.stale(before, since):
            with self._context.transaction() as tx:
                for license_id, count in freed.items():
                    object_ = ("license", license_id.hex())
                    tx.write_audit("license.sweep", object_, freed=count, not_seen_since=before.date())
                freed_of = ({"license_id": one.hex(), "freed": count} for one, count in freed.items())
                tx.add_events(EventType.ACTIVATION_FREED, *freed_of)
            total += freed.total()
        return total
