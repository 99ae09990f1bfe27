"""Pure: what a client with pinned keys believes of an answer, be it just come or remembered.

A remembered answer is kept as it came, with its signature, and believed only after the same check as on the
first day: nothing else in the record says what the license is. The request that it answers is not kept; it is
written again from server, key and domain, so a record that belongs to any other of them fits no signature.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import datetime, timedelta

from licclient._model import Held, Listing, Proof, Settings, Verified
from licclient._records import Document, read_instant
from licclient._signature import CLOCKS_APART, SIGNATURE_HEADERS, Signed, read_signature, stale
from licclient._wire import Call, Reply, makes_no_claim, read_update, read_verify, verify_call
from licclient.errors import LicclientError, UntrustedResponseError


def believe_verify(
    call: Call, reply: Reply, key: str, settings: Settings, now: datetime
) -> Verified | LicclientError:
    """Read the answer to a verify, and demand a signature of it if keys are pinned.

    Args:
        call: As it was sent.
        reply: Any status, any bytes.
        key: The key that was asked about.
        settings: Which keys are pinned, if any.
        now: After the call; aware, UTC.

    Returns:
        As `_wire.read_verify`, with the proof in a success; `UntrustedResponseError` for a response of the
        service's form that no pinned key signed (D-62). Anything else is an outage (D-40).
    """
    answer = read_verify(reply, key)
    signed = _demand_signature(call, reply, answer, settings, now)
    if isinstance(signed, UntrustedResponseError):
        return signed
    if signed is None or not isinstance(answer, Verified):
        return answer
    kept = {name: reply.headers[name] for name in SIGNATURE_HEADERS if name in reply.headers}
    proof = Proof(json.loads(call.body or b"{}")["ip"], kept, reply.body, signed.created_at)
    return replace(answer, proof=proof)


def believe_update(
    call: Call, reply: Reply, slug: str, key: str, settings: Settings, now: datetime
) -> Listing | LicclientError:
    """Read the answer to an update check, and demand a signature of it; as `believe_verify`."""
    answer = read_update(reply, settings, slug, key)
    signed = _demand_signature(call, reply, answer, settings, now)
    return signed if isinstance(signed, UntrustedResponseError) else answer


def _demand_signature(
    call: Call, reply: Reply, read: object, settings: Settings, now: datetime
) -> Signed | UntrustedResponseError | None:
    """Check a signature; None when none is needed."""
    if not settings.public_keys or makes_no_claim(reply, read):
        return None
    signed = read_signature(call, reply, settings.public_keys, call.nonce)
    if isinstance(signed, UntrustedResponseError):
        return signed
    return stale(signed, now) or signed


# --- remembered -------------------------------------------------------------------------------


def write_proved(held: Held) -> Document:
    """Write the last success for a key, as it came."""
    proof = held.verified.proof
    if proof is None:
        raise ValueError("only a success that was signed can be remembered as one")
    return {
        "ip": proof.ip,
        "headers": dict(proof.headers),
        "body": b64encode(proof.body).decode(),
        "seen_at": held.seen_at.isoformat(),
        **({"slow_by": held.slow_by.total_seconds()} if held.slow_by else {}),
    }


def read_proved(document: Document | None, key: str, domain: str, settings: Settings) -> Held | None:
    """Read the last success for a key and check its signature again.

    Args:
        document: As from the disk: believed in nothing.
        key: For which license key it is to be good.
        domain: For which domain.
        settings: For which server, and by which pinned keys.

    Returns:
        The success, confirmed when the service's own clock says so; None for everything else.
    """
    match document:
        case {"ip": str(ip), "headers": dict(headers), "body": str(body), "seen_at": str(seen)}:
            seen_at = read_instant(seen)
        case _:
            return None
    try:
        reply = Reply(200, b64decode(body, validate=True), headers)
        call = verify_call(settings, key, domain, ip)
        strings = all(isinstance(value, str) for value in headers.values())
    except ValueError:
        return None
    if seen_at is None or not strings:
        return None
    signed = read_signature(call, reply, settings.public_keys, nonce=None)
    answer = read_verify(reply, key)
    if not isinstance(signed, Signed) or not isinstance(answer, Verified) or seen_at < signed.created_at:
        return None
    proof = Proof(ip, headers, reply.body, signed.created_at)
    return Held(replace(answer, proof=proof), signed.created_at, seen_at, _read_slow(document or {}))


def _read_slow(document: Document) -> timedelta:
    """Read by how much our clock was slow: whoever edits it can only make the ends come sooner (D-116)."""
    match document.get("slow_by"):
        case int() | float() as seconds if 0 <= seconds <= CLOCKS_APART.total_seconds():
            return timedelta(seconds=seconds)
        case _:
            return timedelta(0)
