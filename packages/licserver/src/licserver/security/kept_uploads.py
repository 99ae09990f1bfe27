"""Encrypted storage of uploads until a user confirms them (D-198)."""

import os
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Final

from licserver.security.key_vault import decrypt_bytes, encrypt_bytes
from licserver.security.private_files import remove_leftovers

KEPT_SECONDS: Final = 3600
_KEPT: Final = ".import-"
_TICKET: Final = re.compile(r"([0-9a-f]{32})\.([A-Za-z0-9_-]{43})")


def keep_upload(folder: Path, content: bytes, owner: str) -> str:
    """Write a file; return a ticket, with which the owner can read it within an hour."""
    folder.mkdir(mode=0o700, exist_ok=True)
    name, key = secrets.token_hex(16), secrets.token_bytes(32)
    handle = os.open(folder / (_KEPT + name), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        remove_leftovers(folder, _KEPT, os.fstat(handle).st_mtime, KEPT_SECONDS)
        file.write(encrypt_bytes(key, content, owner.encode()))
    return f"{name}.{urlsafe_b64encode(key).decode().rstrip('=')}"


def take_upload(folder: Path, ticket: str, owner: str) -> bytes | None:
    """Remove a file and return its content; None if it is missing or has another owner."""
    match = _TICKET.fullmatch(ticket)
    if match is None:
        return None
    path = folder / (_KEPT + match[1])
    try:
        content = path.read_bytes()
        path.unlink()  # of two simultaneous requests, the second fails here
        return decrypt_bytes(urlsafe_b64decode(match[2] + "="), content, owner.encode())
    except (OSError, ValueError):
        return None
