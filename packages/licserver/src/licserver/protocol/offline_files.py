"""Offline license files: the request of a machine without a network, and the signed file. Pure.

A file is a JWS in the compact serialization (RFC 7515, 7.1) with an Ed25519 signature (RFC 8037) by the key
that signs responses, between two lines of text.
"""

import json
import re
from base64 import b32decode
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final

from licserver.domain.decisions import Valid, mask_key
from licserver.domain.text import read_machine
from licserver.errors import InvalidInputError
from licserver.protocol.ed25519_keys import PrivateKey, to_base64url
from licserver.protocol.public_api import format_instant, verify_response

TYPE: Final = "license-file+json"
"""The `typ` of the signature: no other document that the key signs passes for a license file."""

BEGIN: Final = "-----BEGIN LICENSE FILE-----"
END: Final = "-----END LICENSE FILE-----"
MAX_REQUEST: Final = 2_000  # characters
_LINE: Final = 64  # characters of a line: mail programs break longer lines
_CHECK_BYTES: Final = 3
_INSTALLATION, _DOMAIN = b"\1", b"\2"
"""The first byte of a request: with the random id of an installation (16 bytes), or with any domain."""


@dataclass(frozen=True, slots=True)
class MachineRequest:
    """The request of a machine; `domain` is as in a verify, `slug` is empty if the app sends none."""

    domain: str
    slug: str
    app_version: str | None


def parse_request(text: str) -> MachineRequest:
    """Parse a request, from a file or typed by hand; ignore case, spaces and hyphens."""
    typed = re.sub(r"[\s-]+", "", text[:MAX_REQUEST]).upper().removeprefix("REQ")
    try:
        domain, slug, version = _read_request(b32decode(typed + "=" * (-len(typed) % 8), map01="I"))
    except ValueError:  # also UnicodeDecodeError, and the error of base32
        raise InvalidInputError(
            "this is not a request for a license file, or it was mistyped; it begins with REQ-"
        ) from None
    machine = read_machine(None, version)
    return MachineRequest(domain, slug, machine and machine.app_version)


def _read_request(raw: bytes) -> tuple[str, str, str]:
    content, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    if sha256(content).digest()[:_CHECK_BYTES] != check:
        raise ValueError
    if content[:1] == _INSTALLATION:
        domain, rest = content[1:17].hex(), content[17:]
    else:
        name, _, rest = content.removeprefix(_DOMAIN).partition(b"\0")
        domain = name.decode()
    slug, version = rest.decode().split("\0")
    return domain, slug, version


def sign_file(
    valid: Valid,
    slug: str,
    license_key: str,
    domain: str,
    issued_at: datetime,
    ends_at: datetime,
    key: PrivateKey,
) -> str:
    """Return a signed file: the body of a successful verify, the machine, and the end in whole seconds."""
    support_until = valid.license.support_until
    content = {
        **json.loads(verify_response(valid).content),
        "slug": slug,
        "license": mask_key(license_key),
        "key_digest": key_digest(license_key, domain),
        "domain": domain,
        "issued_at": format_instant(issued_at),
        "ends_at": format_instant(ends_at),
        "support_until": support_until and support_until.isoformat(),
    }
    header = {"alg": "EdDSA", "kid": key.public.id, "typ": TYPE}
    signed = f"{_encode(header)}.{_encode(content)}"
    text = f"{signed}.{to_base64url(key.sign(signed.encode()))}"
    lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
    return "\n".join([BEGIN, *lines, END, ""])


def key_digest(key: str, domain: str) -> str:
    """Return the digest by which an app recognises a typed key; it is bound to the machine."""
    return to_base64url(sha256(f"license-file\0{domain}\0{key}".encode()).digest())


def _encode(value: dict[str, Any]) -> str:
    return to_base64url(json.dumps(value, separators=(",", ":")).encode())
