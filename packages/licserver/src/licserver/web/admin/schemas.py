"""Request and response models of the admin API; the OpenAPI document is made from them."""

from datetime import date, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import AliasPath, BeforeValidator, Field

from licserver.domain.offline import DEFAULT_DAYS, MAX_DAYS
from licserver.domain.records import CUSTOMER_MOVES, STABLE, ActorKind, EnvironmentPolicy, LicenseState
from licserver.protocol.offline_files import MAX_REQUEST
from licserver.services import MAX_PAGE
from licserver.web.admin.fields import (
    Change,
    Day,
    Entitlement,
    Hex,
    Instant,
    Moves,
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

    cursor: Annotated[str | None, Field(description="`next` of the previous page.")] = None
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE, description="Items a page, at most.")] = 50


class OfPlatform(RequestModel):
    """Which file of a version."""

    platform: Annotated[str | None, Field(max_length=40, description="Such as `windows-x86_64`.")] = None


class LicenseQuery(Paging):
    """Filters of licenses; all that are given must match."""

    q: Annotated[
        str | None,
        Field(
            max_length=200,
            description="Beginnings of words of the email, the note and the reason of a revocation, or of a "
            "domain or a subscription; an IP address; a masked key, or the end of a key; a license's id. "
            "Whole keys go to `lookup`, because proxies log addresses.",
        ),
    ] = None
    product: Annotated[str | None, Field(description="A slug.")] = None
    subscription: Annotated[str | None, Field(description="An id.")] = None
    state: Annotated[LicenseState | None, Field(description="As of now.")] = None
    expires_from: Annotated[Day | None, Field(description="First day of expiry, included.")] = None
    expires_until: Annotated[Day | None, Field(description="Last day of expiry, included.")] = None
    trial: Annotated[bool | None, Field(description="Only trials, or none of them.")] = None


class AuditQuery(Paging):
    """Filters of the audit log; all that are given must match."""

    object_kind: Annotated[str | None, Field(description="With `object_id`.")] = None
    object_id: Annotated[str | None, Field(description="With `object_kind`.")] = None
    actor_kind: Annotated[ActorKind | None, Field(description="With `actor_name`.")] = None
    actor_name: Annotated[str | None, Field(description="With `actor_kind`.")] = None
    since: Annotated[Instant | None, Field(description="Not older than this.")] = None
    until: Annotated[Instant | None, Field(description="Older than this.")] = None


class ProductRules(RequestModel):
    """What a product asks of machines, keys and customers."""

    environment: EnvironmentPolicy = EnvironmentPolicy.STRICT
    support_policy: bool = False
    accept_imported_keys: bool = False
    customer_moves: Moves = CUSTOMER_MOVES
    trial_days: TrialDays = 0
    public_feed: bool = False


class NewProduct(ProductRules):
    """A new product."""

    slug: str
    name: str


class ProductChange(ProductRules, Change):
    """Changes of a product; a field that is left out stays as it is."""

    name: str = ""
    minimum_version: Annotated[str | None, Field(description="Null removes it.")] = None


class Entitlements(RequestModel):
    """All that a plan grants."""

    entitlements: dict[str, Entitlement]


class NewPlan(Entitlements):
    """A new plan."""

    name: str


class LicenseTerms(RequestModel):
    """The terms that can be changed later."""

    slots: Slots | None = 1
    expires_on: Day | None = None
    lifetime: bool = False
    support_until: Day | None = None
    allowed: tuple[str, ...] = ()
    customer_email: str | None = None
    note: str | None = None
    plan: Annotated[str | None, Field(description="The name of a plan of the product.")] = None
    overrides: Annotated[
        dict[str, Entitlement | None] | None,
        Field(description="Entitlements that count instead of the plan's; null takes one away."),
    ] = None
    trial: bool = False
    floating_seats: Seats | None = None
    channels: tuple[str, ...] = ()


class NewLicense(LicenseTerms):
    """A new license; `slots: null` means no limit."""

    product: Annotated[str, Field(description="A slug.")]
    subscription: str | None = None


class LicenseChange(LicenseTerms, Change):
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


class EnvironmentRequest(RequestModel):
    """An activated domain or IP address."""

    environment: str


