"""Plans: what licenses of a product are entitled to, resolved whenever it is asked for (D-222)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from licserver.domain.entitlements import Plan, is_name, resolve
from licserver.domain.records import IssuedLicense
from licserver.domain.text import plural
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.services.context import Context
from licserver.services.license_terms import read_entitlements
from licserver.services.products import ProductService


class PlanService:
    """Adds, changes and removes plans, and resolves the entitlements of licenses."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._products = ProductService(context)

    def add(self, slug: str, name: str, entitlements: Mapping[str, Any]) -> Plan:
        """Add a plan to a product."""
        if not is_name(name):
            raise InvalidInputError(
                f"{name!r} is no name of a plan: use up to 40 lower-case letters, digits and _ . -"
            )
        plan = Plan(self._products.get(slug).id, name, read_entitlements(entitlements))
        with self._context.transaction() as tx:
            if not tx.repositories.plans.add(plan, tx.now()):
                raise ConflictError(f"{slug} has a plan {name!r} already")
            tx.write_audit("plan.add", _object(slug, name), entitlements=dict(plan.entitlements))
        return plan

    def change(self, slug: str, name: str, changes: Mapping[str, Any], *, replaces: bool = False) -> Plan:
        """Change what a plan grants: None takes an entitlement out of it, and what is not named stays.

        With `replaces` nothing stays. Its licenses get the new entitlements with the next answer.
        """
        wanted = read_entitlements(changes, removable=True)
        with self._context.transaction() as tx:
            before = _find(tx, slug, name, locked=True)
            kept = None if replaces else before.entitlements
            new = before._replace(entitlements=read_entitlements(resolve(kept, wanted)))
            if new != before:
                tx.repositories.plans.replace(new)
                tx.write_audit("plan.change", _object(slug, name), entitlements=dict(new.entitlements))
        return new

    def remove(self, slug: str, name: str) -> None:
        """Remove a plan that no license has, and no mapping of a shop gives."""
        with self._context.transaction() as tx:
            plan = _find(tx, slug, name, locked=True)
            licenses, mappings = tx.repositories.plans.count_uses(plan.product_id, name)
            if licenses or mappings:
                raise ConflictError(
                    f"the plan {name!r} is in use: by {licenses} {plural(licenses, 'license')} and "
                    f"{mappings} {plural(mappings, 'mapping')} of shops; give these another plan first"
                )
            tx.repositories.plans.remove(plan.product_id, name)
            tx.write_audit("plan.remove", _object(slug, name))

    def get(self, slug: str, name: str) -> Plan:
        """Return one plan of a product."""
        return _find(self._context, slug, name)

    def list_all(self, slug: str) -> list[Plan]:
        """Return the plans of a product, by name."""
        return self._context.repositories.plans.list_all(self._products.get(slug).id)

    def resolve(self, license_: IssuedLicense) -> dict[str, Any]:
        """Return the entitlements of a license, by name."""
        return self.resolve_all([license_])[0]

    def resolve_all(self, licenses: Sequence[IssuedLicense]) -> list[dict[str, Any]]:
        """Return the entitlements of licenses, in their order; each plan is loaded once."""
        find = self._context.repositories.plans.find
        plans = {
            (product_id, name): find(product_id, name)
            for product_id, name in {(one.product_id, one.plan) for one in licenses if one.plan}
        }
        found = [plans.get((one.product_id, one.plan or "")) for one in licenses]
        return [
            resolve(plan and plan.entitlements, one.overrides)
            for plan, one in zip(found, licenses, strict=True)
        ]


def check_plans(tx: Context, product_id: int, slug: str, names: Collection[str | None]) -> None:
    """Check that plans exist, and keep them until the transaction ends.

    Raises:
        NotFoundError: The product has no plan of such a name.
    """
    wanted = {name for name in names if name is not None}
    if missing := wanted and wanted - tx.repositories.plans.lock(product_id, wanted):
        raise _unknown(slug, min(missing))


def _find(context: Context, slug: str, name: str, *, locked: bool = False) -> Plan:
    product, plans = ProductService(context).get(slug), context.repositories.plans
    found = plans.find(product.id, name, locked=locked) if is_name(name) else None
    if found is None:
        raise _unknown(slug, name)
    return found


def _unknown(slug: str, name: str) -> NotFoundError:
    return NotFoundError(f"{slug} has no plan {name!r}; see `licserver plan list {slug}`")


def _object(slug: str, name: str) -> tuple[str, str]:
    return "plan", f"{slug}/{name}"
