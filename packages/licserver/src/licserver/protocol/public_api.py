"""Requests and responses of the public API: parse bytes or a query, format a verdict. Pure.

Paths, field names, and the status and text of every specified response are in this file.
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
    visible_expiry,
)
from licserver.domain.environments import InvalidDomainError, is_printable, normalise_domain, parse_ip
from licserver.domain.records import Artifact, Release

VERIFY_PATH: Final = "/api/v1/licenses/verify"
UPDATE_CHECK_PATH: Final = "/api/v1/update-check"
DOWNLOAD_PATH: Final = "/api/v1/update-download"
MANIFEST_PATH: Final = "/api/v1/update-manifest"

MANIFEST_HEADER: Final = "Release-Manifest"
"""The header of an update check with the signed manifest of the latest version."""

MANIFEST_TYPE: Final = "application/jose+json"

NOT_A_PAGE: Final = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
"""Headers of responses that no browser shows as a page (ASVS 3.4)."""

MAX_BODY_BYTES: Final = 16 * 1024  # the longest request body that is read
_JSON_WRITER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True, slots=True)
class ApiResponse:
    """A status, and a body of compact JSON in the specification's order of fields."""

    status: int
    content: bytes


def json_response(status: int, body: Mapping[str, Any]) -> ApiResponse:
    """Format a body."""
    return ApiResponse(status, _JSON_WRITER.encode(body).encode())


# --- requests ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, repr=False)
class VerifyRequest:
    """A valid verify request (spec 2); without a repr, because it holds a license key."""

    license_key: str
    domain: str


@dataclass(frozen=True, slots=True, repr=False)
class UpdateRequest:
    """A valid update check (spec 4.2); without a repr, because it holds a license key."""

    license_key: str
    slug: str
    current_version: str
    domain: str


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """The errors of a malformed request, by field (D-11)."""

    errors: Mapping[str, list[str]]

    @property
    def message(self) -> str:
        """The first error, and the number of the others."""
        problems = [problem for found in self.errors.values() for problem in found]
        more = len(problems) - 1
        if more <= 0:
            return problems[0]
        return f"{problems[0]} (and {more} more {'error' if more == 1 else 'errors'})"


class _InvalidFieldError(ValueError):
    """What is wrong with a field; the message completes 'The x field …'."""


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _InvalidFieldError("is required." if value is None else "must be a string.")
    if not value.strip():
        raise _InvalidFieldError("is required.")
    return value


def _printable_text(value: Any) -> str:
    text = _text(value)
    if not is_printable(text):
        raise _InvalidFieldError("must not contain control characters.")
    return text


def _domain(value: Any) -> str:
    try:
        return normalise_domain(_text(value))
    except InvalidDomainError as error:
        raise _InvalidFieldError(f"{error}.") from None


def _ip(value: Any) -> str:
    text = _text(value)
    if parse_ip(text) is None:
        raise _InvalidFieldError("must be a valid IP address.")
    return text


# Any text is a well-formed license key: `evaluate_verify` refuses other formats, with 403.
_VERIFY_FIELDS: Final = {"license_key": _text, "domain": _domain, "ip": _ip}
_UPDATE_FIELDS: Final = {
    "license_key": _text,
    "slug": _printable_text,
    "current_version": _printable_text,
    "domain": _domain,
}


