"""The admin API's OpenAPI document, made of the operations themselves."""

import re
from typing import Any, Final, get_type_hints

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from licserver.web.admin import schemas
from licserver.web.admin.app import RELEASES, ROOT
from licserver.web.admin.operations import OPERATIONS, Operation

_REF: Final = "#/components/schemas/{model}"
_PAGE: Final = re.compile(r"Page_(.*)_")  # so pydantic calls a shape that was made of another
_TROUBLE: Final = ("400", "401", "403", "404", "408", "409", "413", "415", "422", "429", "503")
_PROBLEM: Final = {
    "description": "Why not, as problem details (RFC 9457).",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}
_PROBLEM_SHAPE: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"const": "about:blank"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence for people."},
        "errors": {
            "type": "object",
            "description": "What is wrong with which field.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
    },
}
_ONCE: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "Sent again within a day, the same request gets the same answer, and happens once.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_FORM: Final = {
    "type": "object",
    "required": ["version", "file"],
    "additionalProperties": False,
    "properties": {
        "version": {"type": "string", "description": "By PEP 440."},
        "changelog": {"type": "string", "description": "Plain text or basic HTML."},
        "manifest": {"type": "string", "description": "What `licserver release sign` wrote."},
        "file": {"type": "string", "contentMediaType": "application/octet-stream", "format": "binary"},
    },
}


def describe() -> dict[str, Any]:
    """Make the document; it is kept as `docs/openapi-admin.json`, where a test compares the two."""
    components, names = _schemas()
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        described = paths.setdefault(ROOT + operation.path, {})
        described[operation.method.lower()] = _describe(operation, names)
    paths[ROOT + RELEASES]["post"] = _describe_publishing(names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "licserver admin API",
            "version": "1",
            "description": "The vendor's operations for programs. The prose is in admin-api.md.",
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


def _gives(operation: Operation) -> type[BaseModel]:
    model: type[BaseModel] = get_type_hints(operation.run)["return"]
    return model


def _schemas() -> tuple[dict[str, Any], dict[Any, str]]:
    """All shapes, and their names in the document."""
    modes: dict[Any, Any] = {_gives(one): "serialization" for one in OPERATIONS}
    modes |= {one.body: "validation" for one in OPERATIONS if one.body is not None}
    made, whole = models_json_schema(list(modes.items()), ref_template=_REF)
    renamed = {old: _PAGE.sub(r"PageOf\1", old) for old in whole["$defs"]}

    def rename(value: Any) -> Any:
        if isinstance(value, dict):
            named = {name: rename(one) for name, one in value.items()}
            if "$ref" in named:
                named["$ref"] = _REF.format(model=renamed[named["$ref"].rpartition("/")[2]])
            return named
        return [rename(one) for one in value] if isinstance(value, list) else value

    components = {renamed[old]: rename(schema) for old, schema in whole["$defs"].items()}
    return components, {model: renamed[ref["$ref"].rpartition("/")[2]] for (model, _), ref in made.items()}


def _describe(operation: Operation, names: dict[Any, str]) -> dict[str, Any]:
    described = _frame(operation.run.__name__, operation.run.__doc__ or "", operation.path)
    described["parameters"] += _query_of(operation.query)
    if operation.scope is not operation.scope.READ:
        described["description"] = "Takes a token that may write."
    if operation.body is not None:
        schema = {"$ref": _REF.format(model=names[operation.body])}
        described["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    if operation.creates:
        described["parameters"].append(_ONCE)
    _answer(described, "201" if operation.creates else "200", names[_gives(operation)])
    return described


def _describe_publishing(names: dict[Any, str]) -> dict[str, Any]:
    described = _frame("publish_release", "Publish a file as a version.", RELEASES)
    described["description"] = "Takes a token that may write. The file is streamed to the disk."
    described["parameters"].append(_ONCE)
    described["requestBody"] = {"required": True, "content": {"multipart/form-data": {"schema": _FORM}}}
    _answer(described, "201", names[schemas.Release])
    return described


def _frame(name: str, summary: str, path: str) -> dict[str, Any]:
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
        # What is absent is not sent as null; nor does it say null in an address.
        kinds = [kind for kind in one.get("anyOf", [one]) if kind.get("type") != "null"]
        kind = {
            key: value for key, value in kinds[0].items() if key not in {"title", "default", "description"}
        }
        if "$ref" in kind:
            kind = {
                key: value
                for key, value in schema["$defs"][kind["$ref"].rpartition("/")[2]].items()
                if key in {"type", "enum"}
            }
        described = {"name": name, "in": "query", "schema": kind}
        if "description" in one:
            described["description"] = one["description"]
        parameters.append(described)
    return parameters


def _answer(described: dict[str, Any], status: str, name: str) -> None:
    schema = {"$ref": _REF.format(model=name)}
    described["responses"] = {
        status: {"description": "Done.", "content": {"application/json": {"schema": schema}}},
        **{code: {"$ref": "#/components/responses/Problem"} for code in _TROUBLE},
    }
