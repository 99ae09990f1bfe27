"""Pure: signed responses (RFC 9421, RFC 9530), as they arrive and as they are remembered.

A signature covers the response *and* the request, so that no response can replace another: status, content
type and digest of the response; method, address and digest of the request; and a nonce drawn for this call.

A success is stored as it came, with its signature, and checked again at each read. The request is not stored
but written again from server, key, domain, address and label, so a record of any other of them has no valid
signature.
"""

import json
import re
from base64 import b64decode, b64encode, urlsafe_b64decode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from licclient._core.download_headers import read_sha256
from licclient._core.model import CachedLicense, Settings, Verified
from licclient._core.proof import Proof
from licclient._core.public_keys import PublicKey, encode
from licclient._core.records import Document
from licclient._core.requests import Call, read_instant, verify_call
from licclient._core.responses import Reply, is_foreign, read_json_object, read_verify
from licclient.errors import LicclientError, UntrustedResponseError

TAG: Final = "licensing-answer"
"""Marks the signatures of this protocol."""

CLOCKS_APART: Final = timedelta(hours=24)
"""By how much the clocks of service and computer may differ; freshness follows from the nonce."""

SIGNATURE_HEADERS: Final = ("content-type", "content-digest", "signature-input", "signature")
"""Headers needed, beside the body, to check a response again."""

_MACHINE: Final = ("label", "app_version")

COMPONENTS: Final = (
    '"@status"',
    '"content-type"',
    '"content-digest"',
    '"@method";req',
    '"@target-uri";req',
    '"content-digest";req',
)

# Structured fields (RFC 9651) as senders must write them; rewritten on the way, they match no signature. No
# quantifier of a group is possessive: before 3.11.5 Python leaves what the last attempt has read. Without
# http-sf: it takes 90 µs for the fields of a response, where these take 18, and 70 ms to import.
_LABEL: Final = r"[a-z*][a-z0-9_.*-]*+"
_STRING: Final = r'"(?:[ !#-\[\]-~]|\\["\\])*"'
_PARAMETERS: Final = rf"(?:;{_LABEL}(?:=(?:{_STRING}|[^\s\",;()]++))?)*"
_MEMBER: Final = re.compile(
    rf"(?P<label>{_LABEL})=(?P<params>\((?P<items>[^()]*+)\)(?P<parameters>{_PARAMETERS}))"
    r"[ \t]*+(?:,[ \t]*+(?!$)|$)"
)
_PARAMETER: Final = re.compile(rf";({_LABEL})=({_STRING}|[^\s\",;()]++)")
_SIGNATURE: Final = re.compile(rf"(?:^|,)[ \t]*+({_LABEL})=:([A-Za-z0-9+/=]*+):(?=[ \t]*+(?:,|$))")
_INSTANT: Final = re.compile(r"[0-9]{1,11}")


@dataclass(frozen=True, slots=True)
class Signed:
    """The times of a valid signature, by the service's clock."""

    created_at: datetime
    expires_at: datetime


def request_signature(call: Call, keys: Sequence[PublicKey], nonce: str) -> Call:
    """Return a call that requests a signature by each of the pinned keys (RFC 9421 section 5).

    The service takes the newest one that it has. The nonce is at least 128 random bits, never used before.
    """
    parameters = f'({" ".join(COMPONENTS)});created;expires;nonce="{nonce}";alg="ed25519";tag="{TAG}"'
    accepted = ", ".join(f'sig{number}={parameters};keyid="{key.id}"' for number, key in enumerate(keys))
    headers = {"Accept-Signature": accepted, "Content-Digest": content_digest(call.body or b"")}
    return call._replace(headers={**call.headers, **headers}, nonce=nonce)


