"""Request and response models of the admin API; the OpenAPI document is made from them."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Annotated, Any, Final, Generic, TypeVar

from pydantic import AliasPath, BeforeValidator, Field

from licserver.domain.offline_files import DEFAULT_DAYS, MAX_DAYS
from licserver.domain.records import (
    CUSTOMER_MOVES,
    DEFAULT_POLICY,
    STABLE,
    ActorKind,
    AfterSupport,
    EnvironmentPolicy,
    FileKind,
    LicenseState,
)
from licserver.domain.security_notices import MAX_CVES
from licserver.protocol.offline_files import MAX_REQUEST
from licserver.services.lists import MAX_PAGE
from licserver.web.admin.fields import (
    Day,
    Entitlement,
    Hex,
    IdleDays,
    Instant,
    IsThere,
    Moves,
    PatchModel,
    RequestModel,
    ResponseModel,
    Seats,
    Slots,
    TrialDays,
)

Item = TypeVar("Item")


# --- requests ---------------------------------------------------------------------------------


class Nothing(RequestModel):
    """No fields."""


class Paging(RequestModel):
    """A page of a list."""

    cursor: str | None = Field(None, description="`next` of the previous page.")
    limit: int = Field(50, ge=1, le=MAX_PAGE, description="Items a page, at most.")


class OfPlatform(RequestModel):
    """A file of a version."""

    platform: str | None = Field(None, max_length=40, description="Such as `windows-x86_64`.")
    kind: FileKind | None = Field(None, description="Without one the first that there is.")


class LicenseQuery(Paging):
    """Filters of licenses; all that are given must match."""

    q: str | None = Field(
        None,
        max_length=200,
        description="Beginnings of words of the email, the note and the reason of a revocation, or of a "
        "domain or a subscription; an IP address; a masked key, or the end of a key; a license's id. "
        "Whole keys go to `lookup`, because proxies log addresses.",
    )
    product: str | None = Field(None, description="A slug.")
    subscription: str | None = Field(None, description="An id.")
    state: LicenseState | None = Field(None, description="As of now.")
    expires_from: Day | None = Field(None, description="First day of expiry, included.")
    expires_until: Day | None = Field(None, description="Last day of expiry, included.")
    trial: bool | None = Field(None, description="Only trials, or none of them.")
    shared: bool | None = Field(None, description="Only licenses that are probably shared, or none of them.")


class AuditQuery(Paging):
    """Filters of the audit log; all that are given must match."""

    object_kind: str | None = Field(None, description="With `object_id`.")
    object_id: str | None = Field(None, description="With `object_kind`.")
    actor_kind: ActorKind | None = Field(None, description="With `actor_name`.")
    actor_name: str | None = Field(None, description="With `actor_kind`.")
    since: Instant | None = Field(None, description="Not older than this.")
    until: Instant | None = Field(None, description="Older than this.")


class ProductRuleFields(RequestModel):
    """The rules of a product for machines, keys and customers."""

    environment: EnvironmentPolicy = Field(DEFAULT_POLICY, serialization_alias="policy")
    support_policy: bool = Field(default=False, serialization_alias="has_support_policy")
    accept_imported_keys: bool = Field(default=False, serialization_alias="accepts_imported_keys")
    customer_moves: Moves = CUSTOMER_MOVES
    trial_days: TrialDays = 0
    public_feed: bool = False
    after_support: AfterSupport = AfterSupport.NONE
    idle_days: IdleDays = 0


class NewProduct(ProductRuleFields):
    """A new product."""

    slug: str
    name: str = Field(description="The name in licenses, which apps compare. Each product has its own.")


class ProductChange(ProductRuleFields, PatchModel):
    """Changes of a product; a field that is left out stays as it is."""

    name: str = Field(
        "",
        description="For new licenses. An app that passes the old name as its product refuses all of them.",
    )
    minimum_version: str | None = Field(None, description="Null removes it.")


class Entitlements(RequestModel):
    """All that a plan grants."""

    entitlements: dict[str, Entitlement]


class NewPlan(Entitlements):
    """A new plan."""

    name: str


class LicenseTermFields(RequestModel):
    """The terms that can be changed later."""

    slots: Slots | None = 1
    expires_on: Day | None = None
    lifetime: bool = False
    support_until: Day | None = None
    allowed: tuple[str, ...] = ()
    customer_email: str | None = None
    customer_language: str | None = Field(None, description="Of mails to the customer, such as `de`.")
    note: str | None = None
    plan: str | None = Field(None, description="The name of a plan of the product.")
    overrides: dict[str, Entitlement | None] | None = Field(
        None, description="Entitlements that count instead of the plan's; null removes one."
    )
    trial: bool = False
    floating_seats: Seats | None = None
    channels: tuple[str, ...] = ()


class NewLicense(LicenseTermFields):
    """A new license; `slots: null` means no limit."""

    product: str = Field(description="A slug.")
    subscription: str | None = Field(None, serialization_alias="subscription_id")
    mail: bool = Field(default=False, description="Whether the key is mailed to the customer.")


class LicenseChange(LicenseTermFields, PatchModel):
    """Changes of a license; a field that is left out stays, and null removes a date, an email or a note."""


class LicenseKey(RequestModel):
    """A whole license key."""

    license_key: str


class Channel(RequestModel):
    """A channel of releases."""

    channel: str = STABLE


class Reason(RequestModel):
    """A reason, for the vendor's own records."""

    reason: str | None = None


