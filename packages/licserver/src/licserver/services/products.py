"""Products and their rules; plans, which define what licenses are entitled to."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, TypedDict, Unpack

from packaging.version import Version

from licserver.domain.decisions import is_slug
from licserver.domain.entitlements import Plan, is_name, resolve
from licserver.domain.moves import least_idle_days
from licserver.domain.records import (
    DEFAULT_POLICY,
    AfterSupport,
    EnvironmentPolicy,
    IssuedLicense,
    Product,
)
from licserver.domain.text import plural
from licserver.domain.versions import parse_version
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.services.context import Context, Service
from licserver.services.license_terms import read_entitlements
from licserver.services.validation import MAX_INDEXED, check_line

MAX_PRODUCT_NAME: Final = 200  # characters of a product's name
MAX_MOVES: Final = 1_000  # of a license in 30 days, by the customer
MAX_TRIAL_DAYS: Final = 366
MAX_IDLE_DAYS: Final = 3_650

_AUDITED_AS: Final = {
    "policy": "environment",
    "has_support_policy": "support_policy",
    "accepts_imported_keys": "accept_imported_keys",
}


class ProductRules(TypedDict, total=False):
    """Rules of a product, by the names of its record; None keeps the present value, or the default."""

    has_support_policy: bool | None
    accepts_imported_keys: bool | None
    customer_moves: int | None
    trial_days: int | None
    public_feed: bool | None
    after_support: AfterSupport | None
    idle_days: int | None


class ProductChanges(ProductRules, total=False):
    """Changes of a product; None keeps the present value, and an empty `minimum_version` removes it."""

    name: str | None
    policy: EnvironmentPolicy | None
    minimum_version: str | None


class ProductService(Service):
    """Adds, changes and lists products."""

    def add(
        self,
        slug: str,
        name: str,
        policy: EnvironmentPolicy = DEFAULT_POLICY,
        **rules: Unpack[ProductRules],
    ) -> Product:
        """Add a product; absent rules have the record's defaults."""
        if not is_slug(slug):
            raise InvalidInputError(
                f"{slug!r} is not a valid slug: use lower-case letters, digits and single hyphens, "
                "like my-product"
            )
        new = Product(id=0, slug=slug, **_validate({"name": name, "policy": policy, **rules}))
        _check_idle(new, self._context.settings.last_seen_days)
        with self._context.transaction() as tx:
            if not tx.repositories.products.add(new, tx.now()):
                raise ConflictError(f"there is a product {slug!r} already")
            _check_name_is_free(tx, new.name, slug)
            audited = {name: getattr(new, name) for name in ("name", "policy", *ProductRules.__annotations__)}
            tx.write_audit("product.add", ("product", slug), **_label(audited))
        return self.get(slug)

    def rename(self, slug: str, name: str) -> Product:
        """Change the name of new licenses and of update checks; see `describe_rename`."""
        return self.change(slug, name=name)

    def change(self, slug: str, **changes: Unpack[ProductChanges]) -> Product:
        """Change some fields of a product."""
        valid = _validate(changes)
        with self._context.transaction() as tx:  # so that the audit log has the value that is replaced
            before = ProductService(tx).get(slug)
            old = before._asdict() | {"minimum_version": before.minimum_version or ""}
            new = {name: value for name, value in valid.items() if value != old[name]}
            if {"idle_days", "customer_moves"} & new.keys():
                _check_idle(before._replace(**_kept(new)), tx.settings.last_seen_days)
            if "name" in new:
                _check_name_is_free(tx, new["name"], slug)
            if new:
                stored = {name: None if value == "" else value for name, value in new.items()}
                tx.repositories.products.change(slug, **stored)
                audited = {name: [old[name], value] for name, value in new.items()}
                tx.write_audit("product.change", ("product", slug), **_label(audited))
        return self.get(slug)

    def list_all(self) -> list[Product]:
        """Return all products, by slug."""
        return self._context.repositories.products.list_all()

    def get(self, slug: str) -> Product:
        """Return a product."""
        return find_product(self._context, slug)


def find_product(context: Context, slug: str) -> Product:
    """Return a product, or raise a `NotFoundError` that lists the products."""
    # An invalid slug is not looked up: it may contain characters that a database rejects.
    product = context.repositories.products.find(slug) if is_slug(slug) else None
    if product is None:
        slugs = ", ".join(product.slug for product in ProductService(context).list_all()[:10])
        hint = f"there are: {slugs}" if slugs else "add one with: licserver product add SLUG --name NAME"
        raise NotFoundError(f"there is no product {slug!r}; {hint}")
    return product


