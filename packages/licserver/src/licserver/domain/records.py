"""The records that all packages share: frozen, without behaviour, standard library only.

Records that requests of the public API create are named tuples: frozen dataclasses take four times as long.

Instants end in ``_at`` and are aware datetimes in UTC. Dates end in ``_on`` or ``_until`` and name a whole
UTC day, which is included.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from typing import Any, Final, NamedTuple


class EnvironmentPolicy(enum.StrEnum):
    """The rule by which a license knows an environment; chosen by the vendor per product."""

    STRICT = "strict"
    DOMAIN = "domain"
    EITHER = "either"


DEFAULT_POLICY: Final = EnvironmentPolicy.DOMAIN
"""The policy of a new product: most products are desktop apps, whose addresses change daily."""


class Environment(NamedTuple):
    """The environment of an installation: domain and address, normalised by `domain.environments`."""

    domain: str
    ip: str


class Machine(NamedTuple):
    """An app's report about its computer; personal data of its user (D-195)."""

    label: str | None = None
    app_version: str | None = None


class Activation(NamedTuple):
    """A slot that is taken; `last_seen_at` is stored once a day, with what the machine's app sends then."""

    environment: Environment
    activated_at: datetime
    last_seen_at: datetime | None
    label: str | None = None
    app_version: str | None = None
    offline_until: datetime | None = None


class EnvironmentMatch(NamedTuple):
    """The match of an environment: whether its domain and its address are known."""

    domain: bool = False
    ip: bool = False


class LicenseSnapshot(NamedTuple):
    """An issued license in an environment, as far as a verdict needs it."""

    id: bytes  # the key's index (`security.key_vault`); reveals nothing about the key
    product_id: int  # the key was issued for this product
    product_name: str  # on the day of issue
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT  # the product's present one
    expires_on: date | None = None  # last day of validity
    lifetime: bool = False  # takes precedence over every date and subscription
    revoked_at: datetime | None = None
    slots: int | None = 1  # how many environments may be activated; None is unlimited
    slots_used: int = 0  # may be 0 if unused: without a limit, or for a known environment
    allowed: tuple[str, ...] = ()  # the allow-list, as from `environments.parse_entry`; takes no slot
    activated: EnvironmentMatch = EnvironmentMatch()  # by the activations, maybe 100,000
    subscription_ended_at: datetime | None = None  # when the linked subscription ended or will end
    support_until: date | None = None  # last day of the support period
    # The day on which the environment was last stored as seen; None if no activation has exactly this pair,
    # as under a policy that accepts either of domain and address.
    seen_on: date | None = None
    accepts_imported_keys: bool = False  # the product's present setting
    plan: str | None = None  # what its plan grants now, as stored (`entitlements.dump`)
    overrides: str | None = None  # as stored
    trial: bool = False
    idle_days: int = 0  # of the product (D-334)
    has_updates_until: bool = False  # responses name the end of its updates, as its product wants


STABLE: Final = "stable"
"""The default channel, whose releases every installation is offered."""


class Artifact(NamedTuple):
    """The file of a release, as stored; `md5` is None if it was published before digests were computed."""

    file_name: str
    size: int
    sha256: bytes
    md5: bytes | None = None


class Rollout(NamedTuple):
    """The staged rollout of a version to more and more installations (`domain.offers`).

    The plan is that of `offers.parse_plan`. The share does not change from `paused_at` on; resuming moves
    `started_at` by the time of the pause.
    """

    plan: str
    started_at: datetime
    paused_at: datetime | None = None


class WordPressFields(NamedTuple):
    """The fields of a version that WordPress shows (D-199)."""

    requires: str | None = None  # the lowest version of WordPress
    tested: str | None = None  # the highest version of WordPress with which it was tried
    requires_php: str | None = None  # the lowest version of PHP
    details_url: str | None = None  # the page that describes it


NO_FIELDS: Final = WordPressFields()


class SecurityNotice(NamedTuple):
    """The vulnerabilities that a release fixes."""

    advisory: str | None = None  # the https address of a page about them
    cves: tuple[str, ...] = ()  # such as CVE-2026-1234


class FileKind(enum.StrEnum):
    """How a release's file comes onto a computer.

    An app that names no kind gets the file of the first of these kinds that a version has.
    """

    # Their order is D-187.
    FOLDER = "folder"  # and each other file that nothing installs by itself, such as a plugin's zip
    APPIMAGE = "appimage"
    NSIS = "nsis"
    INNO = "inno"
    MSI = "msi"
    APP = "app"  # a zip of a macOS bundle


class Release(NamedTuple):
    """A file of a published version; only withdrawal, manifest, channel, rollout and `wordpress` can change.

    All files of a version have the same channel, rollout, `critical_below`, `security` and `wordpress`.
    """

    id: int
    product_id: int
    version: str
    changelog: str
    published_at: datetime
    artifact: Artifact
    withdrawn_at: datetime | None = None
    manifest: str | None = None  # a signed statement about the file (`protocol.release_manifests`)
    platform: str = ""  # of the file; empty for all platforms without a file of their own
    channel: str = STABLE
    rollout: Rollout | None = None  # None: reaches all installations
    critical_below: str | None = None  # installed versions below need this update
    wordpress: WordPressFields = NO_FIELDS
    file_signatures: str | None = None  # for other updaters (`protocol.file_signatures`)
    security: SecurityNotice | None = None  # of a security release
    kind: FileKind = FileKind.FOLDER


