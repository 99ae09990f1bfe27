"""Time-based one-time passwords as a second factor (RFC 6238): six digits, every 30 seconds. Pure."""

import hmac
import re
import secrets
from base64 import b32encode
from datetime import datetime
from typing import Final

from licserver import libraries

SECONDS: Final = 30
_CODE: Final = re.compile(r"[0-9]{6}")
_RECOVERY_BYTES: Final = 15
_RECOVERY_GROUP: Final = 4


def generate_secret() -> str:
    """Return a new secret: 160 bits in base32, as authenticator apps take it."""
    return libraries.pyotp.random_base32()


def enrolment_uri(secret: str, user: str, issuer: str) -> str:
    """Return the ``otpauth:`` address for a QR code."""
    return _totp(secret).provisioning_uri(name=user, issuer_name=issuer)


def find_step(secret: str, typed: str, now: datetime, last_step: int) -> int | None:
    """Return the time step of a code; None if the code is wrong or not newer than `last_step`.

    The steps before and after `now` are accepted, because clocks differ (RFC 6238 5.2). Spaces are ignored:
    apps show two groups of three digits.
    """
    code = "".join(typed.split())
    if _CODE.fullmatch(code) is None:
        return None
    totp, current = _totp(secret), int(now.timestamp()) // SECONDS
    matching_step = None
    for step in (current - 1, current, current + 1):  # always compare all three: the time must reveal nothing
        if hmac.compare_digest(totp.generate_otp(step), code) and step > last_step:
            matching_step = step
    return matching_step


def generate_recovery_code() -> str:
    """Return a new recovery code: 120 bits in six groups of four letters and digits."""
    text = b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode().lower()
    return "-".join(text[start : start + _RECOVERY_GROUP] for start in range(0, len(text), _RECOVERY_GROUP))


def normalize_recovery_code(typed: str) -> str:
    """Ignore spaces, hyphens and case in a typed recovery code."""
    return "".join(typed.split()).replace("-", "").lower()[:64]


def _totp(secret: str) -> "libraries.pyotp.TOTP":
    return libraries.pyotp.TOTP(secret)