class Customer(RequestModel):
    """A customer."""

    email: str = Field(min_length=3, max_length=254)


class Erasure(Customer):
    """A customer whose data is erased."""

    keep_licenses: bool = Field(
        default=False,
        description="Whether the licenses stay valid, without personal data. Otherwise they are deleted; "
        "those that a shop has sold are revoked, and stay as numbers.",
    )


class EnvironmentRequest(RequestModel):
    """An activated domain or IP address."""

    environment: str


class FileRequest(RequestModel):
    """A request for a license file."""

    machine: str = Field(max_length=MAX_REQUEST, description="The code that the app shows.")
    days: int = Field(DEFAULT_DAYS, ge=1, le=MAX_DAYS)


class InstantRequest(RequestModel):
    """An instant; now by default."""

    at: Instant | None = None


class RolloutChange(PatchModel):
    """Changes of a rollout: either of the two fields."""

    percent: float = Field(100, gt=0, le=100, description="It stays there; 100 ends the rollout.")
    paused: bool = False


class WordPressChange(PatchModel):
    """The fields of a version that WordPress shows; a field that is left out stays, and null removes it."""

    requires: str | None = Field(None, description="The lowest version of WordPress.")
    tested: str | None = Field(None, description="The highest version of WordPress that was tried.")
    requires_php: str | None = Field(None, description="The lowest version of PHP.")
    details_url: str | None = Field(None, description="The page that describes it, https only.")


class SecurityChange(RequestModel):
    """The security notice of a version; it replaces the one before."""

    security: bool = Field(description="Whether the version is a security release.")
    advisory: str = Field("", description="The https address of the page about what it fixes.")
    cves: list[str] = Field(default_factory=list, max_length=MAX_CVES, description="Such as `CVE-2026-1234`.")


# --- responses --------------------------------------------------------------------------------


class PageResponse(ResponseModel, Generic[Item]):
    """A page of a list; `next` is the cursor of the next page, null at the end."""

    items: list[Item]
    next: str | None = Field(validation_alias="cursor")


class ProductResponse(ResponseModel):
    """A product."""

    slug: str
    name: str
    environment: EnvironmentPolicy = Field(validation_alias="policy")
    support_policy: bool = Field(validation_alias="has_support_policy")
    accept_imported_keys: bool = Field(
        validation_alias="accepts_imported_keys",
        description="Whether keys that were sold elsewhere are valid.",
    )
    customer_moves: int = Field(description="How often a customer may free a slot of a license in 30 days.")
    trial_days: int = Field(description="How long a trial lasts; 0 for no trials.")
    public_feed: bool = Field(description="Whether feeds for other updaters need no license.")
    idle_days: int = Field(
        description="A new computer gets the slot of one that was not seen for so many days; 0 for never."
    )
    after_support: AfterSupport = Field(
        description="What a license is offered whose support is over: `covered` is the newest version of its "
        "support period, with a download."
    )
    minimum_version: str | None = Field(description="Older apps ask their users to update.")
    latest: Annotated[str | None, BeforeValidator(lambda release: release and release.version)] = Field(
        description="The version that update checks offer."
    )


