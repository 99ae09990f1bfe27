"""Every decision of the service: values and `now` in, a verdict out.

Nothing here reads a clock, a file or a table. The order of the refusals is the order of the lines.
"""

import enum
import re
import secrets
import string
from collections.abc import Iterable
from datetime import date, datetime
from typing import NamedTuple, Protocol

from packaging.utils import canonicalize_version
from packaging.version import Version

from licserver.domain.environments import is_known
from licserver.domain.records import Environment, License, LicenseState, Product, Release

KEY_PREFIX = "CP-"
_KEY_ALPHABET = string.ascii_uppercase + string.digits
_KEY_GROUPS, _KEY_GROUP_LENGTH = 5, 6
_KEY_SHAPE = re.compile(r"CP-[A-Z0-9]{6}(-[A-Z0-9]{6}){4}")
# A byte stands for a letter. Those left over would make the first letters likelier, and are dropped.
_LETTER_OF_BYTE = bytes(ord(_KEY_ALPHABET[byte % len(_KEY_ALPHABET)]) for byte in range(256))
_UNFAIR_BYTES = bytes(range(256 - 256 % len(_KEY_ALPHABET), 256))
_DRAWN_BYTES = 40  # enough for 30 letters, all but once in 10^10 keys
_SLUG_SHAPE = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_SLUG_LENGTH = 100


# --- keys and names ---------------------------------------------------------------------------


def has_key_shape(text: str) -> bool:
    """Tell whether `text` looks like a license key, exactly as issued (spec 2, D-02)."""
    return _KEY_SHAPE.fullmatch(text) is not None


def draw_key() -> str:
    """Draw a new license key from the system's randomness: 36^30 possibilities (D-02)."""
    drawn = b""
    while len(drawn) < _KEY_GROUPS * _KEY_GROUP_LENGTH:
        drawn += secrets.token_bytes(_DRAWN_BYTES).translate(_LETTER_OF_BYTE, _UNFAIR_BYTES)
    text = drawn.decode()
    starts = range(0, _KEY_GROUPS * _KEY_GROUP_LENGTH, _KEY_GROUP_LENGTH)
    return KEY_PREFIX + "-".join([text[start : start + _KEY_GROUP_LENGTH] for start in starts])


def mask_key(key: str) -> str:
    """Shorten a license key to what may be shown: enough to tell two apart, too little to use one."""
    return f"{key[:5]}…{key[-4:]}"


def has_slug_shape(text: str) -> bool:
    """Tell whether `text` can be a product's slug: lower-case words and digits joined by hyphens."""
    return len(text) <= MAX_SLUG_LENGTH and _SLUG_SHAPE.fullmatch(text) is not None


# --- conditions -------------------------------------------------------------------------------


class Dated(Protocol):
    """The dates of a license; a `License` has them, and so has one as the vendor sees it."""

    @property
    def lifetime(self) -> bool: ...  # noqa: D102 - as in `License`
    @property
    def expires_on(self) -> date | None: ...  # noqa: D102 - the same
    @property
    def subscription_ended_at(self) -> datetime | None: ...  # noqa: D102 - the same
    @property
    def revoked_at(self) -> datetime | None: ...  # noqa: D102 - the same
    @property
    def support_until(self) -> date | None: ...  # noqa: D102 - the same


def state_of(license_: Dated, now: datetime) -> LicenseState:
    """Tell what a license is at `now`, in the order in which refusals go (D-01)."""
    if license_.revoked_at is not None:
        return LicenseState.REVOKED
    return LicenseState.EXPIRED if is_expired(license_, now) else LicenseState.ACTIVE


def is_expired(license_: Dated, now: datetime) -> bool:
    """Tell whether a license has expired at `now` (spec 3, D-09, D-10, D-27).

    The day named by `expires_on` still counts; an ended subscription counts from its instant on.
    """
    if license_.lifetime:
        return False
    if license_.subscription_ended_at is not None and now >= license_.subscription_ended_at:
        return True
    return license_.expires_on is not None and now.date() > license_.expires_on


def expiry_shown(license_: License) -> date | None:
    """The date to show as `expiry`: none for a lifetime license, whatever is stored (D-10)."""
    return None if license_.lifetime else license_.expires_on


def is_support_over(product: Product, license_: Dated, now: datetime) -> bool:
    """Tell whether update downloads have ended for a license (spec 4.2, D-25)."""
    if not product.has_support_policy or license_.support_until is None:
        return False
    return now.date() > license_.support_until


def may_download(product: Product, license_: Dated, now: datetime) -> bool:
    """Tell whether an update check would hand out a link for a license of this product (spec 4.2)."""
    return state_of(license_, now) is LicenseState.ACTIVE and not is_support_over(product, license_, now)


# --- verify -----------------------------------------------------------------------------------


class VerifyRefusal(enum.Enum):
    """Why a key is not valid here (spec 7)."""

    FORMAT = enum.auto()
    NOT_FOUND = enum.auto()
    REVOKED = enum.auto()
    EXPIRED = enum.auto()
    ENVIRONMENT = enum.auto()


class Valid(NamedTuple):
    """The key is valid in this environment; `takes_slot` says that it must be admitted first."""

    license: License
    takes_slot: bool


VerifyVerdict = Valid | VerifyRefusal


