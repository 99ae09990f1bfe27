"""Decisions of the server as pure functions: records and `now` in, a verdict out.

Each function checks in the order in which refusals take precedence. Verdicts are values: nothing is raised.

- `evaluate_verify`: `Valid` or a `VerifyRefusal` (spec 4.1)
- `evaluate_update`: `Offer` or an `UpdateRefusal` (spec 4.2)
- `evaluate_download`: the `Release` or a `DownloadRefusal`
"""

import enum
import re
import secrets
import string
from collections.abc import Mapping
from datetime import MAXYEAR, date, datetime, timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from licserver.domain.channel_offers import find_last, merge_candidates, published_on
from licserver.domain.environments import is_known
from licserver.domain.records import Environment, LicenseSnapshot, LicenseState, Product, Release
from licserver.domain.versions import is_below, parse_version, version_of

KEY_PREFIX = "CP-"
KEY_ALPHABET = string.ascii_uppercase + string.digits
_KEY_GROUPS, _KEY_GROUP_LENGTH = 5, 6
_KEY = re.compile(r"CP-[A-Z0-9]{6}(-[A-Z0-9]{6}){4}")
# 256 is not a multiple of 36: the remaining bytes would make the first letters likelier, so they are dropped.
_LETTER_OF_BYTE = bytes(ord(KEY_ALPHABET[byte % len(KEY_ALPHABET)]) for byte in range(256))
_DROPPED_BYTES = bytes(range(256 - 256 % len(KEY_ALPHABET), 256))
_RANDOM_BYTES = 40  # enough for 30 letters, except once in 10^10 keys
MIN_IMPORTED_KEY, MAX_IMPORTED_KEY = 8, 1024
_IMPORTED_KEY = re.compile(f"[!-~]{{{MIN_IMPORTED_KEY},{MAX_IMPORTED_KEY}}}")
# Clients take such text for a mistyped key of this server, and correct it.
_LIKE_A_KEY = re.compile(
    r"(?<![A-Z0-9-])CP[-_~]|\A[^A-Z0-9]*CP([^A-Z0-9]*[A-Z0-9]){30}[^A-Z0-9]*\Z", re.IGNORECASE
)
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
MAX_SLUG_LENGTH = 100
_PLATFORM = re.compile(r"[a-z0-9_.-]{1,40}")


# --- license keys and slugs -------------------------------------------------------------------


def is_license_key(text: str) -> bool:
    """Return whether `text` has the format of a license key, exactly as issued (spec 2, D-02)."""
    return _KEY.fullmatch(text) is not None


def is_imported_key(text: str) -> bool:
    """Return whether `text` can be a license key of another system (D-185)."""
    return _IMPORTED_KEY.fullmatch(text) is not None and _LIKE_A_KEY.search(text) is None


def generate_license_key() -> str:
    """Return a new license key from the system's randomness."""
    letters = b""
    while len(letters) < _KEY_GROUPS * _KEY_GROUP_LENGTH:
        letters += secrets.token_bytes(_RANDOM_BYTES).translate(_LETTER_OF_BYTE, _DROPPED_BYTES)
    text = letters.decode()
    starts = range(0, _KEY_GROUPS * _KEY_GROUP_LENGTH, _KEY_GROUP_LENGTH)
    return KEY_PREFIX + "-".join([text[start : start + _KEY_GROUP_LENGTH] for start in starts])


def mask_key(key: str) -> str:
    """Return enough of a license key to recognise it, and too little to use it, as `licclient` does.

    Short keys of other systems show fewer characters.
    """
    if len(key) >= 16:  # noqa: PLR2004 - seven characters stay unknown
        return f"{key[:5]}…{key[-4:]}"
    return f"{key[:2]}…{key[-2:]}" if len(key) >= 12 else "…"  # noqa: PLR2004 - eight stay unknown


@lru_cache(maxsize=256)  # update checks send the same few: 0.2 us of the 4 of parsing
def is_platform(text: str) -> bool:
    """Return whether `text` can name a platform, such as windows-x86_64 (D-187)."""
    return _PLATFORM.fullmatch(text) is not None


_SYSTEMS: Final = {
    **dict.fromkeys(("linux", "windows", "macos"), ""),
    **dict.fromkeys(("win", "win64", "win32"), "windows"),
    **dict.fromkeys(("mac", "osx", "macosx", "darwin"), "macos"),
}
"""Names of systems → what `licclient` calls them; empty for the same name."""

