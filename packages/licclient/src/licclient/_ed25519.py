"""Public Ed25519 keys that an app pins: their text, their ids, and whether one signed something.

Only checking a signature needs a library, the extra `licclient[signed]`; it is imported then and not before.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from typing import Final

KEY_BYTES: Final = 32
"""Bytes of a public key (RFC 8032)."""

PREFIX: Final = "ed25519:"


@dataclass(frozen=True)
class PublicKey:
    """A pinned key; `read_public_key` makes one of its text.

    Attributes:
        raw: Its 32 bytes.
    """

    raw: bytes

    @cached_property
    def text(self) -> str:
        """What `read_public_key` reads."""
        return PREFIX + _base64url(self.raw)

    @cached_property
    def id(self) -> str:
        """The RFC 7638 thumbprint of the key as a JWK (RFC 8037), base64url without padding."""
        jwk = {"crv": "Ed25519", "kty": "OKP", "x": _base64url(self.raw)}
        return _base64url(sha256(json.dumps(jwk, separators=(",", ":"), sort_keys=True).encode()).digest())

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Tell whether the private half of this key signed `message`; anything odd is False."""
        from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - 15 ms, and an extra
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # noqa: PLC0415

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def read_public_key(text: str) -> PublicKey:
    """Read a public key as the vendor's tools print it.

    Args:
        text: `ed25519:` and the 32 bytes in base64url without padding.

    Raises:
        TypeError: Not a string.
        ValueError: Anything else that is not such a key.
    """
    if not isinstance(text, str):
        raise TypeError(f"a public key is a string, not {type(text).__name__}")
    raw = _unpadded(text.removeprefix(PREFIX)) if text.startswith(PREFIX) else None
    if raw is None or len(raw) != KEY_BYTES:
        raise ValueError(
            f"a public key looks like {PREFIX} and 43 letters, digits, - and _, as licserver prints it"
        )
    return PublicKey(raw)


def demand_library(argument: str) -> None:
    """Make sure, without loading it, that signatures can be checked at all.

    Args:
        argument: The constructor's argument that needs it, for the message.

    Raises:
        ImportError: The extra is not installed.
    """
    if find_spec("cryptography") is None:
        raise ImportError(
            f"{argument} needs an Ed25519 library: pip install 'licclient[signed]'", name="cryptography"
        )


def _base64url(raw: bytes) -> str:
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unpadded(text: str) -> bytes | None:
    """Read base64url without padding; None for what is not exactly how `_base64url` writes it."""
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except ValueError:
        return None
    return raw if _base64url(raw) == text else None
