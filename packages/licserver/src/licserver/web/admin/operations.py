"""The operations of the admin API: functions of a `Call`, with route, scope and models beside each.

`app` authenticates and parses a request, and runs the operation on a thread; `openapi` describes it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel

from licserver.database.repositories.audit import AuditFilter
from licserver.domain.decisions import is_license_key, license_state
from licserver.domain.entitlements import Plan
from licserver.domain.records import Actor, FileKind, IssuedLicense, LicenseTerms, Product, Release, Scope
from licserver.domain.security_notices import read_notice
from licserver.errors import InvalidInputError, NotFoundError
from licserver.services.installation import Services
from licserver.services.license_search import LicenseFilter
from licserver.services.lists import Page, page_of
from licserver.services.releases import RolloutStatus
from licserver.services.validation import has_id_shape
from licserver.web.admin import schemas
from licserver.web.admin.fields import RequestModel

READ, WRITE = Scope.READ, Scope.WRITE
RELEASE: Final = "/products/{slug}/releases/{version}"
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed request: services that act as the token, the path's variable parts, and query and body."""

    services: Services
    path: Mapping[str, str]
    query: Any
    body: Any

    @property
    def slug(self) -> str:
        """The product that the path names."""
        return self.path["slug"]

    @property
    def release(self) -> tuple[str, str]:
        """The product and the version that the path names."""
        return self.path["slug"], self.path["version"]

    def page_of(self, items: Sequence[Item], key: Callable[[Item], str]) -> Page[Item]:
        """Return the page of a list in memory that the query names."""
        return page_of(items, key, self.query.cursor, self.query.limit)

    @property
    def license_id(self) -> str:
        """The id of the license that the path names; not its key, because proxies log paths."""
        if not has_id_shape(self.path["id"]):
            raise NotFoundError("no such license; a path names it by its id of 32 digits")
        return self.path["id"]


@dataclass(frozen=True, slots=True)
class Operation:
    """The route of an operation, and a decorator that adds the function to `OPERATIONS`.

    Args:
        scope: Required of the token.
        response: The model of the response, which is read from the function's result.
        body: The model of the JSON body; None without a body.
        creates: Whether it returns 201.
        is_slow: Whether it reads whole tables, and therefore runs outside of a transaction.
        takes_file: Whether the body is a form with a file, which `app` receives; `Call.body` is then staged.
    """

    method: str
    path: str
    scope: Scope
    response: type[BaseModel]
    query: type[RequestModel] = schemas.Nothing
    body: type[RequestModel] | None = None
    creates: bool = False
    is_slow: bool = False
    takes_file: bool = False

    @property
    def takes_key(self) -> bool:
        """Whether an ``Idempotency-Key`` is heeded: of each POST that changes something, in a transaction."""
        return self.method == "POST" and self.scope is WRITE and not self.is_slow

    def __call__(self, run: Callable[[Call], Any]) -> Callable[[Call], Any]:
        """Add a function, which runs on a thread; name and docstring are part of the OpenAPI document."""
        OPERATIONS[self] = run
        return run


OPERATIONS: Final[dict[Operation, Callable[[Call], Any]]] = {}


def _sent(body: BaseModel) -> dict[str, Any]:
    """Return the fields that were sent, as services name them, with their values."""
    return body.model_dump(by_alias=True, exclude_unset=True)


# --- products and releases --------------------------------------------------------------------


@Operation("GET", "/products", READ, schemas.PageResponse[schemas.ProductResponse], query=schemas.Paging)
def list_products(call: Call) -> Page[Product]:
    """All products, by slug."""
    return call.page_of(call.services.products.list_all(), lambda product: product.slug)


@Operation("POST", "/products", WRITE, schemas.ProductResponse, body=schemas.NewProduct, creates=True)
def add_product(call: Call) -> Product:
    """Add a product."""
    return call.services.products.add(**call.body.model_dump(by_alias=True))


@Operation("GET", "/products/{slug}", READ, schemas.ProductResponse)
def get_product(call: Call) -> Product:
    """One product."""
    return call.services.products.get(call.slug)


@Operation("PATCH", "/products/{slug}", WRITE, schemas.ProductResponse, body=schemas.ProductChange)
def change_product(call: Call) -> Product:
    """Change a product."""
    fields = _sent(call.body)
    if "minimum_version" in fields:
        fields["minimum_version"] = fields["minimum_version"] or ""  # null removes it
    return call.services.products.change(call.slug, **fields)


