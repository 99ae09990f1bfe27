"""Frozen records about updates. Apart from `model`: a start that is answered from the cache needs none."""

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING

from licclient._core.lazy import lazy
from licclient._core.model import Reason
from licclient.errors import LicclientError

if TYPE_CHECKING:
    from pathlib import Path

    from licclient._core import changelog as changelog_module
    from licclient._core.kinds import InstallationKind
else:
    changelog_module = lazy("licclient._core.changelog")


@dataclass(frozen=True, slots=True)
class Update:
    """A newer version that the customer may download; the license key is no part of it.

    Two updates are equal when what they show is equal; the link is neither compared nor shown.

    Attributes:
        name: Product name as it is now.
        slug: Product slug.
        version: The offered version, newer than the installed one.
        changelog: Plain text or basic HTML, as the server sent it: not to be shown as it is.
        last_updated: When that version was published; aware, UTC.
        size: Bytes of its file, as the vendor signed it; None when no release key is pinned.
        is_authenticated: Whether a pinned release key has signed slug, version and file, and which platform
            and kind the file is for; never the changelog.
        download_url: Signed address; None for an offer remembered from an earlier check.
        offered_at: When the server handed out `download_url`; aware, UTC.
        manifest: What was signed, as it came; checked again before anything is downloaded.
        is_required: Whether the installed version is below the lowest that the vendor supports.
        is_critical: Whether the vendor calls it important for the installed version.
        latest_version: The newest version, if the license does not cover it; None when this is the newest.
        updates_until: Last day (UTC) whose releases the license covers; None when there is no end, or the
            product has no covered versions.
        is_security: Whether it fixes a vulnerability of the installed version.
        advisory: Address of the security advisory, always `https`; None without one.
        cves: Ids of the vulnerabilities that it fixes, such as `CVE-2026-1234`.
        kind: The kind of its file, if the check named one and the service knows kinds; else None.
    """

    name: str
    slug: str
    version: str
    changelog: str
    last_updated: datetime
    download_url: str | None = field(default=None, repr=False, compare=False)
    offered_at: datetime | None = field(default=None, repr=False, compare=False)
    size: int | None = None
    is_authenticated: bool = False
    manifest: str | None = field(default=None, repr=False, compare=False)
    is_required: bool = False
    is_critical: bool = False
    latest_version: str | None = None
    updates_until: date | None = None
    is_security: bool = False
    advisory: str | None = None
    cves: tuple[str, ...] = ()
    kind: "InstallationKind | None" = None

    @property
    def is_covered(self) -> bool:
        """Whether it is the newest version that the license may have, and there is a newer one."""
        return self.latest_version is not None

    @property
    def changelog_html(self) -> str:
        """`changelog_text` as HTML for a web view or a rich text label, escaped; no element but `<br>`."""
        return changelog_module.to_html(self.changelog)

    @property
    def changelog_text(self) -> str:
        """The changelog as plain text, without any HTML and without what steers terminals."""
        return changelog_module.to_text(self.changelog)


# D-190
@dataclass(frozen=True, slots=True)
class UpdateCheck:
    """Result of an update check; true if there is a newer version.

    Attributes:
        update: The newer version, or None.
        message: In English, such as `Version 2.0 is up to date.`; `explain` translates.
        error: Why it is unknown whether there is a newer version; None when it is known.
        is_update_required: Whether the installed version is below the lowest that the vendor supports, as far
            as is known; also when there is nothing to download.
        is_ahead: Whether the installed version is above the offered one, as after leaving a channel. A higher
            one is waited for.
        latest_version: The newest version, if the license does not cover it; None for no such version.
    """

    update: Update | None
    message: str
    error: LicclientError | None = None
    is_update_required: bool = False
    is_ahead: bool = False
    latest_version: str | None = None

    def __bool__(self) -> bool:
        """Return whether there is a newer version."""
        return self.update is not None


@dataclass(frozen=True, slots=True)
class Downloaded:
    """A file that arrived whole, under its final name. `open` takes it like a path.

    Attributes:
        path: Where it is.
        size: In bytes.
        sha256: Its digest, as lower-case hex: of the bytes as they were written.
        version: The version that it is; higher than the one offered if that was replaced meanwhile.
        is_verified: Whether this is the digest that the service or the vendor declared. If not, the service
            declared none, and only the length was checked.
    """

    path: "Path"
    size: int
    sha256: str
    version: str
    is_verified: bool = False

    def __fspath__(self) -> str:
        return str(self.path)

    def __str__(self) -> str:
        return str(self.path)


# --- what the server's answers come to --------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Manifest:
    """The vendor's signed statement: this file is this version of this product, until `expires_at` (D-67).

    `size` is in bytes, `sha256` in lower-case hex; the instants are aware, UTC. `platform` (empty: all) and
    `kind` are those of the file, None in a manifest from before they were signed (D-406).
    """

    slug: str
    version: str
    size: int
    sha256: str
    published_at: datetime
    expires_at: datetime
    platform: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class Listing:
    """The body of a successful update check (spec 2): the latest version, newer or not.

    `download_url` is None when the support period is over (D-25). `manifest` is what came in the header, and
    `signed` what a pinned release key was found to have signed; both None when no such key is pinned.
    `channel` is None for a stable version, and `minimum_version` if all versions are supported.
    `is_manual`: a person requested it, so that its rollout may not have reached this installation (D-230).
    The extensions after it are as in `Update`.
    """

    name: str
    slug: str
    version: str
    changelog: str
    last_updated: datetime
    download_url: str | None = field(repr=False)
    manifest: str | None = field(default=None, repr=False)
    signed: Manifest | None = None
    channel: str | None = None
    minimum_version: str | None = None
    is_critical: bool = False
    is_manual: bool = False
    latest_version: str | None = None
    updates_until: date | None = None
    is_security: bool = False
    advisory: str | None = None
    cves: tuple[str, ...] = ()
    kind: "InstallationKind | None" = None


# --- stored state -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UpdateCheckRecord:
    """The last update check for one key and slug, as kept on disk (D-46).

    Attributes:
        checked_at: When the last attempt was made, with any result.
        spread: By which part of `check_every` the wait is lengthened; 0 to 0.1.
        answered: Whether that attempt got the server's word.
        listing: The offer to show again without a call (D-48), without its link: a credential has no
            business on a disk, and a download requests a fresh one.
        minimum_version: The lowest version that the vendor supports, also when nothing is offered.
        answered_before: If it was not: when the last one was made that was answered; None for never.
        refusal: If the server refused the last answered attempt: why, and its message.
        is_support_over: Whether the last answer offered nothing since the support period is over.
        latest_version: The version that this answer listed; None in records of earlier versions.
    """

    checked_at: datetime
    spread: float
    answered: bool
    listing: Listing | None
    minimum_version: str | None = None
    answered_before: datetime | None = None
    refusal: tuple[Reason, str] | None = None
    is_support_over: bool = False
    latest_version: str | None = None

    @property
    def answered_at(self) -> datetime | None:
        """When the last attempt was made that was answered."""
        return self.checked_at if self.answered else self.answered_before
