"""Uses of metered entitlements."""

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import delete, func, select

from licserver.database.repositories.base import Repository, insert_into
from licserver.database.tables.licenses import use_ids, uses


class UseRepository(Repository):
    """How much was used in each period, and the ids of what was counted."""

    def add_id(self, license_id: bytes, use_id: str, kept_until: datetime) -> bool:
        """Store the id of a use; return False if it is there, after waiting for one that is being counted."""
        with self._writing() as connection:
            row = {"license_id": license_id, "use_id": use_id, "kept_until": kept_until}
            add = insert_into(connection, use_ids).values(row).on_conflict_do_nothing()
            return connection.scalar(add.returning(use_ids.c.use_id)) is not None

    def add(
        self, license_id: bytes, name: str, period: str, amount: int, limit: int, kept_until: datetime
    ) -> int | None:
        """Add to what was used, in one statement, and return the sum; None if it would be above the limit."""
        if amount > limit:
            return None
        with self._writing() as connection:
            row = {"license_id": license_id, "name": name, "period": period, "used": amount}
            add = insert_into(connection, uses).values({**row, "kept_until": kept_until})
            total = uses.c.used + add.excluded.used
            counted = add.on_conflict_do_update(
                index_elements=list(uses.primary_key.columns), set_={"used": total}, where=total <= limit
            )
            used: int | None = connection.scalar(counted.returning(uses.c.used))
            return used

    def find(self, license_id: bytes, name: str, period: str) -> int:
        """Load how much was used."""
        of_it = uses.c.license_id == license_id, uses.c.name == name, uses.c.period == period
        used: int = self._scalar(select(func.coalesce(func.max(uses.c.used), 0)).where(*of_it))
        return used

    def list_all(
        self, license_ids: Collection[bytes], periods: Collection[str]
    ) -> dict[tuple[bytes, str, str], int]:
        """Load how much was used, by license, name and period."""
        of_them = uses.c.license_id.in_(license_ids), uses.c.period.in_(periods)
        columns = uses.c.license_id, uses.c.name, uses.c.period, uses.c.used
        return {(bytes(one), *key): used for one, *key, used in self._all(select(*columns).where(*of_them))}

    def sweep(self, now: datetime) -> None:
        """Delete what is kept no longer."""
        for table in (uses, use_ids):
            self._execute(delete(table).where(table.c.kept_until < now))