def _parse_fields(
    fields: Mapping[str, Callable[[Any], str]], values: Mapping[str, Any]
) -> dict[str, str] | InvalidRequest:
    parsed: dict[str, str] = {}
    errors: dict[str, list[str]] = {}
    for name, parse in fields.items():
        try:
            parsed[name] = parse(values.get(name))
        except _InvalidFieldError as error:
            errors[name] = [f"The {name.replace('_', ' ')} field {error}"]
    return InvalidRequest(errors) if errors else parsed


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")  # Python accepts NaN and Infinity


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_JSON_READER: Final = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_verify(body: bytes) -> VerifyRequest | InvalidRequest:
    """Parse the body of a verify request, at most `MAX_BODY_BYTES` (spec 2).

    In a body that is not a JSON object, all fields are missing.
    """
    try:
        values = _JSON_READER.decode(body.removeprefix(_BYTE_ORDER_MARK).decode())
    except (ValueError, RecursionError):  # not UTF-8, not JSON, a number too long, nested too deep
        values = None
    fields = _parse_fields(_VERIFY_FIELDS, values if isinstance(values, dict) else {})
    if isinstance(fields, InvalidRequest):
        return fields
    return VerifyRequest(fields["license_key"], fields["domain"])


def parse_update_check(query: str) -> UpdateRequest | InvalidRequest:
    """Parse the raw query of an update check (spec 4.2)."""
    fields = _parse_fields(_UPDATE_FIELDS, parse_query(query))
    if isinstance(fields, InvalidRequest):
        return fields
    return UpdateRequest(**fields)


def parse_query(query: str) -> dict[str, str]:
    """Parse a raw query as `parse_qsl` does, in 3 us instead of 11; the first of a repeated parameter counts.

    Invalid UTF-8 becomes U+FFFD.
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
    """Decode a name or value; most escapes that clients send are those of ``https://``."""
    text = text.replace("+", " ")
    short = text.replace("%3A", ":").replace("%2F", "/")
    return unquote(text, errors="replace") if "%" in short else short


# --- responses to verify ----------------------------------------------------------------------

_VERIFY_REFUSALS: Final = {  # spec 7, to the letter
    VerifyRefusal.FORMAT: (403, "Invalid license format."),
    VerifyRefusal.NOT_FOUND: (404, "License not found."),
    VerifyRefusal.REVOKED: (403, "License has been revoked."),
    VerifyRefusal.EXPIRED: (403, "License expired."),
    VerifyRefusal.ENVIRONMENT: (403, "Max activations exceeded or unrecognized environment."),
}


def verify_response(verdict: Valid | VerifyRefusal) -> ApiResponse:
    """Format the response to a verify request (spec 2, spec 7)."""
    if isinstance(verdict, VerifyRefusal):
        return _refused(verdict)
    license_ = verdict.license
    return _valid(license_.product_name, visible_expiry(license_), license_.lifetime)


@lru_cache(maxsize=16)
def _refused(refusal: VerifyRefusal) -> ApiResponse:
    status, reason = _VERIFY_REFUSALS[refusal]
    return json_response(status, {"valid": False, "reason": reason})


@lru_cache(maxsize=4096)  # most customers get the same response
def _valid(product: str, expiry: date | None, lifetime: bool) -> ApiResponse:
    day = expiry.isoformat() if expiry else None
    return json_response(200, {"valid": True, "product": product, "expiry": day, "lifetime": lifetime})


def invalid_verify_response(invalid: InvalidRequest) -> ApiResponse:
    """Format the response to a malformed verify request (spec 4.1)."""
    return json_response(422, {"message": invalid.message, "errors": dict(invalid.errors)})


# --- responses to an update check -------------------------------------------------------------

_UPDATE_REFUSALS: Final = {  # spec 7
    UpdateRefusal.INVALID_LICENSE: (401, "invalid_license", "The license key is not valid."),
    UpdateRefusal.LICENSE_EXPIRED: (401, "license_expired", "The license has expired."),
    UpdateRefusal.PRODUCT_MISMATCH: (403, "product_mismatch", "The license was issued for another product."),
    UpdateRefusal.PRODUCT_NOT_FOUND: (404, "product_not_found", "There is no product with this slug."),
    UpdateRefusal.NO_VERSIONS: (404, "no_versions", "The product has no published version yet."),
}


