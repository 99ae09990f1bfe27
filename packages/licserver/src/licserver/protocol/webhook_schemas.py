"""The events that are sent, as the section `webhooks` of an OpenAPI document (3.1)."""

from collections.abc import Mapping
from typing import Any, Final

from licserver.protocol.webhooks import EventType

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
    "channel": ({**_TEXT, "description": "Of a new version absent if it is `stable`."}, "stable"),
    "subscription_id": (_TEXT, "sub_1024"),
    "ended_at": (_TIME, "2026-11-20T12:00:00+00:00"),
}
"""Field → its schema and an example."""

_OPTIONAL: Final = {"masked_key", "platform", "channel"}
_LICENSE: Final = "license_id masked_key product"
_USE: Final = "name used limit resets_at"
_EVENTS: Final[Mapping[EventType, tuple[str, str]]] = {
    EventType.LICENSE_ISSUED: ("A license is issued; not for an import.", _LICENSE),
    EventType.LICENSE_REVOKED: ("A license is revoked.", _LICENSE),
    EventType.LICENSE_REINSTATED: ("A revocation is undone.", _LICENSE),
    EventType.LICENSE_EXPIRED: ("A license has expired, or its subscription has ended.", _LICENSE),
    EventType.ACTIVATION_CREATED: ("An environment takes a slot.", f"{_LICENSE} domain ip"),
    EventType.ACTIVATION_FREED: ("Slots are freed.", f"{_LICENSE} freed"),
    EventType.ACTIVATION_REFUSED: ("An environment gets no slot; once a day.", f"{_LICENSE} domain ip"),
    EventType.ENTITLEMENT_NEARLY_USED: (
        "80 % of a metered entitlement is used in its period.",
        f"{_LICENSE} {_USE}",
    ),
    EventType.ENTITLEMENT_USED_UP: ("All of it is used.", f"{_LICENSE} {_USE}"),
    EventType.RELEASE_PUBLISHED: ("A version is published.", "product version platform channel"),
    EventType.RELEASE_PROMOTED: ("A version is moved to another channel.", "product version channel"),
    EventType.SUBSCRIPTION_ENDED: ("A subscription has ended.", "subscription_id ended_at"),
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
    return {type_.value: {"post": _describe(type_, *described)} for type_, described in _EVENTS.items()}


def data_schema(type_: EventType) -> dict[str, Any]:
    """Return the schema of an event's data."""
    names = _EVENTS[type_][1].split()
    # A license that is deleted meanwhile leaves its id.
    is_required = {*names} - _OPTIONAL - ({"product"} if "license_id" in names else set())
    return {
        "type": "object",
        "required": [name for name in names if name in is_required],
        "properties": {name: _FIELDS[name][0] for name in names},
        "additionalProperties": False,
    }


def _describe(type_: EventType, summary: str, names: str) -> dict[str, Any]:
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
