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
    """What an app tells about the computer that it runs on; personal data of its user (D-195)."""

    label: str | None = None
    app_version: str | None = None


class EnvironmentMatch(NamedTuple):
    """Which halves of an environment are known."""

    domain: bool = False
    ip: bool = False


class LicenseSnapshot(NamedTuple):
    """What a verdict needs of an issued license, in one environment.

    Args:
        id: The key's index (`security.key_vault`); reveals nothing about the key.
        product_id: The product that the key was issued for.
        product_name: That product's name on the day of issue.
        policy: The product's present environment policy.
        expires_on: Last day of validity.
        lifetime: Takes precedence over every date and subscription.
        revoked_at: None unless revoked.
        slots: How many environments may be activated; None is unlimited.
        slots_used: May be 0 where it decides nothing: without a limit, or for a known environment.
        allowed: The allow-list, in canonical form (`environments.parse_entry`); takes no slot.
        activated: Which halves of the environment the activations have; these may be a hundred thousand.
        subscription_ended_at: When the linked subscription ended or will end.
        support_until: Last day of the support period.
        seen_on: The day on which the environment was last stored as seen; None where its activation does not
            tell: there is none for the pair, or the policy accepts either half.
        accepts_imported_keys: The product's present setting.
        plan: What its plan grants now, and `overrides`, as stored (`entitlements.dump`); None without them.
        trial: Whether it is a trial.
    """

    id: bytes
    product_id: int
    product_name: str
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT
    expires_on: date | None = None
    lifetime: bool = False
    revoked_at: datetime | None = None
    slots: int | None = 1
    slots_used: int = 0
    allowed: tuple[str, ...] = ()
    activated: EnvironmentMatch = EnvironmentMatch()
    subscription_ended_at: datetime | None = None
    support_until: date | None = None
    seen_on: date | None = None
    accepts_imported_keys: bool = False
    plan: str | None = None
    overrides: str | None = None
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
    """What WordPress shows of a version (D-199).

    Args:
        requires: The lowest version of WordPress.
        tested: The highest version of WordPress with which it was tried.
        requires_php: The lowest version of PHP.
        details_url: The page that describes it.
    """

    requires: str | None = None
    tested: str | None = None
    requires_php: str | None = None
    details_url: str | None = None


NO_FIELDS: Final = WordPressFields()


class Release(NamedTuple):
    """A file of a published version; only withdrawal, manifest, channel, rollout and `wordpress` can change.

    A version has one release for each platform that has its own file. The one whose platform is empty is
    for all others. The manifest is a signed statement about the file (`protocol.release_manifests`), or None.
    All files of a version are in the same channel. Without a rollout it reaches all installations. For
    installed versions below `critical_below` it is important; all files of a version have the same of both,
    and of `wordpress`.
    The file signatures are for other updaters (`protocol.file_signatures`), or None.
    """

    id: int
    product_id: int
    version: str
    changelog: str
    published_at: datetime
    artifact: Artifact
    withdrawn_at: datetime | None = None
    manifest: str | None = None
    platform: str = ""
    channel: str = STABLE
    rollout: Rollout | None = None
    critical_below: str | None = None
    wordpress: WordPressFields = NO_FIELDS
    file_signatures: str | None = None


CUSTOMER_MOVES: Final = 3
"""How often a customer may move a license in 30 days, if the vendor does not choose."""


class Product(NamedTuple):
    """A product; the slug, which names it in update checks, never changes.

    With `has_support_policy` update downloads end with a license's support period. `latest` is offered by
    update checks that send no platform and no channels, and `others` to installations that its rollout does
    not reach, in their order. Below `minimum_version` an installation is no longer supported. With
    `accepts_imported_keys` keys that were sold elsewhere are valid as they are. A customer may free
    `customer_moves` slots of a license in 30 days. A machine may start one trial of `trial_days`; 0 for no
    trials. With `public_feed` other updaters need no license (`web.feeds`).
    """

    id: int
    slug: str
    name: str
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT
    has_support_policy: bool = False
    latest: Release | None = None
    accepts_imported_keys: bool = False
    customer_moves: int = CUSTOMER_MOVES
    trial_days: int = 0
    minimum_version: str | None = None
    public_feed: bool = False
    others: tuple[Release, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LicenseTerms:
    """What the vendor chooses for a license; all but the subscription can be changed later.

    A new field is stored, imported, exported and backed up as soon as the table has its column.

    Args:
        slots: Activations, or None for unlimited.
        expires_on: Last day of validity; may be past, for imported keys.
        lifetime: Never expires; excludes `expires_on`.
        support_until: Last day of the support period.
        subscription_id: The license expires with this subscription.
        allowed: Entries of the allow-list.
        customer_email: For the vendor alone, as `note`.
        plan: The name of a plan of the product.
        overrides: Entitlements that count instead of the plan's; None takes one away (`domain.entitlements`).
        trial: Whether it is a trial, which ends for good unless it is converted.
        floating_seats: How many may use it at the same time by floating seats; None for none.
        channels: Whose releases its holder is offered besides stable ones.
    """

    slots: int | None = 1
    expires_on: date | None = None
    lifetime: bool = False
    support_until: date | None = None
    subscription_id: str | None = None
    allowed: tuple[str, ...] = ()
    customer_email: str | None = None
    note: str | None = None
    plan: str | None = None
    overrides: Mapping[str, Any] | None = None
    trial: bool = False
    floating_seats: int | None = None
    channels: tuple[str, ...] = ()


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