class AfterSupport(enum.StrEnum):
    """The offer to a license whose support period is over."""

    NONE = "none"  # the latest version, without a download (spec 4.2)
    COVERED = "covered"  # the newest version that was published within the period


class CoveredReleases(NamedTuple):
    """A channel's offer to licenses whose support ended on a day from `since` on.

    They are `candidates` as of a product, when nothing later was published.
    """

    since: date
    candidates: tuple[Release, ...]


CUSTOMER_MOVES: Final = 3
"""How often a customer may move a license in 30 days, if the vendor does not choose."""


IDLE_DAYS: Final = 90
"""Days without a sign of life after which a computer is idle, if the vendor does not choose."""


class Product(NamedTuple):
    """A product; the slug, which names it in update checks, never changes."""

    id: int
    slug: str
    name: str
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT
    has_support_policy: bool = False  # update downloads end with a license's support period
    # Newest first, each for the installations that its predecessors do not reach. Without a platform and
    # channels in the request, they are for the default platform and `stable`.
    candidates: tuple[Release, ...] = ()
    accepts_imported_keys: bool = False  # keys of other systems are valid unchanged
    customer_moves: int = CUSTOMER_MOVES  # slots of a license that its customer may free in 30 days
    trial_days: int = 0  # length of the trial of a machine; 0 for no trials
    minimum_version: str | None = None  # below it an installation is no longer supported
    public_feed: bool = False  # other updaters need no license (`web.feeds`)
    after_support: AfterSupport = AfterSupport.NONE
    idle_days: int = 0  # a new computer gets the slot of one that was not seen for so long; 0 for never
    covered: tuple[tuple[CoveredReleases, ...], ...] = ()  # by channel, if D-330 applies; the earliest first
    fixes: tuple[Release, ...] = ()  # security releases for the channels and the platform of a request

    @property
    def latest(self) -> Release | None:
        """The newest release that is offered."""
        return self.candidates[0] if self.candidates else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenseTerms:
    """The terms of a license, chosen by the vendor; all but the subscription can be changed later.

    A new field is stored, imported, exported and backed up as soon as the table has its column.
    """

    slots: int | None = 1  # activations; None is unlimited
    expires_on: date | None = None  # last day of validity; may be past, for imported keys
    lifetime: bool = False  # never expires; excludes `expires_on`
    support_until: date | None = None  # last day of the support period
    subscription_id: str | None = None  # the license expires with this subscription
    allowed: tuple[str, ...] = ()  # entries of the allow-list
    customer_email: str | None = None  # for the vendor alone, as `note`
    note: str | None = None
    customer_language: str | None = None  # of mails, such as ``de``; None if it is not known
    plan: str | None = None  # the name of a plan of the product
    # Entitlements that replace the plan's; None removes an entitlement (`domain.entitlements`).
    overrides: Mapping[str, Any] | None = None
    trial: bool = False  # cannot be renewed, only converted
    floating_seats: int | None = None  # number of concurrent seats; None for a license without seats
    channels: tuple[str, ...] = ()  # channels that the license offers besides `stable`


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedLicense(LicenseTerms):
    """An issued license with its terms, as the database has it.

    `id` is the key's index, which reveals nothing about the key; `product_name` is that of the day of issue.
    """

    id: bytes
    encrypted_key: bytes = field(repr=False)
    masked_key: str | None = None
    product_id: int
    product_slug: str
    product_name: str
    issued_at: datetime
    revoked_at: datetime | None = None
    revoked_reason: str | None = None
    subscription_ended_at: datetime | None = None
    slots_used: int = 0

    def snapshot(self) -> LicenseSnapshot:
        """Return it as verdicts take it, in no environment."""
        return LicenseSnapshot(
            self.id,
            self.product_id,
            self.product_name,
            expires_on=self.expires_on,
            lifetime=self.lifetime,
            revoked_at=self.revoked_at,
            subscription_ended_at=self.subscription_ended_at,
            support_until=self.support_until,
            trial=self.trial,
        )


TERMS: Final = tuple(term.name for term in fields(LicenseTerms))  # names of the terms
LISTS: Final = tuple(term.name for term in fields(LicenseTerms) if term.type == tuple[str, ...])


class LicenseState(enum.StrEnum):
    """The state of a license in any environment (spec 3); the first that applies."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    ACTIVE = "active"


class ActorKind(enum.StrEnum):
    """The interface that an actor uses."""

    CLI = "cli"
    TOKEN = "token"
    USER = "user"
    SYSTEM = "system"


class Actor(NamedTuple):
    """The author of a change: a user of the system or console, a token; `licserver` for the server."""

    kind: ActorKind
    name: str


class Scope(enum.StrEnum):
    """The permission of a token of the admin API; write includes read."""

    READ = "read"
    WRITE = "write"


class Role(enum.StrEnum):
    """The permissions of a console user; each role includes the roles after it (D-196)."""

    OWNER = "owner"
    SUPPORT = "support"
    READ_ONLY = "read-only"

    def includes(self, other: "Role") -> bool:
        """Return whether this role has all permissions of `other`."""
        roles = list(Role)
        return roles.index(self) <= roles.index(other)


SYSTEM: Final = Actor(ActorKind.SYSTEM, "licserver")
