"""Plans. What is missing or already there is a return value; services raise the error."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, func, insert, select, update

from licserver.database.repositories.base import Repository
from licserver.database.tables.events import sale_mappings
from licserver.database.tables.licenses import licenses, plans
from licserver.domain.entitlements import Plan, dump, load


class PlanRepository(Repository):
    """Plans of products."""

    def add(self, plan: Plan, now: datetime) -> bool:
        """Add a plan; return False when the product has one of this name."""
        row = {**plan._asdict(), "entitlements": dump(plan.entitlements), "created_at": now}
        return self._insert_unless_taken(insert(plans).values(row))

    def replace(self, plan: Plan) -> None:
        """Change what a plan grants."""
        of_it = plans.c.product_id == plan.product_id, plans.c.name == plan.name
        self._execute(update(plans).where(*of_it).values(entitlements=dump(plan.entitlements)))

    def remove(self, product_id: int, name: str) -> None:
        """Delete a plan."""
        self._execute(delete(plans).where(plans.c.product_id == product_id, plans.c.name == name))

    def find(self, product_id: int, name: str, *, locked: bool = False) -> Plan | None:
        """Load a plan; nobody else changes, removes or chooses a `locked` one until the transaction ends."""
        statement = select(plans).where(plans.c.product_id == product_id, plans.c.name == name)
        row = self._first(statement.with_for_update() if locked else statement)
        return None if row is None else _read_plan(row)

    def list_all(self, product_id: int) -> list[Plan]:
        """Load the plans of a product, by name."""
        statement = select(plans).where(plans.c.product_id == product_id).order_by(plans.c.name)
        return list(map(_read_plan, self._all(statement)))

    def lock(self, product_id: int, names: Collection[str]) -> set[str]:
        """Keep plans from being removed until the transaction ends; return the names that exist."""
        of_them = plans.c.product_id == product_id, plans.c.name.in_(sorted(names))
        locked = select(plans.c.name).where(*of_them).order_by(plans.c.name)
        return {row.name for row in self._all(locked.with_for_update(read=True, key_share=True))}

    def count_uses(self, product_id: int, name: str) -> tuple[int, int]:
        """Return how many licenses have a plan, and how many mappings of shops give it."""
        count = select(func.count())
        return (
            self._scalar(count.where(licenses.c.product_id == product_id, licenses.c.plan == name)),
            self._scalar(count.where(sale_mappings.c.product_id == product_id, sale_mappings.c.plan == name)),
        )


def _read_plan(row: Row[Any]) -> Plan:
    entitlements: Mapping[str, Any] = load(row.entitlements) or {}
    return Plan(row.product_id, row.name, entitlements)
