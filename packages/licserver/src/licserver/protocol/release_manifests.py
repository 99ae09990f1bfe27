"""Release manifests: what a vendor vouches for, signed with keys that the server need not hold. Pure.

A manifest is a JWS in the general JSON serialisation (RFC 7515, 7.2.1), signed with Ed25519 (RFC 8037) by one
key or several. Any JWS library reads and writes it; `licserver release sign` is only the shortest way (D-67).
"""

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from licserver.errors import WrongUse
from licserver.protocol.ed25519_keys import PrivateKey

TYPE: Final = "release-manifest+json"
"""The `typ` of every signature: nothing else that such a key may have signed is taken for a manifest."""

ALGORITHMS: Final = ("EdDSA", "Ed25519")
"""How RFC 8037 and RFC 9864 name the same thing. The first is written, because every library knows it."""

MAX_DOCUMENT: Final = 2048
"""Bytes of a document: as a header it has a third more, and proxies give all headers 4 KiB together."""

VALID_FOR: Final = timedelta(days=180)
"""How long a manifest is good unless the vendor says otherwise."""

_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_SIGNATURE_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class Manifest:
    """What is signed: this file is this version of this product.

    Args:
        slug: The product's.
        version: As published, to the letter.
        size: Of the file, in bytes.
        sha256: Of the file, 32 bytes.
        published_at: When the vendor signed it for publication; whole seconds count.
        expires_at: From when on clients believe it no more; whole seconds count.
    """

    slug: str
    version: str
    size: int
    sha256: bytes
    published_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class SignedManifest:
    """A document that was read: what it says, who signed it, and the document in its shortest form."""

    manifest: Manifest
    key_ids: tuple[str, ...]
    document: str


Sealer = Callable[[Manifest], SignedManifest]
"""Turns what is to be said of a release into a signed document, or says why it cannot be (`WrongUse`)."""


def sealed_by_keys(keys: Sequence[PrivateKey], valid_for: timedelta = VALID_FOR) -> Sealer:
    """Sign here and now; the manifest is good for `valid_for` from `published_at` on."""

    def seal(wanted: Manifest) -> SignedManifest:
        return sign(replace(wanted, expires_at=wanted.published_at + valid_for), keys)

    return seal


def sealed_before(document: str) -> Sealer:
    """Take what was signed elsewhere, if it says what is so.

    Who signed it is for clients to judge: the server need not even know the public key.
    """
    found = read(document)

    def seal(wanted: Manifest) -> SignedManifest:
        told = found.manifest
        for name in ("slug", "version", "size", "sha256"):
            if getattr(told, name) != getattr(wanted, name):
                raise WrongUse(
                    f"the manifest is for another release: its {name} is {_shown(getattr(told, name))} "
                    f"and should be {_shown(getattr(wanted, name))}"
                )
        if told.expires_at <= wanted.published_at:
            raise WrongUse(f"the manifest expired at {_write_instant(told.expires_at)}; sign the file again")
        return found

    return seal


def sign(manifest: Manifest, keys: Sequence[PrivateKey]) -> SignedManifest:
    """Sign a manifest.

    Raises:
        WrongUse: when it is too long for a header, or its end is not after its beginning.
    """
    if manifest.expires_at <= manifest.published_at:
        raise WrongUse("a manifest must be good for some time")
    said = {
        "slug": manifest.slug,
        "version": manifest.version,
        "size": manifest.size,
        "sha256": manifest.sha256.hex(),
        "published_at": _write_instant(manifest.published_at),
        "expires_at": _write_instant(manifest.expires_at),
    }
    payload = _base64url(_compact(said))
    return read(
        _compact({"payload": payload, "signatures": [_signature(payload, key) for key in keys]}).decode()
    )


def add_signature(signed: SignedManifest, key: PrivateKey) -> SignedManifest:
    """Sign what others have signed, with one more key; who has signed already does not sign twice."""
    held = json.loads(signed.document)
    if key.public.id not in signed.key_ids:
        held["signatures"].append(_signature(held["payload"], key))
    return read(_compact(held).decode())


def read(document: str) -> SignedManifest:
    """Read a document, whichever library wrote it.

    Raises:
        WrongUse: saying what is wrong with it.
    """
    try:
        held = _object(json.loads(document))
        payload, signatures = held["payload"], held["signatures"]
        kept = [{name: one[name] for name in ("protected", "signature")} for one in signatures]
        key_ids = tuple(map(_read_signature, kept))
        manifest = _read_said(_object(json.loads(_unpadded(payload))))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        why = f": {problem}" if isinstance(problem, _Flaw) else ""
        raise WrongUse(f"this is no signed release manifest{why}") from None
    if not key_ids:
        raise WrongUse("nobody has signed this manifest")
    shortest = _compact({"payload": payload, "signatures": kept}).decode()
    if len(shortest) > MAX_DOCUMENT:
        raise WrongUse(
            f"the manifest has {len(shortest)} bytes and goes into a header with at most {MAX_DOCUMENT}: "
            "sign it with fewer keys"
        )
    return SignedManifest(manifest, key_ids, shortest)


def to_header(document: str) -> str:
    """Write a document as the one word of a header: base64url without padding."""
    return _base64url(document.encode())


# --- the parts --------------------------------------------------------------------------------


class _Flaw(ValueError):
    """What is wrong with a document."""


def _signature(payload: str, key: PrivateKey) -> dict[str, str]:
    protected = _base64url(_compact({"alg": ALGORITHMS[0], "kid": key.public.id, "typ": TYPE}))
    return {"protected": protected, "signature": _base64url(key.sign(f"{protected}.{payload}".encode()))}


def _read_signature(one: dict[str, Any]) -> str:
    head = _object(json.loads(_unpadded(one["protected"])))
    if head.get("alg") not in ALGORITHMS:
        raise _Flaw(f"its algorithm must be {ALGORITHMS[0]}")
    if head.get("typ") != TYPE:
        raise _Flaw(f"its typ must be {TYPE}")
    if "crit" in head or "b64" in head:
        raise _Flaw("it asks for extensions")
    if not isinstance(head.get("kid"), str):
        raise _Flaw("its kid is missing")
    if len(_unpadded(one["signature"])) != _SIGNATURE_BYTES:
        raise _Flaw("a signature is not one of Ed25519")
    kid: str = head["kid"]
    return kid


def _read_said(said: dict[str, Any]) -> Manifest:
    match said:
        case {
            "slug": str(slug),
            "version": str(version),
            "size": int(size),
            "sha256": str(sha256),
            "published_at": str(published),
            "expires_at": str(expires),
        } if not isinstance(said["size"], bool) and size >= 0 and _SHA256.fullmatch(sha256):
            return Manifest(
                slug, version, size, bytes.fromhex(sha256), _read_instant(published), _read_instant(expires)
            )
        case _:
            raise _Flaw("it must say slug, version, size, sha256, published_at and expires_at")


def _read_instant(text: str) -> datetime:
    if _INSTANT.fullmatch(text) is None:
        raise _Flaw("an instant looks like 2026-06-15T12:00:00Z")
    return datetime.fromisoformat(text)


def _write_instant(instant: datetime) -> str:
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Flaw("it is no JSON object")
    return value


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unpadded(text: str) -> bytes:
    raw = urlsafe_b64decode(text + "==")  # what is too much of it does no harm
    if _base64url(raw) != text:
        raise _Flaw("its base64url is not in order")
    return raw
