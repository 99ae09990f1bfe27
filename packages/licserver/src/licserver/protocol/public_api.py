"""The protocol's text: paths, field names and every sentence and status of the specified answers.

Bytes and queries come in and become a call or an `Invalid`; verdicts come in and become an `Answer`.
Pure: nothing here talks HTTP, and nothing here decides.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote, unquote

from licserver.domain.decisions import (
    DownloadRefusal,
    Offer,
    UpdateRefusal,
    Valid,
    VerifyRefusal,
    expiry_shown,
)
from licserver.domain.environments import BadDomain, is_printable, normalise_domain, parse_ip
from licserver.domain.records import Artifact, Release

VERIFY_PATH: Final = "/api/v1/licenses/verify"
UPDATE_CHECK_PATH: Final = "/api/v1/update-check"
DOWNLOAD_PATH: Final = "/api/v1/update-download"
MANIFEST_PATH: Final = "/api/v1/update-manifest"

MANIFEST_HEADER: Final = "Release-Manifest"
"""Carries the signed manifest of the version that an update check tells (D-67)."""

MANIFEST_TYPE: Final = "application/jose+json"

NOT_A_PAGE: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""For responses that no browser shows as a page (ASVS 3.4)."""

MAX_BODY_BYTES: Final = 16 * 1024
"""Longest request body that is read (D-11)."""


_JSON_WRITER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class Answer:
    """What is sent by whoever talks HTTP.

    Args:
        status: Of HTTP.
        content: The body: compact UTF-8 JSON, its fields in the order of the specification.
    """

    status: int
    content: bytes


def answer_json(status: int, body: Mapping[str, Any]) -> Answer:
    """Write a body."""
    return Answer(status, _JSON_WRITER.encode(body).encode())


# --- requests ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class VerifyCall:
    """A well-formed verify request (spec 2); has no repr, because it holds a license key."""

    license_key: str
    domain: str


@dataclass(frozen=True, slots=True, repr=False)
class UpdateCall:
    """A well-formed update check (spec 4.2); has no repr, because it holds a license key.

    The domain is required and checked, then needed only to count misses by it (D-22, D-162); the installed
    version is only counted (D-24).
    """

    license_key: str
    slug: str
    current_version: str
    domain: str


@dataclass(frozen=True, slots=True)
class Invalid:
    """A malformed request: for every faulty field, what is wrong with it (D-11)."""

    errors: Mapping[str, list[str]]

    @property
    def message(self) -> str:
        """One sentence for the whole: the first problem, and how many more there are."""
        problems = [problem for found in self.errors.values() for problem in found]
        more = len(problems) - 1
        if more <= 0:
            return problems[0]
        return f"{problems[0]} (and {more} more {'error' if more == 1 else 'errors'})"


