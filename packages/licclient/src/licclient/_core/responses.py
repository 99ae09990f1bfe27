"""Pure: a response → its content, or the error that it means.

Only what the protocol defines for an endpoint is the service's word: a status, and the body or code that
belongs to it. Everything else is no response and becomes `ServiceUnavailableError` (D-40). Types are checked
strictly: `"true"` is not `true`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from licclient._core.arguments import is_text
from licclient._core.lazy import lazy
from licclient._core.model import Outage, Reason, Settings, Verified, read_entitlements
from licclient._core.requests import escape_link, is_https_address, is_safe_link, read_date, read_instant
from licclient.errors import (
    DeactivationError,
    InvalidRequestError,
    LicclientError,
    LicenseRefusedError,
    ServiceUnavailableError,
)

if TYPE_CHECKING:
    from email import utils as email_utils

    from licclient._core import kinds, update_model
    from licclient._core.update_model import Listing
else:
    email_utils = lazy("email.utils")
    kinds = lazy("licclient._core.kinds")
    update_model = lazy("licclient._core.update_model")

MANIFEST_HEADER: Final = "release-manifest"
"""Carries what the vendor signed about the version that an update check offers (D-67)."""

MIN_MASKED: Final = 10
"""Shortest text that is taken for a license key when the server repeats it."""

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

PROXY_LOGIN: Final = 407
NETWORK_LOGIN: Final = 511

REQUEST_ID_HEADER: Final = "x-request-id"
_REQUEST_ID: Final = r"[A-Za-z0-9_.:=+/-]{1,64}"

_CVE: Final = r"CVE-[0-9]{4}-[0-9]{4,19}"
_MAX_CVES: Final = 100
_MAX_ADVISORY: Final = 2000

T = TypeVar("T")

UNKNOWN_ENDPOINT: Final = frozenset({404, 405, 501})
"""With one of these and no body of ours, the service does not have the endpoint, such as an older one."""

_STATUSES: Final = frozenset({200, 401, 403, 404, 422})

# Compiled when it is needed: that takes longer than anything else here.
_KEY_SHAPE: Final = r"CP(?:(?:-|%2D)[A-Z0-9]{6}){2,5}"  # also the larger half of one

# spec 7: the sentences of a refused verify.
_VERIFY_REASONS: Final = {
    "Invalid license format.": Reason.INVALID_FORMAT,
    "License not found.": Reason.NOT_FOUND,
    "License has been revoked.": Reason.REVOKED,
    "License expired.": Reason.EXPIRED,
    "Max activations exceeded or unrecognized environment.": Reason.ENVIRONMENT,
}

Refusals = Mapping[str, Reason]
"""The codes by which an endpoint refuses a license; any other one is no answer."""

# spec 7. `invalid_license` covers unknown, malformed and revoked keys alike, so it can be no more precise.
LICENSE_REFUSALS: Final[Refusals] = {"invalid_license": Reason.OTHER, "license_expired": Reason.EXPIRED}
UPDATE_REFUSALS: Final[Refusals] = {
    **LICENSE_REFUSALS,
    "product_mismatch": Reason.OTHER_PRODUCT,
    "product_not_found": Reason.UNKNOWN_PRODUCT,
    "no_versions": Reason.NO_VERSION,
}
_WRONG_SLUG: Final = frozenset({"product_not_found", "product_mismatch"})

DOWNLOAD_REFUSALS: Final[Refusals] = {"license_revoked": Reason.REVOKED}
"""D-31; of the link itself, any 403 or 404."""

_REFUSED: Final = frozenset({401, 403, 404})


@dataclass(frozen=True, slots=True)
class Reply:
    """A response, read to its end: `body` is at most the call's `max_bytes` long and not encoded.

    The names in `headers` are in lower case; several lines of one name are joined by commas. `retry_after` is
    in seconds, None if absent.
    """

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The outcome of one attempt of a call: the response, or the reason for its absence.

    `may_retry`: the same request may succeed a moment later. `was_closed`: the client was closed meanwhile.
    """

    result: Reply | ServiceUnavailableError
    may_retry: bool = False
    was_closed: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a response to a download.

    `refusal` is the body if it is no file, at most 64 KiB. `is_protected` is true if every address on the way
    to it was `https`, or the service's own.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    refusal: bytes = field(default=b"", repr=False)
    retry_after: float | None = None
    is_protected: bool = False


def note_origin(result: T, reply: "Reply | Head", key: str) -> T:
    """Note in an error which response it is about, and return it; return anything else as it is."""
    if isinstance(result, LicclientError):
        result.http_status = reply.status
        request_id = reply.headers.get(REQUEST_ID_HEADER, "")
        if re.fullmatch(_REQUEST_ID, request_id) and masked(request_id, key) == request_id:
            result.request_id = request_id
    return result


