"""Shared by the signatures of all shops."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

MAX_SIGNATURES: Final = 20  # in one header; two are usual while a secret is replaced
_MAX_DIGITS: Final = 11  # of a timestamp in seconds


def has_signed(message: bytes, signatures: Iterable[bytes], keys: Iterable[bytes]) -> bool:
    """Return whether one of the signatures is the HMAC-SHA256 of the message by one of the keys."""
    expected = [hmac.digest(key, message, hashlib.sha256) for key in keys]
    # All are compared, so that the time does not depend on which one matches.
    matches = [hmac.compare_digest(signature, sent) for signature in expected for sent in signatures]
    return any(matches)


def encode_keys(secrets: Iterable[str]) -> list[bytes]:
    """Return secrets whose whole text is the key."""
    return [secret.encode() for secret in secrets if secret]


def from_hex(text: str) -> bytes:
    """Return the bytes of a signature in hexadecimal; none if it is malformed."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        return b""


def from_base64(text: str) -> bytes:
    """Return the bytes of a signature in base64; none if it is malformed."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def split_fields(header: str, separator: str) -> dict[str, list[str]]:
    """Return the values of a header like ``t=1,v1=a,v1=b`` by their names."""
    fields: dict[str, list[str]] = {}
    for part in header.split(separator)[:MAX_SIGNATURES]:
        name, _, value = part.strip().partition("=")
        fields.setdefault(name, []).append(value)
    return fields


def is_recent(timestamp: str, now: datetime, tolerance: timedelta) -> bool:
    """Return whether a timestamp in seconds is at most `tolerance` old, and at most so far ahead."""
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= _MAX_DIGITS):
        return False
    return abs(now.timestamp() - int(timestamp)) <= tolerance.total_seconds()
