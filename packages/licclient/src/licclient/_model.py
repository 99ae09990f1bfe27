"""Frozen records and enums that the other rooms pass to each other. No rule and no I/O lives here."""

from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import StrEnum


class Source(StrEnum):
    """Where the answer that a `License` rests on came from."""

    SERVER = "server"
    """The server said so just now."""

    CACHE = "cache"
    """The server said so less than `cache_for` ago (D-41)."""

    GRACE = "grace"
    """The cache has run out, the server gives no answer, and the grace period holds (D-42)."""


class Reason(StrEnum):
    """Why the server said no (spec 7). `OTHER` stands for words that this version does not know."""

    INVALID_FORMAT = "invalid_format"
    NOT_FOUND = "not_found"
    REVOKED = "revoked"
    EXPIRED = "expired"
    ENVIRONMENT = "environment"
    OTHER_PRODUCT = "other_product"
    SUPPORT_ENDED = "support_ended"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that one client was told at construction, already checked; see `_settings.read_settings`."""

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
    download_origins: frozenset[str] | None = None
    """Where files may come from beside the service itself, as from `_links.origin`; None: any `https`."""


@dataclass(frozen=True, slots=True)
class License:
    """A license that holds now.

    Attributes:
        product: Product name stored on the key when it was issued (D-12).
        expiry: Last day (UTC) on which the key is valid; None when it has no expiry (D-09).
        lifetime: True when the key never expires.
        checked_at: When the server last confirmed the key; aware, UTC.
        source: Whether this is the server's fresh word, the cache's, or grace.
    """

    product: str
    expiry: date | None
    lifetime: bool
    checked_at: datetime
    source: Source


@dataclass(frozen=True, slots=True)
class Update:
    """A newer version that the customer may download.

    Two updates are equal when what they show is equal; the credentials are neither compared nor shown.

    Attributes:
        name: Product name as it is now.
        slug: Product slug.
        version: The offered version, newer than the installed one (D-47).
        changelog: Plain text or basic HTML, as the server sent it: not sanitised.
        last_updated: When that version was published; aware, UTC.
        license_key: The key that the offer was made to.
        download_url: Signed address; None for an offer remembered from an earlier check (D-48).
        offered_at: When the server handed out `download_url`; aware, UTC.
    """

    name: str
    slug: str
    version: str
    changelog: str
    last_updated: datetime
    license_key: str = field(repr=False, compare=False)
    download_url: str | None = field(default=None, repr=False, compare=False)
    offered_at: datetime | None = field(default=None, repr=False, compare=False)


# --- what the server's answers come to --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Verified:
    """The body of a successful verify (spec 2)."""

    product: str
    expiry: date | None
    lifetime: bool


@dataclass(frozen=True, slots=True)
class Listing:
    """The body of a successful update check (spec 2): the latest version, newer or not.

    `download_url` is None when the support period is over (D-25).
    """

    name: str
    slug: str
    version: str
    changelog: str
    last_updated: datetime
    download_url: str | None = field(repr=False)


# --- what is remembered -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Held:
    """The last success for one key, as kept on disk.

    `seen_at` is the latest instant that the clock has shown since `checked_at` (D-43). It lives in the
    same record as the license, so that it cannot be thrown away without the license.
    """

    verified: Verified
    checked_at: datetime
    seen_at: datetime


@dataclass(frozen=True, slots=True)
class Round:
    """The last update check for one key and slug, as kept on disk (D-46).

    Attributes:
        checked_at: When the last attempt was made, whatever came of it.
        spread: By which part of `check_every` the wait is lengthened; 0 to 0.1.
        answered: Whether that attempt got the server's word.
        listing: The offer to show again without a call (D-48), without its link: a credential has no
            business on a disk, and a download asks for a fresh one.
    """

    checked_at: datetime
    spread: float
    answered: bool
    listing: Listing | None