def is_foreign(reply: Reply, read: object) -> bool:
    """Return whether a response needs no signature because it is not the service's.

    Its status is none that the service signs; or there is no signature and what was `read` is no response of
    ours, such as a gateway's 403.
    """
    if reply.status not in _STATUSES:
        return True
    return "signature" not in reply.headers and isinstance(read, ServiceUnavailableError)


def read_verify(reply: Reply, key: str) -> Verified | LicclientError:
    """Parse the response to a verify (spec 4.1); should it repeat the key, that is masked."""
    body = read_json_object(reply.body)
    match reply.status, body:
        case 200, {"valid": True, "product": str(product), "expiry": expiry, "lifetime": bool(lifetime)} if (
            is_text(product)
        ):
            expires_on = None if expiry is None else read_date(expiry)
            # D-10: a key that never expires has no date, so a response with both is not the service's.
            if expiry is not None and (expires_on is None or lifetime):
                return unusable_reply(reply)
            granted, is_trial = read_entitlements(body.get("entitlements")), body.get("trial") is True
            until = _read_updates_until(body)
            about = product, expires_on, lifetime
            return Verified(*about, entitlements=granted, is_trial=is_trial, updates_until=until)
        case 403 | 404, {"valid": False, "reason": str(reason)} if is_text(reason):
            return LicenseRefusedError(_VERIFY_REASONS.get(reason, Reason.OTHER), masked(reason, key))
        case _:
            return read_failure(reply, key)


def read_update(reply: Reply, settings: Settings, slug: str, key: str) -> "Listing | LicclientError":
    """Parse the response to an update check (spec 4.2); ignore one about another slug."""
    body = read_json_object(reply.body)
    match reply.status, body:
        case 200, {"slug": str(received), "sections": {"changelog": str(changelog)}} if received == slug:
            listing = _listing(body, changelog, settings)
            if isinstance(listing, update_model.Listing) and settings.release_keys:
                listing = replace(listing, manifest=reply.headers.get(MANIFEST_HEADER))
            return listing
        case _:
            return read_failure(reply, key, UPDATE_REFUSALS)


def read_deactivate(reply: Reply, key: str) -> LicclientError | None:
    """Parse the response to a request to free our slot; None when it is free.

    A service that does not know the request, or does not free slots for customers, is a `DeactivationError`.
    """
    body = read_json_object(reply.body)
    match reply.status, body:
        case 200, {"deactivated": int()}:
            return None
        case 403, {"error": "too_many_moves" | "not_allowed", "message": str(message), "retry_at": at} if (
            is_text(message)
        ):
            return DeactivationError(masked(message, key), read_instant(at))
        case status, _ if status in UNKNOWN_ENDPOINT:
            return DeactivationError(
                "This license service does not free the slots of computers; its support may."
            )
        case _:
            return read_failure(reply, key, {"invalid_license": Reason.OTHER})


def read_failure(reply: Reply, key: str, refusals: Refusals | None = None) -> LicclientError:
    """Parse an error in the form that endpoints share; `refusals` are those of the endpoint."""
    match reply.status, read_json_object(reply.body):
        case 422, {"message": str(), "errors": dict(errors)}:
            return _read_invalid(errors, key)
        case _:
            return read_refusal(reply, key, refusals or {}) or unusable_reply(reply)


def is_slug_refused(reply: Reply) -> bool:
    """Return whether a refusal is about the slug: of no product, or of another than the license's."""
    return (read_json_object(reply.body) or {}).get("error") in _WRONG_SLUG


def read_refusal(reply: Reply, key: str, refusals: Refusals) -> LicenseRefusedError | None:
    """Parse a body of the shape `{error, message}` (spec 7); None for a code that is not in `refusals`."""
    match read_json_object(reply.body):
        case {"error": str(code), **fields} if reply.status in _REFUSED and code in refusals:
            message = fields.get("message")
            words = message if isinstance(message, str) and is_text(message) else ""
            return LicenseRefusedError(refusals[code], masked(words, key))
        case _:
            return None


def unusable_reply(reply: Reply) -> ServiceUnavailableError:
    """Return the error for a whole response that is not the service's."""
    is_page = reply.body.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
    return unusable_response(reply.status, reply.retry_after, is_page=is_page)


def unusable_response(
    status: int, retry_after: float | None = None, *, is_page: bool = False
) -> ServiceUnavailableError:
    """Return the error for a response that is not the service's; `is_page` for a web page."""
    hint = "; it redirects: set base_url to its final address" if status in REDIRECTS else ""
    error = ServiceUnavailableError(
        f"The license service gave no usable answer (HTTP status {status}{hint}).",
        retry_after,
        _outage(status, is_page=is_page),
    )
    error.http_status = status
    return error


def _outage(status: int, *, is_page: bool) -> Outage:
    """Return what such a response means for a person: a network's login page comes with 200 or a redirect."""
    if status == PROXY_LOGIN:
        return Outage.PROXY
    is_login = status in REDIRECTS or status == NETWORK_LOGIN or (is_page and status == 200)  # noqa: PLR2004
    return Outage.LOGIN_PAGE if is_login else Outage.UNUSABLE


