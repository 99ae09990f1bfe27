"""Pure: license files for machines without a network: what a machine asks for, and what it accepts (D-236).

A file is a JWS in the compact serialization (RFC 7515, 7.1), signed with Ed25519 (RFC 8037) by the key that
signs responses. Its payload is parsed only after a pinned key was found to have signed it.
"""

import re
from base64 import b32encode
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final

from licclient._model import FileFlaw, Settings, Verified
from licclient._protocol.responses import Reply, read_json_object, read_verify
from licclient._signatures.jws import decode, read_key_id, read_utc
from licclient._signatures.public_keys import encode
from licclient.errors import LicenseFileError

TYPE: Final = "license-file+json"
"""The `typ` of the signature: nothing else that the service signs is taken for a license file."""

MAX_FILE: Final = 64 * 1024  # bytes
_BEGIN, _END = "-----BEGIN LICENSE FILE-----", "-----END LICENSE FILE-----"
_GROUP: Final = 6
_INSTALLATION: Final = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class LicenseFile:
    """What the vendor signed; `text` is that, without the lines around it.

    `domain` is of the installation that the file is for. It holds until `ends_at`, by the service's clock.
    """

    text: str
    verified: Verified
    slug: str
    masked_key: str
    key_digest: str
    domain: str
    issued_at: datetime
    ends_at: datetime


def write_request(domain: str, slug: str, version: str) -> str:
    """Return the request of this installation: base32 with a check, short enough to be typed."""
    head = b"\2" + domain.encode() + b"\0"
    if _INSTALLATION.fullmatch(domain):
        head = b"\1" + bytes.fromhex(domain)
    content = head + f"{slug}\0{version}".encode()
    code = b32encode(content + sha256(content).digest()[:3]).decode().rstrip("=")
    groups = [code[at : at + _GROUP] for at in range(0, len(code), _GROUP)]
    return "-".join(["REQ", *groups])


def key_digest(key: str, domain: str) -> str:
    """Return by what a file names its license key; bound to the machine."""
    return encode(sha256(f"license-file\0{domain}\0{key}".encode(errors="surrogatepass")).digest())


def unwrap(raw: bytes) -> str:
    """Return the signed text between the two lines, without the line breaks that mail may add; or nothing."""
    text = raw.decode("ascii", errors="replace") if len(raw) <= MAX_FILE else ""
    _, begin, rest = text.partition(_BEGIN)
    inner, end, _ = rest.partition(_END)
    return "".join(inner.split()) if begin and end else ""


def check_file(text: str, settings: Settings, domain: str) -> LicenseFile | LicenseFileError:
    """Return what a pinned key signed for this app on this machine; whether it has ended is not checked.

    `text` is from `unwrap`, and untrusted.
    """
    signed, _, signature = text.rpartition(".")
    header, _, payload = signed.partition(".")
    kid = read_key_id(header, TYPE)
    if not kid:
        return LicenseFileError(FileFlaw.DAMAGED, "This is not a license file, or a part of it is missing.")
    key = next((one for one in settings.public_keys if one.id == kid), None)
    if key is None:
        return LicenseFileError(
            FileFlaw.UNTRUSTED, "No key that this app trusts has signed the license file."
        )
    if not key.verify(decode(signature), signed.encode()):
        return LicenseFileError(FileFlaw.UNTRUSTED, "The license file was changed after it was signed.")
    found = _parse_payload(text, decode(payload))
    if found is None:
        return LicenseFileError(FileFlaw.DAMAGED, "What the vendor signed is not about a license.")
    product = found.verified.product
    if settings.product not in (None, product) or settings.slug not in (None, found.slug):
        return LicenseFileError(FileFlaw.OTHER_PRODUCT, f"This license file is for {product}.")
    if found.domain != domain:
        return LicenseFileError(
            FileFlaw.OTHER_MACHINE, "This license file is for another computer. Send the request of this one."
        )
    return found


def _parse_payload(text: str, payload: bytes) -> LicenseFile | None:
    match read_json_object(payload), read_verify(Reply(200, payload), ""):
        case {
            "slug": str(slug),
            "license": str(masked_key),
            "key_digest": str(digest),
            "domain": str(domain),
            "issued_at": str(issued),
            "ends_at": str(ends),
        }, Verified() as verified:
            issued_at, ends_at = read_utc(issued), read_utc(ends)
            if issued_at is not None and ends_at is not None and issued_at < ends_at:
                about = slug, masked_key, digest, domain
                return LicenseFile(text, verified, *about, issued_at, ends_at)
        case _:
            pass
    return None
