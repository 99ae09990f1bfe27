"""Products. What is missing or already there is a return value; services raise the error."""

from datetime import datetime
from typing import Any, Final

from sqlalchemy import select, update

from licserver.database.repositories.base import Repository
from licserver.database.rows import read_product
from licserver.database.tables import products, releases
from licserver.domain.records import EnvironmentPolicy, Product

_PRODUCTS: Final = select(products, releases).outerjoin(
    releases, releases.c.id == products.c.latest_release_id
)


class ProductRepository(Repository):
    """Products with their latest releases."""

    def add(
        self, slug: str, name: str, policy: EnvironmentPolicy, now: datetime, *, has_support_policy: bool
    ) -> bool:
        """Add a product; return False when the slug is taken."""
        row = {
            "slug": slug,
            "name": name,
            "environment_policy": policy.value,
            "has_support_policy": has_support_policy,
            "created_at": now,
        }
        return self._insert_unless_taken(products.insert().values(row))

    def change(self, slug: str, **changes: Any) -> None:
        """Change columns of a product."""
        self._execute(update(products).where(products.c.slug == slug).values(changes))

    def find(self, slug: str) -> Product | None:
        """Load a product."""
        with self._reading() as connection:
            row = connection.execute(_PRODUCTS.where(products.c.slug == slug)).first()
        return None if row is None else read_product(row)

    def list_all(self) -> list[Product]:
        """Load all products, by slug."""
        with self._reading() as connection:
            return [read_product(row) for row in connection.execute(_PRODUCTS.order_by(products.c.slug))]
