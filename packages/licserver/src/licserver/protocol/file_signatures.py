"""Signatures of a file itself, for updaters without manifests: Sparkle and Tauri. Pure.

Sparkle checks Ed25519 over the bytes of the file. Tauri checks minisign's format: Ed25519 over the
BLAKE2b-512 of the file, in a text with a trusted comment, which is signed as well.
"""

import json
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from licserver.domain.versions import parse_version
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import SIGNATURE_BYTES, PrivateKey, PublicKey

MAX_COMMENT: Final = 400  # characters of a trusted comment
_KEY_ID_BYTES: Final = 8
_KEY: Final = b"Ed"  # minisign's name of its algorithm in a public key
_PREHASHED: Final = b"ED"  # and in the signature of a digest

_LENGTHS: Final = [SIGNATURE_BYTES, len(_PREHASHED) + _KEY_ID_BYTES + SIGNATURE_BYTES, SIGNATURE_BYTES]
_TRUSTED: Final = "trusted comment: "
_MINISIGN: Final = re.compile(
    rf"untrusted comment: [ -~]{{0,100}}\n([A-Za-z0-9+/]+=*)\n{_TRUSTED}([^\r\n]{{1,{MAX_COMMENT}}})\n"
    r"([A-Za-z0-9+/]+=*)\n"
)

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_SEMANTIC: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-[0-9A-Za-z.-]+)?")
_KINDS: Final = {"a": "alpha", "b": "beta", "rc": "rc"}
_PARTS: Final = 3  # of a semantic version


@dataclass(frozen=True, slots=True)
class FileSignatures:
    """Both signatures by one key: base64 for Sparkle, and the text of a `.minisig` file."""

    sparkle: str
    minisign: str

    @property
    def document(self) -> str:
        """The JSON that the database stores with a release."""
        return json.dumps({"sparkle": self.sparkle, "minisign": self.minisign}, separators=(",", ":"))

    @property
    def tauri(self) -> str:
        """The signature for Tauri: base64 of the whole text."""
        return b64encode(self.minisign.encode()).decode()


def read_signatures(value: Any) -> FileSignatures | None:
    """Parse the file signatures of `release sign`, without verifying them; None for other values."""
    match value:
        case {"sparkle": str(sparkle), "minisign": str(minisign)} if parts := _MINISIGN.fullmatch(minisign):
            try:
                lengths = [len(b64decode(text, validate=True)) for text in (sparkle, *parts.group(1, 3))]
            except ValueError:
                return None
            return FileSignatures(sparkle, minisign) if lengths == _LENGTHS else None
    return None


def stored_signatures(document: str | None) -> FileSignatures | None:
    """Parse the JSON that the database stores with a release."""
    return None if document is None else FileSignatures(**json.loads(document))


def sign_digest(key: PrivateKey, of_content: bytes, blake2b: bytes, comment: str) -> FileSignatures:
    """Sign a file, given the same key's signature of its content, and its BLAKE2b-512."""
    key_id, signature = _key_id(key.public), key.sign(blake2b)
    whole = key.sign(signature + comment.encode())
    minisign = (
        f"untrusted comment: signature from key {_name(key_id)}\n"
        f"{_base64(_PREHASHED + key_id + signature)}\n{_TRUSTED}{comment}\n{_base64(whole)}\n"
    )
    return FileSignatures(_base64(of_content), minisign)


def to_semantic(version: str) -> str | None:
    """Return a version as a semantic version; None if the order would differ.

    `1.5` is `1.5.0`, and `1.5b2` is `1.5.0-beta.2`. Post-releases, development releases, local versions,
    epochs and a fourth number have no counterpart.
    """
    parsed = parse_version(version)
    if parsed is None or parsed.epoch or parsed.is_postrelease or parsed.is_devrelease or parsed.local:
        return None
    if len(parsed.release) > _PARTS:
        return None
    if _SEMANTIC.fullmatch(version):
        return version
    numbers = (*parsed.release, 0, 0)[:_PARTS]
    semantic = ".".join(map(str, numbers))
    return semantic if parsed.pre is None else f"{semantic}-{_KINDS[parsed.pre[0]]}.{parsed.pre[1]}"


def trusted_comment(at: datetime, file_name: str, version: str) -> str:
    """Format a comment as the Tauri CLI does: an app may insist on the version in it."""
    name = "".join(character if character.isprintable() else "_" for character in file_name)[:200]
    return f"timestamp:{int(at.timestamp())}\tfile:{name}\tversion:{to_semantic(version) or version}"


def _minisign_key(key: PublicKey) -> str:
    return _base64(_KEY + _key_id(key) + key.raw)


def _tauri_key(key: PublicKey) -> str:
    file = f"untrusted comment: minisign public key {_name(_key_id(key))}\n{_minisign_key(key)}\n"
    return _base64(file.encode())


PUBLIC_KEY_FORMS: Final[Mapping[str, Callable[[PublicKey], str]]] = {
    "licclient": lambda key: key.text,
    "sparkle": lambda key: _base64(key.raw),
    "tauri": _tauri_key,
    "minisign": _minisign_key,
}
"""Formats of the public key that apps pin: `SUPublicEDKey`, Tauri's `pubkey`, `minisign -P`."""


def check_start(start: bytes) -> None:
    """Refuse a file that could pass for a manifest: Sparkle's signature is over the unchanged bytes.

    The signed bytes of a manifest begin with the base64url of a JSON object.
    """
    if start.startswith(b"eyJ"):
        raise InvalidInputError("a file that begins with eyJ cannot be signed: it could be a manifest")


def _key_id(key: PublicKey) -> bytes:
    return sha256(key.raw).digest()[:_KEY_ID_BYTES]


def _name(key_id: bytes) -> str:
    """Return a key's id as minisign prints it."""
    return f"{int.from_bytes(key_id, 'little'):016X}"


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()
