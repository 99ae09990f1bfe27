"""The admin API's OpenAPI document, generated from its operations."""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from pydantic.json_schema import models_json_schema

from licserver.web.admin import schemas
from licserver.web.admin.app import RELEASES
from licserver.web.admin.operations import OPERATIONS, Operation
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
        "version": {"type": "string", "description": "A version as in PEP 440."},
        "changelog": {"type": "string", "description": "Plain text or basic HTML."},
        "manifest": {"type": "string", "description": "The output of `licserver release sign`."},
        "file": {"type": "string", "contentMediaType": "application/octet-stream", "format": "binary"},
    },
}


def describe() -> dict[str, Any]:
    """Generate the document; a test compares it with `docs/openapi-admin.json`."""
    components, names = _schemas()
    paths: dict[str, Any] = {}
    for operation, run in OPERATIONS.items():
        described = paths.setdefault(ADMIN_ROOT + operation.path, {})
        described[operation.method.lower()] = _describe(operation, run, names)
    paths[ADMIN_ROOT + RELEASES]["post"] = _describe_publishing(names)
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
        "paths": dict(sorted(paths.items())),
        "components": {
            "responses": {"Problem": _PROBLEM},
            "schemas": {**components, "Problem": _PROBLEM_SHAPE},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "From `licserver token create`.",
                }
            },
        },
    }


def _schemas() -> tuple[dict[str, Any], dict[Any, str]]:
    """Return all models' schemas, and the models' names in the document."""
    modes: dict[Any, Any] = {one.response: "serialization" for one in OPERATIONS}
    modes |= {one.body: "validation" for one in OPERATIONS if one.body is not None}
    made, whole = models_json_schema(list(modes.items()), ref_template=_REF)
    names = {model: _rename_pages(ref["$ref"].rpartition("/")[2]) for (model, _), ref in made.items()}
    described: dict[str, Any] = json.loads(_rename_pages(json.dumps(whole["$defs"])))
    return described, names


def _rename_pages(text: str) -> str:
    """Replace pydantic's names for generic models."""
    return re.sub(r"\bPage_(\w+)_\b", r"PageOf\1", text)


def _describe(operation: Operation, run: Callable[..., Any], names: dict[Any, str]) -> dict[str, Any]:
    described = _outline(run.__name__, run.__doc__ or "", operation.path)
    described["parameters"] += _query_of(operation.query)
    if operation.scope is not operation.scope.READ:
        described["description"] = "Requires a token with the scope `write`."
    if operation.body is not None:
        schema = {"$ref": _REF.format(model=names[operation.body])}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.creates:
        described["parameters"].append(_IDEMPOTENCY_KEY)
    _add_responses(described, "201" if operation.creates else "200", names[operation.response])
    return described


def _describe_publishing(names: dict[Any, str]) -> dict[str, Any]:
    described = _outline("publish_release", "Publish an uploaded file as a version.", RELEASES)
    described["description"] = "Requires a token with the scope `write`. The file is streamed to the disk."
    described["parameters"].append(_IDEMPOTENCY_KEY)
    described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}
    _add_responses(described, "201", names[schemas.Release])
    return described


def _outline(name: str, summary: str, path: str) -> dict[str, Any]:
    first, *others = name.split("_")
    return {
        "operationId": first + "".join(word.title() for word in others),
        "summary": summary.partition("\n")[0],
        "parameters": [
            {"name": part, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
            for part in re.findall(r"{(\w+)}", path)
        ],
    }


def _query_of(model: type[schemas.RequestModel]) -> list[dict[str, Any]]:
    schema = model.model_json_schema()
    parameters = []
    for name, one in schema.get("properties", {}).items():
        # An absent parameter is not sent as null.
        (kind, *_) = [kind for kind in one.get("anyOf", [one]) if kind.get("type") != "null"]
        if "$ref" in kind:
            kind = schema["$defs"][kind["$ref"].rpartition("/")[2]]
        kind = {key: value for key, value in kind.items() if key not in {"title", "default", "description"}}
        described = {"name": name, "in": "query", "schema": kind}
        if "description" in one:
            described["description"] = one["description"]
        parameters.append(described)
    return parameters


def _add_responses(described: dict[str, Any], status: str, name: str) -> None:
    schema = {"$ref": _REF.format(model=name)}
    described["responses"] = {
        status: {"description": "Success.", "content": {"application/json": {"schema": schema}}},
        **{code: {"$ref": "#/components/responses/Problem"} for code in _ERRORS},
    }
