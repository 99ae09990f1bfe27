"""Frozen records and enums that the other modules pass to each other. No rule and no I/O lives here."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from licclient._core.kinds import InstallationKind
    from licclient._core.proof import Proof
    from licclient._core.public_keys import PublicKey


_NAME: Final = r"[a-z0-9_.-]{1,40}"
_PERIODS: Final = ("day", "month", "year")

AUTO: Final = "auto"
"""The setting that stands for the platform of this computer."""


class Quota(NamedTuple):
    """A number per calendar day, month or year, in UTC."""

    limit: int
    per: str


EntitlementValue = bool | int | str | Quota
"""The types of an entitlement: a flag, a number, a text, or a number per period."""


class Entitlements(Mapping[str, EntitlementValue]):
    """The entitlements of a license, by name; read-only.

    What is absent is not false: the app chooses its default, as `entitlements.get("projects", 3)`.
    """

    __slots__ = ("_values",)

    def __init__(self, values: Mapping[str, EntitlementValue] | None = None) -> None:
        self._values = dict(values or {})

    def __getitem__(self, name: str) -> EntitlementValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Entitlements({self._values})"

    def grants(self, name: str) -> bool:
        """Return whether a feature is on: its flag is set, its number is not 0, or it has a text."""
        value = self._values.get(name)
        return bool(value.limit if isinstance(value, Quota) else value)


def is_entitlement_name(name: object) -> bool:
    """Return whether this can be the name of an entitlement; a license key of ours cannot."""
    return isinstance(name, str) and re.fullmatch(_NAME, name) is not None


def is_version_folder(name: str) -> bool:
    """Return whether a version's folder may have this name; pyenv's `versions/3.11.7` is another's."""
    return re.fullmatch(r"[0-9A-Za-z][0-9A-Za-z.!+_-]{0,200}-[0-9a-f]{16}", name) is not None


def is_platform(text: str) -> bool:
    """Return whether this can name a platform."""
    return re.fullmatch(_NAME, text) is not None


def read_entitlements(sent: object) -> Entitlements:
    """Read the object of a response or of a record; leave out values of unknown types."""
    if not isinstance(sent, dict):
        return Entitlements()
    read = {name: _read_value(value) for name, value in sent.items() if is_entitlement_name(name)}
    return Entitlements({name: value for name, value in read.items() if value is not None})


def _read_value(value: object) -> EntitlementValue | None:
    match value:
        case bool():
            return value
        case int():
            return value if value >= 0 else None
        case str():
            # JSON lets halves of surrogate pairs through, which cannot be shown or stored.
            return value if value.isprintable() else None
        case {"limit": bool()}:
            return None
        case {"limit": int(limit), "per": str(per)} if limit >= 0 and per in _PERIODS:
            return Quota(limit, per)
        case _:
            return None


def write_entitlements(entitlements: Entitlements) -> dict[str, Any]:
    """Return what `read_entitlements` reads."""
    return {
        name: value._asdict() if isinstance(value, Quota) else value for name, value in entitlements.items()
    }


class Source(StrEnum):
    """Where the answer that a `License` rests on came from."""

    SERVER = "server"
    """Confirmed by the server just now."""

    CACHE = "cache"
    """Confirmed by the server less than `cache_for` ago (D-41)."""

    GRACE = "grace"
    """The cache has run out, the server gives no answer, and the grace period holds (D-42)."""

    FILE = "file"
    """Granted by a license file until it ends; no request is sent."""


class Reason(StrEnum):
    """Why the server refused (spec 7). `OTHER` means a reason that this version does not know."""

    INVALID_FORMAT = "invalid_format"
    NOT_FOUND = "not_found"
    REVOKED = "revoked"
    EXPIRED = "expired"
    ENVIRONMENT = "environment"
    OTHER_PRODUCT = "other_product"
    SUPPORT_ENDED = "support_ended"
    NO_VERSION = "no_version"
    UNKNOWN_PRODUCT = "unknown_product"
    TRIAL_NOT_OFFERED = "trial_not_offered"
    TRIAL_ENDED = "trial_ended"
    TRIAL_LIMIT = "trial_limit"
    OTHER = "other"


