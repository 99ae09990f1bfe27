"""Delete what is older than it need be, a few rows at a time, so that no request waits."""

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import delete, func, or_, select, tuple_

from licserver.database.engine import Database
from licserver.database.repositories.base import insert_into
from licserver.database.repositories.users import delete_old_attempts
from licserver.database.tables import (
    activations,
    audit,
    facts,
    failed_logins,
    idempotency_keys,
    known_addresses,
    sessions,
)

BATCH: Final = 1_000  # rows of a transaction
WATCHED: Final = "activations_watched_since"
"""The fact that says when sweeps began: an activation counts as seen then."""

ADDRESS_KEPT: Final = timedelta(days=90)
"""After so long without a sign-in an address of a user is an unknown one again."""

_seen: Final = func.coalesce(activations.c.last_seen_at, activations.c.activated_at)


class Retention:
    """Removes rows; what was removed before a `StoreUnavailableError` stays removed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def watched_since(self, now: datetime) -> datetime:
        """Return when sweeps for stale activations began; that is now, the first time (D-105)."""
        value = now.astimezone(UTC).isoformat().encode()
        with self._database.writing() as connection:
            first = insert_into(connection, facts).values(name=WATCHED, value=value)
            connection.execute(first.on_conflict_do_nothing())
            stored = connection.execute(select(facts.c.value).where(facts.c.name == WATCHED)).scalar_one()
        return datetime.fromisoformat(bytes(stored).decode())

    def stale(self, before: datetime, watched_since: datetime) -> Iterator[Counter[bytes]]:
        """Free the slots of activations last seen before an instant; yield their numbers by license.

        All count as seen at `watched_since`: what was stored before it may be missing.
        """
        if watched_since >= before:
            return
        is_stale = _seen < before
        key = tuple_(*activations.primary_key)
        place: tuple[Any, ...] | None = None
        while True:
            with self._database.reading() as connection:
                statement = select(*activations.primary_key).where(is_stale)
                if place is not None:
                    statement = statement.where(key > place)
                rows = connection.execute(statement.order_by(*activations.primary_key).limit(BATCH)).all()
            if not rows:
                return
            place = tuple(rows[-1])
            freed = Counter[bytes]()
            with self._database.writing() as connection:
                for row in rows:
                    # Checked again: it may have been seen meanwhile.
                    one = delete(activations).where(key == tuple(row), is_stale)
                    freed[row.license_id] += connection.execute(one).rowcount
            yield +freed

    def old_lines(self, before: datetime) -> Iterator[int]:
        """Remove lines of the audit log, in batches; yield the number of each."""
        old = select(audit.c.id).where(audit.c.at < before).order_by(audit.c.at).limit(BATCH)
        while True:
            with self._database.writing() as connection:
                count = connection.execute(delete(audit).where(audit.c.id.in_(old))).rowcount
            if not count:
                return
            yield count

    def over(self, now: datetime, responses_before: datetime, idle_since: datetime) -> tuple[int, int]:
        """Remove what has expired; return the numbers of sessions and of recorded responses.

        Beside these: known addresses, and counts of attempts.
        """
        has_ended = or_(sessions.c.expires_at < now, sessions.c.last_used_at < idle_since)
        unused, yesterday = now - ADDRESS_KEPT, now.date() - timedelta(days=1)
        with self._database.writing() as connection:
            ended = connection.execute(delete(sessions).where(has_ended)).rowcount
            delete_old_attempts(connection, now)
            connection.execute(delete(known_addresses).where(known_addresses.c.last_used_at < unused))
            connection.execute(delete(failed_logins).where(failed_logins.c.day < yesterday))
            forgotten = connection.execute(
                delete(idempotency_keys).where(idempotency_keys.c.created_at < responses_before)
            ).rowcount
        return ended, forgotten

    def count_stale(self, before: datetime, watched_since: datetime) -> int:
        """Count what `stale` would free; looks at all activations."""
        if watched_since >= before:
            return 0
        with self._database.snapshot() as connection:
            statement = select(func.count()).select_from(activations).where(_seen < before)
            return connection.scalar(statement) or 0

    def count_lines(self, before: datetime) -> int:
        """Count what `old_lines` would remove."""
        with self._database.snapshot() as connection:
            return connection.scalar(select(func.count()).select_from(audit).where(audit.c.at < before)) or 0