_MACHINES: Final = {
    **dict.fromkeys(("x86_64", "arm64", "x86"), ""),
    **dict.fromkeys(("amd64", "x64", "x86-64", "64", "64bit", "intel"), "x86_64"),
    **dict.fromkeys(("aarch64", "armv8", "apple", "silicon", "m1"), "arm64"),
    **dict.fromkeys(("i386", "i486", "i586", "i686", "ia32", "32", "32bit"), "x86"),
}
"""The same for machines."""


_USUAL: Final = {"win32": "x86", **dict.fromkeys(("macos", "mac", "osx", "macosx", "darwin"), "arm64")}
"""The machine of a system that is named alone."""


def correct_platform(text: str) -> str | None:
    """Return the name that `licclient` sends for a platform that a vendor calls otherwise; else None.

    None also for a name of the vendor's own, which an app may send by `Updates(platform=…)`.
    """
    system, *rest = re.split(r"[-_.]", text, maxsplit=1)
    if system not in _SYSTEMS:
        return None
    machine = rest[0] if rest else _USUAL.get(system, "x86_64")
    if machine not in _MACHINES:
        return None
    name = f"{_SYSTEMS[system] or system}-{_MACHINES[machine] or machine}"
    return None if name == text else name


def is_slug(text: str) -> bool:
    """Return whether `text` is lower-case words and digits joined by hyphens."""
    return len(text) <= MAX_SLUG_LENGTH and _SLUG.fullmatch(text) is not None


# --- license state ----------------------------------------------------------------------------


class Dated(Protocol):
    """The dates of a license, for callers that have more or less than a `LicenseSnapshot`."""

    @property
    def lifetime(self) -> bool: ...  # noqa: D102 - see `LicenseSnapshot`
    @property
    def expires_on(self) -> date | None: ...  # noqa: D102
    @property
    def subscription_ended_at(self) -> datetime | None: ...  # noqa: D102
    @property
    def revoked_at(self) -> datetime | None: ...  # noqa: D102
    @property
    def support_until(self) -> date | None: ...  # noqa: D102


class SubscribedLicense(Dated, Protocol):
    """The dates of a license, and its subscription."""

    @property
    def subscription_id(self) -> str | None: ...  # noqa: D102


def license_state(license_: Dated, now: datetime) -> LicenseState:
    """Return the state of a license at `now`."""
    if license_.revoked_at is not None:
        return LicenseState.REVOKED
    return LicenseState.EXPIRED if is_expired(license_, now) else LicenseState.ACTIVE


def is_expired(license_: Dated, now: datetime) -> bool:
    """Return whether a license has expired: after its last day, or once its subscription ends (D-09)."""
    if license_.lifetime:
        return False
    if license_.subscription_ended_at is not None and now >= license_.subscription_ended_at:
        return True
    return license_.expires_on is not None and now.date() > license_.expires_on


class Term(enum.StrEnum):
    """The validity of a license; the values name the texts of the customers' page."""

    NO_END = "active"
    UNTIL = "active.until"
    SUBSCRIPTION = "active.subscription"
    EXPIRED = "expired"
    SUBSCRIPTION_ENDED = "expired.subscription"
    REVOKED = "revoked"


TERM_SENTENCES: Final[Mapping[Term, str]] = MappingProxyType(
    {
        Term.NO_END: "This license does not expire.",
        Term.UNTIL: "Valid through {date}.",
        Term.SUBSCRIPTION: "Valid as long as the subscription runs.",
        Term.EXPIRED: "The license expired. Its last day was {date}.",
        Term.SUBSCRIPTION_ENDED: "The license expired. The subscription ended on {date}.",
        Term.REVOKED: "The license was revoked on {date}.",
    }
)
"""Texts of the console and the command line; the customers' page has translations."""