class Outage(StrEnum):
    """Why there is no trustworthy answer, by what a person can do about it."""

    UNREACHABLE = "unreachable"
    """No connection to the service, because this computer is offline or the way there is cut."""
    TIMED_OUT = "timed_out"
    """No answer within the time limit, as of a service that hangs, or behind a silent firewall."""
    CONNECTION_REFUSED = "connection_refused"
    """The connection was refused, as the service is down or a firewall is in the way."""
    NAME_NOT_FOUND = "name_not_found"
    """The name of the service has no address here; most often, this computer is offline."""
    UNUSABLE = "unusable"
    """An answer that the protocol does not know, such as `503`: the service, or something on the way."""
    LOGIN_PAGE = "login_page"
    """The network answered itself, because it wants a login first."""
    PROXY = "proxy"
    """The proxy of the system's settings cannot be used, or did not let the request through."""
    CERTIFICATE = "certificate"
    """The certificate of the service cannot be trusted, by the clock of this computer."""
    CLOCK = "clock"
    """The clock of this computer is wrong."""
    KEYRING = "keyring"
    """The system's keyring did not return the license key."""
    PENDING = "pending"
    """No request was sent yet, or its response was not waited for."""

    @property
    def is_offline(self) -> bool:
        """Whether nothing answered, so that going online may help."""
        return self in (
            Outage.UNREACHABLE,
            Outage.TIMED_OUT,
            Outage.CONNECTION_REFUSED,
            Outage.NAME_NOT_FOUND,
        )


class KeyFlaw(StrEnum):
    """The flaw in the format of a typed key."""

    EMPTY = "empty"
    PREFIX = "prefix"
    CHARACTERS = "characters"
    TOO_SHORT = "too_short"
    TOO_LONG = "too_long"


class FileFlaw(StrEnum):
    """The flaw of a license file."""

    DAMAGED = "damaged"
    """It is no license file, or not all of it is there."""
    UNTRUSTED = "untrusted"
    """No pinned key has signed it as it is."""
    OTHER_PRODUCT = "other_product"
    OTHER_MACHINE = "other_machine"
    ENDED = "ended"
    CLOCK = "clock"
    """The clock of this computer is behind the file."""
    REVOKED = "revoked"


class InstallObstacle(StrEnum):
    """Why an update was not installed, or cannot be."""

    OTHER_UPDATER = "other_updater"
    """Another program updates this app, such as a store or a package manager."""
    NOT_WRITABLE = "not_writable"
    """This user may not write where the app is."""
    NOT_REPLACEABLE = "not_replaceable"
    """The app was not set up in a way that can be updated, as one that runs from its source."""
    WRONG_FILE = "wrong_file"
    """The published file is not of the kind that this installation needs."""
    WRONG_PUBLISHER = "wrong_publisher"
    """The set-up is not signed by the publisher that the app names."""
    REFUSED = "refused"
    """A person cancelled the set-up, or did not give the administrator's permission."""
    FORBIDDEN = "forbidden"
    """A policy of this computer forbids the set-up."""
    BUSY = "busy"
    """Another set-up is running."""
    STILL_RUNNING = "still_running"
    """The app did not end, so the set-up was not started."""
    RESTART_NEEDED = "restart_needed"
    """The computer has to be restarted to complete the update."""
    TIMED_OUT = "timed_out"
    """The set-up did not end within its time, and was stopped."""
    INTERRUPTED = "interrupted"
    """The set-up was ended from outside, as by a power failure."""
    NO_EFFECT = "no_effect"
    """The set-up reported success, and another version runs."""
    NEWER_INSTALLED = "newer_installed"
    """A newer version is installed already, as by another window of the app."""
    ABORTED = "aborted"
    """The set-up gave up by itself, as a damaged one does; another try comes to the same."""
    ROLLED_BACK = "rolled_back"
    """The app went back to the version before, by itself or for a person."""
    FAILED = "failed"
    """The set-up failed."""


class MoveObstacle(StrEnum):
    """Why a license was not moved to this computer."""

    TOO_MANY_MOVES = "too_many_moves"
    """All moves that the vendor allows in 30 days are used."""
    FILE_HELD = "file_held"
    """The other computer has a license file, which cannot be taken back."""
    COMPUTER_NOT_FOUND = "computer_not_found"
    """The other computer does not use the license any more."""
    NOT_ALLOWED = "not_allowed"
    """Only the vendor's support moves licenses."""
    NOT_SUPPORTED = "not_supported"
    """The service does not have the request, as one of another make."""


