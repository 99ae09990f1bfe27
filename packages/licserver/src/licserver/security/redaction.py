"""Mask license keys, secrets, signatures and passwords in text, by their format.

A last precaution for logs, error messages and crash reports, which should contain no secret anyway.
"""

import re
from typing import Final

from licserver.domain.decisions import mask_key
from licserver.domain.records import Machine

_KEY: Final = re.compile(r"CP(?:(?:-|%2D)[A-Z0-9]{6}){2,5}", re.IGNORECASE)
TOKEN_PREFIX: Final = "lsv_"  # the start of each token of the admin API, by which scanners recognise it
_OTHERS: Final = (
    (re.compile(rf"{TOKEN_PREFIX}[A-Za-z0-9_-]{{20,}}"), f"{TOKEN_PREFIX}…"),
    # secrets and private keys: 32 bytes in base64
    (re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{43}=(?![A-Za-z0-9+/_=-])"), "…"),
    # download links, and presigned addresses of a bucket
    (re.compile(r"(signature=)[^&\s\"'<>]+", re.IGNORECASE), r"\1…"),
    # the password in the address of a database or Redis
    (re.compile(r"(://[^/@:\s]*:)[^/@\s]+@"), r"\1…@"),
    (re.compile(r"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?(?:-----END \1-----|\Z)", re.DOTALL), r"… \1 …"),
)


def contains_key(text: str) -> bool:
    """Return whether `text` contains a license key, or most of one."""
    return _KEY.search(text) is not None


def mask(text: str, key: str | None = None) -> str:
    """Mask license keys, and replace other secrets by an ellipsis; `key` is masked in any format."""
    if key:
        text = text.replace(key, mask_key(key))
    masked = _KEY.sub(lambda match: mask_key(match[0]), text)
    for pattern, replacement in _OTHERS:
        masked = pattern.sub(replacement, masked)
    return masked


def mask_machine(machine: Machine, key: str) -> Machine:
    """Mask a key that was typed as the label of a machine: keys are stored encrypted, or not at all."""
    label, app_version = (text and mask(text, key) for text in machine)
    return Machine(label, app_version)
