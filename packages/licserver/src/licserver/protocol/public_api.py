"""Requests and responses of the public API: parse bytes or a query, format a verdict. Pure.

Paths, field names, and the status and text of every specified response are in this file.
"""

import codecs
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from licserver.domain.decisions import (
    DownloadRefusal,
    Offer,
    UpdateRefusal,
    Valid,
    VerifyRefusal,
    is_platform,
    visible_expiry,
)
from licserver.domain.entitlements import resolve_stored
from licserver.domain.environments import InvalidDomainError, is_printable, normalise_domain, parse_ip
from licserver.domain.offers import is_file_kind, parse_channels
from licserver.domain.records import STABLE, Machine, Release, SecurityNotice, WordPressFields
from licserver.domain.text import read_machine
from licserver.domain.versions import is_below
from licserver.limits import MAX_TARGET_CHARS

VERIFY_PATH: Final = "/api/v1/licenses/verify"
DEACTIVATE_PATH: Final = "/api/v1/licenses/deactivate"
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

_JSON_WRITER: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


class ApiResponse(NamedTuple):
    """A status, and a body of compact JSON in the specification's order of fields."""

    status: int
    content: bytes


def json_response(status: int, body: Mapping[str, Any]) -> ApiResponse:
    """Format a body as compact JSON."""
    return ApiResponse(status, _JSON_WRITER.encode(body).encode())


def format_instant(instant: datetime) -> str:
    """Format an instant of a response, in whole seconds."""
    return f"{instant.astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}"


# --- requests ---------------------------------------------------------------------------------


class VerifyRequest(NamedTuple):
    """A valid verify request (spec 2); without a repr, because it holds a license key."""

    license_key: str
    domain: str
    machine: Machine | None = None

    def __repr__(self) -> str:
        """Return the name alone."""
        return "VerifyRequest"


class DeactivateRequest(NamedTuple):
    """A valid request to free the slots of a domain; without a repr, because it holds a license key."""

    license_key: str
    domain: str

    def __repr__(self) -> str:
        """Return the name alone."""
        return "DeactivateRequest"


class UpdateRequest(NamedTuple):
    """A valid update check (spec 4.2); without a repr, because it holds a license key."""

    license_key: str
    slug: str
    current_version: str
    domain: str
    platform: str  # empty if the request has no valid name
    channels: tuple[str, ...] = ()
    is_manual: bool = False
    kind: str = ""  # of the file that the app can install; empty if the request has no valid name

    def __repr__(self) -> str:
        """Return the name alone."""
        return "UpdateRequest"


@dataclass(frozen=True, slots=True)
class InvalidRequest:
    """The errors of a malformed request, by field (D-11)."""

    errors: Mapping[str, list[str]]

    @property
    def message(self) -> str:
        """The first error, and the number of further errors."""
        problems = [problem for field_problems in self.errors.values() for problem in field_problems]
        remaining = len(problems) - 1
        if remaining <= 0:
            return problems[0]
        return f"{problems[0]} (and {remaining} more {'error' if remaining == 1 else 'errors'})"


class InvalidFieldError(ValueError):
    """Error of a field; the message completes 'The x field …'."""


def read_matching(pattern: re.Pattern[str], problem: str, value: Any) -> str:
    """Return text that fully matches a pattern; `problem` is the message of the error."""
    if not (isinstance(value, str) and pattern.fullmatch(value)):
        raise InvalidFieldError(problem)
    return value


def read_text(value: Any) -> str:
    """Parse a field with text that is not blank."""
    if not isinstance(value, str):
        raise InvalidFieldError("is required." if value is None else "must be a string.")
    if not value.strip():
        raise InvalidFieldError("is required.")
    return value


def printable_text(value: Any) -> str:
    """Parse a field with a single line of text."""
    text = read_text(value)
    if not is_printable(text):
        raise InvalidFieldError("must not contain control characters.")
    return text


_SUFFIX: Final = r"(?:a|alpha|b|beta|c|rc|pre|preview|dev|post|rev|r)[0-9.]*"
_WITHOUT_PLUS: Final = re.compile(
    rf"([0-9][0-9a-z.]{{0,63}}) (?!{_SUFFIX}$)(?=[a-z._-]*[0-9])([0-9a-z][0-9a-z._-]{{0,63}})", re.IGNORECASE
)


def restore_plus(version: str) -> str:
    """Return a version with the plus sign that a query has made a blank: ``1.0.0 5`` is 1.0.0+5 (D-24).

    Of ``1.0 beta`` the blank stays: as 1.0+beta it would be newer than 1.0. So does that of ``2024 Spring``.
    """
    match = _WITHOUT_PLUS.fullmatch(version) if " " in version else None
    return f"{match[1]}+{match[2]}" if match else version


def _read_installed(value: Any) -> str:
    return restore_plus(printable_text(value))


def read_domain(value: Any) -> str:
    """Parse a field with a domain; return its normal form."""
    try:
        return normalise_domain(read_text(value))
    except InvalidDomainError as error:
        raise InvalidFieldError(f"{error}.") from None


