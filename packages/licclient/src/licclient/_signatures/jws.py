"""Pure: what both kinds of JWS that the vendor signs with Ed25519 have in common (RFC 7515, RFC 8037)."""

import re
from base64 import urlsafe_b64decode
from datetime import datetime
from typing import Final

from licclient._protocol.responses import read_json_object
from licclient._records import read_instant
from licclient._signatures.public_keys import encode

_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")
_INSTANT: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def read_key_id(protected: str, typ: str) -> str:
    """Return the id of the key that a protected header names; empty for other kinds of signatures."""
    match read_json_object(decode(protected)):
        case {"alg": "EdDSA" | "Ed25519", "typ": found, "kid": str(kid), **more} if found == typ and not more:
            return kid
        case _:  # also extensions that would have to be understood (RFC 7515, 4.1.11)
            return ""


def read_utc(text: str) -> datetime | None:
    """Read an instant in UTC with whole seconds; None for anything else."""
    return read_instant(text) if _INSTANT.fullmatch(text) else None


def decode(text: str) -> bytes:
    """Decode base64url without padding; return nothing for anything else, such as bits that are left over."""
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        return b""
    raw = urlsafe_b64decode(text + "==")  # superfluous padding is ignored
    return raw if encode(raw) == text else b""
