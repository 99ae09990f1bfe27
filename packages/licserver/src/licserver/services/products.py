"""Products: what they are called, and the rules that hold for all their licenses and versions."""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypedDict, Unpack

from packaging.version import Version

from licserver.domain.decisions import is_slug, parse_version
from licserver.domain.records import EnvironmentPolicy, Product
from licserver.errors import ConflictError, InvalidInputError, NotFoundError
from licserver.services.context import Context
from licserver.services.license_terms import MAX_INDEXED, check_line

MAX_PRODUCT_NAME: Final = 200  # characters of a product's name
MAX_MOVES: Final = 1_000  # of a license in 30 days, by the customer
MAX_TRIAL_DAYS: Final = 366

_AUDITED_AS: Final = {
    "policy": "environment",
    "has_support_policy": "support_policy",
    "accepts_imported_keys": "accept_imported_keys",
}


class ProductRules(TypedDict, total=False):
    """Rules of a product, as its record describes them."""

    has_support_policy: bool
    accepts_imported_keys: bool
    customer_moves: int
    trial_days: int
    public_feed: bool


class ProductChanges(TypedDict, total=False):
    """What changes of a product; None for what stays. An empty `minimum_version` removes it."""

    name: str | None
    policy: EnvironmentPolicy | None
    has_support_policy: bool | None
    accepts_imported_keys: bool | None
    customer_moves: int | None
    trial_days: int | None
    public_feed: bool | None
    minimum_version: str | None


class ProductService:
    """Adds, changes and lists products."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def add(
        self,
        slug: str,
        name: str,
        policy: EnvironmentPolicy = EnvironmentPolicy.STRICT,
        **rules: Unpack[ProductRules],
    ) -> Product:
        """Add a product; rules that are not named have the record's defaults."""
        if not is_slug(slug):
            raise InvalidInputError(
                f"{slug!r} is no slug: use lower-case letters, digits and single hyphens, like my-product"
            )
        chosen = _validate({"name": name, "policy": policy, **rules})
        new = Product(id=0, slug=slug, **chosen)
        with self._context.transaction() as tx:
            if not tx.repositories.products.add(new, tx.now()):
                raise ConflictError(f"there is a product {slug!r} already")
            audited = {name: getattr(new, name) for name in ("name", "policy", *ProductRules.__annotations__)}
            tx.write_audit("product.add", ("product", slug), **_label(audited))
        return self.get(slug)

    def rename(self, slug: str, name: str) -> Product:
        """Change the name that update checks return; licenses keep the one they were issued with (D-12)."""
        return self.change(slug, name=name)

    def change(self, slug: str, **changes: Unpack[ProductChanges]) -> Product:
        """Change a product; what is not named stays."""
        wanted = _validate(changes)
        with self._context.transaction() as tx:  # the audit log's old value must be the one replaced
            before = ProductService(tx).get(slug)
            old = before._asdict() | {"minimum_version": before.minimum_version or ""}
            new = {name: value for name, value in wanted.items() if value != old[name]}
            if new:
                tx.repositories.products.change(
                    slug, **{name: None if value == "" else value for name, value in new.items()}
                )
                audited = {name: [old[name], value] for name, value in new.items()}
                tx.write_audit("product.change", ("product", slug), **_label(audited))
        return self.get(slug)

    def list_all(self) -> list[Product]:
        """Return all products, by slug."""
        return self._context.repositories.products.list_all()

    def get(self, slug: str) -> Product:
        """Return one product."""
        # An invalid slug is not looked up: it may contain what a database does not accept as text.
        product = self._context.repositories.products.find(slug) if is_slug(slug) else None
        if product is None:
            known = ", ".join(product.slug for product in self.list_all()[:10])
            hint = f"there are: {known}" if known else "add one with: licserver product add SLUG --name NAME"
            raise NotFoundError(f"there is no product {slug!r}; {hint}")
        return product


def read_version(text: str) -> Version:
    """Read a version by PEP 440."""
    version = parse_version(text) if len(text) <= MAX_INDEXED else None
    if version is None:
        raise InvalidInputError(f"{text!r} is no version by PEP 440; write it like 1.4.0 or 2.0rc1")
    return version


def _check_name(name: str) -> str:
    return check_line("a product's name", name, MAX_PRODUCT_NAME)


def _check_moves(moves: int) -> int:
    if not 0 <= moves <= MAX_MOVES:
        raise InvalidInputError(f"moves by customers must be between 0 (none) and {MAX_MOVES} in 30 days")
    return moves


def _check_trial_days(days: int) -> int:
    if not 0 <= days <= MAX_TRIAL_DAYS:
        raise InvalidInputError(f"trials must last between 0 (no trials) and {MAX_TRIAL_DAYS} days")
    return days


def _check_minimum(text: str) -> str:
    if text:
        text = text.strip()
        read_version(text)
    return text


_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "name": _check_name,
    "customer_moves": _check_moves,
    "trial_days": _check_trial_days,
    "minimum_version": _check_minimum,
}


def _validate(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those values that are given, as they are stored."""
    given = {name: value for name, value in values.items() if value is not None}
    return {name: _CHECKS[name](value) if name in _CHECKS else value for name, value in given.items()}


def _label(details: Mapping[str, Any]) -> dict[str, Any]:
    return {_AUDITED_AS.get(name, name): value for name, value in details.items()}