class _BadField(ValueError):
    """What is wrong with one field, as the end of the sentence 'The x field …'."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _BadField("is required." if value is None else "must be a string.")
    if not value.strip():
        raise _BadField("is required.")
    return value


def _printable_text(value: Any) -> str:
    text = _text(value)
    if not is_printable(text):
        raise _BadField("must not contain control characters.")
    return text


def _domain(value: Any) -> str:
    try:
        return normalise_domain(_text(value))
    except BadDomain as problem:
        raise _BadField(f"{problem}.") from None


def _ip(value: Any) -> str:
    text = _text(value)
    if parse_ip(text) is None:
        raise _BadField("must be a valid IP address.")
    return text


# A key is text and no more: what is no key is refused by `rules`, in its turn (D-01).
_VERIFY_FIELDS: Final = {"license_key": _text, "domain": _domain, "ip": _ip}
_UPDATE_FIELDS: Final = {
    "license_key": _text,
    "slug": _printable_text,
    "current_version": _printable_text,
    "domain": _domain,
}


def _read_fields(
    fields: Mapping[str, Callable[[Any], str]], values: Mapping[str, Any]
) -> dict[str, str] | Invalid:
    """Read every field, and name all faulty ones at once (D-11)."""
    read: dict[str, str] = {}
    errors: dict[str, list[str]] = {}
    for name, reader in fields.items():
        try:
            read[name] = reader(values.get(name))
        except _BadField as problem:
            errors[name] = [f"The {name.replace('_', ' ')} field {problem}"]
    return Invalid(errors) if errors else read


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")  # Python's reader takes NaN and Infinity for numbers


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_JSON_READER: Final = json.JSONDecoder(parse_constant=_no_constant)


def parse_verify(body: bytes) -> VerifyCall | Invalid:
    """Read the body of a verify request (spec 2, D-11).

    Args:
        body: At most `MAX_BODY_BYTES`; whatever was sent, of whatever content type.

    Returns:
        The call, or `Invalid` naming every faulty field. A body that is no JSON object lacks all of them.
    """
    try:
        values = _JSON_READER.decode(body.removeprefix(_BYTE_ORDER_MARK).decode())
    except (ValueError, RecursionError):  # no UTF-8, no JSON, a number too long, nested too deep
        values = None
    fields = _read_fields(_VERIFY_FIELDS, values if isinstance(values, dict) else {})
    if isinstance(fields, Invalid):
        return fields
    return VerifyCall(fields["license_key"], fields["domain"])


def parse_update_check(query: str) -> UpdateCall | Invalid:
    """Read the query of an update check (spec 4.2, D-21); of a repeated parameter the first counts.

    Args:
        query: The raw query string, still percent-encoded.
    """
    fields = _read_fields(_UPDATE_FIELDS, parse_query(query))
    if isinstance(fields, Invalid):
        return fields
    return UpdateCall(**fields)


def parse_query(query: str) -> dict[str, str]:
    """Parse a raw query string as `parse_qsl` does; the first of a repeated parameter counts.

    Bad UTF-8 becomes U+FFFD. `parse_qsl` takes four times as long (11 us instead of 3).
    """
    values: dict[str, str] = {}
    for pair in query.split("&"):
        if not pair:
            continue
        name, _, value = pair.partition("=")
        if "%" in pair or "+" in pair:
            name, value = _decode(name), _decode(value)
        values.setdefault(name, value)
    return values


def _decode(text: str) -> str:
    """Decode a name or a value; the escapes of ``https://`` are most of what clients send."""
    text = text.replace("+", " ")
    short = text.replace("%3A", ":").replace("%2F", "/")
    return unquote(text, errors="replace") if "%" in short else short


# --- answers: verify --------------------------------------------------------------------------

_VERIFY_REFUSALS: Final = {  # spec 7, word for word
    VerifyRefusal.FORMAT: (403, "Invalid license format."),
    VerifyRefusal.NOT_FOUND: (404, "License not found."),
    VerifyRefusal.REVOKED: (403, "License has been revoked."),
    VerifyRefusal.EXPIRED: (403, "License expired."),
    VerifyRefusal.ENVIRONMENT: (403, "Max activations exceeded or unrecognized environment."),
}


def answer_verify(verdict: Valid | VerifyRefusal) -> Answer:
    """Put a verdict on a key into words (spec 2, spec 7)."""
    if isinstance(verdict, VerifyRefusal):
        return _refused(verdict)
    license_ = verdict.license
    return _valid(license_.product_name, expiry_shown(license_), license_.lifetime)


@lru_cache(maxsize=16)
def _refused(refusal: VerifyRefusal) -> Answer:
    status, reason = _VERIFY_REFUSALS[refusal]
    return answer_json(status, {"valid": False, "reason": reason})


@lru_cache(maxsize=4096)  # most customers are told the same
def _valid(product: str, expiry: date | None, lifetime: bool) -> Answer:
    return answer_json(
        200,
        {
            "valid": True,
            "product": product,
            "expiry": expiry.isoformat() if expiry else None,
            "lifetime": lifetime,
        },
    )


def answer_invalid_verify(invalid: Invalid) -> Answer:
    """Put a malformed verify request into words (spec 4.1)."""
    return answer_json(422, {"message": invalid.message, "errors": dict(invalid.errors)})


# --- answers: update-check --------------------------------------------------------------------

_UPDATE_REFUSALS: Final = {  # spec 7
    UpdateRefusal.INVALID_LICENSE: (401, "invalid_license", "The license key is not valid."),
    UpdateRefusal.LICENSE_EXPIRED: (401, "license_expired", "The license has expired."),
    UpdateRefusal.PRODUCT_MISMATCH: (403, "product_mismatch", "The license was issued for another product."),
    UpdateRefusal.PRODUCT_NOT_FOUND: (404, "product_not_found", "There is no product with this slug."),
    UpdateRefusal.NO_VERSIONS: (404, "no_versions", "The product has no published version yet."),
}