def read_ip(value: Any) -> str:
    """Parse a field with an address."""
    text = read_text(value)
    if parse_ip(text) is None:
        raise InvalidFieldError("must be a valid IP address.")
    return text


# Any text passes as a license key here: `evaluate_verify` refuses other formats with 403.
_VERIFY_FIELDS: Final = {"license_key": read_text, "domain": read_domain, "ip": read_ip}
_DEACTIVATE_FIELDS: Final = {"license_key": read_text, "domain": read_domain}
_UPDATE_FIELDS: Final = {
    "license_key": read_text,
    "slug": printable_text,
    "current_version": _read_installed,
    "domain": read_domain,
}


def parse_fields(
    fields: Mapping[str, Callable[[Any], Any]], values: Mapping[str, Any]
) -> dict[str, Any] | InvalidRequest:
    """Parse each field; collect the messages of `InvalidFieldError`."""
    parsed: dict[str, Any] = {}
    errors: dict[str, list[str]] = {}
    for name, parse in fields.items():
        try:
            parsed[name] = parse(values.get(name))
        except InvalidFieldError as error:
            errors[name] = [f"The {name.replace('_', ' ')} field {error}"]
    return InvalidRequest(errors) if errors else parsed


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")  # Python accepts NaN and Infinity


_JSON_SPACE: Final = " \t\n\r"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
# No field is a number with a fraction, and parsing thousands took most of the time: all become the same.
_JSON_READER: Final = json.JSONDecoder(parse_float=lambda _: 0.5, parse_constant=_refuse_constant)


def parse_verify(body: bytes) -> VerifyRequest | InvalidRequest:
    """Parse the body of a verify request, at most `MAX_PUBLIC_BODY_BYTES` (spec 2).

    A body that is not a JSON object lacks all fields.
    """
    values = read_object(body)
    fields = parse_fields(_VERIFY_FIELDS, values)
    if isinstance(fields, InvalidRequest):
        return fields
    machine = None
    if "label" in values or "app_version" in values:
        machine = read_machine(values.get("label"), values.get("app_version"))
    return VerifyRequest(fields["license_key"], fields["domain"], machine)


def parse_deactivate(body: bytes) -> DeactivateRequest | InvalidRequest:
    """Parse the body of a request to free slots, as `parse_verify` does."""
    fields = parse_fields(_DEACTIVATE_FIELDS, read_object(body))
    return fields if isinstance(fields, InvalidRequest) else DeactivateRequest(**fields)


_MAX_COMMAS: Final = 1_000  # parsing 7,500 numbers took two thirds of the time (D-299)


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty dict for other bodies, and for more than a thousand values."""
    if body.count(b",") > _MAX_COMMAS:
        return {}
    try:
        text = body.removeprefix(_BYTE_ORDER_MARK).decode().strip(_JSON_SPACE)
        values, end = _JSON_READER.raw_decode(text)  # `decode` looks for spaces by two patterns: 0.6 us
    except (ValueError, RecursionError):  # not UTF-8, not JSON, a number too long, nested too deep
        return {}
    return values if isinstance(values, dict) and end == len(text) else {}


def parse_update_check(query: str) -> UpdateRequest | InvalidRequest:
    """Parse the raw query of an update check (spec 4.2)."""
    if len(query) > MAX_TARGET_CHARS:
        return InvalidRequest({"query": [f"The query must be at most {MAX_TARGET_CHARS} characters long."]})
    values = parse_query(query)
    fields = parse_fields(_UPDATE_FIELDS, values)
    if isinstance(fields, InvalidRequest):
        return fields
    platform = values.get("platform", "")
    channels = parse_channels(values["channels"]) if "channels" in values else ()
    return UpdateRequest(
        **fields,
        platform=platform if platform and is_platform(platform) else "",
        channels=channels,
        is_manual=values.get("manual") == "1",
        kind=values["kind"] if "kind" in values and is_file_kind(values["kind"]) else "",
    )


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
    short = text.replace("+", " ").replace("%3A", ":").replace("%2F", "/")
    return decode_escapes(text) if "%" in short else short


_LONE_PERCENT: Final = re.compile("%(?![0-9A-Fa-f]{2})")


def decode_escapes(text: str, errors: str = "replace") -> str:
    """Decode a name or value of a query or a form; `errors` handles invalid UTF-8, as in `bytes.decode`.

    With `strict`, a lone percent sign raises `ValueError`, too: no browser sends it.

    `unquote` takes four times as long as `unicode_escape`, to whose escapes percent signs are converted.
    """
    if errors == "strict" and _LONE_PERCENT.search(text):
        raise ValueError("a percent sign that begins no escape")
    if not text.isascii():  # neither a target (400) nor a form of a browser
        return unquote(text.replace("+", " "), errors=errors)
    text = text.replace("+", " ")
    if "%" not in text:
        return text
    text = _LONE_PERCENT.sub("%25", text)
    escaped = text.replace("\\", "%5C").replace("%", "\\x").encode()
    return codecs.decode(escaped, "unicode_escape").encode("latin-1").decode(errors=errors)


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
    expiry, plan, overrides = visible_expiry(license_), license_.plan, license_.overrides
    until = license_.support_until if license_.has_updates_until else NO_UPDATES_UNTIL
    return _valid(license_.product_name, expiry, license_.lifetime, plan, overrides, license_.trial, until)


@lru_cache(maxsize=16)
def _refused(refusal: VerifyRefusal) -> ApiResponse:
    status, reason = _VERIFY_REFUSALS[refusal]
    return json_response(status, {"valid": False, "reason": reason})


@lru_cache(maxsize=4096)  # most customers get the same response
def _valid(
    product: str,
    expiry: date | None,
    lifetime: bool,
    plan: str | None,
    overrides: str | None,
    trial: bool,
    updates_until: date | None,
) -> ApiResponse:
    day = expiry.isoformat() if expiry else None
    body: dict[str, Any] = {"valid": True, "product": product, "expiry": day, "lifetime": lifetime}
    if (entitlements := resolve_stored(plan, overrides)) is not None:
        body["entitlements"] = entitlements
    if trial:
        body["trial"] = True
    return json_response(200, body | _updates_until(updates_until))


NO_UPDATES_UNTIL: Final = date.min
"""In the place of a date: the product's responses do not name the end of updates."""