def content_digest(content: bytes) -> str:
    """Return a `Content-Digest` (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


# --- responses that arrive --------------------------------------------------------------------


def read_trusted_verify(
    call: Call, reply: Reply, key: str, settings: Settings, now: datetime
) -> Verified | LicclientError:
    """Parse the response to a verify, and require a signature if keys are pinned.

    A success comes with its proof; a response in the form of the service that no pinned key signed is an
    `UntrustedResponseError` (D-62). Anything else is an outage (D-40).
    """
    result = read_verify(reply, key)
    signed = require_signature(call, reply, result, settings, now)
    if isinstance(signed, UntrustedResponseError):
        return signed
    if signed is None or not isinstance(result, Verified):
        return result
    signature_headers = {name: reply.headers[name] for name in SIGNATURE_HEADERS if name in reply.headers}
    sent = json.loads(call.body or b"{}")
    machine = {name: sent[name] for name in _MACHINE if name in sent}
    proof = Proof(sent["ip"], signature_headers, reply.body, signed.created_at, machine)
    return result._replace(proof=proof)


def require_signature(
    call: Call, reply: Reply, read: object, settings: Settings, now: datetime
) -> Signed | UntrustedResponseError | None:
    """Check the signature of a response that was `read`, and its time; None when none is needed."""
    if not settings.public_keys or is_foreign(reply, read):
        return None
    signed = check_signature(call, reply, settings.public_keys, call.nonce)
    if isinstance(signed, UntrustedResponseError):
        return signed
    return check_time(signed, now) or signed


def check_time(signed: Signed, now: datetime) -> UntrustedResponseError | None:
    """Return the error if a signature that has just arrived is too old or too new (D-63)."""
    if signed.created_at - now <= CLOCKS_APART and now - signed.expires_at <= CLOCKS_APART:
        return None
    return UntrustedResponseError(
        f"The answer was signed at {signed.created_at:%Y-%m-%d %H:%M} UTC, and the clock of this computer"
        f" says {now:%Y-%m-%d %H:%M}: one of the two clocks is wrong.",
        is_clock_wrong=True,
    )


# --- the signature itself ---------------------------------------------------------------------


def check_signature(
    call: Call, reply: Reply, keys: Sequence[PublicKey], nonce: str | None
) -> Signed | UntrustedResponseError:
    """Check that one of `keys` signed this response, of any bytes and headers, to this call as it was sent.

    `nonce` is the call's own; None for a stored response, whose nonce was compared when it came.
    """
    if not all(name in reply.headers for name in SIGNATURE_HEADERS):
        return UntrustedResponseError(
            "The response has no signature of a pinned key: the service has none of these keys,"
            " or a proxy removed it."
        )
    if read_sha256(reply.headers["content-digest"]) != sha256(reply.body).hexdigest():
        return UntrustedResponseError("The response was changed in transit: its digest differs.")
    signatures = dict(_SIGNATURE.findall(reply.headers["signature"]))
    problem = "The answer's signature cannot be read, or is not by a pinned key."
    for member in _members(reply.headers["signature-input"]):
        parameters = dict(_PARAMETER.findall(member["parameters"]))
        key = next((key for key in keys if parameters.get("keyid") == f'"{key.id}"'), None)
        if key is None or member["label"] not in signatures:
            continue
        fault = _fault(member["items"], parameters, nonce)
        if fault is not None:
            problem = fault
            continue
        base = signature_base(call, reply, member["items"], member["params"])
        if key.verify(_decode(signatures[member["label"]]), base):
            return Signed(_instant(parameters["created"]), _instant(parameters["expires"]))
        problem = (
            f"The answer's signature does not fit what was asked at {_origin(call.url)}. One of them was"
            " changed on the way, or the service takes itself for another address (its LICSERVER_BASE_URL)."
        )
    return UntrustedResponseError(problem)


def _members(field: str) -> list[re.Match[str]]:
    """Split a `Signature-Input`; return nothing when any of it is malformed."""
    members, at = [], 0
    while at < len(field):
        match = _MEMBER.match(field, at)
        if match is None:
            return []
        members.append(match)
        at = match.end()
    return members


def _fault(items: str, parameters: Mapping[str, str], nonce: str | None) -> str | None:
    """Return what a signature does not declare as it must; None when nothing is missing."""
    if sorted(items.split(" ")) != sorted(COMPONENTS):
        return "The answer's signature does not cover what it must cover."
    if parameters.get("alg") != '"ed25519"' or parameters.get("tag") != f'"{TAG}"':
        return "The answer's signature is for another purpose."
    if nonce is not None and parameters.get("nonce") != f'"{nonce}"':
        return "The answer was signed for another call."
    created, expires = parameters.get("created", ""), parameters.get("expires", "")
    if not (_INSTANT.fullmatch(created) and _INSTANT.fullmatch(expires)) or int(created) > int(expires):
        return "The answer's signature does not say when it was made and for how long."
    return None


def signature_base(call: Call, reply: Reply, items: str, params: str) -> bytes:
    """Return the bytes that are signed (RFC 9421 section 2.5).

    Text that is no ASCII is encoded as it is: with a replacement it might match a signature over that.
    """
    values = {
        '"@status"': str(reply.status),
        '"content-type"': reply.headers["content-type"].strip(),
        '"content-digest"': reply.headers["content-digest"].strip(),
        '"@method";req': call.method,
        '"@target-uri";req': call.url,
        '"content-digest";req': content_digest(call.body or b""),
    }
    lines = [f"{item}: {values[item]}" for item in items.split()]
    return "\n".join([*lines, f'"@signature-params": {params}']).encode(errors="surrogatepass")


def _origin(url: str) -> str:
    """Return the address of the service without the query, which may hold a license key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _decode(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _instant(text: str) -> datetime:
    return datetime.fromtimestamp(int(text), UTC)


# --- responses that are remembered ------------------------------------------------------------


def write_signed_success(cached: CachedLicense) -> Document:
    """Return the record of the last success for a key, as it came."""
    proof = cached.verified.proof
    if proof is None:
        raise ValueError("only a success that was signed can be remembered as one")
    return {
        "ip": proof.ip,
        "headers": dict(proof.headers),
        "body": b64encode(proof.body).decode(),
        "seen_at": cached.seen_at.isoformat(),
        **proof.machine,
        **({"slow_by": cached.slow_by.total_seconds()} if cached.slow_by else {}),
    }


def read_signed_success(
    document: Document | None, key: str, domain: str, settings: Settings
) -> CachedLicense | None:
    """Parse the record of the last success, from the untrusted disk, and check its signature again.

    The success counts as confirmed at the time of its signature.
    """
    match document:
        case {"ip": str(ip), "headers": dict(headers), "body": str(body), "seen_at": str(seen)}:
            seen_at = read_instant(seen)
        case _:
            return None
    document = document or {}
    # As it was sent then: a label that has changed since does not invalidate the signature.
    machine = {name: str(document[name]) for name in _MACHINE if name in document}
    if seen_at is None or not all(isinstance(value, str) for value in headers.values()):
        return None
    try:
        reply = Reply(200, b64decode(body, validate=True), headers)
        call = verify_call(settings, key, domain, ip, machine)
    except ValueError:
        return None
    signed = check_signature(call, reply, settings.public_keys, nonce=None)
    result = read_verify(reply, key)
    if not isinstance(signed, Signed) or not isinstance(result, Verified) or seen_at < signed.created_at:
        return None
    proof = Proof(ip, headers, reply.body, signed.created_at, machine)
    return CachedLicense(result._replace(proof=proof), signed.created_at, seen_at, _slow_by(document))


def _slow_by(document: Document) -> timedelta:
    """Return by how much our clock was slow; an edited value only makes the license end sooner (D-116)."""
    match document.get("slow_by"):
        case int() | float() as seconds if 0 <= seconds <= CLOCKS_APART.total_seconds():
            return timedelta(seconds=seconds)
        case _:
            return timedelta(0)


# --- both kinds of JWS that the vendor signs with Ed25519 (RFC 7515, RFC 8037) -------------------


_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]*")
_UTC: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def read_key_id(protected: str, typ: str) -> str:
    """Return the id of the key that a protected header names; empty for other kinds of signatures."""
    match read_json_object(decode_base64url(protected)):
        case {"alg": "EdDSA" | "Ed25519", "typ": found, "kid": str(kid), **more} if found == typ and not more:
            return kid
        case _:  # also extensions that would have to be understood (RFC 7515, 4.1.11)
            return ""


def read_utc(text: str) -> datetime | None:
    """Read an instant in UTC with whole seconds; None for anything else."""
    return read_instant(text) if _UTC.fullmatch(text) else None


def decode_base64url(text: str) -> bytes:
    """Decode base64url without padding; return nothing for anything else, such as bits that are left over."""
    if not _BASE64URL.fullmatch(text) or len(text) % 4 == 1:
        return b""
    raw = urlsafe_b64decode(text + "==")  # superfluous padding is ignored
    return raw if encode(raw) == text else b""