class PlanResponse(ResponseModel):
    """A plan of a product: what its licenses are entitled to."""

    name: str
    entitlements: dict[str, Entitlement]


def _wordpress(name: str, description: str) -> Any:
    return Field(validation_alias=AliasPath("wordpress", name), description=f"WordPress: {description}")


class SecurityResponse(ResponseModel):
    """The vulnerabilities that a release fixes."""

    advisory: str | None = Field(description="The page about them.")
    cves: list[str]


class ReleaseResponse(ResponseModel):
    """A file of a published version; without a platform it is for all that have no file of their own."""

    version: str
    platform: Annotated[str | None, BeforeValidator(lambda platform: platform or None)]
    kind: FileKind = Field(description="How it gets onto a computer; `folder` also for every other file.")
    channel: str = Field(description="The audience of the release; `stable` is for all customers.")
    published_at: datetime
    withdrawn_at: datetime | None
    file_name: str = Field(validation_alias=AliasPath("artifact", "file_name"))
    size: int = Field(validation_alias=AliasPath("artifact", "size"))
    sha256: Hex = Field(validation_alias=AliasPath("artifact", "sha256"))
    signed: IsThere = Field(validation_alias="manifest")
    signed_for_updaters: IsThere = Field(
        validation_alias="file_signatures", description="Whether feeds for Sparkle and Tauri can offer it."
    )
    changelog: str
    security: SecurityResponse | None = Field(description="Of a security release: what it fixes.")
    requires: str | None = _wordpress(
        "requires", "its lowest version; null if it is not known, as in the next three."
    )
    tested: str | None = _wordpress("tested", "its highest version that was tried.")
    requires_php: str | None = _wordpress("requires_php", "the lowest version of PHP.")
    details_url: str | None = _wordpress("details_url", "the page that describes it.")


class PublishedReleaseResponse(ReleaseResponse):
    """A file that was just published; `audience` describes to whom it is offered, unless to all."""

    audience: str | None = None
    warning: str | None = Field(
        None,
        description="If a set-up is not signed, a zip has no program, or WordPress orders the version in "
        "another way than licserver.",
    )


class UseResponse(ResponseModel):
    """The use of a quota in its current period."""

    name: str
    used: int
    limit: int
    resets_at: datetime = Field(description="When the next period begins.")


class RolloutPlanResponse(ResponseModel):
    """The plan of a rollout, by which a version reaches more and more installations."""

    plan: str = Field(description="Such as `7d`, or `10%,50%@2d,100%@5d`.")
    started_at: datetime = Field(description="Moved on by the time of its pauses.")
    paused_at: datetime | None


class RolloutResponse(ResponseModel):
    """The adoption of a version; without a rollout it reaches all installations."""

    version: str = Field(validation_alias=AliasPath("release", "version"))
    percent: float = Field(description="Share of all installations that are offered it.")
    rollout: RolloutPlanResponse | None = Field(validation_alias=AliasPath("release", "rollout"))
    critical_below: str | None = Field(validation_alias=AliasPath("release", "critical_below"))
    update_checks: int = Field(
        validation_alias="checks", description="By installations of it, today and yesterday, UTC."
    )
    update_checks_of_all: int = Field(
        validation_alias="checks_of_all", description="By all installations of the product."
    )
    rolled_back: int = Field(description="Installations that went back, as their apps report.")
    exit_codes: dict[int, int] = Field(
        description="How many of them by the exit code of their set-up, the most frequent ten codes first."
    )


