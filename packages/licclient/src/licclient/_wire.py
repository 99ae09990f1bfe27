"""Pure: the protocol's text. Settings → call; reply → what it says, or the error that it comes to.

Only 200, 401, 403, 404 and 422 with the specified body are the server's word; everything else is no answer
and becomes `ServiceUnavailableError` (D-40). Types are checked strictly: `"true"` is not `true`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Any, Final
from urllib.parse import quote, urlencode

from licclient._links import is_safe_link
from licclient._model import Listing, Reason, Settings, Verified
from licclient.errors import InvalidRequestError, LicclientError, LicenseRefusedError, ServiceUnavailableError

VERIFY_PATH: Final = "/api/v1/licenses/verify"
UPDATE_CHECK_PATH: Final = "/api/v1/update-check"

MANIFEST_HEADER: Final = "release-manifest"
"""Carries what the vendor signed about the version that an update check tells (D-67)."""

MAX_VERIFY_BYTES: Final = 64 * 1024
"""Longest answer to a verify that is read: a real one has some hundred bytes."""

MAX_UPDATE_BYTES: Final = 1024 * 1024
"""Longest answer to an update check that is read: a changelog can be long."""

MIN_MASKED: Final = 10
"""Shortest text that is taken for a license key when the server repeats it."""

REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})

_WORDS: Final = frozenset({200, 401, 403, 404, 422})

# Compiled when it is needed: that takes longer than anything else here.
_KEY_SHAPE: Final = r"CP(?:(?:-|%2D)[A-Z0-9]{6}){2,5}"  # also the larger half of one

_JSON_HEADERS: Final = {"Accept": "application/json"}

# spec 7: the sentences of a refused verify.
_VERIFY_REASONS: Final = {
    "Invalid license format.": Reason.INVALID_FORMAT,
    "License not found.": Reason.NOT_FOUND,
    "License has been revoked.": Reason.REVOKED,
    "License expired.": Reason.EXPIRED,
    "Max activations exceeded or unrecognized environment.": Reason.ENVIRONMENT,
}

# spec 7 and D-31: the codes of a refused update check or download. `invalid_license` covers unknown,
# malformed and revoked keys alike, so it can be no more precise than OTHER.
_UPDATE_REASONS: Final = {
    "license_expired": Reason.EXPIRED,
    "license_revoked": Reason.REVOKED,
    "product_mismatch": Reason.OTHER_PRODUCT,
}


@dataclass(frozen=True, slots=True)
class Call:
    """One request to one of the two endpoints; what holds the license key is not in its repr."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str]
    body: bytes | None = field(repr=False)
    max_bytes: int
    nonce: str | None = None
    """What a signed answer must repeat; None when no signature is asked for."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What came back, read to its end: `body` is at most the call's `max_bytes` long and not encoded.

    The names in `headers` are in lower case; several lines of one name are joined by commas. `retry_after` is
    in seconds, None when the answer did not say.
    """

    status: int
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one try of a call came to.

    Attributes:
        result: The response, or why there is none.
        may_retry: Whether the same request may succeed a moment later.
        was_closed: Whether there is none because the client was closed meanwhile.
    """

    result: Reply | ServiceUnavailableError
    may_retry: bool = False
    was_closed: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The head of an answer to a download; `refusal` is the body when it is no file, at most 64 KiB of it."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    refusal: bytes = field(default=b"", repr=False)
    retry_after: float | None = None


# --- calls ------------------------------------------------------------------------------------


def tidy_key(typed: str) -> str | InvalidRequestError:
    """Repair what a person typed: white space goes, letters become upper case (D-02).

    Args:
        typed: What the app was given. Its shape is for the server to judge.

    Returns:
        The key to send, or `InvalidRequestError` when nothing is left or it is no Unicode text.

    Raises:
        TypeError: Not a string.
    """
    if not isinstance(typed, str):
        raise TypeError(f"a license key is a string, not {type(typed).__name__}")
    key = "".join(typed.split()).upper()
    if not key:
        return InvalidRequestError({"license_key": ["The license key is empty."]})
    if not _is_text(key):
        return InvalidRequestError({"license_key": ["The license key is not readable text."]})
    return key


def verify_call(settings: Settings, key: str, domain: str, ip: str) -> Call:
    """Write a verify request (spec 4.1).

    Args:
        settings: Where to send it.
        key: As from `tidy_key`.
        domain: The app's domain, or the installation id (D-45).
        ip: Our own address; the server checks its syntax only (D-05).
    """
    body = json.dumps({"license_key": key, "domain": domain, "ip": ip})
    headers = {**_JSON_HEADERS, "Content-Type": "application/json"}
    return Call("POST", settings.server + VERIFY_PATH, headers, body.encode(), MAX_VERIFY_BYTES)


def update_call(settings: Settings, key: str, slug: str, version: str, domain: str) -> Call:
    """Write an update check (spec 4.2); arguments as for `verify_call`."""
    fields = {"license_key": key, "slug": slug, "current_version": version, "domain": domain}
    url = f"{settings.server}{UPDATE_CHECK_PATH}?{urlencode(fields, quote_via=quote)}"
    return Call("GET", url, _JSON_HEADERS, None, MAX_UPDATE_BYTES)


def shown_ip(address: str) -> str:
    """Write a socket's address as the `ip` of a verify: without a zone, `0.0.0.0` when it is none (D-45)."""
    from ipaddress import ip_address  # noqa: PLC0415 - for a call only

    try:
        return str(ip_address(address.partition("%")[0]))
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - "no address" on the wire; nothing is bound to it


