"""Ed25519 public keys that an app pins: their text and id, and checking a signature."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from licclient._core.foreign import is_failure
from licclient._core.lazy import lazy

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ed25519
else:
    ed25519 = lazy("cryptography.hazmat.primitives.asymmetric.ed25519")

KEY_BYTES: Final = 32
"""Bytes of a public key (RFC 8032)."""

PREFIX: Final = "ed25519:"


@dataclass(frozen=True)
class PublicKey:
    """A pinned key of 32 bytes; `read_public_key` parses one."""

    raw: bytes

    @cached_property
    def text(self) -> str:
        """As `read_public_key` parses it."""
        return PREFIX + encode(self.raw)

    @cached_property
    def id(self) -> str:
        """The RFC 7638 thumbprint of the key as a JWK (RFC 8037), base64url without padding."""
        jwk = {"crv": "Ed25519", "kty": "OKP", "x": encode(self.raw)}
        return encode(sha256(json.dumps(jwk, separators=(",", ":"), sort_keys=True).encode()).digest())

    def verify(self, signature: bytes, message: bytes) -> bool:
        """Return whether the private half of this key signed `message`.

        Raise only what keeps the library from being loaded: that shows nothing about the signature.
        """
        ed25519.Ed25519PublicKey  # noqa: B018 - loads it
        try:
            _verify(self.raw, signature, message)
        except ImportError:
            raise
        except BaseException as problem:
            if is_failure(problem):
                return False
            raise
        return True


def _verify(raw: bytes, signature: bytes, message: bytes) -> None:
    """Raise whatever the library raises for a signature that is wrong."""
    # Imported here: an extra, and 15 ms that a start without pinned keys does not need.
    ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(signature, message)


def read_public_key(text: str, argument: str = "public_keys") -> PublicKey:
    """Parse `ed25519:` and 32 bytes in base64url without padding; else raise `TypeError` or `ValueError`.

    The message names the argument, and not its value: it may be a private key.
    """
    if not isinstance(text, str):
        raise TypeError(f"{argument} must hold strings, not {type(text).__name__}")
    encoded = text.removeprefix(PREFIX)
    try:
        raw = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
    except ValueError:
        raw = b""
    if len(raw) != KEY_BYTES or text != PREFIX + encode(raw):  # one key has one text
        raise ValueError(
            f"{argument} must hold public keys as licserver prints them:"
            f" {PREFIX} and 43 letters, digits, - and _"
        )
    return PublicKey(raw)


def require_library(argument: str) -> None:
    """Raise `ImportError` if the library for signatures, which this argument needs, is not installed."""
    if find_spec("cryptography") is None:
        raise ImportError(
            f"{argument} needs an Ed25519 library: pip install 'licclient[signed]'", name="cryptography"
        )


def encode(raw: bytes) -> str:
    """Encode as base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()
