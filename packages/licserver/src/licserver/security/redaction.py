"""What must never be written: license keys, secrets, signatures and passwords, found by their shapes.

The last net below everything that logs, complains or crashes. Nothing relies on it: no message is
made with a secret in it in the first place, as far as we know.
"""

import re
from typing import Final

from licserver.domain.decisions import mask_key

_KEY: Final = re.compile(r"CP(?:(?:-|%2D)[A-Z0-9]{6}){2,5}", re.IGNORECASE)

TOKEN_PREFIX: Final = "lsv_"
"""Begins each token of the admin API, so that it is known for what it is wherever it turns up."""

_OTHERS: Final = (
    (re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{20,}}"), f"{TOKEN_PREFIX}…"),
    # 32 bytes in base64, as secrets and private keys are kept
    (re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{43}=(?![A-Za-z0-9+/_=-])"), "…"),
    # of our links (D-30), and of a bucket's presigned addresses
    (re.compile(r"(signature=)[^&\s\"'<>]+", re.IGNORECASE), r"\1…"),
    # in the address of a database or of a Redis
    (re.compile(r"(://[^/@:\s]*:)[^/@\s]+@"), r"\1…@"),
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), r"… \1 …"),
)


def holds_key(text: str) -> bool:
    """Tell whether a license key stands in `text`, or most of one."""
    return _KEY.search(text) is not None


def mask(text: str) -> str:
    """Shorten license keys in `text` to what may be shown, and all else that is secret to an ellipsis."""
    masked = _KEY.sub(lambda found: mask_key(found[0]), text)
    for shape, shown in _OTHERS:
        masked = shape.sub(shown, masked)
    return masked
