"""The operations of the admin API, each a function of a `Call`, with its route, scope and models beside it.

`app` authenticates and parses a request, and runs the operation on a thread; `openapi` describes it.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from licserver.domain.decisions import is_license_key, license_state, mask_key
from licserver.domain.records import Actor, IssuedLicense, LicenseTerms, Scope
from licserver.errors import InvalidInputError, NotFoundError, SecretsError
from licserver.services import AuditFilter, LicenseFilter, Page, Services, page_of
from licserver.services.license_terms import has_id_shape
from licserver.web.admin import schemas

READ, WRITE = Scope.READ, Scope.WRITE

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request: services that act as the token, the path's variable parts, and query and body."""

    services: Services
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def license_id(self) -> str:
        """The id of the license that the path names; not its key, because proxies log paths.

        Raises:
            NotFoundError: for anything but an id.
        """
        if not has_id_shape(self.path["id"]):
            raise NotFoundError("no such license; a path names it by its id of 32 digits")
        return self.path["id"]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Args:
        scope: Required of the token.
        run: Runs on a thread; its name, docstring and return type are part of the OpenAPI document.
        query: The model of the query parameters.
        body: The model of the JSON body; None without one.
        creates: Whether it returns 201 and takes an ``Idempotency-Key``.
    """

    method: str
    path: str
    scope: Scope
    run: Callable[[Call], BaseModel]
    query: type[schemas.RequestModel]
    body: type[schemas.RequestModel] | None
    creates: bool


OPERATIONS: Final[list[Operation]] = []
"""All operations of this module."""


def operation(
    method: str,
    path: str,
    scope: Scope,
    *,
    query: type[schemas.RequestModel] = schemas.Nothing,
    body: type[schemas.RequestModel] | None = None,
    creates: bool = False,
) -> Callable[[Callable[[Call], Model]], Callable[[Call], Model]]:
    """Register a function as an operation; arguments as `Operation`."""

    def register(run: Callable[[Call], Model]) -> Callable[[Call], Model]:
        OPERATIONS.append(Operation(method, path, scope, run, query, body, creates))
        return run

    return register


def _page(found: Page[Any]) -> dict[str, Any]:
    """Return the fields of `schemas.Page`."""
    return {"items": found.items, "next": found.cursor}


def _sent(body: BaseModel) -> dict[str, Any]:
    """Return the fields that were sent, with their values."""
    return {name: getattr(body, name) for name in body.model_fields_set}


# --- products and releases --------------------------------------------------------------------


@operation("GET", "/products", READ, query=schemas.Paging)
def list_products(call: Call) -> schemas.Page[schemas.Product]:
    """All products, by slug."""
    found = page_of(
        call.services.products.list_all(), lambda one: one.slug, call.query.cursor, call.query.limit
    )
    return schemas.Page[schemas.Product].model_validate(_page(found))


@operation("POST", "/products", WRITE, body=schemas.NewProduct, creates=True)
def add_product(call: Call) -> schemas.Product:
    """Add a product."""
    new = call.body
    return schemas.Product.model_validate(
        call.services.products.add(new.slug, new.name, new.environment, has_support_policy=new.support_policy)
    )


@operation("GET", "/products/{slug}", READ)
def get_product(call: Call) -> schemas.Product:
    """One product."""
    return schemas.Product.model_validate(call.services.products.get(call.path["slug"]))


@operation("PATCH", "/products/{slug}", WRITE, body=schemas.ProductChange)
def change_product(call: Call) -> schemas.Product:
    """Change a product."""
    wanted = _sent(call.body)
    return schemas.Product.model_validate(
        call.services.products.change(
            call.path["slug"],
            name=wanted.get("name"),
            policy=wanted.get("environment"),
            has_support_policy=wanted.get("support_policy"),
        )
    )


@operation("GET", "/products/{slug}/releases", READ, query=schemas.Paging)
def list_releases(call: Call) -> schemas.Page[schemas.Release]:
    """A product's releases, the latest first."""
    releases = call.services.releases.list_all(call.path["slug"])[::-1]
    found = page_of(releases, lambda one: one.version, call.query.cursor, call.query.limit)
    return schemas.Page[schemas.Release].model_validate(_page(found))


@operation("GET", "/products/{slug}/releases/{version}", READ)
def get_release(call: Call) -> schemas.Release:
    """One release."""
    return schemas.Release.model_validate(call.services.releases.get(call.path["slug"], call.path["version"]))


@operation("POST", "/products/{slug}/releases/{version}/withdraw", WRITE)
def withdraw_release(call: Call) -> schemas.Release:
    """Withdraw a release; download links to it stop working."""
    return schemas.Release.model_validate(
        call.services.releases.withdraw(call.path["slug"], call.path["version"])
    )


# --- licenses and activations -----------------------------------------------------------------


@operation("GET", "/licenses", READ, query=schemas.LicenseQuery)
def list_licenses(call: Call) -> schemas.Page[schemas.License]:
    """Licenses, filtered and searched."""
    query = call.query
    if is_license_key((query.q or "").strip().upper()):
        raise InvalidInputError("send a whole key to licenses/lookup, because proxies log addresses")
    which = LicenseFilter(
        query.q, query.product, query.subscription, query.state, query.expires_from, query.expires_until
    )
    return _licenses(call, call.services.licenses.search(which, query.cursor, query.limit))