def _check_name_is_free(tx: Context, name: str, slug: str) -> None:
    """Check that no other product has a name, and keep others from choosing it until the transaction ends.

    Raises:
        ConflictError: There is one: to an app its licenses would be good, as apps compare names (D-44).
    """
    if others := [other for other in tx.repositories.products.lock_name(name) if other != slug]:
        raise ConflictError(
            f"the product {others[0]} has the name {name!r} already, and an app accepts each license of its "
            "product's name: choose another name"
        )


def _kept(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in ("idle_days", "customer_moves") if name in values}


def _check_idle(product: Product, last_seen_days: int) -> None:
    """Check that a computer in use never counts as idle, and that its slot may be given away (D-334)."""
    if not product.idle_days:
        return
    least = least_idle_days(last_seen_days)
    if not least <= product.idle_days <= MAX_IDLE_DAYS:
        raise InvalidInputError(
            f"a computer may count as idle after {least} to {MAX_IDLE_DAYS} days, or 0 for never: with "
            f"LICSERVER_LAST_SEEN_DAYS={last_seen_days} one in use may look idle for fewer"
        )
    if not product.customer_moves:
        raise InvalidInputError(
            "a slot that an idle computer gives up counts as a move of the customer, and this product allows "
            "none; allow some, or let full licenses refuse new computers"
        )


def describe_short_idle(product: Product, last_seen_days: int) -> str | None:
    """Return why a product's computers count as idle later than its rule has it; None if they do not."""
    least = least_idle_days(last_seen_days)
    if not 0 < product.idle_days < least:
        return None
    return (
        f"the product {product.slug} gives away the slots of computers after {product.idle_days} idle days; "
        f"with LICSERVER_LAST_SEEN_DAYS={last_seen_days} it does so after {least}"
    )


def describe_missing_minimum(product: Product) -> str | None:
    """Return the effect of a lowest supported version that no offered version reaches; None if one does."""
    if product.minimum_version is None:
        return None
    if product.latest is not None and read_version(product.latest.version) >= read_version(
        product.minimum_version
    ):
        return None
    return (
        f"No version that {product.slug} offers is as high as {product.minimum_version}: all apps show that "
        "they are no longer supported, and no update helps."
    )


def describe_rename(product: Product, name: str) -> list[str]:
    """Return the effects of another name for a product, a sentence each; none if the name stays (D-12)."""
    if (name := name.strip()) == product.name:
        return []
    return [
        f"New licenses will be for {name}; those issued before stay for {product.name}.",
        f'An app with product="{product.name}" refuses every new license, also on computers of customers.',
        f"If your app passes product=, keep {product.name}; use the new name in your shop and on your pages.",
    ]


def describe_unused_support(product: Product) -> str | None:
    """Return why the end of a support period has no effect for a product; None if it has."""
    if product.has_support_policy:
        return None
    remedy = f"to use support periods: licserver product change {product.slug} --support-policy"
    return f"the product {product.slug} has no support policy, so the end of support has no effect; {remedy}"


def read_version(text: str) -> Version:
    """Read a version by PEP 440."""
    version = parse_version(text) if len(text) <= MAX_INDEXED else None
    if version is None:
        raise InvalidInputError(f"{text!r} is not a PEP 440 version; write it like 1.4.0 or 2.0rc1")
    return version