def _updates_until(until: date | None) -> dict[str, str | None]:
    if until is NO_UPDATES_UNTIL:
        return {}
    return {"updates_until": None if until is None else until.isoformat()}


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


def update_response(
    verdict: Offer | UpdateRefusal, download_url: str | None, installed: str = "", kind: str = ""
) -> ApiResponse:
    """Format the response to an update check (spec 2, spec 7); `download_url` None omits the field.

    Args:
        verdict: What is offered, or why nothing is.
        download_url: The link to the file.
        installed: The version of the request.
        kind: The kind of the request, which the response repeats; empty for none.
    """
    if isinstance(verdict, UpdateRefusal):
        return error_response(*_UPDATE_REFUSALS[verdict])
    product, release, license_ = verdict.product, verdict.release, verdict.license
    security = release.security
    if security is not None and (download_url is None or not is_below(installed, release.version)):
        security = None  # it is not offered, or it is installed
    before, after = _around_link(
        product.name,
        product.slug,
        release,
        product.minimum_version,
        verdict.is_critical,
        license_.support_until if license_.has_updates_until else NO_UPDATES_UNTIL,
        verdict.latest_version,
        security,
        kind,
    )
    if download_url is None:
        return ApiResponse(200, before + after)
    link = _JSON_WRITER.encode(download_url).encode()
    return ApiResponse(200, b'%b"download_url":%b,%b' % (before, link, after))


@lru_cache(maxsize=1024)  # only the link differs between customers
def _around_link(
    name: str,
    slug: str,
    release: Release,
    minimum: str | None,
    is_critical: bool,
    updates_until: date | None,
    latest_version: str | None,
    security: SecurityNotice | None,
    kind: str,
) -> tuple[bytes, bytes]:
    """Format the parts of an offer before and after its link, with the extension fields in use."""
    before = {"name": name, "slug": slug, "version": release.version}
    after = {
        "sections": {"changelog": release.changelog},
        "last_updated": release.published_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S"),  # D-26
        **_fields_for_wordpress(release.wordpress),
        **({} if release.channel == STABLE else {"channel": release.channel}),
        **({} if minimum is None else {"minimum_version": minimum}),
        **({"critical": True} if is_critical else {}),
        **_updates_until(updates_until),
        **({} if latest_version is None else {"latest_version": latest_version}),
        **({} if security is None else {"security": security._asdict()}),
        **({"kind": kind} if kind else {}),
    }
    return (_JSON_WRITER.encode(before).encode()[:-1] + b",", _JSON_WRITER.encode(after).encode()[1:])


def _fields_for_wordpress(fields: WordPressFields) -> dict[str, str | None]:
    """Return all fields of spec 2, and the further fields that the vendor has set (D-199)."""
    items = fields._asdict().items()
    return {name: text for name, text in items if text is not None or name in ("requires", "tested")}


def invalid_update_response(invalid: InvalidRequest) -> ApiResponse:
    """Format the response to a malformed update check (D-21)."""
    body = {"error": "validation", "message": invalid.message, "errors": dict(invalid.errors)}
    return json_response(422, body)


# --- responses to a request to free slots -----------------------------------------------------


def deactivated_response(freed: int) -> ApiResponse:
    """Format the response with the number of freed slots."""
    return json_response(200, {"deactivated": freed})


def unknown_key_response() -> ApiResponse:
    """Format the refusal of an invalid key."""
    return error_response(*_UPDATE_REFUSALS[UpdateRefusal.INVALID_LICENSE])


def too_many_moves_response(message: str, retry_at: datetime | None) -> ApiResponse:
    """Format the refusal to free a slot; without `retry_at` the product does not allow it at all."""
    code = "not_allowed" if retry_at is None else "too_many_moves"
    again = None if retry_at is None else format_instant(retry_at)
    return json_response(403, {"error": code, "message": message, "retry_at": again})


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
