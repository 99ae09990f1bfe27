"""Pure: is this update the one that the vendor signed, is it still meant to be, and is it no step back.

A manifest is a JWS in the general JSON serialisation (RFC 7515, 7.2.1), signed with Ed25519 (RFC 8037); an
answer carries it as one word, base64url. What it says is read only after a pinned key was found to have
signed it, and only what it says is believed about the file (D-67, D-68).
"""

import json
import re
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from licclient._ed25519 import PublicKey
from licclient._model import Manifest
from licclient.errors import UntrustedResponseError

TYPE: Final = "release-manifest+json"
"""The `typ` of every signature: nothing else that such a key may have signed is taken for a manifest."""

MAX_HEADER: Final = 8192
"""Longest manifest that is looked at; a real one has less than a third of it. Bounds the signatures, too."""

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_MAX_SIZE: Final = 10**15


def judge_manifest(
    header: str | None,
    slug: str,
    version: str,
    keys: Sequence[PublicKey],
    highest: str | None,
    now: datetime,
) -> Manifest | UntrustedResponseError:
    """Decide whether a version may be offered, or a file downloaded.

    Args:
        header: What the answer carried; None when it carried nothing.
        slug: The product that was asked about.
        version: The version that the answer tells.
        keys: All that are pinned; one of them must have signed.
        highest: The highest version ever found to be signed for this product, or None.
        now: Aware, UTC, by the clock of this computer.

    Returns:
        What the vendor signed, or why it is not enough.
    """
    manifest = read_manifest(header, keys)
    if isinstance(manifest, UntrustedResponseError):
        return manifest
    if (manifest.slug, manifest.version) != (slug, version):
        return UntrustedResponseError("The vendor signed another version than the service tells.")
    if now >= manifest.expires_at:
        until = f"{manifest.expires_at:%Y-%m-%d %H:%M} UTC"
        return UntrustedResponseError(
            f"The vendor signed this version until {until}: the service shows an old answer, the vendor has"
            " not renewed it, or the clock of this computer is wrong."
        )
    if not is_at_least(version, version):
        # Never offered (D-47); remembered as the highest, it would be above everything that comes later.
        return UntrustedResponseError("The vendor signed a version that cannot be compared with others.")
    if highest is not None and not is_at_least(version, highest):
        return UntrustedResponseError("A higher version than this one was signed before.")
    return manifest


def read_manifest(header: str | None, keys: Sequence[PublicKey]) -> Manifest | UntrustedResponseError:
    """Find out what a pinned key signed; arguments as for `judge_manifest`."""
    if header is None:
        return UntrustedResponseError("The answer carries no manifest signed by the vendor.")
    document = _object(_bytes(header)) if len(header) <= MAX_HEADER else {}
    match document:
        case {"payload": str(payload), "signatures": list(signatures)}:
            pass
        case _:
            return UntrustedResponseError("The manifest cannot be read.")
    known = {key.id: key for key in keys}
    for signature in signatures:
        match signature:
            case {"protected": str(protected), "signature": str(raw)}:
                key = known.get(_signer(protected))
            case _:
                continue
        if key is not None and key.verify(_bytes(raw), f"{protected}.{payload}".encode()):
            return _read_said(payload)
    return UntrustedResponseError("No pinned key has signed the manifest.")


def is_at_least(version: str, other: str) -> bool:
    """Compare two versions by PEP 440; False when either cannot be read."""
    from packaging.version import Version  # noqa: PLC0415 - not needed by most starts

    try:
        return Version(version) >= Version(other)
    except ValueError:  # also Python's own, for a number of thousands of digits
        return False


def _signer(protected: str) -> str:
    """Return the id of the key by which a signature claims to be; empty for other kinds of signatures."""
    match _object(_bytes(protected)):
        case {"alg": "EdDSA" | "Ed25519", "typ": told, "kid": str(kid), **more} if told == TYPE and not more:
            return kid
        case _:  # also extensions that would have to be understood (RFC 7515, 4.1.11)
            return ""


def _read_said(payload: str) -> Manifest | UntrustedResponseError:
    match _object(_bytes(payload)):
        case {
            "slug": str(slug),
            "version": str(version),
            "size": int(size),
            "sha256": str(sha256),
            "published_at": str(published),
            "expires_at": str(expires),
        } if type(size) is int and 0 <= size <= _MAX_SIZE and _SHA256.fullmatch(sha256):
            published_at, expires_at = _instant(published), _instant(expires)
            if published_at is not None and expires_at is not None:
                return Manifest(slug, version, size, sha256, published_at, expires_at)
    return UntrustedResponseError("What the vendor signed is not about a release.")


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if _INSTANT.fullmatch(text) else None
    except ValueError:
        return None


def _object(raw: bytes) -> dict[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _bytes(text: str) -> bytes:
    """Read base64url without padding; nothing when it is none."""
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        return b""
    return urlsafe_b64decode(text + "==")  # what is too much of it does no harm