def _name_file(release: Release) -> str:
    """Return the name of a file within its product, for cursors: those from before kinds stay valid."""
    kind = "" if release.kind is FileKind.FOLDER else f" {release.kind}"
    return f"{release.version} {release.platform}{kind}"


@Operation(
    "GET",
    "/products/{slug}/releases",
    READ,
    schemas.PageResponse[schemas.ReleaseResponse],
    query=schemas.Paging,
)
def list_releases(call: Call) -> Page[Release]:
    """The files of a product's versions, the latest first."""
    releases = call.services.releases.list_all(call.slug)[::-1]
    return call.page_of(releases, _name_file)


@Operation(
    "POST",
    "/products/{slug}/releases",
    WRITE,
    schemas.PublishedReleaseResponse,
    creates=True,
    takes_file=True,
)
def publish_release(call: Call) -> BaseModel:
    """Publish an uploaded file as a version."""
    release = call.services.releases.add(call.body)
    audience = call.services.releases.describe_audience(call.slug, release)
    warning = call.services.releases.describe_warnings(call.slug, call.body, release)
    published = schemas.PublishedReleaseResponse.model_validate(release)
    return published.model_copy(update={"audience": audience, "warning": warning})


@Operation("GET", RELEASE, READ, schemas.ReleaseResponse, query=schemas.OfPlatform)
def get_release(call: Call) -> Release:
    """A platform's file of a version; without a platform the default, or else the first file."""
    return call.services.releases.get(*call.release, call.query.platform or "", call.query.kind or "")


@Operation("POST", f"{RELEASE}/promote", WRITE, schemas.ReleaseResponse, body=schemas.Channel)
def promote_release(call: Call) -> Release:
    """Move a version with all its files to another channel, `stable` by default."""
    return call.services.releases.promote(*call.release, call.body.channel)


@Operation("PATCH", RELEASE, WRITE, schemas.ReleaseResponse, body=schemas.WordPressChange)
def change_release(call: Call) -> Release:
    """Change the WordPress fields of a version, with all its files."""
    return call.services.releases.set_wordpress(*call.release, **_sent(call.body))


@Operation("POST", f"{RELEASE}/security", WRITE, schemas.ReleaseResponse, body=schemas.SecurityChange)
def change_security(call: Call) -> Release:
    """Make a version with all its files a security release, change its notice, or end that."""
    notice = read_notice(call.body.advisory, call.body.cves, is_security=call.body.security)
    return call.services.releases.set_security(*call.release, notice)


@Operation("POST", f"{RELEASE}/withdraw", WRITE, schemas.ReleaseResponse)
def withdraw_release(call: Call) -> Release:
    """Withdraw a version with all its files; download links to them stop working."""
    return call.services.releases.withdraw(*call.release)


@Operation("GET", f"{RELEASE}/rollout", READ, schemas.RolloutResponse)
def get_rollout(call: Call) -> RolloutStatus:
    """The adoption of a version: its share of all installations, update checks, and rollbacks."""
    return call.services.rollouts.get(*call.release)


@Operation("PATCH", f"{RELEASE}/rollout", WRITE, schemas.RolloutResponse, body=schemas.RolloutChange)
def change_rollout(call: Call) -> RolloutStatus:
    """Pause or resume the rollout of a version, or set its share."""
    return call.services.rollouts.change(*call.release, **_sent(call.body))


# --- plans ------------------------------------------------------------------------------------


@Operation(
    "GET", "/products/{slug}/plans", READ, schemas.PageResponse[schemas.PlanResponse], query=schemas.Paging
)
def list_plans(call: Call) -> Page[Plan]:
    """The plans of a product, by name."""
    return call.page_of(call.services.plans.list_all(call.slug), lambda plan: plan.name)


@Operation("POST", "/products/{slug}/plans", WRITE, schemas.PlanResponse, body=schemas.NewPlan, creates=True)
def add_plan(call: Call) -> Plan:
    """Add a plan to a product."""
    return call.services.plans.add(call.slug, call.body.name, call.body.entitlements)


@Operation("GET", "/products/{slug}/plans/{name}", READ, schemas.PlanResponse)
def get_plan(call: Call) -> Plan:
    """One plan."""
    return call.services.plans.get(call.slug, call.path["name"])


