"""Outgoing webhooks, by Standard Webhooks (standardwebhooks.com): events, signature, retries. Pure."""

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
GONE: Final = 410  # the receiver has unsubscribed
MAX_FAILING: Final = timedelta(days=5)  # without a success; then an endpoint is disabled
PAUSES: Final = tuple(
    timedelta(seconds=seconds)
    for seconds in (5, 300, 1_800, *(3_600 * hours for hours in (2, 5, 10, 14, 20, 24)))
)
"""Pauses after the first attempt, the second, …; ten attempts in 75.6 hours."""

_JITTER: Final = 0.1  # of a pause: attempts that failed together are not repeated together


class EventType(enum.StrEnum):
    """The type of an event."""

    LICENSE_ISSUED = "license.issued"
    LICENSE_REVOKED = "license.revoked"
    LICENSE_EXPIRED = "license.expired"
    LICENSE_REINSTATED = "license.reinstated"
    LICENSE_PROBABLY_SHARED = "license.probably_shared"
    ACTIVATION_CREATED = "activation.created"
    ACTIVATION_FREED = "activation.freed"
    ACTIVATION_REFUSED = "activation.refused_full"
    ENTITLEMENT_NEARLY_USED = "entitlement.nearly_used"
    ENTITLEMENT_USED_UP = "entitlement.used_up"
    RELEASE_PUBLISHED = "release.published"
    RELEASE_PROMOTED = "release.promoted"
    SUBSCRIPTION_ENDED = "subscription.ended"
    SALE_NEEDS_ATTENTION = "sale.needs_attention"


TEST_TYPE: Final = "webhook.test"


class DeliveryOutcome(enum.Enum):
    """The outcome of an attempt to deliver."""

    DELIVERED = enum.auto()
    FAILED = enum.auto()
    GONE = enum.auto()


def evaluate_response(status: int | None) -> DeliveryOutcome:
    """Evaluate the status of a response, or None without a response; a redirect is a failure."""
    if status is not None and 200 <= status < 300:  # noqa: PLR2004 - HTTP's classes
        return DeliveryOutcome.DELIVERED
    return DeliveryOutcome.GONE if status == GONE else DeliveryOutcome.FAILED


def next_attempt(attempts: int, now: datetime, chance: float) -> datetime | None:
    """Return the instant of the next attempt; None after the last. `chance` is from 0 to 1."""
    if attempts > len(PAUSES):
        return None
    return now + PAUSES[attempts - 1] * (1 + _JITTER * chance)


def derive_event_id(*parts: str) -> str:
    """Derive the id of an event from its parts: an event that is found again is sent once."""
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
        "webhook-signature": " ".join(f"v1,{signature}" for signature in signatures),
    }


# --- the section `webhooks` of an OpenAPI document (3.1) --------------------------------------

_TEXT: Final = {"type": "string"}
_TIME: Final = {"type": "string", "format": "date-time"}
_FIELDS: Final[Mapping[str, tuple[Mapping[str, Any], Any]]] = {
    "license_id": ({"type": "string", "pattern": "^[0-9a-f]{32}$"}, "4f8a1c0e9b2d47d3a6e5f0718293a4b5"),
    "masked_key": ({**_TEXT, "description": "Absent once the license is deleted."}, "CP-AA…DDDD"),
    "product": (_TEXT, "photo-lab"),
    "domain": (_TEXT, "laptop.example"),
    "ip": (_TEXT, "192.0.2.7"),
    "freed": ({"type": "integer", "minimum": 1, "description": "How many slots."}, 1),
    "name": (_TEXT, "exports"),
    "used": ({"type": "integer", "minimum": 1}, 80),
    "limit": ({"type": "integer", "minimum": 1}, 100),
    "resets_at": (_TIME, "2026-12-01T00:00:00+00:00"),
    "version": (_TEXT, "1.4.0"),
    "platform": ({**_TEXT, "description": "Absent for a file for all platforms."}, "windows-x86_64"),
    "kind": ({**_TEXT, "description": "Absent for a file that nothing installs by itself."}, "msi"),
    "security": ({"const": True, "description": "Only of a security release."}, True),
    "channel": ({**_TEXT, "description": "Of a new version absent if it is `stable`."}, "stable"),
    "subscription_id": (_TEXT, "sub_1024"),
    "ended_at": (_TIME, "2026-11-20T12:00:00+00:00"),
    "source": (_TEXT, "shop"),
    "object": ({**_TEXT, "description": "An order or a subscription, by the shop's id."}, "order:1042"),
    "problem": (_TEXT, "not mapped"),
}
"""Field → its schema and an example."""

