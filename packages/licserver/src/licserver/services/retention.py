"""How long things are kept."""

from datetime import datetime, timedelta
from typing import NamedTuple

from licserver.database.repositories.retention import Retention
from licserver.services.base import Room
from licserver.services.idempotency import ANSWERS_KEPT


class SweepResult(NamedTuple):
    """What a sweep has removed, or would remove.

    Args:
        activations: Slots freed of who was not seen for long.
        audit: Lines of the audit log.
        sessions: Of the console, that had run out.
        answers: Of the admin API and the console, that nobody will ask for again.
    """

    activations: int = 0
    audit: int = 0
    sessions: int = 0
    answers: int = 0


class Keeping(Room):
    """Removes what is older than the settings allow (D-105)."""

    def sweep(self, *, dry_run: bool = False) -> SweepResult:
        """Remove it, a few rows at a time beside the server; each freed slot stands in the audit log.

        Args:
            dry_run: Whether only to count.

        Raises:
            StoreUnavailable: when the database fails; what was removed until then stays removed.
        """
        now, settings, kept = self._clock(), self.settings, Retention(self.database)
        unseen = self._ago(now, settings.activation_days)
        lines = self._ago(now, settings.audit_days)
        since = now if unseen is None else kept.watched_since(now)
        if dry_run:
            return SweepResult(
                activations=0 if unseen is None else kept.count_stale(unseen, since),
                audit=0 if lines is None else kept.count_lines(lines),
            )
        freed = 0 if unseen is None else self._free(kept, unseen, since)
        removed = 0 if lines is None else sum(kept.old_lines(lines))
        sessions, answers = kept.over(
            now, now - ANSWERS_KEPT, now - timedelta(minutes=settings.session_idle_minutes)
        )
        swept = SweepResult(freed, removed, sessions, answers)
        if freed or removed:
            with self._records.together() as books:
                self._note(books, "sweep", ("database", "-"), **swept._asdict())
        return swept

    def _free(self, kept: Retention, before: datetime, since: datetime) -> int:
        total = 0
        for freed in kept.stale(before, since):
            with self._records.together() as books:
                for license_id, count in freed:
                    object_ = ("license", license_id.hex())
                    self._note(books, "license.sweep", object_, freed=count, not_seen_since=before.date())
            total += sum(count for _, count in freed)
        return total

    @staticmethod
    def _ago(now: datetime, days: int) -> datetime | None:
        return now - timedelta(days=days) if days else None
