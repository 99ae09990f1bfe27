"""Time-based one-time passwords of a second factor (RFC 6238): six digits, every 30 seconds. Pure."""

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


def draw_secret() -> str:
    """Draw a secret of 160 bits, in base32 as authenticator apps take it."""
    from pyotp import random_base32  # noqa: PLC0415 - as `_totp`

    return random_base32()


def enrolment_uri(secret: str, user: str, issuer: str) -> str:
    """Write the ``otpauth:`` address that an authenticator app reads from a QR code."""
    return _totp(secret).provisioning_uri(name=user, issuer_name=issuer)


def find_step(secret: str, typed: str, now: datetime, last_step: int) -> int | None:
    """Find the time step that a code belongs to; None for a wrong code, and for one that was used before.

    Args:
        secret: In base32.
        typed: The code; blanks in it are ignored, as apps show two groups of three digits.
        now: The current instant. One step before and after is accepted: clocks differ (RFC 6238 5.2).
        last_step: The step of the last code that was accepted.
    """
    code = "".join(typed.split())
    if _CODE.fullmatch(code) is None:
        return None
    totp, current = _totp(secret), int(now.timestamp()) // SECONDS
    found = None
    for step in (current - 1, current, current + 1):  # all of them, so that the time taken is always the same
        if hmac.compare_digest(totp.generate_otp(step), code) and step > last_step:
            found = step
    return found


def draw_recovery_code() -> str:
    """Draw a recovery code of 120 bits: six groups of four letters and digits."""
    text = b32encode(secrets.token_bytes(_RECOVERY_BYTES)).decode().lower()
    return "-".join(text[at : at + _RECOVERY_GROUP] for at in range(0, len(text), _RECOVERY_GROUP))


def normalize_recovery_code(typed: str) -> str:
    """Remove what people add to or leave out of a recovery code: blanks, hyphens, capitals."""
    return "".join(typed.split()).replace("-", "").lower()[:64]


def _totp(secret: str) -> "TOTP":
    from pyotp import TOTP  # noqa: PLC0415 - a process without a console does without

    return TOTP(secret)
