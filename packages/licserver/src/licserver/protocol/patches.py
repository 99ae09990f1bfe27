"""Patches that make a file out of an older one: headers of RFC 9842. Pure."""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Final

from licserver.domain.records import Artifact

MAGIC: Final = bytes.fromhex("5e2a4d1820000000")
"""How a patch begins; the digest of the old file and a frame of Zstandard follow."""

_DICTIONARY: Final = re.compile(r":([A-Za-z0-9+/]{43}=):")  # 32 bytes


def read_base(headers: Mapping[str, str]) -> bytes | None:
    """Return the digest of the file that a client has; None if it wants no patch."""
    found = _DICTIONARY.fullmatch(headers.get("Available-Dictionary", "").strip())
    encodings = [one.strip() for one in headers.get("Accept-Encoding", "").lower().split(",")]
    if found is None or "dcz" not in encodings or "Range" in headers:
        return None
    return b64decode(found[1])


def patch_headers(whole: Artifact) -> dict[str, str]:
    """Return headers for a patch, or a redirect to it, besides a download's; `whole` is what it makes."""
    return {
        "Content-Encoding": "dcz",
        "Unencoded-Digest": f"sha-256=:{b64encode(whole.sha256).decode()}:",
        "Vary": "Accept-Encoding, Available-Dictionary",
    }
