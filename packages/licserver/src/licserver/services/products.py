"""Products."""

from typing import Any

from licserver.database.repositories.repository import Repositories
from licserver.domain.decisions import has_slug_shape
from licserver.domain.environments import is_printable
from licserver.domain.records import EnvironmentPolicy, Product
from licserver.errors import Conflict, Unknown, WrongUse
from licserver.services.base import Room

MAX_PRODUCT_NAME = 200
"""Characters of a product's name."""


class Products(Room):
    """What is sold."""

    def add_product(
        self,
        slug: str,
        name: str,
        policy: EnvironmentPolicy = EnvironmentPolicy.STRICT,
        *,
        has_support_policy: bool = False,
    ) -> Product:
        """Add a product.

        Raises:
            WrongUse: for a slug or a name that cannot be.
            Conflict: for a slug that is taken.
        """
        if not has_slug_shape(slug):
            raise WrongUse(
                f"{slug!r} is no slug: use lower-case letters, digits and single hyphens, like my-product"
            )
        name = _checked_name(name)
        with self._records.together() as books:
            if not books.add_product(
                slug, name, policy, self._clock(), has_support_policy=has_support_policy
            ):
                raise Conflict(f"there is a product {slug!r} already")
            self._note(
                books,
                "product.add",
                ("product", slug),
                name=name,
                environment=policy.value,
                support_policy=has_support_policy,
            )
        return self.product(slug)

    def rename_product(self, slug: str, name: str) -> Product:
        """Change a product's name for update-check; licenses keep the name they were issued with (D-12).

        Raises:
            Unknown: for an unknown slug.
            WrongUse: for a name that cannot be.
        """
        return self.change_product(slug, name=_checked_name(name))

    def change_product(
        self,
        slug: str,
        *,
        name: str | None = None,
        policy: EnvironmentPolicy | None = None,
        has_support_policy: bool | None = None,
    ) -> Product:
        """Change what is said of a product; what is None stays.

        Raises:
            Unknown: for an unknown slug.
            WrongUse: for a name that cannot be.
        """
        wanted: dict[str, Any] = {
            "name": None if name is None else _checked_name(name),
            "environment": policy,
            "support_policy": has_support_policy,
        }
        with self._records.together() as books:  # what is told as the old value must still be that
            before = self._product(books, slug)
            held = {
                "name": before.name,
                "environment": before.policy,
                "support_policy": before.has_support_policy,
            }
            new = {label: value for label, value in wanted.items() if value not in (None, held[label])}
            if new:
                books.change_product(
                    slug,
                    new.get("name"),
                    new.get("environment"),
                    has_support_policy=new.get("support_policy"),
                )
                told = {label: [held[label], value] for label, value in new.items()}
                self._note(books, "product.change", ("product", slug), **told)
        return self.product(slug)

    def products(self) -> list[Product]:
        """All products, by slug."""
        return self._records.products()

    def product(self, slug: str) -> Product:
        """One product.

        Raises:
            Unknown: for an unknown slug.
        """
        return self._product(self._records, slug)

    def _product(self, books: Repositories, slug: str) -> Product:
        # What is no slug is not asked for: it may not even be text that a database takes.
        product = books.product(slug) if has_slug_shape(slug) else None
        if product is None:
            raise self._no_product(slug)
        return product

    def _no_product(self, slug: str) -> Unknown:
        known = ", ".join(product.slug for product in self._records.products()[:10])
        hint = f"there are: {known}" if known else "add one with: licserver product add SLUG --name NAME"
        return Unknown(f"there is no product {slug!r}; {hint}")


def _checked_name(name: str) -> str:
    name = name.strip()
    if not name or not is_printable(name) or len(name) > MAX_PRODUCT_NAME:
        raise WrongUse(f"a product's name must be one line of text of at most {MAX_PRODUCT_NAME} characters")
    return name
