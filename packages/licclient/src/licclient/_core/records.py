"""Pure: stored state, as bytes. A damaged, renamed, copied or foreign file reads as nothing (D-41).

A record is two lines: a SHA-256 over the record's name and its content, then the content as JSON. The name is
itself a digest over everything that the record belongs to (server, key, domain), so one check covers both
damage and a file moved to another place. It is no signature: an editor of the file can also redo the sum.
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from functools import wraps
from hashlib import sha256
from types import UnionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from licclient._core.lazy import lazy
from licclient._core.model import (
    CachedLicense,
    Reason,
    Settings,
    Verified,
    read_entitlements,
    write_entitlements,
)
from licclient._core.requests import read_instant

if TYPE_CHECKING:
    import unicodedata
    from pathlib import Path

    from licclient._core import kinds, update_model
    from licclient._core.update_model import Listing, UpdateCheckRecord
else:
    unicodedata = lazy("unicodedata")
    kinds = lazy("licclient._core.kinds")
    update_model = lazy("licclient._core.update_model")

T = TypeVar("T")

SCHEMA: Final = 1
"""Version of what stands in a record. A field that may be missing, as `slow_by` is, needs no new one; what an
earlier version of the app could not read does, and a step in `UPGRADES`."""

Document = Mapping[str, Any]
"""A record: what JSON can hold. It must not be changed."""


class Storage(Protocol):
    """Where a client keeps its state: named JSON records. Safe to share among threads.

    `load` and `change` raise `StateUnreadableError` when a record cannot be read, and nothing else. A record
    that cannot be read is not missing: the client then makes no new installation id.
    """

    def load(self, name: str) -> Document | None:
        """Return a record, which must not be changed: the same object until it is replaced."""

    def change(self, name: str, edit: Callable[[Document | None], Document | None]) -> Document | None:
        """Replace a record by `edit(record)` atomically, delete it for None; return the new record."""

    def folder(self) -> "Path | None":
        """Return a folder for locks between processes; None when only this process uses the storage."""


class Put:
    """An edit for `Storage.change` that does not depend on the record: it replaces or removes it."""

    __slots__ = ("document",)

    def __init__(self, document: Document | None) -> None:
        self.document = document

    def __call__(self, _: Document | None) -> Document | None:
        """Return the new record; None to remove it."""
        return self.document


UPGRADES: Final[dict[int, Callable[[str, Document], Document]]] = {}
"""Schema → how a record of that schema reads in the next one, given its kind, such as `activation`."""

_NAMING: Final = 1
"""Part of every name. It stays when `SCHEMA` is raised: under another name key and id would be lost."""


def record_name(kind: str, *belongs_to: str) -> str:
    """Name a record after what it belongs to, without disclosing any of it.

    `kind`, such as `license`, begins the file's name; docs/app/state.md lists them. Server, license key,
    domain or slug follow as a digest, the same on every machine.
    """
    # As JSON, because two different lists never come out as the same text.
    identity = json.dumps(["licclient", _NAMING, kind, *belongs_to])
    return f"{kind}-{sha256(identity.encode()).hexdigest()[:40]}"


def seal(name: str, document: Document) -> bytes:
    """Write a record; `unseal` with the same name gives the document back."""
    content = json.dumps({"schema": SCHEMA, **document}, sort_keys=True).encode()
    return _sum(name, content) + b"\n" + content + b"\n"


def unseal(name: str, raw: bytes) -> Document | None:
    """Read a record in today's schema; None for anything but what `seal` once wrote under this very name."""
    document = _unseal(name, raw)
    if document is None:
        return None
    match document:
        case {"schema": int(written)} if 1 <= written <= SCHEMA:
            for schema in range(written, SCHEMA):
                document = {**UPGRADES[schema](name.partition("-")[0], document), "schema": schema + 1}
            return document
        case _:
            return None


def find_flaw(name: str, raw: bytes) -> str | None:
    """Return why a record reads as nothing, in words; None for a good one."""
    if unseal(name, raw) is not None:
        return None
    match _unseal(name, raw):
        case {"schema": int(written)} if written > SCHEMA:
            return "was written by a later version of this app"
        case _:
            return "is damaged"


