"""Products."""

from typing import Any

from licserver.domain.decisions import is_slug
from licserver.domain.environments import is_printable
from licserver.domain.records import EnvironmentPolicy, Product
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.services.context import Context

MAX_PRODUCT_NAME = 200
"""Characters of a product's name."""


class ProductService:
    """Adds, changes and lists products."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def add(
        self,
        slug: str,
        name: str,
        policy: EnvironmentPolicy = EnvironmentPolicy.STRICT,
        *,
        has_support_policy: bool = False,
    ) -> Product:
        """Add a product.

        Raises:
            InvalidInputError: for an invalid slug or name.
            ConflictError: for a slug that is taken.
        """
        if not is_slug(slug):
            raise InvalidInputError(
                f"{slug!r} is no slug: use lower-case letters, digits and single hyphens, like my-product"
            )
        name = _check_name(name)
        with self._context.transaction() as tx:
            if not tx.repositories.products.add(
                slug, name, policy, tx.now(), has_support_policy=has_support_policy
            ):
                raise ConflictError(f"there is a product {slug!r} already")
            tx.write_audit(
                "product.add",
                ("product", slug),
                name=name,
                environment=policy.value,
                support_policy=has_support_policy,
            )
        return self.get(slug)

    def rename(self, slug: str, name: str) -> Product:
        """Change the name that update checks return; licenses keep the one they were issued with (D-12).

        Raises:
            NotFoundError: for an unknown slug.
            InvalidInputError: for an invalid name.
        """
        return self.change(slug, name=_check_name(name))

    def change(
        self,
        slug: str,
        *,
        name: str | None = None,
        policy: EnvironmentPolicy | None = None,
        has_support_policy: bool | None = None,
    ) -> Product:
        """Change a product; what is None stays.

        Raises:
            NotFoundError: for an unknown slug.
            InvalidInputError: for an invalid name.
        """
        wanted: dict[str, Any] = {
            "name": None if name is None else _check_name(name),
            "environment": None if policy is None else policy.value,
            "support_policy": has_support_policy,
        }
        columns = {"environment": "environment_policy", "support_policy": "has_support_policy"}
        with self._context.transaction() as tx:  # the audit log's old value must be the one replaced
            before = ProductService(tx).get(slug)
            held = {
                "name": before.name,
                "environment": before.policy.value,
                "support_policy": before.has_support_policy,
            }
            new = {label: value for label, value in wanted.items() if value not in (None, held[label])}
            if new:
                tx.repositories.products.change(
                    slug, **{columns.get(label, label): value for label, value in new.items()}
                )
                changes = {label: [held[label], value] for label, value in new.items()}
                tx.write_audit("product.change", ("product", slug), **changes)
        return self.get(slug)

    def list_all(self) -> list[Product]:
        """Return all products, by slug."""
        return self._context.repositories.products.list_all()

    def get(self, slug: str) -> Product:
        """Return one product.

        Raises:
            NotFoundError: for an unknown slug.
        """
        # An invalid slug is not looked up: it may contain what a database does not accept as text.
        product = self._context.repositories.products.find(slug) if is_slug(slug) else None
        if product is None:
            known = ", ".join(product.slug for product in self.list_all()[:10])
            hint = f"there are: {known}" if known else "add one with: licserver product add SLUG --name NAME"
            raise NotFoundError(f"there is no product {slug!r}; {hint}")
        return product


def _check_name(name: str) -> str:
    name = name.strip()
    if not name or not is_printable(name) or len(name) > MAX_PRODUCT_NAME:
        raise InvalidInputError(
            f"a product's name must be one line of text of at most {MAX_PRODUCT_NAME} characters"
        )
    return name