def update_response(verdict: Offer | UpdateRefusal, download_url: str | None) -> ApiResponse:
    """Format the response to an update check (spec 2, spec 7); `download_url` None omits the field."""
    if isinstance(verdict, UpdateRefusal):
        return error_response(*_UPDATE_REFUSALS[verdict])
    before, after = _around_link(verdict.product.name, verdict.product.slug, verdict.release)
    if download_url is None:
        return ApiResponse(200, before + after)
    link = _JSON_WRITER.encode(download_url).encode()
    return ApiResponse(200, b'%b"download_url":%b,%b' % (before, link, after))


@lru_cache(maxsize=1024)  # only the link differs between customers
def _around_link(name: str, slug: str, release: Release) -> tuple[bytes, bytes]:
    """Format the parts of an offer before and after its link."""
    before = {"name": name, "slug": slug, "version": release.version}
    after = {
        "sections": {"changelog": release.changelog},
        "last_updated": release.published_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),  # D-26
        "requires": None,
        "tested": None,
    }
    return (_JSON_WRITER.encode(before).encode()[:-1] + b",", _JSON_WRITER.encode(after).encode()[1:])


def invalid_update_response(invalid: InvalidRequest) -> ApiResponse:
    """Format the response to a malformed update check (D-21)."""
    body = {"error": "validation", "message": invalid.message, "errors": dict(invalid.errors)}
    return json_response(422, body)


# --- responses to downloads, and errors -------------------------------------------------------

_DOWNLOAD_REFUSALS: Final = {
    DownloadRefusal.INVALID_LINK: (403, "invalid_link", "This download address is not valid."),
    DownloadRefusal.LINK_EXPIRED: (
        403,
        "link_expired",
        "This download address has run out; check for the update again.",
    ),
    DownloadRefusal.LICENSE_REVOKED: (403, "license_revoked", "The license has been revoked."),
    DownloadRefusal.RELEASE_WITHDRAWN: (404, "release_withdrawn", "This version has been withdrawn."),
}


def download_refusal_response(refusal: DownloadRefusal) -> ApiResponse:
    """Format the refusal of a download."""
    return error_response(*_DOWNLOAD_REFUSALS[refusal])


def no_manifest_response() -> ApiResponse:
    """Format the response for a release without a signed manifest."""
    return error_response(404, "not_signed", "This version has no signed manifest.")


def error_response(status: int, code: str, message: str) -> ApiResponse:
    """Format an error of any endpoint except verify (spec 7)."""
    return json_response(status, {"error": code, "message": message})


def download_headers(release: Release) -> dict[str, str]:
    """Return the headers of a release's file, whole or in part."""
    artifact = release.artifact
    return {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private",  # a link belongs to one customer
        "Content-Disposition": attachment(artifact.file_name),
        "Content-Type": "application/octet-stream",
        "ETag": etag(release),
        "Repr-Digest": _repr_digest(artifact),
        **NOT_A_PAGE,
    }


def redirect_headers(release: Release, address: str) -> dict[str, str]:
    """Return the headers of a redirect to a release's file; name and digest are the service's (D-34)."""
    return {
        "Location": address,
        "Cache-Control": "no-store",
        "Content-Disposition": attachment(release.artifact.file_name),
        "Repr-Digest": _repr_digest(release.artifact),
        **NOT_A_PAGE,
    }


def _repr_digest(artifact: Artifact) -> str:
    """Format the digest of the whole file (RFC 9530)."""
    return f"sha-256=:{b64encode(artifact.sha256).decode()}:"


def etag(release: Release) -> str:
    """Return the strong ETag of a release's file: its digest, equal on all servers."""
    return f'"{release.artifact.sha256.hex()}"'


def attachment(file_name: str) -> str:
    """Format a Content-Disposition (RFC 6266): an ASCII name for old clients, and the real one."""
    plain = re.sub(r"[^ !#-\[\]-~]", "_", file_name)
    if plain == file_name:
        return f'attachment; filename="{plain}"'
    return f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(file_name, safe='')}"
