"""The OpenAPI document of the admin API, generated from its operations and models."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from licserver.protocol.webhooks import PARAMETERS, describe_webhooks
from licserver.web.admin.fields import RequestModel
from licserver.web.admin.operations import OPERATIONS, Operation
from licserver.web.admin.schemas import RELEASE_FORM
from licserver.web.middlewares import ADMIN_ROOT

_REF: Final = "#/components/schemas/{model}"
_ERRORS: Final = ("400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "503")
_PROBLEM: Final = {
    "description": "Problem details (RFC 9457).",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PROBLEM_SHAPE: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"const": "about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "A sentence for people."},
        "errors": {
            "type": "object",
            "description": "Messages by field.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
    },
}
_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Within a day, a request repeated with its key is done once and gets the same response.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_FORM: Final = {
    "type": "object",
    "required": ["version", "file"],
    "additionalProperties": False,
    "properties": {
        **{name: {"type": "string", "description": text} for name, text in RELEASE_FORM.items()},
        "file": {"type": "string", "contentMediaType": "application/octet-stream", "format": "binary"},
    },
}
_EXAMPLES: Final[dict[str, Any]] = {
    "slug": "photo-lab",
    "product": "photo-lab",
    "name": "Photo Lab",
    "product_name": "Photo Lab",
    "environment": "domain",
    "customer_moves": 3,
    "trial_days": 14,
    "minimum_version": "1.2",
    "after_support": "covered",
    "idle_days": 90,
    "latest": "1.4.0",
    "version": "1.4.0",
    "platform": "windows-x86_64",
    "kind": "folder",
    "channel": "stable",
    "id": "4f8a1c0e9b2d47d3a6e5f0718293a4b5",
    "license_key": "CP-AAAAA-BBBBB-CCCCC-DDDDD",
    "masked_key": "CP-AA…DDDD",
    "state": "active",
    "slots": 3,
    "slots_used": 1,
    "allowed": ["*.staging.example"],
    "channels": ["beta"],
    "subscription": "sub_1024",
    "licenses": 1,
    "freed": 1,
    "expires_on": "2027-12-31",
    "support_until": "2027-12-31",
    "customer_email": "anna@example.com",
    "customer_language": "de",
    "note": "Order 1024",
    "plan": "pro",
    "entitlements": {"export": True, "exports": {"limit": 100, "per": "month"}, "projects": 50},
    "overrides": {"projects": 80},
    "Use.name": "exports",
    "Use.limit": 100,
    "used": 37,
    "resets_at": "2026-12-01T00:00:00Z",
    "Plan.name": "pro",
    "NewPlan.name": "pro",
    "limit": 100,
    "per": "month",
    "reason": "refund",
    "file_name": "photo-lab-1.4.0.zip",
    "size": 7340032,
    "sha256": "ab" * 32,
    "signed": True,
    "signed_for_updaters": True,
    "changelog": "Faster export.",
    "percent": 50.0,
    "paused": True,
    "rollout": {"plan": "7d", "started_at": "2026-11-20T12:00:00Z", "paused_at": None},
    "RolloutPlan.plan": "7d",
    "critical_below": "1.3.2",
    "security": {"advisory": "https://example.com/advisories/7", "cves": ["CVE-2026-1234"]},
    "SecurityChange.security": True,
    "advisory": "https://example.com/advisories/7",
    "cves": ["CVE-2026-1234"],
    "requires": "6.4",
    "tested": "6.7",
    "requires_php": "7.4",
    "details_url": "https://example.com/photo-lab",
    "update_checks": 812,
    "update_checks_of_all": 2310,
    "rolled_back": 3,
    "exit_codes": {"1603": 2},
    "domain": "laptop.example",
    "ip": "192.0.2.7",
    "at": "2026-11-20T12:00:00Z",
    "last_seen_at": "2026-11-21T08:30:00Z",
    "label": "Anna's MacBook, Berlin office",
    "app_version": "1.4.0",
    "machine": "REQ-AGVS6Z-KM2NCZ-…",
    "days": 365,
    "ends_at": "2027-11-20T12:00:00Z",
    "LicenseFile.name": "photo-lab-2026-11-20.lic",
    "text": "-----BEGIN LICENSE FILE-----\neyJhbGciOiJFZERTQSIs…\n-----END LICENSE FILE-----\n",
    "actor_kind": "token",
    "actor_name": "shop",
    "action": "license.revoke",
    "details": {},
    "EnvironmentRequest.environment": "laptop.example",
    "Subscription.id": "sub_1024",
    "AuditLineResponse.id": 7,
    "email": "anna@example.com",
    "format": 1,
    "exported_at": "2026-11-20T12:00:00Z",
    "records": {"licenses": [{"id": "4f8a1c0e9b2d47d3a6e5f0718293a4b5", "note": "Order 1024"}]},
    "rows": 4,
    "tables": {"audit": 3, "licenses": 1},
    "object_kind": "license",
    "object_id": "4f8a1c0e9b2d47d3a6e5f0718293a4b5",
}
"""Examples of fields by name, for fields whose type has no usable example."""


def describe_api() -> dict[str, Any]:
    """Generate the document from the operations; a test compares it with `docs/openapi-admin.json`."""
    components, names = _schemas()
    paths: dict[str, Any] = {}
    for operation, run in OPERATIONS.items():
        described = paths.setdefault(ADMIN_ROOT + operation.path, {})
        described[operation.method.lower()] = _describe(operation, run, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "licserver admin API",
            "version": "1",
            "description": "The vendor's operations for programs; see admin-api.md.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [{"name": tag} for tag in sorted({_tag(operation.path) for operation in OPERATIONS})],
        "paths": dict(sorted(paths.items())),
        "webhooks": describe_webhooks(),
        "components": {
            "parameters": PARAMETERS,
            "responses": {"Problem": _PROBLEM},
            "schemas": {**components, "Problem": _PROBLEM_SHAPE},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "From `licserver token create`."}
            },
        },
    }


def _schemas() -> tuple[dict[str, Any], dict[Any, str]]:
    """Return all models' schemas, and the models' names in the document."""
    modes: dict[Any, Any] = {operation.response: "serialization" for operation in OPERATIONS}
    modes |= {operation.body: "validation" for operation in OPERATIONS if operation.body is not None}
    references, whole = models_json_schema(list(modes.items()), ref_template=_REF)
    names = {model: _rename_pages(ref["$ref"].rpartition("/")[2]) for (model, _), ref in references.items()}
    described: dict[str, Any] = json.loads(_rename_pages(json.dumps(whole["$defs"])))
    for name, shape in described.items():
        if "properties" in shape:
            shape["example"] = _example(name, described)
    return described, names


def _example(shape: str, shapes: dict[str, Any]) -> dict[str, Any]:
    """Return an example of an object, or of a page with an object."""
    example: dict[str, Any] = {}
    for name, field in shapes[shape]["properties"].items():
        usual: Any = None
        if "$ref" in field.get("items", {}):
            usual = [_example(field["items"]["$ref"].rpartition("/")[2], shapes)]
        elif field.get("type") == "boolean":
            usual = False
        elif field.get("format") == "date-time":
            usual = "2026-11-20T12:00:00Z"
        example[name] = _EXAMPLES.get(f"{shape}.{name}", _EXAMPLES.get(name, usual))
    return example


def _tag(path: str) -> str:
    """Return the subject of an operation, by which the document groups it."""
    return "releases" if "/releases" in path else path.split("/")[1]


def _rename_pages(text: str) -> str:
    """Replace pydantic's names for generic models."""
    return re.sub(r"\bPageResponse_(\w+)_\b", r"PageOf\1", text)


