"""The records that all packages share: frozen, without behaviour, standard library only.

What a request of the public API creates is a named tuple: a frozen dataclass takes four times as long.

Instants end in ``_at`` and are aware datetimes in UTC. Dates end in ``_on`` or ``_until`` and name a whole
UTC day, which is included.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from typing import Any, Final, NamedTuple


class EnvironmentPolicy(enum.StrEnum):
    """What makes an environment known to a license; chosen by the vendor per product."""

    STRICT = "strict"
    DOMAIN = "domain"
    EITHER = "either"


class Environment(NamedTuple):
    """Where a copy of the software runs: domain and address, normalised by `domain.environments`."""

    domain: str
    ip: str


class Machine(NamedTuple):
    """What an app reports about the computer that it runs on; personal data of its user (D-195)."""

    label: str | None = None
    app_version: str | None = None


class EnvironmentMatch(NamedTuple):
    """Which halves of an environment are known."""

    domain: bool = False
    ip: bool = False


class LicenseSnapshot(NamedTuple):
    """What a verdict needs of an issued license, in one environment."""

    id: bytes  # the key's index (`security.key_vault`); reveals nothing about the key
    product_id: int  # the key was issued for this product
    product_name: str  # on the day of issue
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT  # the product's present one
    expires_on: date | None = None  # last day of validity
    lifetime: bool = False  # takes precedence over every date and subscription
    revoked_at: datetime | None = None
    slots: int | None = 1  # how many environments may be activated; None is unlimited
    slots_used: int = 0  # may be 0 where it decides nothing: without a limit, or for a known environment
    allowed: tuple[str, ...] = ()  # the allow-list, as from `environments.parse_entry`; takes no slot
    activated: EnvironmentMatch = EnvironmentMatch()  # by the activations, maybe 100,000
    subscription_ended_at: datetime | None = None  # when the linked subscription ended or will end
    support_until: date | None = None  # last day of the support period
    # The day on which the environment was last stored as seen; None where no activation records it: there
    # is none for the pair, or the policy accepts either half.
    seen_on: date | None = None
    accepts_imported_keys: bool = False  # the product's present setting
    plan: str | None = None  # what its plan grants now, as stored (`entitlements.dump`)
    overrides: str | None = None  # as stored
    trial: bool = False


STABLE: Final = "stable"
"""The channel of releases that everybody is offered."""


class Artifact(NamedTuple):
    """The file of a release, as stored; `md5` is None of one that was published before it was computed."""

    file_name: str
    size: int
    sha256: bytes
    md5: bytes | None = None


class Rollout(NamedTuple):
    """How a version reaches more and more installations (`domain.offers`).

    The plan is that of `offers.parse_plan`. The share stands still from `paused_at` on; resuming moves
    `started_at` by the time of the pause.
    """

    plan: str
    started_at: datetime
    paused_at: datetime | None = None


class WordPressFields(NamedTuple):
    """What WordPress shows of a version (D-199)."""

    requires: str | None = None  # the lowest version of WordPress
    tested: str | None = None  # the highest version of WordPress with which it was tried
    requires_php: str | None = None  # the lowest version of PHP
    details_url: str | None = None  # the page that describes it


NO_FIELDS: Final = WordPressFields()


class Release(NamedTuple):
    """A file of a published version; only withdrawal, manifest, channel, rollout and `wordpress` can change.

    All files of a version have the same channel, rollout, `critical_below` and `wordpress`.
    """

    id: int
    product_id: int
    version: str
    changelog: str
    published_at: datetime
    artifact: Artifact
    withdrawn_at: datetime | None = None
    manifest: str | None = None  # a signed statement about the file (`protocol.release_manifests`)
    platform: str = ""  # a version has one release for each that has its own file; empty for all others
    channel: str = STABLE
    rollout: Rollout | None = None  # without one it reaches all installations
    critical_below: str | None = None  # for installed versions below this one it is important
    wordpress: WordPressFields = NO_FIELDS
    file_signatures: str | None = None  # for other updaters (`protocol.file_signatures`)


CUSTOMER_MOVES: Final = 3
"""How often a customer may move a license in 30 days, if the vendor does not choose."""


class Product(NamedTuple):
    """A product; the slug, which names it in update checks, never changes."""

    id: int
    slug: str
    name: str
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT
    has_support_policy: bool = False  # update downloads end with a license's support period
    latest: Release | None = None  # for update checks that send no platform and no channels
    accepts_imported_keys: bool = False  # keys that were sold elsewhere are valid as they are
    customer_moves: int = CUSTOMER_MOVES  # so many slots of a license may its customer free in 30 days
    trial_days: int = 0  # a machine may start one trial of so many; 0 for no trials
    minimum_version: str | None = None  # below it an installation is no longer supported
    public_feed: bool = False  # other updaters need no license (`web.feeds`)
    others: tuple[Release, ...] = ()  # for installations that its rollout does not reach, in their order


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenseTerms:
    """What the vendor chooses for a license; all but the subscription can be changed later.

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
    plan: str | None = None  # the name of a plan of the product
    # Entitlements that count instead of the plan's; None takes one away (`domain.entitlements`).
    overrides: Mapping[str, Any] | None = None
    trial: bool = False  # ends for good unless it is converted
    floating_seats: int | None = None  # how many may use it at the same time; None for no such seats
    channels: tuple[str, ...] = ()  # whose releases its holder is offered besides stable ones


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


TERMS: Final = tuple(one.name for one in fields(LicenseTerms))  # names of the terms
LISTS: Final = tuple(one.name for one in fields(LicenseTerms) if one.type == tuple[str, ...])


class LicenseState(enum.StrEnum):
    """The state of a license in any environment (spec 3); the first that applies."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    ACTIVE = "active"


class ActorKind(enum.StrEnum):
    """How an actor acts."""

    CLI = "cli"
    TOKEN = "token"
    USER = "user"
    SYSTEM = "system"


class Actor(NamedTuple):
    """Who changes something: a user of the system or console, a token; `licserver` for the server."""

    kind: ActorKind
    name: str


class Scope(enum.StrEnum):
    """What a token of the admin API permits; write includes read."""

    READ = "read"
    WRITE = "write"


class Role(enum.StrEnum):
    """What a user of the console may do; each role includes the ones after it (D-196)."""

    OWNER = "owner"
    SUPPORT = "support"
    READ_ONLY = "read-only"

    def includes(self, other: "Role") -> bool:
        """Return whether this role may do what the other one may."""
        roles = list(Role)
        return roles.index(self) <= roles.index(other)


SYSTEM: Final = Actor(ActorKind.SYSTEM, "licserver")
