"""Ed25519 keys: generate, parse, format and sign. Pure.

No `repr` and no message contains anything of a private key. A key's id is its RFC 7638 thumbprint,
which follows from the public key.
"""

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Final, Self

from nacl.bindings import crypto_sign, crypto_sign_seed_keypair

from licserver import libraries
from licserver.errors import InvalidInputError

KEY_BYTES: Final = 32  # bytes of a private key (its seed), and of a public key (RFC 8032)
SIGNATURE_BYTES: Final = 64
PUBLIC_PREFIX: Final = "ed25519:"


def to_base64url(raw: bytes) -> str:
    """Encode as base64url without padding (RFC 7515)."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def from_base64url(text: str) -> bytes:
    """Decode base64url without padding; raise `ValueError` for text that is not canonical."""
    raw = urlsafe_b64decode(text + "==")  # ignores surplus padding
    if to_base64url(raw) != text:
        raise ValueError  # only the canonical text is accepted
    return raw


@dataclass(frozen=True)
class PublicKey:
    """A public key of 32 bytes."""

    raw: bytes

    @cached_property
    def text(self) -> str:
        """The key as text, which apps pin."""
        return PUBLIC_PREFIX + to_base64url(self.raw)

    @cached_property
    def id(self) -> str:
        """The RFC 7638 thumbprint of the key as a JWK (RFC 8037)."""
        jwk = {"crv": "Ed25519", "kty": "OKP", "x": to_base64url(self.raw)}
        return to_base64url(sha256(json.dumps(jwk, separators=(",", ":"), sort_keys=True).encode()).digest())


@dataclass(frozen=True)
class PrivateKey:
    """A private key, from its seed of 32 bytes; the repr shows the public key only."""

    seed: bytes = field(repr=False)
    public: PublicKey = field(init=False)
    _expanded: bytes = field(init=False, repr=False, compare=False)
    """The key as libsodium expects it."""

    def __post_init__(self) -> None:
        if len(self.seed) != KEY_BYTES:
            raise ValueError(f"an Ed25519 seed has {KEY_BYTES} bytes")
        public, expanded = crypto_sign_seed_keypair(self.seed)
        object.__setattr__(self, "public", PublicKey(public))
        object.__setattr__(self, "_expanded", expanded)

    @classmethod
    def generate(cls) -> Self:
        """Generate a key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_pem(cls, pem: bytes, source: str) -> Self:
        """Parse PKCS#8, as ``openssl genpkey -algorithm ed25519`` writes it."""
        try:
            key = libraries.serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError, libraries.cryptography_exceptions.UnsupportedAlgorithm):
            key = None
        if not isinstance(key, libraries.ed25519.Ed25519PrivateKey):
            raise InvalidInputError(
                f"{source} is not an unencrypted Ed25519 private key in PEM; "
                "generate one with: openssl genpkey -algorithm ed25519"
            )
        return cls(key.private_bytes_raw())

    def to_pem(self) -> bytes:
        """Return the secret PEM that `from_pem` reads; write it to a file of mode 0600 only."""
        serialization = libraries.serialization
        return libraries.ed25519.Ed25519PrivateKey.from_private_bytes(self.seed).private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def sign(self, message: bytes) -> bytes:
        """Return a signature of 64 bytes (RFC 8032); libsodium takes two thirds of OpenSSL's time."""
        return crypto_sign(message, self._expanded)[:SIGNATURE_BYTES]


@dataclass(frozen=True)
class SigningKey:
    """A key that signs responses until `retired_at`; of several, the newest signs."""

    private: PrivateKey
    added_at: datetime
    retired_at: datetime | None = None

    @property
    def id(self) -> str:
        """The id of the public key."""
        return self.private.public.id
