"""The machines that have had a trial, by keyed hashes (D-233)."""

from datetime import date, datetime
from typing import Final, NamedTuple

from sqlalchemy import case, delete, exists, func, literal, select, update

from licserver.database.repositories.base import Repository
from licserver.database.repositories.licenses import lock_licenses
from licserver.database.repositories.products import lock_product
from licserver.database.tables import metadata
from licserver.database.tables.licenses import licenses, refusals, trials

_OF_LICENSE: Final = [
    key.parent
    for table in reversed(metadata.sorted_tables)
    for key in table.foreign_keys
    if key.column is licenses.c.id and table is not trials
]
"""What refers to a license, in every table."""

_columns: Final = trials.c


class Trial(NamedTuple):
    """The trial of a machine; its license is None once that was deleted."""

    license_id: bytes | None


class TrialRepository(Repository):
    """Trials by product and machine."""

    def find(self, product_id: int, machine: bytes) -> Trial | None:
        """Load the trial of a machine."""
        is_it = (_columns.product_id == product_id) & (_columns.machine == machine)
        row = self._first(select(_columns.license_id).where(is_it))
        return None if row is None else Trial(row.license_id)

    def lock(self, product_id: int) -> None:
        """Let other new trials of a product wait until commit."""
        with self._writing() as connection:
            lock_product(connection, product_id)

    def count(self, product_id: int, address: bytes, since: datetime) -> tuple[int, int]:
        """Count the trials of a product that were started after an instant: all, and those of an address."""
        of_address = func.count(case((_columns.address == address, literal(1))))
        is_counted = (_columns.product_id == product_id) & (_columns.started_at > since)
        count, of_it = self._first(select(func.count(), of_address).where(is_counted))
        return count, of_it

    def add(self, product_id: int, machine: bytes, license_id: bytes, address: bytes, now: datetime) -> None:
        """Store that a machine has started its trial."""
        row = {"product_id": product_id, "machine": machine, "license_id": license_id}
        self._execute(trials.insert().values(**row, address=address, started_at=now))

    def forget_addresses(self, before: datetime) -> None:
        """Forget where trials came from that were started before an instant."""
        is_old = (_columns.started_at < before) & (_columns.address != b"")
        self._execute(update(trials).where(is_old).values(address=b""))

    def delete_ended(self, before: date, limit: int) -> int:
        """Delete licenses of trials that ended before a day and were not asked for lately; return how many.

        Their machines stay.
        """
        is_over = (
            licenses.c.trial & ~licenses.c.lifetime & (licenses.c.expires_on < before),
            exists().where(_columns.license_id == licenses.c.id),
            ~exists().where(refusals.c.license_id == licenses.c.id),
        )
        with self._writing() as connection:
            ids = list(connection.scalars(select(licenses.c.id).where(*is_over).limit(limit)))
            lock_licenses(connection, licenses.c.id.in_(ids))  # one may have been converted meanwhile
            ids = list(connection.scalars(select(licenses.c.id).where(licenses.c.id.in_(ids), *is_over)))
            connection.execute(update(trials).where(_columns.license_id.in_(ids)).values(license_id=None))
            for column in _OF_LICENSE:
                connection.execute(delete(column.table).where(column.in_(ids)))
            connection.execute(delete(licenses).where(licenses.c.id.in_(ids)))
        return len(ids)