class FileRequest(RequestModel):
    """A request for a license file."""

    machine: Annotated[str, Field(max_length=MAX_REQUEST, description="The code that the app shows.")]
    days: Annotated[int, Field(ge=1, le=MAX_DAYS)] = DEFAULT_DAYS


class InstantRequest(RequestModel):
    """An instant; now by default."""

    at: Instant | None = None


class RolloutChange(Change):
    """What changes in a rollout: one of the two."""

    percent: Annotated[float, Field(gt=0, le=100, description="It stays there; 100 ends the rollout.")] = 100
    paused: bool = False


class WordPressChange(Change):
    """What WordPress shows of a version; a field that is left out stays, and null removes it."""

    requires: Annotated[str | None, Field(description="The lowest version of WordPress.")] = None
    tested: Annotated[str | None, Field(description="The highest version of WordPress that was tried.")] = (
        None
    )
    requires_php: Annotated[str | None, Field(description="The lowest version of PHP.")] = None
    details_url: Annotated[str | None, Field(description="The page that describes it, https only.")] = None


# --- responses --------------------------------------------------------------------------------


class Page(ResponseModel, Generic[Item]):
    """A page of a list; `next` is the cursor of the next page, null at the end."""

    items: list[Item]
    next: Annotated[str | None, Field(validation_alias="cursor")]


class Product(ResponseModel):
    """A product."""

    slug: str
    name: str
    environment: Annotated[EnvironmentPolicy, Field(validation_alias="policy")]
    support_policy: Annotated[bool, Field(validation_alias="has_support_policy")]
    accept_imported_keys: Annotated[
        bool,
        Field(
            validation_alias="accepts_imported_keys",
            description="Whether keys that were sold elsewhere are valid.",
        ),
    ]
    customer_moves: Annotated[
        int, Field(description="How often a customer may free a slot of a license in 30 days.")
    ]
    trial_days: Annotated[int, Field(description="How long a trial lasts; 0 for no trials.")]
    public_feed: Annotated[bool, Field(description="Whether feeds for other updaters need no license.")]
    minimum_version: Annotated[
        str | None, Field(description="Apps below it are told to update to go on being supported.")
    ]
    latest: Annotated[
        str | None,
        BeforeValidator(lambda release: release and release.version),
        Field(description="The version that update checks offer."),
    ]


class Plan(ResponseModel):
    """A plan of a product: what its licenses are entitled to."""

    name: str
    entitlements: dict[str, Entitlement]


class Release(ResponseModel):
    """A file of a published version; without a platform it is for all that have no file of their own."""

    version: str
    platform: Annotated[str | None, BeforeValidator(lambda platform: platform or None)]
    channel: Annotated[str, Field(description="Who is offered it; everybody if `stable`.")]
    published_at: datetime
    withdrawn_at: datetime | None
    file_name: Annotated[str, Field(validation_alias=AliasPath("artifact", "file_name"))]
    size: Annotated[int, Field(validation_alias=AliasPath("artifact", "size"))]
    sha256: Annotated[Hex, Field(validation_alias=AliasPath("artifact", "sha256"))]
    signed: Annotated[
        bool, BeforeValidator(lambda manifest: manifest is not None), Field(validation_alias="manifest")
    ]
    signed_for_updaters: Annotated[
        bool,
        BeforeValidator(lambda signatures: signatures is not None),
        Field(
            validation_alias="file_signatures",
            description="Whether feeds for Sparkle and Tauri can offer it.",
        ),
    ]
    changelog: str
    requires: Annotated[
        str | None,
        Field(
            validation_alias=AliasPath("wordpress", "requires"),
            description="WordPress: its lowest version; null if it is not said, as in the next three.",
        ),
    ]
    tested: Annotated[
        str | None,
        Field(
            validation_alias=AliasPath("wordpress", "tested"),
            description="WordPress: its highest version that was tried.",
        ),
    ]
    requires_php: Annotated[
        str | None,
        Field(
            validation_alias=AliasPath("wordpress", "requires_php"),
            description="WordPress: the lowest version of PHP.",
        ),
    ]
    details_url: Annotated[
        str | None,
        Field(
            validation_alias=AliasPath("wordpress", "details_url"),
            description="WordPress: the page that describes it.",
        ),
    ]


