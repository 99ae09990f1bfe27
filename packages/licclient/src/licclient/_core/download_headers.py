"""Pure: the headers of a download, and the file names that may be made from them (D-32)."""

import re
import unicodedata
from base64 import b64decode
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote_to_bytes

PROMISED: Final = ("Repr-Digest", "Unencoded-Digest", "Content-Disposition")
"""Headers of a redirect that describe the file (D-34)."""

MAX_NAME_BYTES: Final = 180
"""Longest file name given to a download, in UTF-8: leaves room below the 255 of common file systems."""

MAX_ENDING_BYTES: Final = 20
"""What is longer after the last dot is no file type that needs to survive."""

_ENDING: Final = re.compile(r"(?<=.)(?:\.tar)?\.[A-Za-z][A-Za-z0-9]{0,19}$")
_WINDOWS_DEVICES: Final = frozenset(
    ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"]
    + [f"{device}{digit}" for device in ("COM", "LPT") for digit in "0123456789¹²³"]
)
_EXTENDED_NAME: Final = re.compile(r"""filename\*\s*=\s*(utf-8|iso-8859-1)'[^']*'([^\s;"]+)""", re.IGNORECASE)
_QUOTED_NAME: Final = re.compile(r'filename\s*=\s*"((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_BARE_NAME: Final = re.compile(r'filename\s*=\s*([^\s;"]+)', re.IGNORECASE)
_CONTENT_RANGE: Final = re.compile(r"bytes ([0-9]{1,18})-([0-9]{1,18})/([0-9]{1,18})")
_SHA256_MEMBER: Final = re.compile(r"(?:^|,)[ \t]*sha-256=:([A-Za-z0-9+/=]*):[ \t]*(?:;[^,]*)?(?=,|$)")
_SHA256_BYTES: Final = 32


def add_promises(promised: dict[str, str], redirect: Mapping[str, str]) -> None:
    """Keep the headers of a redirect that describe the file; the first one, closest to the service, wins."""
    for name in PROMISED:
        if (value := redirect.get(name)) is not None:
            promised.setdefault(name, value)


def file_name(content_disposition: str | None, fallback: str) -> str:
    """Return the file name for a download: harmless on Windows, macOS and Linux.

    `filename*` wins over `filename` (RFC 6266); without a usable one it is the fallback, made safe as well.
    """
    return safe_name(_header_name(content_disposition or "")) or safe_name(fallback) or "download"


def safe_name(name: str) -> str:
    """Reduce a name from outside to a harmless path component; empty when nothing is left.

    Gone are folders, drive letters, control and invisible characters, what Windows forbids, leading dots
    (hidden files, and the names of our own part files), trailing dots and spaces; devices such as `NUL.zip`
    get a prefix.
    """
    last = re.split(r"[/\\:]", unicodedata.normalize("NFC", name))[-1]
    visible = "".join(letter for letter in last if not unicodedata.category(letter).startswith("C"))
    name = _shortened(re.sub(r'[<>"|?*]', "_", visible).lstrip(". ")).rstrip(". ")
    return f"_{name}" if is_device_name(name) else name


def numbered_name(name: str, number: int) -> str:
    """Return a name with a number before its ending, such as `notes (1).tar.gz`; 0 for the name itself."""
    ending = _ENDING.search(name)
    at = len(name) if ending is None else ending.start()
    return f"{name[:at]} ({number}){name[at:]}" if number else name


def is_device_name(name: str) -> bool:
    """Return whether Windows takes a file name for a device, whatever its ending."""
    return name.partition(".")[0].rstrip().upper() in _WINDOWS_DEVICES


def read_length(value: str | None) -> int | None:
    """Parse a Content-Length; None when it is absent or no plain number."""
    return int(value) if value and re.fullmatch(r"[0-9]{1,18}", value) else None


def body_length(headers: Mapping[str, str]) -> int | None:
    """Return the length of a body; None when it is framed otherwise (RFC 9112 6.3)."""
    return None if "Transfer-Encoding" in headers else read_length(headers.get("Content-Length"))


def is_encoded(headers: Mapping[str, str], requested: str = "") -> bool:
    """Return whether a body has a content encoding that was not requested."""
    return headers.get("Content-Encoding", "").strip().lower() not in ("", "identity", requested)


def file_digest_of(headers: Mapping[str, str]) -> str | None:
    """Return the declared SHA-256 of a file, which its bytes have to have without any encoding."""
    return read_sha256(headers.get("Unencoded-Digest")) or read_sha256(headers.get("Repr-Digest"))


def read_content_range(value: str | None) -> tuple[int, int, int] | None:
    """Parse `bytes first-last/total` (RFC 9110 14.4); None when absent, open-ended or contradictory."""
    match = _CONTENT_RANGE.fullmatch(value or "")
    if match is None:
        return None
    first, last, total = (int(number) for number in match.groups())
    return (first, last, total) if first <= last < total else None


def read_sha256(repr_digest: str | None) -> str | None:
    """Return the `sha-256` member of a Repr-Digest (RFC 9530) in lower-case hex; None if it is missing."""
    match = _SHA256_MEMBER.search(repr_digest or "")
    if match is None:
        return None
    try:
        digest = b64decode(match[1], validate=True)
    except ValueError:
        return None
    return digest.hex() if len(digest) == _SHA256_BYTES else None


def is_page(content_type: str | None) -> bool:
    """Return whether a body is a web page, as a proxy sends it in place of a file."""
    kind = (content_type or "").partition(";")[0].strip().lower()
    return kind in {"text/html", "application/xhtml+xml"}


def strong_etag(value: str | None) -> str | None:
    """Return a tag that `If-Range` may carry: weak ones promise no equal bytes (RFC 9110 13.1.5)."""
    return value if value and re.fullmatch(r'"[\x21\x23-\x7e]*"', value) else None


def _header_name(header: str) -> str:
    if (extended := _EXTENDED_NAME.search(header)) is not None:
        return unquote_to_bytes(extended[2]).decode(extended[1], errors="replace")
    if (quoted := _QUOTED_NAME.search(header)) is not None:
        return re.sub(r"\\(.)", r"\1", quoted[1])
    bare = _BARE_NAME.search(header)
    return bare[1] if bare else ""


def _shortened(name: str) -> str:
    """Cut a long name in its stem, so that its ending stays what it is."""
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    stem, dot, ending = name.rpartition(".")
    tail = f"{dot}{ending}" if stem and len(ending.encode()) <= MAX_ENDING_BYTES else ""
    room = MAX_NAME_BYTES - len(tail.encode())
    return name.encode()[:room].decode(errors="ignore") + tail