def answer_update(verdict: Offer | UpdateRefusal, download_url: str | None) -> Answer:
    """Put a verdict on an update check into words (spec 2, spec 7).

    Args:
        verdict: From `rules.judge_update`.
        download_url: The signed link; None leaves the field out altogether (D-25).
    """
    if isinstance(verdict, UpdateRefusal):
        status, code, message = _UPDATE_REFUSALS[verdict]
        return answer_error(status, code, message)
    before, after = _around_link(verdict.product.name, verdict.product.slug, verdict.release)
    if download_url is None:
        return Answer(200, before + after)
    return Answer(
        200, b'%b"download_url":%b,%b' % (before, _JSON_WRITER.encode(download_url).encode(), after)
    )


@lru_cache(maxsize=1024)  # only the link differs from customer to customer
def _around_link(name: str, slug: str, release: Release) -> tuple[bytes, bytes]:
    """Write what stands before and behind an offer's link."""
    before = {"name": name, "slug": slug, "version": release.version}
    after = {
        "sections": {"changelog": release.changelog},
        "last_updated": release.published_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),  # D-26
        "requires": None,
        "tested": None,
    }
    return (
        _JSON_WRITER.encode(before).encode()[:-1] + b",",
        _JSON_WRITER.encode(after).encode()[1:],
    )


def answer_invalid_update(invalid: Invalid) -> Answer:
    """Put a malformed update check into words (D-21)."""
    return answer_json(
        422, {"error": "validation", "message": invalid.message, "errors": dict(invalid.errors)}
    )


# --- answers: download, and everything else ---------------------------------------------------

_DOWNLOAD_REFUSALS: Final = {  # D-31, D-33
    DownloadRefusal.INVALID_LINK: (403, "invalid_link", "This download address is not valid."),
    DownloadRefusal.LINK_EXPIRED: (
        403,
        "link_expired",
        "This download address has run out; check for the update again.",
    ),
    DownloadRefusal.LICENSE_REVOKED: (403, "license_revoked", "The license has been revoked."),
    DownloadRefusal.RELEASE_WITHDRAWN: (404, "release_withdrawn", "This version has been withdrawn."),
}


def answer_download_refusal(refusal: DownloadRefusal) -> Answer:
    """Put the refusal of a download address into words (D-31)."""
    return answer_error(*_DOWNLOAD_REFUSALS[refusal])


def answer_no_manifest() -> Answer:
    """Say that nobody signed this release (D-67)."""
    return answer_error(404, "not_signed", "This version has no signed manifest.")


def answer_error(status: int, code: str, message: str) -> Answer:
    """Write an error in the one shape that all endpoints but verify share (spec 7)."""
    return answer_json(status, {"error": code, "message": message})


def download_headers(release: Release) -> dict[str, str]:
    """Name the headers that go with a release's file, whole or in part (D-32)."""
    artifact = release.artifact
    return {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private",  # the link is one customer's
        "Content-Disposition": attachment(artifact.file_name),
        "Content-Type": "application/octet-stream",
        "ETag": etag(release),
        "Repr-Digest": _repr_digest(artifact),
        **NOT_A_PAGE,
    }


def redirect_headers(release: Release, address: str) -> dict[str, str]:
    """Name the headers that send a caller elsewhere for a release's file (D-34).

    Name and digest are those of the file, for callers who would not take another host's word.
    """
    return {
        "Location": address,
        "Cache-Control": "no-store",
        "Content-Disposition": attachment(release.artifact.file_name),
        "Repr-Digest": _repr_digest(release.artifact),
        **NOT_A_PAGE,
    }


def _repr_digest(artifact: Artifact) -> str:
    """Write the digest of the whole file (RFC 9530)."""
    return f"sha-256=:{b64encode(artifact.sha256).decode()}:"


def etag(release: Release) -> str:
    """The strong validator of a release's file: its digest, the same on every node."""
    return f'"{release.artifact.sha256.hex()}"'


def attachment(file_name: str) -> str:
    """Write a Content-Disposition (RFC 6266): plain ASCII for old clients, the real name beside it."""
    plain = re.sub(r"[^ !#-\[\]-~]", "_", file_name)
    if plain == file_name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file_name, safe='')}"
