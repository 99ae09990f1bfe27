"""Ed25519 keys: made, read from PEM, named, shown to those who pin them, and used to sign.

Pure: bytes and text in, bytes and text out. No `repr`, message or name here carries anything of a private
key. A key's id is its RFC 7638 thumbprint, so that everybody who has the public key comes to the same id.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Final, Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from nacl.bindings import crypto_sign

from licserver.errors import WrongUse

KEY_BYTES: Final = 32
"""Bytes of a private key (its seed), and of a public one (RFC 8032)."""

PUBLIC_PREFIX: Final = "ed25519:"

_SIGNATURE_BYTES: Final = 64


@dataclass(frozen=True)
class PublicKey:
    """A public key.

    Args:
        raw: Its 32 bytes.
    """

    raw: bytes

    @classmethod
    def from_text(cls, text: str, source: str = "the public key") -> Self:
        """Read the form in which public keys are handed around.

        Args:
            text: ``ed25519:`` and the 32 bytes in base64url without padding.
            source: Where it came from, for the message.

        Raises:
            WrongUse: naming `source`, when it is nothing of the kind.
        """
        raw = _unpadded(text.removeprefix(PUBLIC_PREFIX)) if text.startswith(PUBLIC_PREFIX) else None
        if raw is None or len(raw) != KEY_BYTES:
            raise WrongUse(f"{source} must look like {PUBLIC_PREFIX} and 43 letters, digits, - and _")
        return cls(raw)

    @cached_property
    def text(self) -> str:
        """What an app pins; `from_text` reads it back."""
        return PUBLIC_PREFIX + _base64url(self.raw)

    @cached_property
    def id(self) -> str:
        """The RFC 7638 thumbprint of the key as a JWK (RFC 8037), base64url without padding."""
        jwk = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(self.raw)}
        return _base64url(sha256(json.dumps(jwk, separators=(",", ":"), sort_keys=True).encode()).digest())

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Tell whether the private half of this key signed `message`."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class PrivateKey:
    """A private key; its repr shows the public half only.

    Args:
        seed: The 32 bytes from which everything follows.

    Raises:
        ValueError: for any other number of bytes.
    """

    seed: bytes = field(repr=False)
    public: PublicKey = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "public", PublicKey(self._key.public_key().public_bytes_raw()))

    @classmethod
    def generate(cls) -> Self:
        """Draw a new key."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @classmethod
    def from_pem(cls, pem: bytes, source: str) -> Self:
        """Read what ``openssl genpkey -algorithm ed25519`` writes: PEM, PKCS#8, not encrypted.

        Args:
            pem: The file's bytes.
            source: Where they came from, for the message.

        Raises:
            WrongUse: naming `source`, and nothing of what stands in it, for anything else.
        """
        try:
            found = load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            found = None
        if not isinstance(found, Ed25519PrivateKey):
            raise WrongUse(
                f"{source} holds no unencrypted Ed25519 private key in PEM; "
                "make one with: openssl genpkey -algorithm ed25519"
            )
        return cls(found.private_bytes_raw())

    def to_pem(self) -> bytes:
        """Write what `from_pem` reads. A secret: for a file of mode 0600, and for nothing else."""
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, message: bytes) -> bytes:
        """Sign: 64 bytes (RFC 8032).

        By libsodium: it takes two thirds of OpenSSL's time for the very same bytes, and that is most of what
        a signed answer costs.
        """
        return crypto_sign(message, self._expanded)[:_SIGNATURE_BYTES]

    @cached_property
    def _expanded(self) -> bytes:
        """The key as libsodium wants it."""
        return self.seed + self.public.raw

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.seed)


@dataclass(frozen=True)
class SigningKey:
    """A key that signs answers, with the time of its life.

    Args:
        private: The key.
        added_at: Aware, UTC. Of the live ones the newest signs.
        retired_at: Since when it signs nothing any more; None while it is live.
    """

    private: PrivateKey
    added_at: datetime
    retired_at: datetime | None = None

    @property
    def id(self) -> str:
        """The id of the key."""
        return self.private.public.id


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unpadded(text: str) -> bytes | None:
    """Read base64url without padding; None for what is not exactly how `_base64url` writes it."""
    try:
        raw = urlsafe_b64decode(text + "==")  # what is too much of it does no harm
    except ValueError:
        return None
    return raw if _base64url(raw) == text else None
