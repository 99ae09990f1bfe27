"""Trials: the machines that had one, and the deletion of their licenses."""

from datetime import date, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, case, delete, exists, func, literal, select, update

from licserver.database.repositories.base import Repository, matching
from licserver.database.repositories.licenses import lock_licenses
from licserver.database.repositories.products import lock_product
from licserver.database.tables import metadata
from licserver.database.tables.licenses import licenses, refusals, trials
from licserver.domain.trials import TrialCounts

_OF_LICENSE: Final = [
    key.parent
    for table in reversed(metadata.sorted_tables)
    for key in table.foreign_keys
    if key.column is licenses.c.id and table is not trials
]
"""The columns of all tables that refer to a license."""


class TrialClient(NamedTuple):
    """The client that starts a trial: keyed digests of 16 bytes."""

    address: bytes
    network: bytes


class TrialRepository(Repository):
    """Trials by product and machine, which is a keyed hash (D-233)."""

    def find(self, product_id: int, machine: bytes) -> Row[Any] | None:
        """Load the trial of a machine: its `license_id`, which is None once that was deleted."""
        its = matching(trials, product_id=product_id, machine=machine)
        row: Row[Any] | None = self._first(select(trials.c.license_id).where(its))
        return row

    def lock(self, product_id: int) -> None:
        """Let other new trials of a product wait until commit."""
        with self._writing() as connection:
            lock_product(connection, product_id)

    def count(self, product_id: int, client: TrialClient, since: datetime) -> TrialCounts:
        """Count the trials of a product after an instant: all, and those of an address and a network."""
        counts = [
            func.count(case((column == value, literal(1))))
            for column, value in ((trials.c.address, client.address), (trials.c.network, client.network))
        ]
        is_counted = (trials.c.product_id == product_id) & (trials.c.started_at > since)
        return TrialCounts(*self._first(select(func.count(), *counts).where(is_counted)))

    def add(
        self, product_id: int, machine: bytes, license_id: bytes, client: TrialClient, now: datetime
    ) -> None:
        """Store that a machine has started its trial."""
        row = {"product_id": product_id, "machine": machine, "license_id": license_id}
        self._execute(trials.insert().values(**row, **client._asdict(), started_at=now))

    def forget_addresses(self, before: datetime) -> None:
        """Forget where trials came from that were started before an instant."""
        is_old = (trials.c.started_at < before) & (trials.c.address != b"")
        self._execute(update(trials).where(is_old).values(address=b"", network=None))

    def delete_ended(self, before: date, limit: int) -> int:
        """Delete licenses of trials that ended before a day and were not verified lately; return how many.

        Their machines stay.
        """
        is_over = (
            licenses.c.trial & ~licenses.c.lifetime & (licenses.c.expires_on < before),
            exists().where(trials.c.license_id == licenses.c.id),
            ~exists().where(refusals.c.license_id == licenses.c.id),
        )
        with self._writing() as connection:
            ids = list(connection.scalars(select(licenses.c.id).where(*is_over).limit(limit)))
            lock_licenses(connection, licenses.c.id.in_(ids))  # a trial may have been converted meanwhile
            ids = list(connection.scalars(select(licenses.c.id).where(licenses.c.id.in_(ids), *is_over)))
            connection.execute(update(trials).where(trials.c.license_id.in_(ids)).values(license_id=None))
            for column in _OF_LICENSE:
                connection.execute(delete(column.table).where(column.in_(ids)))
            connection.execute(delete(licenses).where(licenses.c.id.in_(ids)))
        return len(ids)
