"""The HTTP interfaces for programs, as their OpenAPI documents describe them."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

from licserver.web.console.pages import Page, PageContext

_METHODS: Final = ("get", "post", "put", "patch", "delete")


class Endpoint(NamedTuple):
    """One operation; `request` and `response` are examples as JSON, empty if it has none."""

    method: str
    path: str
    summary: str
    description: str
    parameters: list[Mapping[str, Any]]
    request: str
    response: str


@cache
def documents() -> Mapping[str, dict[str, Any]]:
    """Return both OpenAPI documents by their file names; made once, at the first look at them."""
    from licserver.web.admin.openapi import describe_api  # noqa: PLC0415 - most processes never need it

    text = (files("licserver.protocol") / "openapi.json").read_text(encoding="utf-8")
    return {"openapi.json": json.loads(text), "openapi-admin.json": describe_api()}


def show(_context: PageContext) -> Page:
    """Show all endpoints with parameters and examples."""
    public, admin = documents().values()
    groups = {"Installed software": list(_endpoints(public))}
    for endpoint in _endpoints(admin):
        groups.setdefault(_title(endpoint.path), []).append(endpoint)
    return Page("api.html", {"groups": groups, "files": list(documents())})


def _title(path: str) -> str:
    document = documents()["openapi-admin.json"]
    (tag,) = next(iter(document["paths"][path].values()))["tags"]
    return f"Admin API: {tag}"


def _endpoints(document: dict[str, Any]) -> Iterator[Endpoint]:
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                yield _read_endpoint(document, method, path, operations[method])


def _read_endpoint(document: dict[str, Any], method: str, path: str, described: dict[str, Any]) -> Endpoint:
    success = next(described["responses"][status] for status in sorted(described["responses"]))
    return Endpoint(
        method.upper(),
        path,
        described["summary"].rstrip("."),
        described.get("description", ""),
        [_resolve(document, one) for one in described.get("parameters", [])],
        _example(document, described.get("requestBody", {})),
        _example(document, success),
    )


def _example(document: dict[str, Any], part: dict[str, Any]) -> str:
    for content in _resolve(document, part).get("content", {}).values():
        schema = _resolve(document, content.get("schema", {}))
        examples = [one["value"] for one in content.get("examples", {}).values()]
        for example in (content.get("example"), *examples, schema.get("example")):
            if example is not None:
                return json.dumps(example, indent=2, ensure_ascii=False)
    return ""


def _resolve(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference within the document."""
    if "$ref" not in part:
        return part
    found = document
    for name in part["$ref"].split("/")[1:]:
        found = found[name]
    return found
