"""Deletes what is older than the settings allow (D-105)."""

from datetime import datetime, timedelta
from typing import NamedTuple

from licserver.database.repositories.retention import Retention
from licserver.services.context import Context
from licserver.services.idempotency import RESPONSES_KEPT


class SweepResult(NamedTuple):
    """How many rows a sweep has deleted, or would delete: slots freed, lines of the audit log, and so on."""

    activations: int = 0
    audit: int = 0
    sessions: int = 0
    answers: int = 0


class RetentionService:
    """Runs sweeps."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._retention = Retention(context.database)

    def sweep(self, *, dry_run: bool = False) -> SweepResult:
        """Delete what is too old, a few rows at a time beside the server; the audit log has each freed slot.

        What was deleted before the database fails stays deleted.
        """
        now, settings = self._context.now(), self._context.settings
        unseen = _before(now, settings.activation_days)
        lines = _before(now, settings.audit_days)
        since = now if unseen is None else self._retention.watched_since(now)
        if dry_run:
            return SweepResult(
                activations=0 if unseen is None else self._retention.count_stale(unseen, since),
                audit=0 if lines is None else self._retention.count_lines(lines),
            )
        freed = 0 if unseen is None else self._free_slots(unseen, since)
        removed = 0 if lines is None else sum(self._retention.old_lines(lines))
        sessions, answers = self._retention.over(
            now, now - RESPONSES_KEPT, now - timedelta(minutes=settings.session_idle_minutes)
        )
        swept = SweepResult(freed, removed, sessions, answers)
        if freed or removed:
            with self._context.transaction() as tx:
                tx.write_audit("sweep", ("database", "-"), **swept._asdict())
        return swept

    def _free_slots(self, before: datetime, since: datetime) -> int:
        total = 0
        for freed in self._retention.stale(before, since):
            with self._context.transaction() as tx:
                for license_id, count in freed:
                    object_ = ("license", license_id.hex())
                    tx.write_audit("license.sweep", object_, freed=count, not_seen_since=before.date())
            total += sum(count for _, count in freed)
        return total


def _before(now: datetime, days: int) -> datetime | None:
    return now - timedelta(days=days) if days else None
