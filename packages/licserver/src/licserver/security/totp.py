"""Time-based one-time passwords as a second factor (RFC 6238): six digits, every 30 seconds. Pure."""

import hmac
import re
import secrets
from base64 import b32encode
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyotp import TOTP

SECONDS: Final = 30
_CODE: Final = re.compile(r"[0-9]{6}")
_RECOVERY_BYTES: Final = 15
_RECOVERY_GROUP: Final = 4


def generate_secret() -> str:
    """Return a new secret: 160 bits in base32, as authenticator apps take it."""
    from pyotp import random_base32  # noqa: PLC0415 - see `_totp`

    return random_base32()


def enrolment_uri(secret: str, user: str, issuer: str) -> str:
    """Return the ``otpauth:`` address for a QR code."""
    return _totp(secret).provisioning_uri(name=user, issuer_name=issuer)


def find_step(secret: str, typed: str, now: datetime, last_step: int) -> int | None:
    """Return the time step of a code; None if the code is wrong or not newer than `last_step`.

    One step before and after `now` is accepted, because clocks differ (RFC 6238 5.2). Spaces are ignored:
    apps show two groups of three digits.
    """
    code = "".join(typed.split())
    if _CODE.fullmatch(code) is None:
        return None
    totp, current = _totp(secret), int(now.timestamp()) // SECONDS
    found = None
    for step in (current - 1, current, current + 1):  # always all three, so that the time reveals nothing
        if hmac.compare_digest(totp.generate_otp(step), code) and step > last_step:
            found = step
    return found


def generate_recovery_code() -> str:
    """Return a new recovery code: 120 bits in six groups of four letters and digits."""
    text = b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode().lower()
    return "-".join(text[at : at + _RECOVERY_GROUP] for at in range(0, len(text), _RECOVERY_GROUP))


def normalize_recovery_code(typed: str) -> str:
    """Ignore spaces, hyphens and case in a typed recovery code."""
    return "".join(typed.split()).replace("-", "").lower()[:64]


def _totp(secret: str) -> "TOTP":
    from pyotp import TOTP  # noqa: PLC0415 - a process without a console does not need it

    return TOTP(secret)
