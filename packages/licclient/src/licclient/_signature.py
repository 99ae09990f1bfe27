"""Pure: signed answers (RFC 9421, RFC 9530). Asks for a signature, and says whether an answer carries it.

A signature of ours covers the answer *and* the question, so that one answer cannot stand in for another:
status, content type and digest of the answer; method, address and digest of the request; and a nonce that was
drawn for this very call. What is not exactly so is no signature at all: there is no second best.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from licclient._ed25519 import PublicKey
from licclient._headers import read_sha256
from licclient._wire import Call, Reply
from licclient.errors import UntrustedResponseError

TAG: Final = "licensing-answer"
"""What the signatures of this protocol are marked with."""

CLOCKS_APART: Final = timedelta(hours=24)
"""By how much the clocks of service and computer may differ: that an answer is fresh, its nonce proves. A
computer that takes local time for UTC is off by up to 14 hours, and its owner is no attacker (D-63)."""

SIGNATURE_HEADERS: Final = ("content-type", "content-digest", "signature-input", "signature")
"""What must be kept of an answer, beside its body, to check it again."""

COMPONENTS: Final = (
    '"@status"',
    '"content-type"',
    '"content-digest"',
    '"@method";req',
    '"@target-uri";req',
    '"content-digest";req',
)

# Structured fields (RFC 9651) as senders must write them; rewritten on the way, they fit no signature.
_LABEL: Final = r"[a-z*][a-z0-9_.*-]*+"
_STRING: Final = r'"(?:[ !#-\[\]-~]|\\["\\])*+"'
_PARAMETERS: Final = rf"(?:;{_LABEL}(?:=(?:{_STRING}|[^\s\",;()]++))?+)*+"
_MEMBER: Final = re.compile(
    rf"(?P<label>{_LABEL})=(?P<params>\((?P<items>[^()]*+)\)(?P<told>{_PARAMETERS}))"
    r"[ \t]*+(?:,[ \t]*+(?!$)|$)"
)
_PARAMETER: Final = re.compile(rf";({_LABEL})=({_STRING}|[^\s\",;()]++)")
_SIGNATURE: Final = re.compile(rf"(?:^|,)[ \t]*+({_LABEL})=:([A-Za-z0-9+/=]*+):(?=[ \t]*+(?:,|$))")
_INSTANT: Final = re.compile(r"[0-9]{1,11}")


@dataclass(frozen=True, slots=True)
class Signed:
    """A signature that holds: when the service made it, by its own clock, and until when it was meant."""

    created_at: datetime
    expires_at: datetime


def asking_for_signature(call: Call, keys: Sequence[PublicKey], nonce: str) -> Call:
    """Make a call ask for an answer that one of the keys has signed (RFC 9421 section 5).

    Each key is asked for by its id, so that the service can take the one that this app knows.

    Args:
        call: Not asking yet.
        keys: All that are pinned.
        nonce: At least 128 random bits as base64url; never used before.
    """
    told = f'({" ".join(COMPONENTS)});created;expires;nonce="{nonce}";alg="ed25519";tag="{TAG}"'
    wanted = ", ".join(f'sig{number}={told};keyid="{key.id}"' for number, key in enumerate(keys))
    asking = {"Accept-Signature": wanted, "Content-Digest": content_digest(call.body or b"")}
    return replace(call, headers={**call.headers, **asking}, nonce=nonce)


def content_digest(content: bytes) -> str:
    """Write a `Content-Digest` (RFC 9530)."""
    return f"sha-256=:{b64encode(sha256(content).digest()).decode()}:"


def read_signature(
    call: Call, reply: Reply, keys: Sequence[PublicKey], nonce: str | None
) -> Signed | UntrustedResponseError:
    """Check that a pinned key signed this answer to this call.

    Args:
        call: As it was sent; of a remembered answer, as it was sent then.
        reply: Any bytes, any headers.
        keys: All that are pinned; signatures by others count for nothing.
        nonce: The call's own; None for a remembered answer, whose nonce was compared when it came.
    """
    if not all(name in reply.headers for name in SIGNATURE_HEADERS):
        return UntrustedResponseError(
            "The answer carries no signature by a pinned key: the service has none of these keys,"
            " or somebody on the way took it off."
        )
    if read_sha256(reply.headers["content-digest"]) != sha256(reply.body).hexdigest():
        return UntrustedResponseError("The answer was changed on the way: its digest is another.")
    signatures = dict(_SIGNATURE.findall(reply.headers["signature"]))
    problem = "The answer's signature cannot be read, or is not by a pinned key."
    for member in _members(reply.headers["signature-input"]):
        told = dict(_PARAMETER.findall(member["told"]))
        key = next((key for key in keys if told.get("keyid") == f'"{key.id}"'), None)
        if key is None or member["label"] not in signatures:
            continue
        fault = _fault(member["items"], told, nonce)
        if fault is not None:
            problem = fault
            continue
        base = signature_base(call, reply, member["items"], member["params"])
        if key.verify(_bytes(signatures[member["label"]]), base):
            return Signed(_read_instant(told["created"]), _read_instant(told["expires"]))
        problem = (
            f"The answer's signature does not fit what was asked at {_origin(call.url)}. Somebody changed one"
            " of them on the way, or the service takes itself for another address (its LICSERVER_BASE_URL)."
        )
    return UntrustedResponseError(problem)


def stale(signed: Signed, now: datetime) -> UntrustedResponseError | None:
    """Say what is wrong with the time of a signature that has just come; None when nothing is (D-63)."""
    if signed.created_at - now <= CLOCKS_APART and now - signed.expires_at <= CLOCKS_APART:
        return None
    return UntrustedResponseError(
        f"The answer was signed at {signed.created_at:%Y-%m-%d %H:%M} UTC, and the clock of this computer"
        f" says {now:%Y-%m-%d %H:%M}: one of the two clocks is wrong."
    )


def _members(field: str) -> list[re.Match[str]]:
    """Split a `Signature-Input`; nothing when any of it cannot be read."""
    members, at = [], 0
    while at < len(field):
        found = _MEMBER.match(field, at)
        if found is None:
            return []
        members.append(found)
        at = found.end()
    return members


def _fault(items: str, told: Mapping[str, str], nonce: str | None) -> str | None:
    """Say why what a signature claims of itself is not enough; None when it is."""
    if sorted(items.split(" ")) != sorted(COMPONENTS):
        return "The answer's signature does not cover what it must cover."
    if told.get("alg") != '"ed25519"' or told.get("tag") != f'"{TAG}"':
        return "The answer's signature is for another purpose."
    if nonce is not None and told.get("nonce") != f'"{nonce}"':
        return "The answer was signed for another call."
    created, expires = told.get("created", ""), told.get("expires", "")
    if not (_INSTANT.fullmatch(created) and _INSTANT.fullmatch(expires)) or int(created) > int(expires):
        return "The answer's signature does not say when it was made and for how long."
    return None


def signature_base(call: Call, reply: Reply, items: str, params: str) -> bytes:
    """Write down what the signature is over (RFC 9421 section 2.5); what is no ASCII fits no signature.

    Each text has bytes of its own: with anything put in its place it might fit a signature over that.
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
    """Name the service without the query, in which a license key may stand."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return b""


def _read_instant(text: str) -> datetime:
    return datetime.fromtimestamp(int(text), UTC)