@operation("POST", "/licenses", WRITE, body=schemas.NewLicense, creates=True)
def issue_license(call: Call) -> schemas.IssuedLicense:
    """Issue a license; the response has its key."""
    given = call.body.model_dump(exclude={"product", "subscription"})
    terms = LicenseTerms(subscription_id=call.body.subscription, **given)
    license_, key = call.services.licenses.issue(call.body.product, terms)
    return schemas.IssuedLicense(license_key=key, **_fields(call, license_))


@operation("POST", "/licenses/lookup", READ, body=schemas.LicenseKey)
def look_up_license(call: Call) -> schemas.License:
    """The license of a whole key."""
    return _license(call, call.services.licenses.get(call.body.license_key))


@operation("GET", "/licenses/{id}", READ)
def get_license(call: Call) -> schemas.License:
    """One license."""
    return _license(call, call.services.licenses.get(call.license_id))


@operation("PATCH", "/licenses/{id}", WRITE, body=schemas.LicenseChange)
def change_license(call: Call) -> schemas.License:
    """Change the terms of a license."""
    return _license(call, call.services.licenses.change(call.license_id, **_sent(call.body)))


@operation("POST", "/licenses/{id}/revoke", WRITE, body=schemas.Reason)
def revoke_license(call: Call) -> schemas.License:
    """Revoke a license."""
    return _license(call, call.services.licenses.revoke(call.license_id, call.body.reason))


@operation("POST", "/licenses/{id}/reinstate", WRITE)
def reinstate_license(call: Call) -> schemas.License:
    """Reinstate a revoked license."""
    return _license(call, call.services.licenses.reinstate(call.license_id))


@operation("POST", "/licenses/{id}/reveal", WRITE)
def reveal_license_key(call: Call) -> schemas.RevealedKey:
    """A license's whole key; recorded in the audit log."""
    return schemas.RevealedKey(license_key=call.services.licenses.reveal(call.license_id))


@operation("GET", "/licenses/{id}/activations", READ, query=schemas.Paging)
def list_activations(call: Call) -> schemas.Page[schemas.Activation]:
    """A license's activations, by domain."""
    found = call.services.licenses.list_activations(call.license_id, call.query.cursor, call.query.limit)
    return schemas.Page[schemas.Activation].model_validate(_page(found))


@operation("POST", "/licenses/{id}/deactivate", WRITE, body=schemas.EnvironmentRequest)
def free_slots(call: Call) -> schemas.FreedSlots:
    """Free the slots of a domain or an address."""
    return schemas.FreedSlots(freed=call.services.licenses.deactivate(call.license_id, call.body.environment))


@operation("GET", "/products/{slug}/releases/{version}/licenses", READ, query=schemas.Paging)
def list_downloaders(call: Call) -> schemas.Page[schemas.License]:
    """Who may still download a release."""
    slug, version = call.path["slug"], call.path["version"]
    found = call.services.licenses.list_entitled(slug, version, call.query.cursor, call.query.limit)
    return _licenses(call, found)


def _license(call: Call, license_: IssuedLicense) -> schemas.License:
    return schemas.License(**_fields(call, license_))


def _licenses(call: Call, found: Page[IssuedLicense]) -> schemas.Page[schemas.License]:
    items = [_license(call, one) for one in found.items]
    return schemas.Page[schemas.License](items=items, next=found.cursor)


def _fields(call: Call, license_: IssuedLicense) -> dict[str, Any]:
    """Return the record's fields, the masked key and the state; an unreadable key does not fail a list."""
    try:
        masked = mask_key(call.services.licenses.decrypt_key(license_))
    except SecretsError:
        masked = "unreadable"
    state = license_state(license_, call.services.now())
    return {**asdict(license_), "masked_key": masked, "state": state}


# --- subscriptions and audit log --------------------------------------------------------------


@operation("GET", "/subscriptions", READ, query=schemas.Paging)
def list_subscriptions(call: Call) -> schemas.Page[schemas.Subscription]:
    """Subscriptions of licenses, by id."""
    found = call.services.subscriptions.list_page(call.query.cursor, call.query.limit)
    return schemas.Page[schemas.Subscription].model_validate(_page(found))


@operation("GET", "/subscriptions/{id}", READ)
def get_subscription(call: Call) -> schemas.Subscription:
    """One subscription."""
    return schemas.Subscription.model_validate(call.services.subscriptions.get(call.path["id"]))


@operation("POST", "/subscriptions/{id}/end", WRITE, body=schemas.InstantRequest)
def end_subscription(call: Call) -> schemas.Subscription:
    """End a subscription, now or at an instant."""
    call.services.subscriptions.end(call.path["id"], call.body.at)
    return get_subscription(call)


@operation("POST", "/subscriptions/{id}/resume", WRITE)
def resume_subscription(call: Call) -> schemas.Subscription:
    """Resume a subscription that was ended."""
    call.services.subscriptions.resume(call.path["id"])
    return get_subscription(call)


@operation("GET", "/audit", READ, query=schemas.AuditQuery)
def list_audit(call: Call) -> schemas.Page[schemas.AuditLine]:
    """The audit log, the newest entry first."""
    query = call.query
    if (query.object_kind is None) != (query.object_id is None):
        raise InvalidInputError("object_kind and object_id must be given together")
    if (query.actor_kind is None) != (query.actor_name is None):
        raise InvalidInputError("actor_kind and actor_name must be given together")
    which = AuditFilter(
        object=None if query.object_kind is None else (query.object_kind, query.object_id),
        actor=None if query.actor_kind is None else Actor(query.actor_kind, query.actor_name),
        since=query.since,
        until=query.until,
    )
    found = call.services.audit.list_page(which, query.cursor, query.limit)
    return schemas.Page[schemas.AuditLine].model_validate(_page(found))
