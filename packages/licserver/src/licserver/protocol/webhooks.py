"""Webhooks that are sent, by Standard Webhooks (standardwebhooks.com): event types, signature, retries."""

import enum
import hashlib
import hmac
import json
from base64 import b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

SECRET_PREFIX: Final = "whsec_"
SECRET_BYTES: Final = 32
GONE: Final = 410  # the receiver wants no more
MAX_FAILING: Final = timedelta(days=5)  # of failures only; then an endpoint is disabled
PAUSES: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 300, 1_800, *(3_600 * hours for hours in (2, 5, 10, 14, 20, 24)))
)
"""After the first attempt, which is at once, the second, …; ten attempts in 75.6 hours."""

_JITTER: Final = 0.1  # of a pause, so that what failed together is not repeated together


class EventType(enum.StrEnum):
    """What happened."""

    LICENSE_ISSUED = "license.issued"
    LICENSE_REVOKED = "license.revoked"
    LICENSE_EXPIRED = "license.expired"
    LICENSE_REINSTATED = "license.reinstated"
    ACTIVATION_CREATED = "activation.created"
    ACTIVATION_FREED = "activation.freed"
    ACTIVATION_REFUSED = "activation.refused_full"
    ENTITLEMENT_NEARLY_USED = "entitlement.nearly_used"
    ENTITLEMENT_USED_UP = "entitlement.used_up"
    RELEASE_PUBLISHED = "release.published"
    RELEASE_PROMOTED = "release.promoted"
    SUBSCRIPTION_ENDED = "subscription.ended"


TEST_TYPE: Final = "webhook.test"


class Outcome(enum.Enum):
    """What follows from the status of a response, None for no response."""

    DELIVERED = enum.auto()
    FAILED = enum.auto()
    GONE = enum.auto()


def judge_response(status: int | None) -> Outcome:
    """Judge a response: a redirect is a failure as well."""
    if status is not None and 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes
        return Outcome.DELIVERED
    return Outcome.GONE if status == GONE else Outcome.FAILED


def next_attempt(attempts: int, now: datetime, chance: float) -> datetime | None:
    """Return when to try again after so many attempts; None for no more. `chance` is from 0 to 1."""
    if attempts > len(PAUSES):
        return None
    return now + PAUSES[attempts - 1] * (1 + _JITTER * chance)


def derive_event_id(*parts: str) -> str:
    """Return the id of an event that has to be sent once however often it is found."""
    return f"msg_{hashlib.sha256('|'.join(parts).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


def format_event(type_: str, at: datetime, data: Mapping[str, Any]) -> str:
    """Return the body of an event."""
    timestamp = at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"type": type_, "timestamp": timestamp, "data": data}, separators=(",", ":"))


def format_secret(secret: bytes) -> str:
    """Return a secret as receivers configure it."""
    return SECRET_PREFIX + b64encode(secret).decode()


def signed_headers(event_id: str, sent_at: datetime, body: bytes, secrets: Sequence[bytes]) -> dict[str, str]:
    """Return the headers of one attempt, with a signature for each secret: two while it rotates."""
    timestamp = str(int(sent_at.timestamp()))
    content = f"{event_id}.{timestamp}.".encode() + body
    signatures = [b64encode(hmac.digest(secret, content, "sha256")).decode() for secret in secrets]
    return {
        "webhook-id": event_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": " ".join(f"v1,{one}" for one in signatures),
    }