def read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After` (RFC 9110 10.2.3); a date counts from the server's own `Date`."""
    value = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    at, now = read_http_date(value), read_http_date(headers.get("Date", ""))
    return max(0.0, (at - now).total_seconds()) if at and now else None


def read_http_date(value: str) -> datetime | None:
    """Return the instant that a response names, in each of the forms of RFC 9110; None for anything else."""
    try:
        at = email_utils.parsedate_to_datetime(value)
    except (ValueError, IndexError, OverflowError):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)  # the oldest form names no zone, and means this one


# --- the fields -------------------------------------------------------------------------------


def read_json_object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; return `{}`, which no rule above accepts, for anything else."""
    try:
        value = json.loads(body.decode("utf-8-sig"), object_pairs_hook=_unique)  # some write a BOM
    except (ValueError, RecursionError):  # not UTF-8, not JSON, an endless number, too deep
        return {}
    return value if isinstance(value, dict) else {}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a repeated name: another parser would take the other value (D-56)."""
    unique = dict(pairs)
    if len(unique) < len(pairs):
        raise ValueError("a name occurs twice")
    return unique


def _listing(body: dict[str, Any], changelog: str, settings: Settings) -> "Listing | ServiceUnavailableError":
    link = body.get("download_url")
    if "download_url" in body and not isinstance(link, str):
        return unusable_response(200)
    link = None if link is None else escape_link(link)
    if link is not None and not is_safe_link(link, settings):
        return ServiceUnavailableError(
            "The service offers a file from an address that this app does not accept"
            " (https only, never this computer itself, unless download_origins names it).",
            outage=Outage.UNUSABLE,
        )
    match body:
        case {"name": str(name), "slug": str(slug), "version": str(version), "last_updated": str(stamp)}:
            updated_at = read_timestamp(stamp)
            if updated_at is None or not all(map(is_text, (name, slug, version, changelog))):
                return unusable_response(200)
            about = name, slug, version, changelog, updated_at
            security = body.get("security")
            advisory, cves = _read_security(security) if isinstance(security, dict) else (None, ())
            return update_model.Listing(
                *about,
                download_url=link,
                channel=_extension(body, "channel"),
                minimum_version=_extension(body, "minimum_version"),
                is_critical=body.get("critical") is True,
                latest_version=_extension(body, "latest_version"),
                updates_until=_read_updates_until(body),
                is_security=isinstance(security, dict),
                advisory=advisory,
                cves=cves,
                kind=kinds.read_published_kind(body.get("kind")),
            )
        case _:
            return unusable_response(200)


def _extension(body: dict[str, Any], name: str) -> str | None:
    """Read a field that other services do not have, or use for something else."""
    value = body.get(name)
    return value if isinstance(value, str) and is_text(value) else None


def _read_updates_until(body: dict[str, Any]) -> date | None:
    """Read until which day releases are covered; None also for what is no date."""
    return read_date(body.get("updates_until"))


def _read_security(notice: dict[str, Any]) -> tuple[str | None, tuple[str, ...]]:
    """Read the advisory and the CVE ids of a security release; leave out what is neither (D-320)."""
    advisory, cves = notice.get("advisory"), notice.get("cves")
    is_page = isinstance(advisory, str) and len(advisory) <= _MAX_ADVISORY and is_https_address(advisory)
    ids = cves[:_MAX_CVES] if isinstance(cves, list) else []
    valid_cves = tuple(cve for cve in ids if is_cve(cve))
    return advisory if is_page else None, valid_cves


def is_cve(value: object) -> bool:
    """Return whether this is the id of a vulnerability."""
    return isinstance(value, str) and re.fullmatch(_CVE, value) is not None


def read_timestamp(value: str) -> datetime | None:
    """Parse `YYYY-MM-DD HH:MM:SS` as UTC (D-26); None for anything else."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}", value):
        return None
    try:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    except ValueError:
        return None


def _read_invalid(errors: dict[str, Any], key: str) -> InvalidRequestError | ServiceUnavailableError:
    """Parse the faulty fields of a 422."""
    read: dict[str, list[str]] = {}
    for name, problems in errors.items():
        if not isinstance(problems, list) or not all(
            isinstance(problem, str) and is_text(problem) for problem in problems
        ):
            return unusable_response(422)
        read[masked(name, key)] = [masked(problem, key) for problem in problems]
    return InvalidRequestError(read)


def masked(words: str, key: str) -> str:
    """Mask the license key in the server's text, and whatever looks like one.

    Text much shorter than a key is no key, and may be a word that people need to read.
    """
    if len(key) >= MIN_MASKED:
        words = re.sub(re.escape(key), "…", words, flags=re.IGNORECASE)
    return re.sub(_KEY_SHAPE, "…", words, flags=re.IGNORECASE)