# --- replies ----------------------------------------------------------------------------------


def makes_no_claim(reply: Reply, read: object) -> bool:
    """Tell whether this cannot be the server's word, whoever signs it (D-40).

    Its status is none of the server's words; or it is somebody else's, such as a gateway's 403: without any
    sign of a signature, and what was `read` in it is no answer. What does claim to be the server's word can
    be asked to prove it.
    """
    if reply.status not in _WORDS:
        return True
    return "signature" not in reply.headers and isinstance(read, ServiceUnavailableError)


def read_verify(reply: Reply, key: str) -> Verified | LicclientError:
    """Read the answer to a verify (spec 4.1, D-40).

    Args:
        reply: Any status, any bytes.
        key: The key that was asked about; masked in the server's words should it occur there.

    Returns:
        The success; or `LicenseRefusedError`, `InvalidRequestError`, or `ServiceUnavailableError` when this
        is not a response of the service.
    """
    body = _json_object(reply.body)
    match reply.status, body:
        case 200, {"valid": True, "product": str(product), "expiry": expiry, "lifetime": bool(lifetime)} if (
            _is_text(product)
        ):
            return _verified(product, expiry, lifetime=lifetime)
        case 403 | 404, {"valid": False, "reason": str(reason)} if _is_text(reason):
            return LicenseRefusedError(_VERIFY_REASONS.get(reason, Reason.OTHER), _masked(reason, key))
        case 422, {"message": str(), "errors": dict(errors)}:
            return _invalid(errors, key)
        case _:
            return no_word(reply.status, reply.retry_after)


def read_update(reply: Reply, settings: Settings, slug: str, key: str) -> Listing | LicclientError:
    """Read the answer to an update check (spec 4.2, D-40).

    Args:
        reply: Any status, any bytes.
        settings: Whose server answered: says which download addresses are safe.
        slug: The slug that was asked about; an answer about another one is no answer.
        key: As in `read_verify`.

    Returns:
        The listing; or `LicenseRefusedError`, `InvalidRequestError`, `ServiceUnavailableError`.
    """
    body = _json_object(reply.body)
    match reply.status, body:
        case 200, {"slug": str(told), "sections": {"changelog": str(changelog)}} if told == slug:
            listing = _listing(body, changelog, settings)
            if isinstance(listing, Listing) and settings.release_keys:
                listing = replace(listing, manifest=reply.headers.get(MANIFEST_HEADER))
            return listing
        case 401 | 403 | 404, _:
            return read_refusal(reply, key) or no_word(reply.status)
        case 422, {"message": str(), "errors": dict(errors)}:
            return _invalid(errors, key)
        case _:
            return no_word(reply.status, reply.retry_after)