def judge_verify(
    key: str, license_: License | None, environment: Environment, now: datetime
) -> VerifyVerdict:
    """Decide whether a key is valid in an environment (spec 4.1, spec 7, D-01).

    Args:
        key: The key as sent.
        license_: What the store knows of it; None when there is no such key.
        environment: Where it is asked for, normalised.
        now: The instant of the call, UTC.

    Returns:
        `Valid`, or the first refusal in the order of D-01. A verdict changes nothing by itself:
        `Valid.takes_slot` must be followed by an admission on the locked record, judged again.
    """
    if not has_key_shape(key):
        return VerifyRefusal.FORMAT
    if license_ is None:
        return VerifyRefusal.NOT_FOUND
    if license_.revoked_at is not None:
        return VerifyRefusal.REVOKED
    if is_expired(license_, now):
        return VerifyRefusal.EXPIRED
    if is_known(environment, license_.policy, license_.allowed, license_.activated):
        return Valid(license_, takes_slot=False)
    if license_.slots is None or license_.slots_used < license_.slots:
        return Valid(license_, takes_slot=True)
    return VerifyRefusal.ENVIRONMENT


# --- update-check -----------------------------------------------------------------------------


class UpdateRefusal(enum.Enum):
    """Why there is no answer to an update check (spec 7)."""

    INVALID_LICENSE = enum.auto()
    LICENSE_EXPIRED = enum.auto()
    PRODUCT_NOT_FOUND = enum.auto()
    PRODUCT_MISMATCH = enum.auto()
    NO_VERSIONS = enum.auto()


class Offer(NamedTuple):
    """The latest release; `downloadable` says whether a link goes with it (D-25)."""

    product: Product
    release: Release
    license: License
    downloadable: bool


UpdateVerdict = Offer | UpdateRefusal


def judge_update(license_: License | None, product: Product | None, now: datetime) -> UpdateVerdict:
    """Decide what an update check is answered (spec 4.2, spec 7, D-20).

    The key comes first, so that no one can probe slugs without one. Absent on purpose: the
    environment (D-22) and the installed version (D-24, the client compares).

    Args:
        license_: What the store knows of the key; None for no such key, and for a bad shape.
        product: The product of that slug with its latest release, or None.
        now: The instant of the call, UTC.
    """
    if license_ is None or license_.revoked_at is not None:
        return UpdateRefusal.INVALID_LICENSE
    if is_expired(license_, now):
        return UpdateRefusal.LICENSE_EXPIRED
    if product is None:
        return UpdateRefusal.PRODUCT_NOT_FOUND
    if product.id != license_.product_id:
        return UpdateRefusal.PRODUCT_MISMATCH
    if product.latest is None:
        return UpdateRefusal.NO_VERSIONS
    return Offer(product, product.latest, license_, downloadable=not is_support_over(product, license_, now))


def parse_version(text: str) -> Version | None:
    """Read a version by PEP 440; None when it cannot be read (D-23)."""
    try:
        return Version(text)
    except ValueError:  # InvalidVersion, and what Python says to a number of thousands of digits
        return None


def version_key(version: Version) -> str:
    """Write a version in the one form that all its spellings share: 1.0 and 1.0.0 are one (D-23)."""
    return canonicalize_version(version)


def latest(releases: Iterable[Release]) -> Release | None:
    """Choose the release that update-check offers (D-23).

    Withdrawn ones do not count. The highest stable one wins; when there is none, the highest
    pre-release.
    """
    readable = [
        (version, release)
        for release in releases
        if release.withdrawn_at is None and (version := parse_version(release.version)) is not None
    ]
    stable = [pair for pair in readable if not pair[0].is_prerelease]
    return max(stable or readable, key=lambda pair: pair[0], default=(None, None))[1]


# --- download ---------------------------------------------------------------------------------


class DownloadRefusal(enum.Enum):
    """Why a download address is not answered with the file (D-31, D-33)."""

    INVALID_LINK = enum.auto()
    LINK_EXPIRED = enum.auto()
    LICENSE_REVOKED = enum.auto()
    RELEASE_WITHDRAWN = enum.auto()


DownloadVerdict = Release | DownloadRefusal

MISSES = frozenset(
    {
        VerifyRefusal.FORMAT,
        VerifyRefusal.NOT_FOUND,
        UpdateRefusal.INVALID_LICENSE,  # a revoked key as well: the answer does not tell them apart
        UpdateRefusal.PRODUCT_NOT_FOUND,
        UpdateRefusal.PRODUCT_MISMATCH,
        DownloadRefusal.INVALID_LINK,
    }
)
"""What somebody who guesses is told; who holds a key that was sold, and its product, is not (D-70)."""


def judge_download(license_: License | None, release: Release | None) -> DownloadVerdict:
    """Decide whether the file behind a good link is still sent (D-31, D-33).

    Absent on purpose: expiry and support. The link was handed out while they lasted, and it lives
    one hour at the most; revocation and withdrawal are the vendor's word and count at once.
    """
    if license_ is None or release is None:
        return DownloadRefusal.INVALID_LINK
    if license_.revoked_at is not None:
        return DownloadRefusal.LICENSE_REVOKED
    if release.withdrawn_at is not None:
        return DownloadRefusal.RELEASE_WITHDRAWN
    return release