@Operation("PATCH", "/products/{slug}/plans/{name}", WRITE, schemas.PlanResponse, body=schemas.Entitlements)
def change_plan(call: Call) -> Plan:
    """Replace the entitlements of a plan; its licenses get them with the next response."""
    entitlements = call.body.entitlements
    return call.services.plans.change(call.slug, call.path["name"], entitlements, replaces=True)


@Operation("POST", "/products/{slug}/plans/{name}/remove", WRITE, schemas.PlanResponse)
def remove_plan(call: Call) -> Plan:
    """Remove a plan that no license has."""
    plan = call.services.plans.get(call.slug, call.path["name"])
    call.services.plans.remove(call.slug, call.path["name"])
    return plan


# --- licenses and activations -----------------------------------------------------------------

Licenses = schemas.PageResponse[schemas.LicenseResponse]


@Operation("GET", "/licenses", READ, Licenses, query=schemas.LicenseQuery)
def list_licenses(call: Call) -> Page[Any]:
    """Licenses, filtered and searched."""
    query = call.query
    if is_license_key((query.q or "").strip().upper()):
        raise InvalidInputError("send a whole key to licenses/lookup, because proxies log addresses")
    which = LicenseFilter(query.q, **query.model_dump(exclude={"q", "cursor", "limit"}))
    return _shown_page(call, call.services.licenses.search(which, query.cursor, query.limit))


@Operation("POST", "/licenses", WRITE, schemas.IssuedLicenseResponse, body=schemas.NewLicense, creates=True)
def issue_license(call: Call) -> dict[str, Any]:
    """Issue a license; the response has its key."""
    terms = LicenseTerms(**call.body.model_dump(by_alias=True, exclude={"product", "mail"}))
    license_, key = call.services.licenses.issue(call.body.product, terms, is_mailed=call.body.mail)
    return {"license_key": key, **_shown(call, license_)}


@Operation("POST", "/licenses/lookup", READ, schemas.LicenseResponse, body=schemas.LicenseKey)
def look_up_license(call: Call) -> dict[str, Any]:
    """The license of a whole key."""
    return _shown(call, call.services.licenses.get(call.body.license_key))


@Operation("GET", "/licenses/{id}", READ, schemas.LicenseResponse)
def get_license(call: Call) -> dict[str, Any]:
    """One license."""
    return _shown(call, call.services.licenses.get(call.license_id))


@Operation("PATCH", "/licenses/{id}", WRITE, schemas.LicenseResponse, body=schemas.LicenseChange)
def change_license(call: Call) -> dict[str, Any]:
    """Change the terms of a license."""
    return _shown(call, call.services.licenses.change(call.license_id, **_sent(call.body)))


@Operation("POST", "/licenses/{id}/revoke", WRITE, schemas.LicenseResponse, body=schemas.Reason)
def revoke_license(call: Call) -> dict[str, Any]:
    """Revoke a license."""
    return _shown(call, call.services.licenses.revoke(call.license_id, call.body.reason))


@Operation("POST", "/licenses/{id}/reinstate", WRITE, schemas.LicenseResponse)
def reinstate_license(call: Call) -> dict[str, Any]:
    """Reinstate a revoked license."""
    return _shown(call, call.services.licenses.reinstate(call.license_id))


@Operation("POST", "/licenses/{id}/reissue", WRITE, schemas.IssuedLicenseResponse, creates=True)
def reissue_license(call: Call) -> dict[str, Any]:
    """Revoke a license, and issue another with the same terms and a new key, which the response has."""
    license_, key = call.services.support.reissue(call.license_id)
    return {"license_key": key, **_shown(call, license_)}


@Operation("POST", "/licenses/{id}/mail", WRITE, schemas.LicenseResponse)
def mail_license_key(call: Call) -> dict[str, Any]:
    """Mail a license's key to its customer; each call sends another mail."""
    call.services.mail.resend_key(call.license_id)
    return _shown(call, call.services.licenses.get(call.license_id))


@Operation("POST", "/licenses/{id}/reveal", WRITE, schemas.RevealedKeyResponse)
def reveal_license_key(call: Call) -> dict[str, Any]:
    """A license's whole key; recorded in the audit log."""
    return {"license_key": call.services.licenses.reveal(call.license_id)}


@Operation(
    "GET",
    "/licenses/{id}/activations",
    READ,
    schemas.PageResponse[schemas.ActivationResponse],
    query=schemas.Paging,
)
def list_activations(call: Call) -> Page[Any]:
    """A license's activations, by domain."""
    return call.services.licenses.list_activations(call.license_id, call.query.cursor, call.query.limit)