class PublishedRelease(Release):
    """A file that was just published; if it is not for everybody, `audience` says who is offered it."""

    audience: str | None = None
    warning: Annotated[
        str | None, Field(description="If WordPress orders the version in another way than licserver.")
    ] = None


class Use(ResponseModel):
    """How much of a number per period is used in the current one."""

    name: str
    used: int
    limit: int
    resets_at: Annotated[datetime, Field(description="When the next period begins.")]


class RolloutPlan(ResponseModel):
    """How a version reaches more and more installations."""

    plan: Annotated[str, Field(description="Such as `7d`, or `10%,50%@2d,100%@5d`.")]
    started_at: Annotated[datetime, Field(description="Moved on by the time of its pauses.")]
    paused_at: datetime | None


class Rollout(ResponseModel):
    """How a version is doing; without a rollout it reaches all installations."""

    version: Annotated[str, Field(validation_alias=AliasPath("release", "version"))]
    percent: Annotated[float, Field(description="Share of all installations that are offered it.")]
    rollout: Annotated[RolloutPlan | None, Field(validation_alias=AliasPath("release", "rollout"))]
    critical_below: Annotated[str | None, Field(validation_alias=AliasPath("release", "critical_below"))]
    update_checks: Annotated[
        int,
        Field(validation_alias="checks", description="By installations of it, today and yesterday, UTC."),
    ]
    update_checks_of_all: Annotated[
        int, Field(validation_alias="checks_of_all", description="By all installations of the product.")
    ]
    rolled_back: Annotated[int, Field(description="Installations that went back, as their apps report.")]


class License(ResponseModel):
    """A license, without its key."""

    id: Hex
    masked_key: str
    product: Annotated[str, Field(validation_alias="product_slug")]
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
    subscription: Annotated[str | None, Field(validation_alias="subscription_id")]
    subscription_ended_at: datetime | None
    support_until: date | None
    customer_email: str | None
    note: str | None
    plan: str | None
    overrides: dict[str, Entitlement | None] | None
    entitlements: Annotated[dict[str, Entitlement], Field(description="Of plan and overrides.")]
    uses: Annotated[list[Use], Field(description="Of entitlements per period.")]
    trial: bool
    floating_seats: Annotated[
        int | None, Field(description="How many may use it at the same time by floating seats; null: none.")
    ]
    channels: Annotated[
        tuple[str, ...], Field(description="Whose releases its holder is offered besides stable ones.")
    ]


class IssuedLicense(License):
    """A newly issued license, with its key."""

    license_key: str


class RevealedKey(ResponseModel):
    """The whole key of a license."""

    license_key: str


class Activation(ResponseModel):
    """An activation, which takes a slot."""

    domain: Annotated[str, Field(validation_alias=AliasPath("environment", "domain"))]
    ip: Annotated[str, Field(validation_alias=AliasPath("environment", "ip"))]
    activated_at: datetime
    last_seen_at: datetime | None
    label: Annotated[
        str | None, Field(description="What its user calls the machine; personal data, if the app sends it.")
    ]
    app_version: Annotated[str | None, Field(description="Of the app, if it sends it.")]
    offline_until: Annotated[datetime | None, Field(description="When the machine's license file ends.")]


class LicenseFile(ResponseModel):
    """A signed license file for one machine."""

    name: Annotated[str, Field(description="For saving it.")]
    text: str
    domain: str
    ends_at: datetime


class FreedSlots(ResponseModel):
    """The number of freed slots."""

    freed: int


class Subscription(ResponseModel):
    """A subscription of licenses."""

    id: str
    licenses: int
    ended_at: Annotated[datetime | None, Field(description="May be in the future.")]


class AuditLine(ResponseModel):
    """An entry of the audit log."""

    id: int
    at: datetime
    actor_kind: Annotated[ActorKind, Field(validation_alias=AliasPath("actor", "kind"))]
    actor_name: Annotated[str, Field(validation_alias=AliasPath("actor", "name"))]
    action: str
    object_kind: str
    object_id: str
    details: dict[str, Any]
