"""Uses of metered entitlements."""

import enum
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import select

from licserver.database.repositories.base import Repository, insert_into, matching
from licserver.database.tables.licenses import use_ids, uses


class UseIdState(enum.Enum):
    """The state of a use's id; `OTHER`: it was counted for another name or amount."""

    NEW = enum.auto()
    COUNTED = enum.auto()
    OTHER = enum.auto()


class UseRepository(Repository):
    """Sums of metered entitlements by period, and the ids of counted uses."""

    def add_id(
        self, license_id: bytes, use_id: str, name: str, amount: int, kept_until: datetime
    ) -> UseIdState:
        """Store the id of a use and what it is for, unless it is there; wait for a use being counted."""
        this = matching(use_ids, license_id=license_id, use_id=use_id)
        with self._writing() as connection:
            row = {"license_id": license_id, "use_id": use_id, "name": name, "amount": amount}
            add = insert_into(connection, use_ids).values({**row, "kept_until": kept_until})
            added = add.on_conflict_do_nothing().returning(use_ids.c.use_id)
            if connection.scalar(added) is not None:
                return UseIdState.NEW
            stored_use = connection.execute(select(use_ids.c.name, use_ids.c.amount).where(this)).one()
            is_same = stored_use.name is None or tuple(stored_use) == (name, amount)
            return UseIdState.COUNTED if is_same else UseIdState.OTHER

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
        of_it = matching(uses, license_id=license_id, name=name, period=period)
        return self._scalar(select(uses.c.used).where(of_it)) or 0

    def list_all(
        self, license_ids: Collection[bytes], periods: Collection[str]
    ) -> dict[tuple[bytes, str, str], int]:
        """Load how much was used, by license, name and period."""
        of_them = uses.c.license_id.in_(license_ids), uses.c.period.in_(periods)
        columns = uses.c.license_id, uses.c.name, uses.c.period, uses.c.used
        return {
            (bytes(license_id), *key): used
            for license_id, *key, used in self._all(select(*columns).where(*of_them))
        }

    def sweep(self, now: datetime) -> None:
        """Delete what is kept no longer."""
        for table in (uses, use_ids):
            self._delete(table, table.c.kept_until < now)