@Operation(
    "POST", "/licenses/{id}/deactivate", WRITE, schemas.FreedSlotsResponse, body=schemas.EnvironmentRequest
)
def free_slots(call: Call) -> dict[str, Any]:
    """Free the slots of a domain or an address."""
    return {"freed": call.services.licenses.deactivate(call.license_id, call.body.environment)}


@Operation("POST", "/licenses/{id}/file", WRITE, schemas.LicenseFileResponse, body=schemas.FileRequest)
def issue_license_file(call: Call) -> Any:
    """Issue a license file for a machine without a network; it takes a slot, as a verify does."""
    return call.services.offline_files.issue(call.license_id, call.body.machine, call.body.days)


@Operation("GET", f"{RELEASE}/licenses", READ, Licenses, query=schemas.Paging)
def list_downloaders(call: Call) -> Page[Any]:
    """Licenses that may still download a release."""
    page = call.services.licenses.list_entitled(*call.release, call.query.cursor, call.query.limit)
    return _shown_page(call, page)


def _shown(call: Call, license_: IssuedLicense) -> dict[str, Any]:
    shown: dict[str, Any] = _shown_page(call, Page([license_], None)).items[0]
    return shown


def _shown_page(call: Call, page: Page[IssuedLicense]) -> Page[Any]:
    """Return the fields of the records, with the masked key, the state, the entitlements and their uses."""
    services, now = call.services, call.services.now()
    entitled = services.plans.resolve_all(page.items)
    ids = (license_.id for license_ in page.items)
    used = services.uses.list_all_current(list(zip(ids, entitled, strict=True)))
    shown = [
        {
            **asdict(license_),
            "masked_key": services.licenses.mask_key(license_),
            "state": license_state(license_, now),
            "entitlements": entitlements,
            "uses": uses,
        }
        for license_, entitlements, uses in zip(page.items, entitled, used, strict=True)
    ]
    return Page(shown, page.cursor)


# --- personal data -----------------------------------------------------------------------------


@Operation(
    "POST", "/customers/export", WRITE, schemas.CustomerDataResponse, body=schemas.Customer, is_slow=True
)
def export_customer(call: Call) -> dict[str, Any]:
    """All data of a mail address, with the license keys; recorded in the audit log."""
    return call.services.personal_data.export(call.body.email)


@Operation(
    "POST", "/customers/erase", WRITE, schemas.ErasedCustomerResponse, body=schemas.Erasure, is_slow=True
)
def erase_customer(call: Call) -> dict[str, Any]:
    """Erase all data of a mail address; this cannot be undone."""
    keep = call.body.keep_licenses
    counts = call.services.personal_data.erase(call.body.email, keep_licenses=keep)
    return {"rows": sum(counts.values()), "tables": counts, "keep_licenses": keep}


# --- subscriptions and audit log --------------------------------------------------------------


@Operation(
    "GET", "/subscriptions", READ, schemas.PageResponse[schemas.SubscriptionResponse], query=schemas.Paging
)
def list_subscriptions(call: Call) -> Page[Any]:
    """Subscriptions of licenses, by id."""
    return call.services.subscriptions.list_page(call.query.cursor, call.query.limit)


@Operation("GET", "/subscriptions/{id}", READ, schemas.SubscriptionResponse)
def get_subscription(call: Call) -> Any:
    """One subscription."""
    return call.services.subscriptions.get(call.path["id"])


@Operation(
    "POST", "/subscriptions/{id}/end", WRITE, schemas.SubscriptionResponse, body=schemas.InstantRequest
)
def end_subscription(call: Call) -> Any:
    """End a subscription, now or at an instant."""
    call.services.subscriptions.end(call.path["id"], call.body.at)
    return get_subscription(call)


@Operation("POST", "/subscriptions/{id}/resume", WRITE, schemas.SubscriptionResponse)
def resume_subscription(call: Call) -> Any:
    """Resume a subscription that was ended."""
    call.services.subscriptions.resume(call.path["id"])
    return get_subscription(call)


@Operation("GET", "/audit", READ, schemas.PageResponse[schemas.AuditLineResponse], query=schemas.AuditQuery)
def list_audit(call: Call) -> Page[Any]:
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
    return call.services.audit.list_page(which, query.cursor, query.limit)
