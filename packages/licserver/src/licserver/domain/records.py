"""The records that the rooms hand to each other: frozen, without behaviour, standard library only.

Named tuples: a request makes several of them, and a frozen dataclass takes four times as long to make.

Instants end in ``_at`` and are aware datetimes in UTC; dates end in ``_on`` or ``_until``, name a
whole UTC day, and that day is included.
"""

import enum
from datetime import date, datetime
from typing import Final, NamedTuple


class EnvironmentPolicy(enum.StrEnum):
    """What makes an environment known to a license; chosen by the vendor per product."""

    STRICT = "strict"
    DOMAIN = "domain"
    EITHER = "either"


class Environment(NamedTuple):
    """Where a copy of the software runs: both halves normalised by `licserver.domain.environments`."""

    domain: str
    ip: str


class EnvironmentMatch(NamedTuple):
    """Which halves of an environment are known."""

    domain: bool = False
    ip: bool = False


class License(NamedTuple):
    """One issued key with what is needed to judge it; the key itself is not part of it.

    Args:
        id: The key's 16-byte index (`licserver.security.key_vault`); opaque, gives no key away.
        product_id: The product that the key was issued for.
        product_name: That product's name on the day of issue.
        policy: The product's environment policy as it is now.
        expires_on: Last day of validity, or None for no expiry.
        lifetime: True wins over every date and subscription.
        revoked_at: When the vendor revoked it, or None.
        slots: How many environments may be activated; None is unlimited.
        slots_used: How many activations the license holds; may be 0 where it decides nothing, for a
            key without a limit and for an environment that is known.
        allowed: The owner's entries, canonical (`environment.parse_entry`); they take no slot.
        activated: Which halves of the environment asked about its activations know: a license may
            have a hundred thousand, so they are not all carried around.
        subscription_ended_at: When the linked subscription ended or will end, or None.
        support_until: Last day of the support period, or None for no period stored.
        seen_on: The day on which the environment asked about was last noted as seen, or None where its
            activation does not tell: it has none as a pair, or the policy knows it by either half.
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


class Artifact(NamedTuple):
    """The bytes of a release as they lie in the artifact store."""

    file_name: str
    size: int
    sha256: bytes


class Release(NamedTuple):
    """One published file version of a product; it never changes, it can only be withdrawn.

    Its manifest is the vendor's signed statement about it (`protocol.release_manifests`), or None. The
    manifest is the only field that can be renewed.
    """

    id: int
    product_id: int
    version: str
    changelog: str
    published_at: datetime
    artifact: Artifact
    withdrawn_at: datetime | None = None
    manifest: str | None = None


class Product(NamedTuple):
    """A product as update-check sees it.

    Args:
        id: The store's number for it.
        slug: Names it in update-check; never changes.
        name: What customers read; may change.
        policy: Its environment policy.
        has_support_policy: Whether update downloads end with a license's support period.
        latest: The release that update-check offers, or None when there is none.
    """

    id: int
    slug: str
    name: str
    policy: EnvironmentPolicy = EnvironmentPolicy.STRICT
    has_support_policy: bool = False
    latest: Release | None = None


class LicenseTerms(NamedTuple):
    """What is agreed when a license is issued.

    Args:
        slots: Activations, or None for unlimited.
        expires_on: Last day of validity; past days are fine, for keys from elsewhere.
        lifetime: Never expires; excludes `expires_on`.
        support_until: Last day of the support period.
        subscription_id: The subscription that it hangs on.
        allowed: The owner's entries, as typed.
        customer_email: Whose it is; for the vendor alone.
        note: What else the vendor wants to know of it.
    """

    slots: int | None = 1
    expires_on: date | None = None
    lifetime: bool = False
    support_until: date | None = None
    subscription_id: str | None = None
    allowed: tuple[str, ...] = ()
    customer_email: str | None = None
    note: str | None = None


class LicenseState(enum.StrEnum):
    """What a license is, wherever it is used (spec 3); the first that holds."""

    REVOKED = "revoked"
    EXPIRED = "expired"
    ACTIVE = "active"


class ActorKind(enum.StrEnum):
    """By which way somebody acts."""

    CLI = "cli"
    TOKEN = "token"
    USER = "user"
    SYSTEM = "system"


class Actor(NamedTuple):
    """Who acts, for the audit log.

    Args:
        kind: By which way.
        name: The operating system's user, the token's name, the console's user, or what of us acts.
    """

    kind: ActorKind
    name: str


class Scope(enum.StrEnum):
    """What a token of the admin API is good for; who may write may read."""

    READ = "read"
    WRITE = "write"


SYSTEM: Final = Actor(ActorKind.SYSTEM, "licserver")
