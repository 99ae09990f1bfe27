"""Release manifests: the vendor's signed statement about a file (D-67). Pure.

A manifest is a JWS in the general JSON serialization (RFC 7515, 7.2.1) with Ed25519 signatures (RFC 8037).
The server stores manifests and need not know the keys. joserfc is the oracle of the tests: here it would
replace three lines, load 14 MiB in each server process, and accept base64url that is not canonical.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import SIGNATURE_BYTES, PrivateKey, from_base64url, to_base64url
from licserver.protocol.file_signatures import FileSignatures, read_signatures

TYPE: Final = "release-manifest+json"
"""The `typ` of every signature, so that other documents signed with the key are not taken for manifests."""

ALGORITHMS: Final = ("EdDSA", "Ed25519")
"""Two names of the same algorithm (RFC 8037, RFC 9864). The first is written: all libraries know it."""

MAX_DOCUMENT: Final = 2048  # bytes; a third more in the header, and proxies allow 4 KiB for all headers
VALID_FOR: Final = timedelta(days=180)  # the default from publication to expiry (D-68)
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_FILES: Final = "file_signatures"  # the member of a document with file signatures
_PLACE: Final = {name: f"; sign the file again with this {name}" for name in ("platform", "kind")}
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Manifest:
    """The signed content; instants are in whole seconds.

    `platform` (empty: all) and `kind` are those of the file; None in a manifest that was signed before they
    were part of it, which may be of a file for any platform (D-406).
    """

    slug: str
    version: str
    size: int
    sha256: bytes
    published_at: datetime
    expires_at: datetime
    platform: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class SignedManifest:
    """A parsed document: its content, the ids of its keys, and its shortest form.

    `files` are signatures of the file itself, by the first key, for updaters without manifests.
    """

    manifest: Manifest
    key_ids: tuple[str, ...]
    document: str
    files: FileSignatures | None = None

    @property
    def file_signatures(self) -> str | None:
        """The signatures of the file as stored."""
        return None if self.files is None else self.files.document

    @property
    def text(self) -> str:
        """The document with the signatures of the file, which other readers of a JWS ignore."""
        if self.files is None:
            return self.document
        return _compact(json.loads(self.document) | {_FILES: asdict(self.files)}).decode()


FileSigner = Callable[[Manifest], FileSignatures]
"""A function that signs the file of a release."""

ManifestSigner = Callable[[Manifest], SignedManifest]
"""A function that returns the signed manifest of a new release, or raises `InvalidInputError`."""


def sign_with_keys(
    keys: Sequence[PrivateKey], valid_for: timedelta = VALID_FOR, sign_file: FileSigner | None = None
) -> ManifestSigner:
    """Return a signer with private keys; manifests are valid for `valid_for` from the publication."""

    def signer(manifest: Manifest) -> SignedManifest:
        signed = sign(replace(manifest, expires_at=manifest.published_at + valid_for), keys)
        return signed if sign_file is None else replace(signed, files=sign_file(manifest))

    return signer


def use_signed(document: str) -> ManifestSigner:
    """Return a signer that returns an existing manifest, if it matches the release."""
    signed = read(document)

    def signer(expected: Manifest) -> SignedManifest:
        actual = signed.manifest
        for name in ("slug", "version", "size", "sha256", *_PLACE):
            is_signed = name not in _PLACE or getattr(actual, name) is not None
            if is_signed and getattr(actual, name) != getattr(expected, name):
                raise InvalidInputError(
                    f"the manifest is for another release: its {name} is {_format(getattr(actual, name))}, "
                    f"expected {_format(getattr(expected, name))}{_PLACE.get(name, '')}"
                )
        if actual.expires_at <= expected.published_at:
            raise InvalidInputError(
                f"the manifest expired at {_format(actual.expires_at)}; sign the file again"
            )
        return signed

    return signer


def sign(manifest: Manifest, keys: Sequence[PrivateKey]) -> SignedManifest:
    """Sign a manifest."""
    if manifest.expires_at <= manifest.published_at:
        raise InvalidInputError("a manifest must expire after its publication")
    content = {
        "slug": manifest.slug,
        "version": manifest.version,
        "size": manifest.size,
        "sha256": manifest.sha256.hex(),
        "published_at": _format(manifest.published_at),
        "expires_at": _format(manifest.expires_at),
        **{name: value for name in _PLACE if (value := getattr(manifest, name)) is not None},
    }
    payload = to_base64url(_compact(content))
    signatures = [_sign_payload(payload, key) for key in keys]
    return read(_compact({"payload": payload, "signatures": signatures}).decode())


def add_signature(signed: SignedManifest, key: PrivateKey) -> SignedManifest:
    """Add the signature of another key; skip a key that has signed already."""
    jws = json.loads(signed.text)
    if key.public.id not in signed.key_ids:
        jws["signatures"].append(_sign_payload(jws["payload"], key))
    return read(_compact(jws).decode())


def read(document: str) -> SignedManifest:
    """Parse a document of any JWS library, without verifying its signatures."""
    try:
        jws = _object(json.loads(document))
        payload, signatures = jws["payload"], jws["signatures"]
        signed_parts = [
            {name: signature[name] for name in ("protected", "signature")} for signature in signatures
        ]
        key_ids = tuple(map(_read_signature, signed_parts))
        manifest = _read_content(_object(json.loads(from_base64url(payload))))
        files = read_signatures(jws.get(_FILES))
        if files is None and _FILES in jws:
            raise _ManifestError("its file_signatures are not those of `licserver release sign`")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f": {error}" if isinstance(error, _ManifestError) else ""
        raise InvalidInputError(f"not a signed release manifest{reason}") from None
    if not key_ids:
        raise InvalidInputError("the manifest has no signature")
    shortest = _compact({"payload": payload, "signatures": signed_parts}).decode()
    if len(shortest) > MAX_DOCUMENT:
        raise InvalidInputError(
            f"the manifest has {len(shortest)} bytes, and a header takes {MAX_DOCUMENT}: "
            "sign it with fewer keys"
        )
    return SignedManifest(manifest, key_ids, shortest, files)


def to_header(document: str) -> str:
    """Encode a document for the header `Release-Manifest`."""
    return to_base64url(document.encode())


class _ManifestError(ValueError):
    """Error of a document; the message is for the vendor."""


def _sign_payload(payload: str, key: PrivateKey) -> dict[str, str]:
    protected = to_base64url(_compact({"alg": ALGORITHMS[0], "kid": key.public.id, "typ": TYPE}))
    return {"protected": protected, "signature": to_base64url(key.sign(f"{protected}.{payload}".encode()))}


def _read_signature(signature: dict[str, Any]) -> str:
    """Validate the header of a signature; return the key's id."""
    head = _object(json.loads(from_base64url(signature["protected"])))
    if head.get("alg") not in ALGORITHMS:
        raise _ManifestError(f"its alg must be {ALGORITHMS[0]}")
    if head.get("typ") != TYPE:
        raise _ManifestError(f"its typ must be {TYPE}")
    if "crit" in head or "b64" in head:
        raise _ManifestError("it requires extensions")
    key_id = head.get("kid")
    if not isinstance(key_id, str):
        raise _ManifestError("it has no kid")
    if len(from_base64url(signature["signature"])) != SIGNATURE_BYTES:
        raise _ManifestError("a signature is not an Ed25519 signature")
    return key_id


def _read_content(content: dict[str, Any]) -> Manifest:
    match content:
        case {
            "slug": str(slug),
            "version": str(version),
            "size": int(size),
            "sha256": str(sha256),
            "published_at": str(published),
            "expires_at": str(expires),
        } if not isinstance(content["size"], bool) and size >= 0 and _SHA256.fullmatch(sha256):
            instants = (_read_instant(published), _read_instant(expires))
            place = {name: content[name] for name in _PLACE if name in content}
            if not all(isinstance(value, str) for value in place.values()):
                raise _ManifestError("its platform and kind must be texts")
            return Manifest(slug, version, size, bytes.fromhex(sha256), *instants, **place)
        case _:
            raise _ManifestError("it must have slug, version, size, sha256, published_at and expires_at")


def _read_instant(text: str) -> datetime:
    if _INSTANT.fullmatch(text) is None:
        raise _ManifestError("its times must look like 2026-06-15T12:00:00Z")
    return datetime.fromisoformat(text)


def _format(value: Any) -> str:
    match value:
        case datetime():
            return f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"
        case bytes():
            return value.hex()
        case _:
            return repr(value)


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _ManifestError("not a JSON object")
    return value


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