def read_refusal(reply: Reply, key: str) -> LicenseRefusedError | None:
    """Read a body of the shape `{error, message}` (spec 7, D-31), or None when it has another shape."""
    match _json_object(reply.body):
        case {"error": str(code), "message": str(message)} if _is_text(code) and _is_text(message):
            return LicenseRefusedError(_UPDATE_REASONS.get(code, Reason.OTHER), _masked(message, key))
        case _:
            return None


def no_word(status: int, retry_after: float | None = None) -> ServiceUnavailableError:
    """Say that something answered, but not as the service does (D-40)."""
    hint = "; it redirects: is base_url its very address?" if status in REDIRECTS else ""
    return ServiceUnavailableError(
        f"The license service gave no usable answer (HTTP status {status}{hint}).", retry_after
    )


# --- the fields -------------------------------------------------------------------------------


def _json_object(body: bytes) -> dict[str, Any]:
    """Read a JSON object; anything else is the empty one, which no rule above accepts."""
    try:
        value = json.loads(body.decode("utf-8"), object_pairs_hook=_unique)
    except (ValueError, RecursionError):  # not UTF-8, not JSON, an endless number, too deep
        return {}
    return value if isinstance(value, dict) else {}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse an object that says two things under one name: another reader would believe the other one."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _verified(product: str, expiry: object, *, lifetime: bool) -> Verified | ServiceUnavailableError:
    if expiry is None:
        return Verified(product, None, lifetime)
    expires_on = read_date(expiry)
    # D-10: a key that never expires has no date, so an answer with both is not the service's.
    return no_word(200) if expires_on is None or lifetime else Verified(product, expires_on, lifetime)


def _listing(body: dict[str, Any], changelog: str, settings: Settings) -> Listing | ServiceUnavailableError:
    link = body.get("download_url")
    if "download_url" in body and not isinstance(link, str):
        return no_word(200)
    if link is not None and not is_safe_link(link, settings):
        return ServiceUnavailableError(
            "The service offers a file from a place that this app does not take files from"
            " (https only, never this computer itself, unless download_origins names it)."
        )
    match body:
        case {"name": str(name), "slug": str(slug), "version": str(version), "last_updated": str(stamp)}:
            updated_at = read_timestamp(stamp)
            if updated_at is None or not all(map(_is_text, (name, slug, version, changelog))):
                return no_word(200)
            return Listing(name, slug, version, changelog, updated_at, link)
        case _:
            return no_word(200)


def read_date(value: object) -> date | None:
    """Read `YYYY-MM-DD`, naming a day that exists; None for anything else."""
    if not isinstance(value, str) or not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value):
        return None
    try:
        return date.fromisoformat(value)
    except ValueError:
        return None


def read_timestamp(value: str) -> datetime | None:
    """Read `YYYY-MM-DD HH:MM:SS` as an instant, UTC (D-26); None for anything else."""
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}", value):
        return None
    try:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    except ValueError:
        return None


def _invalid(errors: dict[str, Any], key: str) -> InvalidRequestError | ServiceUnavailableError:
    read: dict[str, list[str]] = {}
    for name, problems in errors.items():
        if not isinstance(problems, list) or not all(
            isinstance(one, str) and _is_text(one) for one in problems
        ):
            return no_word(422)
        read[_masked(name, key)] = [_masked(one, key) for one in problems]
    return InvalidRequestError(read)


def _masked(words: str, key: str) -> str:
    """Take the license key out of the server's words, should they repeat it, and whatever looks like one.

    What is much shorter than a key was never one, and may well be a word that people need to read.
    """
    if len(key) >= MIN_MASKED:
        words = re.sub(re.escape(key), "…", words, flags=re.IGNORECASE)
    return re.sub(_KEY_SHAPE, "…", words, flags=re.IGNORECASE)


def _is_text(value: str) -> bool:
    """Tell whether this can be written anywhere: JSON lets NUL and halves of surrogate pairs through."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in value