def _unseal(name: str, raw: bytes) -> Document | None:
    """Return what stands in a record, in whatever schema."""
    checksum, _, rest = raw.partition(b"\n")
    content = rest.removesuffix(b"\n")
    if not rest.endswith(b"\n") or checksum != _sum(name, content):
        return None
    try:
        document: Document = json.loads(content)
    except (ValueError, RecursionError):
        return None
    return document


def _sum(name: str, content: bytes) -> bytes:
    return sha256(name.encode() + b"\0" + content).hexdigest().encode()


def reader(read: Callable[[Document], T]) -> Callable[[Document | None], T | None]:
    """Decorate a function that reads a record: None for no record, and for one that makes no sense.

    Damage is found by `unseal`; this is for what another version or a person wrote.
    """

    @wraps(read)
    def read_or_none(document: Document | None) -> T | None:
        try:
            return None if document is None else read(document)
        except (LookupError, TypeError, ValueError, AttributeError):
            return None

    return read_or_none


def require_type(value: Any, kind: type | UnionType) -> Any:
    """Return a value of this type; raise `TypeError` for any other."""
    if not isinstance(value, kind):
        raise TypeError
    return value


def require_instant(text: object) -> datetime:
    """Parse an instant; raise `ValueError` for anything else."""
    if (at := read_instant(text)) is None:
        raise ValueError
    return at


# --- folders ----------------------------------------------------------------------------------

_LONGEST: Final = 60
_DEVICE: Final = r"(con|prn|aux|nul|com\d|lpt\d)(\.|$)"  # no folder on Windows may be called so


class Places(NamedTuple):
    """Folders relative to the one for all apps: `app` of the product, or else of the vendor.

    `elsewhere` has the names of records that other apps may need as well, and their folders.
    """

    app: str
    elsewhere: Mapping[str, str]


ONE_PLACE: Final = Places("", {})
"""All in one folder."""


def places_for(settings: Settings) -> Places:
    """Return where in the platform's folder for application state a client's records lie (D-192).

    A folder for each vendor, named after the license service's address, and in it one for each product. Two
    clients whose folders have the same name are harmless: a record's own name identifies what it belongs to.
    """
    server, product, slug = settings.server, settings.product, settings.slug
    vendor = folder_name(server.partition("://")[2])
    elsewhere = {
        # One id for all products of a vendor, so that they take one activation slot.
        record_name("installation", server): vendor,
        record_name("installation_copy", server): vendor,
        record_name("activation", server, "", ""): vendor,
    }
    if product is not None and slug is not None:  # activated perhaps before the app named its product
        elsewhere[record_name("activation", server, "", slug)] = f"{vendor}/{folder_name(slug)}"
    name = product or slug
    return Places(vendor if name is None else f"{vendor}/{folder_name(name)}", elsewhere)


def folder_name(text: str) -> str:
    """Make a folder's name that every file system takes.

    Characters outside ASCII are dropped, so a digest keeps such names distinct (D-418).
    """
    text = unicodedata.normalize("NFC", text)
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:_LONGEST].strip("-.")
    if not name or not text.isascii():
        name = f"{name or 'app'}-{sha256(text.encode()).hexdigest()[:8]}"
    return f"_{name}" if re.match(_DEVICE, name) else name


# --- the three kinds --------------------------------------------------------------------------


def write_cached_license(cached: CachedLicense) -> Document:
    """Write the last success for a key."""
    verified = cached.verified
    return {
        "product": verified.product,
        "expiry": verified.expiry.isoformat() if verified.expiry else None,
        "lifetime": verified.lifetime,
        "checked_at": cached.checked_at.isoformat(),
        "seen_at": cached.seen_at.isoformat(),
        **({"entitlements": write_entitlements(granted)} if (granted := verified.entitlements) else {}),
        **({"trial": True} if verified.is_trial else {}),
        **({"updates_until": until.isoformat()} if (until := verified.updates_until) else {}),
    }


