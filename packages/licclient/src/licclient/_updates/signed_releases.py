"""Signed releases: whether the vendor signed an update, until when, and whether it is a downgrade.

A manifest is a JWS in the general JSON serialization (RFC 7515, 7.2.1), signed with Ed25519 (RFC 8037) and
sent as one header in base64url. Its payload is parsed only after a pinned key was found to have signed it,
and it alone describes the file (D-67). Not joserfc: it takes 0.2 s to import and would replace thirty lines.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from licclient._core.model import Settings
from licclient._core.policy import is_at_least, is_version
from licclient._core.public_keys import PublicKey
from licclient._core.records import Document, Storage, reader, record_name, require_instant, require_type
from licclient._core.responses import read_json_object
from licclient._core.signed_responses import decode_base64url, read_key_id, read_utc
from licclient._core.update_model import Listing, Manifest, Update
from licclient.errors import UntrustedResponseError

if TYPE_CHECKING:
    from licclient._core.kinds import InstallationKind

TYPE: Final = "release-manifest+json"
"""The `typ` of every signature: nothing else that such a key may have signed is taken for a manifest."""

MAX_HEADER: Final = 8192
"""Longest manifest that is read; a real one has less than a third of it. Bounds the signatures, too."""

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_MAX_SIZE: Final = 10**15


@dataclass(frozen=True, slots=True)
class Highest:
    """The highest version that was found to be signed."""

    version: str
    signed_at: datetime


class RequestedFile(NamedTuple):
    """What an update check asks for; None for what it does not name."""

    platform: str | None
    kind: "InstallationKind | None"


class SignedReleases:
    """Requires that the vendor signed what can be downloaded, if release keys are pinned (D-67, D-68).

    The highest version is remembered: one for each server, product and set of channels, for all license keys.
    Offers beside a newer version that the license does not cover are remembered apart, for each key: they may
    be below what was offered before, as when a license ends and only a security release is left (D-322).
    """

    def __init__(self, settings: Settings, state: Storage) -> None:
        self._settings = settings
        self._state = state

    def check(
        self, listing: Listing, now: datetime, checks: str, requested: RequestedFile | None = None
    ) -> Listing | UntrustedResponseError:
        """Return an offer, with what was signed if keys are pinned; or why it must not be offered.

        Its version is remembered if it is the highest. `checks` names the record of the key's update checks.
        Without `requested` its file may be another installation's, whose check this state remembers (D-371).
        """
        if not self._settings.release_keys:
            return listing
        of_all, name = self._name_of_all(listing), self._name(listing, checks)
        stored = self._state.load(name)
        result = self._check(listing, now, stored, requested)

        def remember(document: Document | None) -> Document | None:
            nonlocal result
            result = self._check(listing, now, document, requested)
            highest = read_highest(document)
            if isinstance(result, UntrustedResponseError) or (highest and highest.version == result.version):
                return document
            return write_highest(result)

        if remember(stored) is not stored:  # mostly there is nothing to write, and no need to lock
            self._state.change(name, remember)
        if isinstance(result, UntrustedResponseError):
            return result
        edit = partial(raise_highest, signed=result)
        if name != of_all and edit(stored := self._state.load(of_all)) is not stored:
            self._state.change(of_all, edit)
        if requested is not None and result.kind is not None:
            # A service may not repeat the kind, or repeat another one.
            listing = replace(listing, kind=requested.kind or listing.kind)
        return replace(listing, signed=result)

    def expected(
        self, update: Update, now: datetime, checks: str, requested: RequestedFile | None = None
    ) -> Manifest | None:
        """Return what was signed about an update; None when that no longer holds, or no keys are pinned.

        For a download, before which an app may have kept the update for days, or made it itself.
        """
        if not self._settings.release_keys:
            return None
        result = self._check(update, now, self._state.load(self._name(update, checks)), requested)
        return result if isinstance(result, Manifest) else None

    def _check(
        self,
        offer: Listing | Update,
        now: datetime,
        document: Document | None,
        requested: RequestedFile | None,
    ) -> Manifest | UntrustedResponseError:
        keys, highest = self._settings.release_keys, read_highest(document)
        return check_manifest(offer.manifest, offer.slug, offer.version, keys, highest, now, requested)

    def _name(self, offer: Listing | Update, checks: str) -> str:
        """Name the record of the version that an offer must not be below."""
        if offer.latest_version is None:
            return self._name_of_all(offer)
        # After a covered version was offered, the license may end, and the fix of an older line be left.
        return record_name("covered", checks, "security" if offer.is_security else "covered")

    def _name_of_all(self, offer: Listing | Update) -> str:
        # An app that leaves a channel must not take the stable version for a rollback (D-228).
        return record_name("release", self._settings.server, offer.slug, *self._settings.channels)


@reader
def read_highest(document: Document) -> Highest:
    """Parse the record of the highest signed version."""
    return Highest(require_type(document["version"], str), require_instant(document["signed_at"]))


def write_highest(signed: Manifest) -> Document:
    """Write the record of the highest signed version."""
    return {"version": signed.version, "signed_at": signed.published_at.isoformat()}


def raise_highest(document: Document | None, signed: Manifest) -> Document | None:
    """Return the record with a version that is higher; else the same object."""
    highest = read_highest(document)
    is_known = highest is not None and (
        highest.version == signed.version or not is_at_least(signed.version, highest.version)
    )
    return document if is_known else write_highest(signed)


def check_manifest(
    header: str | None,
    slug: str,
    version: str,
    keys: Sequence[PublicKey],
    highest: Highest | None,
    now: datetime,
    requested: RequestedFile | None = None,
) -> Manifest | UntrustedResponseError:
    """Return what the vendor signed, or why a version must not be offered or downloaded.

    `header` is as the response carried it, `slug` and `requested` what was asked for, and `version` what was
    offered. One of `keys` must have signed; `highest` was found to be signed for this product before.
    """
    manifest = read_manifest(header, keys)
    if isinstance(manifest, UntrustedResponseError):
        return manifest
    if (manifest.slug, manifest.version) != (slug, version):
        return UntrustedResponseError("The vendor signed another version than the service reports.")
    if requested is not None and (flaw := _compare_place(manifest, requested)) is not None:
        return UntrustedResponseError(flaw)
    if now >= manifest.expires_at:
        until = f"{manifest.expires_at:%Y-%m-%d %H:%M} UTC"
        return UntrustedResponseError(
            f"The vendor signed this version until {until}: the service shows an old answer, the vendor has"
            " not renewed it, or the clock of this computer is wrong."
        )
    if not is_version(version):
        # Never offered (D-47); remembered as the highest, it would be above everything that comes later.
        return UntrustedResponseError("The vendor signed a version that cannot be compared with others.")
    is_lower = highest is not None and not is_at_least(version, highest.version)
    # Signed after the higher one, it is what the vendor went back to.
    if highest is not None and is_lower and manifest.published_at <= highest.signed_at:
        return UntrustedResponseError(
            f"The vendor signed a higher version before, {highest.version[:80]}, and has not signed this one"
            " since: the service shows an old answer, or the vendor withdrew the higher one and must renew"
            " the signature of this one."
        )
    return manifest


def _compare_place(signed: Manifest, requested: RequestedFile) -> str | None:
    """Return why a file is not for this installation; None if it is, or that was not signed (D-406)."""
    if signed.platform and signed.platform != requested.platform:
        asked = ", and this app has requested no platform"
        if requested.platform:
            asked = f", not for {requested.platform}"
        return f"The vendor signed this file for {signed.platform[:40]}{asked}."
    if signed.kind is not None and requested.kind is not None and signed.kind != requested.kind:
        return (
            f"The vendor signed a file of the kind {signed.kind[:40]}, and this app has requested"
            f" {requested.kind}."
        )
    return None


def read_manifest(header: str | None, keys: Sequence[PublicKey]) -> Manifest | UntrustedResponseError:
    """Return what a pinned key signed; arguments as for `check_manifest`."""
    if header is None:
        return UntrustedResponseError("The response has no manifest that the vendor signed.")
    document = read_json_object(decode_base64url(header)) if len(header) <= MAX_HEADER else {}
    match document:
        case {"payload": str(payload), "signatures": list(signatures)}:
            pass
        case _:
            return UntrustedResponseError("The manifest cannot be read.")
    keys_by_id = {key.id: key for key in keys}
    for signature in signatures:
        match signature:
            case {"protected": str(protected), "signature": str(raw)}:
                key = keys_by_id.get(read_key_id(protected, TYPE))
            case _:
                continue
        if key is not None and key.verify(decode_base64url(raw), f"{protected}.{payload}".encode()):
            return _parse_payload(payload)
    return UntrustedResponseError("No pinned key has signed the manifest.")


def _parse_payload(payload: str) -> Manifest | UntrustedResponseError:
    match read_json_object(decode_base64url(payload)):
        case {
            "slug": str(slug),
            "version": str(version),
            "size": int(size),
            "sha256": str(sha256),
            "published_at": str(published),
            "expires_at": str(expires),
            **more,
        } if type(size) is int and 0 <= size <= _MAX_SIZE and _SHA256.fullmatch(sha256):
            published_at, expires_at = read_utc(published), read_utc(expires)
            place = more.get("platform"), more.get("kind")
            is_place = all(value is None or isinstance(value, str) for value in place)
            if published_at is not None and expires_at is not None and is_place:
                return Manifest(slug, version, size, sha256, published_at, expires_at, *place)
    return UntrustedResponseError("What the vendor signed is not about a release.")