class LicenseResponse(ResponseModel):
    """A license, without its key."""

    id: Hex
    masked_key: str
    product: str = Field(validation_alias="product_slug")
    product_name: str
    state: LicenseState
    issued_at: datetime
    expires_on: date | None
    lifetime: bool
    revoked_at: datetime | None
    revoked_reason: str | None
    slots: int | None
    slots_used: int
    allowed: tuple[str, ...]
    subscription: str | None = Field(validation_alias="subscription_id")
    subscription_ended_at: datetime | None
    support_until: date | None
    customer_email: str | None
    customer_language: str | None
    note: str | None
    plan: str | None
    overrides: dict[str, Entitlement | None] | None
    entitlements: dict[str, Entitlement] = Field(description="Of plan and overrides.")
    uses: list[UseResponse] = Field(description="Of entitlements per period.")
    trial: bool
    floating_seats: int | None = Field(
        description="How many may use it at the same time by floating seats; null: none."
    )
    channels: tuple[str, ...] = Field(description="Channels whose releases it gets, besides `stable`.")


class IssuedLicenseResponse(LicenseResponse):
    """A newly issued license, with its key."""

    license_key: str


class RevealedKeyResponse(ResponseModel):
    """The whole key of a license."""

    license_key: str


class ActivationResponse(ResponseModel):
    """An activation, which takes a slot."""

    domain: str = Field(validation_alias=AliasPath("environment", "domain"))
    ip: str = Field(validation_alias=AliasPath("environment", "ip"))
    activated_at: datetime
    last_seen_at: datetime | None
    label: str | None = Field(
        description="What its user calls the machine; personal data, if the app sends it."
    )
    app_version: str | None = Field(description="Of the app, if it sends it.")
    offline_until: datetime | None = Field(description="When the machine's license file ends.")


class LicenseFileResponse(ResponseModel):
    """A signed license file for a machine."""

    name: str = Field(description="For saving it.")
    text: str
    domain: str
    ends_at: datetime


class FreedSlotsResponse(ResponseModel):
    """The number of freed slots."""

    freed: int


class SubscriptionResponse(ResponseModel):
    """A subscription of licenses."""

    id: str
    licenses: int
    ended_at: datetime | None = Field(description="May be in the future.")


class AuditLineResponse(ResponseModel):
    """An entry of the audit log."""

    id: int
    at: datetime
    actor_kind: ActorKind = Field(validation_alias=AliasPath("actor", "kind"))
    actor_name: str = Field(validation_alias=AliasPath("actor", "name"))
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]


# --- the form of a release, which has a file besides ------------------------------------------

RELEASE_FORM: Final[Mapping[str, str]] = {
    "version": "A version as in PEP 440.",
    "changelog": "Plain text or basic HTML.",
    "manifest": "The output of `licserver release sign`.",
    "platform": "Offer the file to this platform only, such as `windows-x86_64`.",
    "kind": "`folder`, `appimage`, `nsis`, `inno`, `msi` or `app`; it is guessed from the file without it.",
    "channel": "Offer it to apps and licenses with this channel only, such as `beta`.",
    "rollout": "Reach a growing share of installations: `7d`, or `10%,50%@2d,100%@5d`.",
    "critical_below": "Offer it to installations below this version at once, as important.",
    "published_on": "A past day, of a version that was published elsewhere before; today without it.",
    "security": "`true`: offer it to each key that was ever valid, as a security release.",
    "advisory": "Of a security release: the https address of the page about what it fixes.",
    "cves": "Of a security release: CVEs, separated by commas.",
    "requires": "WordPress: its lowest version, such as `6.4`.",
    "tested": "WordPress: its highest version that was tried.",
    "requires_php": "WordPress: the lowest version of PHP.",
    "details_url": "WordPress: the page that describes it.",
}
"""Names and descriptions of its texts."""


class CustomerDataResponse(ResponseModel):
    """All that is held of a customer."""

    format: int
    email: str
    exported_at: Instant
    records: dict[str, list[dict[str, Any]]] = Field(
        description="Rows by table; licenses have `license_key`."
    )


class ErasedCustomerResponse(ResponseModel):
    """The erased rows of a customer."""

    rows: int
    tables: dict[str, int] = Field(description="Rows that were changed or deleted, by table.")
    keep_licenses: bool