@reader
def read_cached_license(document: Document) -> CachedLicense:
    """Read the last success for a key."""
    expiry, lifetime = document["expiry"], require_type(document["lifetime"], bool)
    checked_at, seen_at = require_instant(document["checked_at"]), require_instant(document["seen_at"])
    if seen_at < checked_at or (lifetime and expiry is not None):
        raise ValueError
    verified = Verified(
        require_type(document["product"], str),
        None if expiry is None else date.fromisoformat(expiry),
        lifetime,
        entitlements=read_entitlements(document.get("entitlements")),
        is_trial=document.get("trial") is True,
        updates_until=_read_day(document.get("updates_until")),
    )
    return CachedLicense(verified, checked_at, seen_at)


def _read_day(value: Any) -> date | None:
    return None if value is None else date.fromisoformat(value)


def write_update_check(done: "UpdateCheckRecord") -> Document:
    """Write the last update check; the listing's link stays out: it is a credential."""
    listing, refusal = done.listing, done.refusal
    return {
        "checked_at": done.checked_at.isoformat(),
        "spread": done.spread,
        "answered": done.answered,
        **({} if done.answered_before is None else {"answered_before": done.answered_before.isoformat()}),
        **({} if done.minimum_version is None else {"minimum_version": done.minimum_version}),
        **({} if refusal is None else {"refusal": [refusal[0].value, refusal[1]]}),
        **({"support_over": True} if done.is_support_over else {}),
        **({} if done.latest_version is None else {"latest_version": done.latest_version}),
        "listing": listing
        and {
            "name": listing.name,
            "slug": listing.slug,
            "version": listing.version,
            "changelog": listing.changelog,
            "last_updated": listing.last_updated.isoformat(),
            "manifest": listing.manifest,
            **({} if listing.channel is None else {"channel": listing.channel}),
            **({"critical": True} if listing.is_critical else {}),
            **({"manual": True} if listing.is_manual else {}),
            **({} if listing.latest_version is None else {"latest_version": listing.latest_version}),
            **({"updates_until": until.isoformat()} if (until := listing.updates_until) else {}),
            **({"security": [listing.advisory, *listing.cves]} if listing.is_security else {}),
            **({} if listing.kind is None else {"kind": listing.kind.value}),
        },
    }


@reader
def read_update_check(document: Document) -> "UpdateCheckRecord":
    """Read the last update check."""
    offered, minimum_version = document["listing"], require_type(document.get("minimum_version"), str | None)
    listing = None if offered is None else _read_listing(offered)
    checked_at, spread = require_instant(document["checked_at"]), float(document["spread"])
    if not 0 <= spread <= 1:
        raise ValueError
    before = document.get("answered_before")
    answered, answered_before = require_type(document["answered"], bool), before and require_instant(before)
    refusal, is_support_over = _read_refusal(document.get("refusal")), document.get("support_over") is True
    times = checked_at, spread, answered
    return update_model.UpdateCheckRecord(
        *times,
        listing,
        minimum_version,
        answered_before,
        refusal,
        is_support_over,
        require_type(document.get("latest_version"), str | None),
    )


def _read_refusal(document: Any) -> tuple[Reason, str] | None:
    if document is None:
        return None
    reason, message = document
    return Reason(reason), require_type(message, str)


def _read_listing(document: Document) -> "Listing":
    name, slug, version, changelog = (
        require_type(document[field], str) for field in ("name", "slug", "version", "changelog")
    )
    security = document.get("security")
    advisory, *cves = [None] if security is None else security
    return update_model.Listing(
        name,
        slug,
        version,
        changelog,
        require_instant(document["last_updated"]),
        download_url=None,
        manifest=require_type(document.get("manifest"), str | None),
        channel=require_type(document.get("channel"), str | None),
        is_critical=document.get("critical") is True,
        is_manual=document.get("manual") is True,
        latest_version=require_type(document.get("latest_version"), str | None),
        updates_until=_read_day(document.get("updates_until")),
        is_security=security is not None,
        advisory=require_type(advisory, str | None),
        cves=tuple(require_type(cve, str) for cve in cves),
        kind=kinds.read_published_kind(document.get("kind")),
    )