def find_term(license_: SubscribedLicense, now: datetime) -> tuple[Term, date | None]:
    """Return the validity of a license, and its date."""
    ended, last = license_.subscription_ended_at, license_.expires_on
    state = license_state(license_, now)
    if state is LicenseState.REVOKED:
        return Term.REVOKED, license_.revoked_at
    if state is LicenseState.EXPIRED:
        if ended is not None and now >= ended and (last is None or ended.date() <= last):
            return Term.SUBSCRIPTION_ENDED, ended
        return Term.EXPIRED, last
    if license_.lifetime:
        return Term.NO_END, None
    if ended is not None:
        # A subscription that ends at midnight includes the day before as its last.
        last = min(last or date.max, (ended - timedelta(microseconds=1)).date())
    if last is not None:
        return Term.UNTIL, last
    return (Term.NO_END if license_.subscription_id is None else Term.SUBSCRIPTION), None


def visible_expiry(license_: LicenseSnapshot) -> date | None:
    """Return the date for the field `expiry`: None for a lifetime license (D-10)."""
    return None if license_.lifetime else license_.expires_on


def add_year(day: date, today: date) -> date:
    """Return the day a year after `day`, or after today if `day` is past; 29 February becomes the 28th."""
    start = max(day, today)
    try:
        return start.replace(year=start.year + 1)
    except ValueError:  # 29 February, or the calendar's last year
        return start.replace(year=min(start.year + 1, MAXYEAR), day=28)


def is_support_over(product: Product, license_: Dated, now: datetime) -> bool:
    """Return whether update downloads have ended for a license (spec 4.2)."""
    if not product.has_support_policy or license_.support_until is None:
        return False
    return now.date() > license_.support_until


# --- verify -----------------------------------------------------------------------------------


class VerifyRefusal(enum.Enum):
    """Reasons why a license key is not valid in an environment (spec 7)."""

    FORMAT = enum.auto()
    NOT_FOUND = enum.auto()
    REVOKED = enum.auto()
    EXPIRED = enum.auto()
    ENVIRONMENT = enum.auto()


class Valid(NamedTuple):
    """Verdict that a key is valid; if `takes_slot`, the environment must be activated first."""

    license: LicenseSnapshot
    takes_slot: bool


VerifyVerdict = Valid | VerifyRefusal


def evaluate_verify(
    key: str, license_: LicenseSnapshot | None, environment: Environment, now: datetime
) -> VerifyVerdict:
    """Decide whether a key is valid in an environment (spec 4.1, D-01).

    `Valid.takes_slot` requires the same decision again on the locked license, before the slot is stored.
    """
    if not is_license_key(key) and (license_ is None or not license_.accepts_imported_keys):
        return VerifyRefusal.FORMAT
    if license_ is None:
        return VerifyRefusal.NOT_FOUND
    if license_.revoked_at is not None:
        return VerifyRefusal.REVOKED
    if is_expired(license_, now):
        return VerifyRefusal.EXPIRED
    if is_known(environment, license_.policy, license_.allowed, license_.activated):
        return Valid(license_, takes_slot=False)
    if license_.slots is None or license_.slots_used < license_.slots:  # D-07
        return Valid(license_, takes_slot=True)
    return VerifyRefusal.ENVIRONMENT


# --- update check -----------------------------------------------------------------------------


class UpdateRefusal(enum.Enum):
    """Reasons why an update check is refused (spec 7)."""

    INVALID_LICENSE = enum.auto()
    LICENSE_EXPIRED = enum.auto()
    PRODUCT_NOT_FOUND = enum.auto()
    PRODUCT_MISMATCH = enum.auto()
    NO_VERSIONS = enum.auto()


class Offer(NamedTuple):
    """The latest release; with a download link if `downloadable` (D-25).

    `is_critical`: the vendor declares it important for the installed version (D-231). Of a license whose
    support is over, only releases until `covered_until` may be downloaded; `latest_version` is that of a
    newer one (D-330). `fix` is the security release that it may have in any case (D-331).
    """

    product: Product
    release: Release
    license: LicenseSnapshot
    downloadable: bool
    is_critical: bool = False
    covered_until: date | None = None
    latest_version: str | None = None
    fix: Release | None = None


UpdateVerdict = Offer | UpdateRefusal


