"""Subscriptions: what the licenses linked to one store about it."""

from datetime import datetime
from typing import Final, NamedTuple

from sqlalchemy import func, select, update

from licserver.database.repositories.base import Repository
from licserver.database.repositories.licenses import lock_licenses
from licserver.database.tables import licenses

IMPORT_LOCK: Final = (0x6C696373, 1)
"""An advisory lock of PostgreSQL: shared while a license of a subscription is issued or a subscription
ends, exclusive while an import is moved in."""


class Subscription(NamedTuple):
    """A subscription.

    Args:
        id: As the vendor's store names it.
        licenses: How many licenses are linked to it.
        ended_at: When it ended or will end; None if it goes on.
    """

    id: str
    licenses: int
    ended_at: datetime | None


class SubscriptionRepository(Repository):
    """Subscriptions."""

    def set_end(self, subscription_id: str, at: datetime | None) -> int:
        """Store on all linked licenses when a subscription ends; return their number."""
        linked = licenses.c.subscription_id == subscription_id
        with self._writing() as connection:
            lock_licenses(connection, linked)
            return connection.execute(
                update(licenses).where(linked).values(subscription_ended_at=at)
            ).rowcount

    def lock(self, subscription_id: str) -> datetime | None:
        """Block others from issuing for a subscription or ending it until the transaction ends.

        Returns:
            When it ended or will end, according to its licenses.
        """
        with self._writing() as connection:
            if self._database.locks_rows:  # else the whole file is locked; there may be no row yet to lock
                connection.execute(
                    select(
                        func.pg_advisory_xact_lock_shared(*IMPORT_LOCK),
                        func.pg_advisory_xact_lock(func.hashtextextended(subscription_id, 0)),
                    )
                )
            ended_at: datetime | None = connection.scalar(
                select(func.max(licenses.c.subscription_ended_at)).where(
                    licenses.c.subscription_id == subscription_id
                )
            )
            return ended_at

    def list_page(self, after: str | None, limit: int) -> list[Subscription]:
        """Load subscriptions by id.

        Args:
            after: The last id of the page before, or None.
            limit: How many at most.
        """
        column = licenses.c.subscription_id
        statement = (
            select(column, func.count(), func.max(licenses.c.subscription_ended_at))
            .where(column.is_not(None) if after is None else column > after)
            .group_by(column)
            .order_by(column)
            .limit(limit)
        )
        with self._reading() as connection:
            return [Subscription(*row) for row in connection.execute(statement)]

    def find(self, subscription_id: str) -> Subscription | None:
        """Load one subscription."""
        statement = select(func.count(), func.max(licenses.c.subscription_ended_at)).where(
            licenses.c.subscription_id == subscription_id
        )
        with self._reading() as connection:
            count, ended_at = connection.execute(statement).one()
        return Subscription(subscription_id, count, ended_at) if count else None
