"""Downloads: signed links, ranges, headers of files, redirects and patches. Pure."""

import hmac
import math
import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, quote_plus, urlencode

from licserver.domain.characters import shows_as_written
from licserver.domain.decisions import DownloadRefusal
from licserver.domain.records import Artifact, Release
from licserver.protocol.prepared_hmac import PreparedHmac
from licserver.protocol.public_api import NOT_A_PAGE

LINK_LIFETIME: Final = timedelta(hours=1)  # from signing to expiry of a link (spec 8)
CLOCK_TOLERANCE: Final = timedelta(minutes=5)
"""Tolerated difference of the vendor's clocks when a secret is retired."""

_quoted: Final = lru_cache(maxsize=64)(quote_plus)
_CONTEXT: Final = b"licserver download link v1\n"


@dataclass(frozen=True, slots=True)
class LinkSecret:
    """A secret of 32 bytes that signs links from an instant on (None: always); it is accepted before."""

    id: str
    secret: bytes = field(repr=False)
    signs_from: datetime | None = None
    mac: PreparedHmac = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Prepare the HMAC, which begins each link's signature."""
        object.__setattr__(self, "mac", PreparedHmac(self.secret, _CONTEXT))


class LinkSubject(NamedTuple):
    """The subject of a link: the file of a release, for the holder of a license."""

    license_id: bytes
    release_id: int


def current_secret(secrets: Sequence[LinkSecret], now: datetime) -> LinkSecret:
    """Return the newest secret that already signs; `secrets` are ordered from the newest."""
    due = (secret for secret in secrets if secret.signs_from is None or secret.signs_from <= now)
    return next(due, secrets[-1])


def retires_at(secrets: Sequence[LinkSecret], index: int) -> datetime | None:
    """Return when the last link of a secret has expired; None if no successor signs from a known instant."""
    successor = secrets[index - 1].signs_from if index else None
    return None if successor is None else successor + LINK_LIFETIME + CLOCK_TOLERANCE


def accepted_secrets(secrets: Sequence[LinkSecret], now: datetime) -> tuple[LinkSecret, ...]:
    """Return the secrets that are not retired, including a secret that does not sign yet (D-66)."""
    ends = ((secret, retires_at(secrets, index)) for index, secret in enumerate(secrets))
    return tuple(secret for secret, end in ends if end is None or now < end)


def sign_link(base: str, subject: LinkSubject, secret: LinkSecret, now: datetime) -> str:
    """Return a link that is valid for one hour, rounded up; it contains ids, never a license key (D-30).

    `base` is the link without its query, `secret` is from `current_secret`.
    """
    expires = math.ceil((now + LINK_LIFETIME).timestamp())
    # In the canonical form of `read_link`: sorted, and without characters that a URL would change.
    parameters = (
        f"expires={expires}&key={_quoted(secret.id)}"
        f"&license={subject.license_id.hex()}&release={subject.release_id}"
    )
    return f"{base}?{parameters}&signature={_signature(parameters, secret)}"


_MAX_LINK: Final = 1_000  # characters of a link's query; ours have 150


def read_link(query: str, secrets: Sequence[LinkSecret], now: datetime) -> LinkSubject | DownloadRefusal:
    """Verify the signature and the expiry of a link, given its raw query and the accepted secrets."""
    is_plausible = len(query) <= _MAX_LINK and query.isascii()
    pairs = parse_qsl(query, keep_blank_values=True) if is_plausible else []
    values = dict(pairs)
    signature = values.pop("signature", "")
    secret = next((secret for secret in secrets if secret.id == values.get("key")), None)
    if secret is None or len(pairs) != len(values) + 1:  # a repeated parameter shows a changed link
        return DownloadRefusal.INVALID_LINK
    canonical = urlencode(sorted(values.items()))
    if not hmac.compare_digest(_signature(canonical, secret).encode(), signature.encode()):
        return DownloadRefusal.INVALID_LINK
    if now.timestamp() >= int(values["expires"]):
        return DownloadRefusal.LINK_EXPIRED
    return LinkSubject(bytes.fromhex(values["license"]), int(values["release"]))


def _signature(parameters: str, secret: LinkSecret) -> str:
    return urlsafe_b64encode(secret.mac.digest(parameters.encode())).rstrip(b"=").decode()


# --- ranges -----------------------------------------------------------------------------------

_RANGE = re.compile(r"bytes=([0-9]{0,1000})-([0-9]{0,1000})", re.IGNORECASE)  # Python reads 4,300 digits