@dataclass(frozen=True, slots=True)
class UpdateFeed:
    """The feed of the service that another updater reads.

    Attributes:
        version: The version that the update check has offered.
        url: Its address, which has no license key.
        headers: What has to be sent with each request; the license key is in it, so it is not shown.
    """

    version: str
    url: str
    headers: Mapping[str, str] = field(repr=False)


# NamedTuples where no app sees them: a frozen dataclass costs each start 0.4 ms, and one of these 0.06.
class Settings(NamedTuple):
    """The options of a client, validated; see `_settings.read_settings`."""

    server: str
    """Base URL, normalised: lower-case scheme and host, no default port, no trailing slash."""
    product: str | None
    slug: str | None
    version: str | None
    domain: str | None
    cache_for: timedelta
    grace: timedelta
    check_every: timedelta
    timeout: timedelta
    release_keys: "tuple[PublicKey, ...]" = ()
    """Keys of which one must have signed every update; empty: no signature is required (D-67)."""
    public_keys: "tuple[PublicKey, ...]" = ()
    """Keys of which one must have signed every response; empty: no signature is required (D-62)."""
    download_origins: frozenset[str] | None = None
    """Where files may come from besides the service, as `origin` writes them; None: any `https`."""
    platform: str | None = None
    """The platform that update checks send, or `AUTO`; None sends nothing (D-187)."""
    kind: "InstallationKind | None" = None
    """The kind of file that update checks request; None for the one that replaces this installation."""
    channels: tuple[str, ...] = ()
    """Whose releases update checks request besides stable ones (D-227)."""
    machine: Mapping[str, str] = MappingProxyType({})
    """The fields about this computer that verify sends: `label` and `app_version`, or none (D-195)."""
    require_digest: bool = False
    """Whether a file without a digest is refused; with release keys it always is (D-55)."""
    publisher: str | None = None
    """Whose signature a set-up of Windows must have; None: none is required (D-354)."""
    report_rollbacks: bool = False
    """Whether versions that were rolled back here are reported to the service (D-232)."""
    hand_over: Callable[[UpdateFeed], object] | None = None
    """Calls the framework within the app that installs its updates (D-390)."""

    def __repr__(self) -> str:
        # Without the rest: `machine` is personal data.
        return f"Settings({self.server!r})"


@dataclass(frozen=True, slots=True)
class License:
    """A license that holds now.

    Attributes:
        product: Product name stored on the key when it was issued.
        expiry: Last day (UTC) on which the key is valid; None when it has no expiry.
        is_lifetime: Whether the key never expires.
        checked_at: When the server last confirmed the key, or issued the license file; aware, UTC.
        source: Whether this is the server's fresh word, the cache's, grace, or a license file.
        is_authenticated: Whether a pinned key has signed this very license; False without pinned keys.
        entitlements: What the license grants, by name; empty if the vendor has chosen nothing. Absent is not
            false: write `entitlements.get("projects", 3)`.
        is_trial: Whether it is a trial, which ends with `expiry` unless it is bought.
        updates_until: Last day (UTC) whose releases the license covers for good; None when there is no end,
            or the vendor's product has no covered versions.
    """

    product: str
    expiry: date | None
    is_lifetime: bool
    checked_at: datetime
    source: Source
    is_authenticated: bool = False
    entitlements: Entitlements = field(default_factory=Entitlements, hash=False)
    is_trial: bool = False
    updates_until: date | None = None


# --- what the server's answers come to --------------------------------------------------------


class Verified(NamedTuple):
    """The body of a successful verify (spec 2); with the proof that a pinned key signed it, if one did."""

    product: str
    expiry: date | None
    lifetime: bool
    proof: "Proof | None" = None
    entitlements: Entitlements = Entitlements()
    is_trial: bool = False
    updates_until: date | None = None


# --- stored state -----------------------------------------------------------------------------


class CachedLicense(NamedTuple):
    """The last success for one key, as kept on disk.

    `seen_at` is the latest instant that the clock has shown since `checked_at` (D-43). It lives in the
    same record as the license, so that it cannot be thrown away without the license.

    `slow_by` is how far this computer's clock was behind the service's when that signed the success, at most
    a day; it counts until the next one (D-116). Without a signature it is unknown, and zero.
    """

    verified: Verified
    checked_at: datetime
    seen_at: datetime
    slow_by: timedelta = timedelta(0)