def evaluate_update(
    license_: LicenseSnapshot | None,
    product: Product | None,
    now: datetime,
    *,
    imported: bool = False,
    installed: str = "",
) -> UpdateVerdict:
    """Decide an update check for the product with the requested slug (spec 4.2, D-20).

    The environment does not count (D-22), nor does the installed version (D-24) but for security releases.
    The key comes first, so that slugs cannot be guessed without a key. `imported`: the key is from another
    system.
    """
    if license_ is None or license_.revoked_at is not None:
        return UpdateRefusal.INVALID_LICENSE
    if imported and not license_.accepts_imported_keys:
        return UpdateRefusal.INVALID_LICENSE
    fix = find_fix(product, license_, installed) if product is not None and product.fixes else None
    if is_expired(license_, now):
        if product is None or fix is None or license_.trial:
            return UpdateRefusal.LICENSE_EXPIRED
        return _offer_fix(product, license_, fix)
    if product is None:
        return UpdateRefusal.PRODUCT_NOT_FOUND
    if product.id != license_.product_id:
        return UpdateRefusal.PRODUCT_MISMATCH
    if product.latest is None:
        return UpdateRefusal.NO_VERSIONS
    offer = Offer(product, product.latest, license_, downloadable=True, fix=fix)
    if not is_support_over(product, license_, now):
        return offer
    if (covered := _find_covered(offer)) is not None:
        return covered
    return offer._replace(downloadable=False) if fix is None else _offer_fix(product, license_, fix)


def find_fix(product: Product, license_: LicenseSnapshot, installed: str) -> Release | None:
    """Return the security release for an installed version, whatever the license covers (D-331).

    It is the highest with the installed major version, or of all without such a one: after the fix of the
    installed major version, no higher one comes for nothing.
    """
    version = parse_version(installed) if product.id == license_.product_id else None
    if version is None or not product.fixes:
        return None
    fixes = [(version_of(fix), fix) for fix in product.fixes]
    of_major = [pair for pair in fixes if pair[0].major == version.major]
    highest, fix = max(of_major or fixes, key=lambda pair: (pair[0], pair[1].platform))
    return fix if version < highest else None


def _offer_fix(product: Product, license_: LicenseSnapshot, fix: Release) -> Offer:
    """Return the offer of a security release alone."""
    latest = fix if product.latest is None else product.latest
    newer = latest.version if is_below(fix.version, latest.version) else None
    return Offer(
        product._replace(candidates=(fix,)),
        fix,
        license_,
        downloadable=True,
        covered_until=date.min,
        latest_version=newer,
        fix=fix,
    )


def _find_covered(offer: Offer) -> Offer | None:
    """Return the offer of what was published within the support period; None if nothing is to be offered."""
    until = offer.license.support_until
    of_channels = [] if until is None else [find_last(covered, until) for covered in offer.product.covered]
    if not (candidates := merge_candidates(of_channels)):
        return None
    newest = offer.release.version  # lower than a pre-release of a period without a stable version
    return offer._replace(
        product=offer.product._replace(candidates=candidates),
        release=candidates[0],
        covered_until=until,
        latest_version=newest if is_below(candidates[0].version, newest) else None,
    )


def is_covered(offer: Offer, release: Release) -> bool:
    """Return whether the license of an offer covers a release of the same product."""
    if offer.covered_until is None or (offer.fix is not None and release.id == offer.fix.id):
        return True
    return published_on(release) <= offer.covered_until


# --- download ---------------------------------------------------------------------------------


class DownloadRefusal(enum.Enum):
    """Reasons why a download link does not return the file."""

    INVALID_LINK = enum.auto()
    LINK_EXPIRED = enum.auto()
    LICENSE_REVOKED = enum.auto()
    RELEASE_WITHDRAWN = enum.auto()


DownloadVerdict = Release | DownloadRefusal

MISSES = frozenset(
    {
        VerifyRefusal.FORMAT,
        VerifyRefusal.NOT_FOUND,
        UpdateRefusal.INVALID_LICENSE,  # includes revoked keys: the response does not distinguish them
        UpdateRefusal.PRODUCT_NOT_FOUND,
        UpdateRefusal.PRODUCT_MISMATCH,
        DownloadRefusal.INVALID_LINK,
    }
)
"""Refusals that may be guesses; limited for each client address."""


def evaluate_download(license_: LicenseSnapshot | None, release: Release | None) -> DownloadVerdict:
    """Decide whether a valid link still returns the file; expiry and end of support do not count (D-31)."""
    if license_ is None or release is None:
        return DownloadRefusal.INVALID_LINK
    if license_.revoked_at is not None:
        return DownloadRefusal.LICENSE_REVOKED
    if release.withdrawn_at is not None:
        return DownloadRefusal.RELEASE_WITHDRAWN  # D-33
    return release