@dataclass(frozen=True, slots=True)
class Span:
    """A range of bytes; a length of 0 cannot be satisfied (416)."""

    start: int
    length: int


def parse_range(value: str | None, if_range: str | None, etag: str, size: int) -> Span | None:
    """Parse the requested range of a file; None for the whole file (D-32).

    ``Range`` is ignored if it is malformed or has several ranges; an ``If-Range`` other than `etag` requests
    the whole file.
    """
    match = _RANGE.fullmatch((value or "").strip())
    if match is None or (if_range is not None and if_range.strip() != etag):
        return None
    first, last = match.groups()
    if first:
        start, end = int(first), min(int(last), size - 1) if last else size - 1
        if last and int(last) < int(first):
            return None
        return Span(start, end - start + 1) if start < size else Span(size, 0)
    if not last:
        return None
    length = min(int(last), size)
    return Span(size - length, length)


# --- headers ----------------------------------------------------------------------------------


def download_headers(release: Release) -> dict[str, str]:
    """Return the headers of a release's file, whole or in part."""
    artifact = release.artifact
    return {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private",  # a link belongs to one customer
        "Content-Disposition": attachment(artifact.file_name),
        "Content-Type": "application/octet-stream",
        "ETag": etag(release),
        "Repr-Digest": _digest(artifact),
        **NOT_A_PAGE,
    }


def content_md5(release: Release) -> dict[str, str]:
    """Return the header with a whole file's MD5 (RFC 1864), which WordPress compares (D-206).

    It covers the body of a complete response: not a part or a redirect. Patches have none stored.
    """
    md5 = release.artifact.md5
    return {} if md5 is None else {"Content-MD5": b64encode(md5).decode()}


def redirect_headers(release: Release, address: str) -> dict[str, str]:
    """Return the headers of a redirect to a release's file; the service determines name and digest (D-34)."""
    return {
        "Location": address,
        "Cache-Control": "no-store",
        "Content-Disposition": attachment(release.artifact.file_name),
        "Repr-Digest": _digest(release.artifact),
        **NOT_A_PAGE,
    }


def _digest(artifact: Artifact) -> str:
    """Format the digest of the whole file (RFC 9530)."""
    return f"sha-256=:{b64encode(artifact.sha256).decode()}:"


def etag(release: Release) -> str:
    """Return the strong ETag of a release's file: its digest, equal on all servers."""
    return f'"{release.artifact.sha256.hex()}"'


def is_unmodified(values: Iterable[str], tag: str) -> bool:
    """Return whether the client's ``If-None-Match`` names the current tag (RFC 9110, 13.1.2)."""
    named = [tag_text.strip() for value in values for tag_text in value[:_MAX_TAGS].split(",")]
    return "*" in named or tag.removeprefix("W/") in {tag_text.removeprefix("W/") for tag_text in named}


_MAX_TAGS: Final = 4_096  # characters; no client has so many


def attachment(file_name: str) -> str:
    """Format a Content-Disposition (RFC 6266): an ASCII name for old clients, and the real one."""
    file_name = "".join(
        character if shows_as_written(character) else "_" for character in file_name
    )  # of older versions
    plain = re.sub(r"[^ !#-\[\]-~]", "_", file_name)
    if plain == file_name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file_name, safe='')}"


# --- patches from an older file to a newer one (RFC 9842) ------------------------------------

PATCH_MAGIC: Final = bytes.fromhex("5e2a4d1820000000")
"""The magic number of a patch; the digest of the old file and a frame of Zstandard follow."""

_DICTIONARY: Final = re.compile(r":([A-Za-z0-9+/]{43}=):")  # 32 bytes


def read_patch_base(headers: Mapping[str, str]) -> bytes | None:
    """Return the digest of the client's file; None for a request without a patch."""
    match = _DICTIONARY.fullmatch(headers.get("Available-Dictionary", "").strip())
    encodings = [encoding.strip() for encoding in headers.get("Accept-Encoding", "").lower().split(",")]
    if match is None or "dcz" not in encodings or "Range" in headers:
        return None
    return b64decode(match[1])


def patch_headers(whole: Artifact) -> dict[str, str]:
    """Return the additional headers of a patch, or of a redirect to it; `whole` is the patched file."""
    return {
        "Content-Encoding": "dcz",
        "Unencoded-Digest": _digest(whole),
        "Vary": "Accept-Encoding, Available-Dictionary",
    }