_OPTIONAL: Final = {"masked_key", "platform", "kind", "channel", "security"}
_LICENSE: Final = "license_id masked_key product"
_USE: Final = "name used limit resets_at"
_EVENTS: Final[Mapping[EventType, tuple[str, str]]] = {
    EventType.LICENSE_ISSUED: ("A license is issued; not for an import.", _LICENSE),
    EventType.LICENSE_REVOKED: ("A license is revoked.", _LICENSE),
    EventType.LICENSE_REINSTATED: ("A revocation is undone.", _LICENSE),
    EventType.LICENSE_EXPIRED: ("A license has expired, or its subscription has ended.", _LICENSE),
    EventType.LICENSE_PROBABLY_SHARED: (
        "A license goes to and fro between computers; at most once in 30 days.",
        _LICENSE,
    ),
    EventType.ACTIVATION_CREATED: ("An environment takes a slot.", f"{_LICENSE} domain ip"),
    EventType.ACTIVATION_FREED: ("Slots are freed.", f"{_LICENSE} freed"),
    EventType.ACTIVATION_REFUSED: ("An environment gets no slot; once a day.", f"{_LICENSE} domain ip"),
    EventType.ENTITLEMENT_NEARLY_USED: (
        "80 % of a metered entitlement is used in its period.",
        f"{_LICENSE} {_USE}",
    ),
    EventType.ENTITLEMENT_USED_UP: ("All of it is used.", f"{_LICENSE} {_USE}"),
    EventType.RELEASE_PUBLISHED: (
        "A version is published.",
        "product version platform kind channel security",
    ),
    EventType.RELEASE_PROMOTED: ("A version is moved to another channel.", "product version channel"),
    EventType.SUBSCRIPTION_ENDED: ("A subscription has ended.", "subscription_id ended_at"),
    EventType.SALE_NEEDS_ATTENTION: ("A sale waits for a person.", "source object problem"),
}
"""Event → when it is sent, and the fields of its data."""

_HEADERS: Final = {
    "webhook-id": "The event, the same at every attempt.",
    "webhook-timestamp": "Seconds since 1970 of this attempt.",
    "webhook-signature": "As in Standard Webhooks: `v1,` and a signature, or two while a secret is replaced.",
}
PARAMETERS: Final = {
    name: {"name": name, "in": "header", "required": True, "description": text, "schema": _TEXT}
    for name, text in _HEADERS.items()
}
"""For the document's components."""

_RESPONSES: Final = {
    "2XX": {"description": "The event is delivered."},
    "410": {"description": "The endpoint is disabled."},
    "default": {"description": "The event is sent again."},
}


def describe_webhooks() -> dict[str, Any]:
    """Return a path item for each type of event."""
    return {type_.value: {"post": _describe(type_)} for type_ in _EVENTS}


def data_schema(type_: EventType) -> dict[str, Any]:
    """Return the schema of an event's data."""
    names = _EVENTS[type_][1].split()
    # Of a license that was deleted meanwhile, only the id remains.
    is_required = {*names} - _OPTIONAL - ({"product"} if "license_id" in names else set())
    return {
        "type": "object",
        "required": [name for name in names if name in is_required],
        "properties": {name: _FIELDS[name][0] for name in names},
        "additionalProperties": False,
    }


def _describe(type_: EventType) -> dict[str, Any]:
    summary, names = _EVENTS[type_]
    schema = {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {"type": {"const": type_.value}, "timestamp": _TIME, "data": data_schema(type_)},
    }
    data = {name: _FIELDS[name][1] for name in names.split()}
    example = {"type": type_.value, "timestamp": "2026-11-20T12:00:00.000Z", "data": data}
    return {
        "operationId": type_.value,
        "summary": summary,
        "security": [],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in PARAMETERS],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schema, "example": example}},
        },
        "responses": _RESPONSES,
    }