def _validate(values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate the values that are not None; return them in their stored form."""
    present = {name: value for name, value in values.items() if value is not None}
    if "name" in present:
        present["name"] = check_line("a product's name", present["name"], MAX_PRODUCT_NAME)
    if not 0 <= present.get("customer_moves", 0) <= MAX_MOVES:
        raise InvalidInputError(f"moves by customers must be between 0 (none) and {MAX_MOVES} in 30 days")
    if not 0 <= present.get("trial_days", 0) <= MAX_TRIAL_DAYS:
        raise InvalidInputError(f"trials must last between 0 (no trials) and {MAX_TRIAL_DAYS} days")
    if minimum := present.get("minimum_version"):
        present["minimum_version"] = minimum.strip()
        read_version(present["minimum_version"])
    return present


def _label(details: Mapping[str, Any]) -> dict[str, Any]:
    return {_AUDITED_AS.get(name, name): value for name, value in details.items()}


# --- plans: resolved at each request (D-222) --------------------------------------


class PlanService(Service):
    """Adds, changes and removes plans, and resolves the entitlements of licenses."""

    def add(self, slug: str, name: str, entitlements: Mapping[str, Any]) -> Plan:
        """Add a plan to a product."""
        if not is_name(name):
            raise InvalidInputError(
                f"{name!r} is not a valid plan name: use up to 40 lower-case letters, digits and _ . -"
            )
        plan = Plan(find_product(self._context, slug).id, name, read_entitlements(entitlements))
        with self._context.transaction() as tx:
            if not tx.repositories.plans.add(plan, tx.now()):
                raise ConflictError(f"there is a plan {name!r} of {slug} already")
            tx.write_audit("plan.add", _plan_object(slug, name), entitlements=dict(plan.entitlements))
        return plan

    def change(self, slug: str, name: str, changes: Mapping[str, Any], *, replaces: bool = False) -> Plan:
        """Change some entitlements of a plan, or replace all of them; None removes an entitlement.

        Licenses of the plan get the new entitlements with the next response.
        """
        valid = read_entitlements(changes, removable=True)
        with self._context.transaction() as tx:
            before = _find_plan(tx, slug, name, locked=True)
            base = None if replaces else before.entitlements
            new = before._replace(entitlements=read_entitlements(resolve(base, valid)))
            if new != before:
                tx.repositories.plans.replace(new)
                tx.write_audit("plan.change", _plan_object(slug, name), entitlements=dict(new.entitlements))
        return new

    def remove(self, slug: str, name: str) -> None:
        """Remove a plan that neither a license nor a shop's mapping uses."""
        with self._context.transaction() as tx:
            plan = _find_plan(tx, slug, name, locked=True)
            licenses, mappings = tx.repositories.plans.count_uses(plan.product_id, name)
            if licenses or mappings:
                raise ConflictError(
                    f"the plan {name!r} is in use: by {licenses} {plural(licenses, 'license')} and "
                    f"{mappings} {plural(mappings, 'mapping')} of shops; give these another plan first"
                )
            tx.repositories.plans.remove(plan.product_id, name)
            tx.write_audit("plan.remove", _plan_object(slug, name))

    def get(self, slug: str, name: str) -> Plan:
        """Return a plan of a product."""
        return _find_plan(self._context, slug, name)

    def list_all(self, slug: str) -> list[Plan]:
        """Return the plans of a product, by name."""
        return self._context.repositories.plans.list_all(find_product(self._context, slug).id)

    def resolve(self, license_: IssuedLicense) -> dict[str, Any]:
        """Return the entitlements of a license, by name."""
        return self.resolve_all([license_])[0]

    def resolve_all(self, licenses: Sequence[IssuedLicense]) -> list[dict[str, Any]]:
        """Return the entitlements of licenses, in their order; each plan is loaded once."""
        find = self._context.repositories.plans.find
        plans = {
            (product_id, name): find(product_id, name)
            for product_id, name in {
                (license_.product_id, license_.plan) for license_ in licenses if license_.plan
            }
        }
        license_plans = [plans.get((license_.product_id, license_.plan or "")) for license_ in licenses]
        return [
            resolve(plan and plan.entitlements, license_.overrides)
            for plan, license_ in zip(license_plans, licenses, strict=True)
        ]


def check_plans(tx: Context, product_id: int, slug: str, names: Collection[str | None]) -> None:
    """Check that plans exist, and lock them until the transaction ends.

    Raises:
        NotFoundError: The product has no plan of such a name.
    """
    required = {name for name in names if name is not None}
    if missing := required and required - tx.repositories.plans.lock(product_id, required):
        raise _unknown(slug, min(missing))


def _find_plan(context: Context, slug: str, name: str, *, locked: bool = False) -> Plan:
    product, plans = find_product(context, slug), context.repositories.plans
    plan = plans.find(product.id, name, locked=locked) if is_name(name) else None
    if plan is None:
        raise _unknown(slug, name)
    return plan


def _unknown(slug: str, name: str) -> NotFoundError:
    return NotFoundError(f"there is no plan {name!r} of {slug}; see `licserver plan list {slug}`")


def _plan_object(slug: str, name: str) -> tuple[str, str]:
    return "plan", f"{slug}/{name}"