def _describe(operation: Operation, run: Callable[..., Any], names: dict[Any, str]) -> dict[str, Any]:
    first, *rest = run.__name__.split("_")
    described: dict[str, Any] = {
        "tags": [_tag(operation.path)],
        "operationId": first + "".join(word.title() for word in rest),
        "summary": (run.__doc__ or "").partition("\n")[0],
        "parameters": [
            {"name": part, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for part in re.findall(r"{(\w+)}", operation.path)
        ],
    }
    described["parameters"] += _query_of(operation.query)
    if operation.scope is not operation.scope.READ:
        described["description"] = "Requires a token with the scope `write`."
    if operation.body is not None:
        described["requestBody"] = {"required": True, **_json_of(names[operation.body])}
    if operation.takes_file:
        described["description"] += " The file is streamed to the disk."
        described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}
    if operation.takes_key:
        described["parameters"].append(_IDEMPOTENCY_KEY)
    described["responses"] = {
        "201" if operation.creates else "200": {
            "description": "Success.",
            **_json_of(names[operation.response]),
        },
        **{code: {"$ref": "#/components/responses/Problem"} for code in _ERRORS},
    }
    return described


def _json_of(model: str) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": {"$ref": _REF.format(model=model)}}}}


def _query_of(model: type[RequestModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    parameters = []
    for name, field in schema.get("properties", {}).items():
        # An absent parameter is not sent as null.
        (kind, *_) = [kind for kind in field.get("anyOf", [field]) if kind.get("type") != "null"]
        if "$ref" in kind:
            kind = schema["$defs"][kind["$ref"].rpartition("/")[2]]
        kind = {key: value for key, value in kind.items() if key not in {"title", "default", "description"}}
        described = {"name": name, "in": "query", "schema": kind}
        parameters.append(described | {key: field[key] for key in ("description",) if key in field})
    return parameters
