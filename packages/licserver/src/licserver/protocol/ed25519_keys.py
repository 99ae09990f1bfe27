"""Ed25519 keys: made, read from PEM, named, shown to those who pin them, and used to sign.

Pure: bytes and text in, bytes and text out. No `repr`, message or name here carries anything of a private
key. A key's id is its RFC 7638 thumbprint, so that everybody who has the public key comes to the same id.
"""

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from hashlib import sha256
from typing import Final, Self

from nacl.bindings import crypto_sign, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import BadSignatureError

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
        if len(signature) != _SIGNATURE_BYTES:  # libsodium takes both as one
            return False
        try:
            crypto_sign_open(signature + message, self.raw)
        except BadSignatureError:
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
    _expanded: bytes = field(init=False, repr=False, compare=False)
    """The key as libsodium wants it."""

    def __post_init__(self) -> None:
        if len(self.seed) != KEY_BYTES:
            raise ValueError(f"an Ed25519 seed has {KEY_BYTES} bytes")
        public, expanded = crypto_sign_seed_keypair(self.seed)
        object.__setattr__(self, "public", PublicKey(public))
        object.__setattr__(self, "_expanded", expanded)

    @classmethod
    def generate(cls) -> Self:
        """Draw a new key."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def from_pem(cls, pem: bytes, source: str) -> Self:
        """Read what ``openssl genpkey -algorithm ed25519`` writes: PEM, PKCS#8, not encrypted.

        Args:
            pem: The file's bytes.
            source: Where they came from, for the message.

        Raises:
            WrongUse: naming `source`, and nothing of what stands in it, for anything else.
        """
        # Here, as in `vault`: who has no PEM to read or to write does not pay for it.
        from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415

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
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: PLC0415
        from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
            Encoding,
            NoEncryption,
            PrivateFormat,
        )

        key = Ed25519PrivateKey.from_private_bytes(self.seed)
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def sign(self, message: bytes) -> bytes:
        """Sign: 64 bytes (RFC 8032).

        By libsodium: it takes two thirds of OpenSSL's time for the very same bytes, and that is most of what
        a signed answer costs.
        """
        return crypto_sign(message, self._expanded)[:_SIGNATURE_BYTES]


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
