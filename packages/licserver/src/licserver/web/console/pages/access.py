"""Access: users of the console, tokens of the admin API, and the reference of the APIs."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, Final

from licserver.domain.records import Role, Scope
from licserver.services.tokens import is_valid
from licserver.web.console.formatting import choose, parse_day
from licserver.web.console.pages import Actions, HtmlPage, PageContext, act

ROLES: Final = {
    Role.OWNER: "everything",
    Role.SUPPORT: "licenses: issue, change, revoke, free slots",
    Role.READ_ONLY: "look, without whole keys",
}
SCOPES: Final = {Scope.READ: "reads only", Scope.WRITE: "reads and writes"}


def show_users(context: PageContext) -> HtmlPage:
    """Show all users, and the form for a new user."""
    form = {"name": context.from_form("name"), "role": context.from_form("role") or Role.SUPPORT.value}
    return HtmlPage("users.html", users=context.services.users.list_all(), roles=ROLES, form=form)


def _add_user(context: PageContext) -> None:
    name, password = context.from_form("name"), context.form.get("password", "")
    context.services.users.add(name, password, _read_role(context))


def _set_password(context: PageContext) -> None:
    context.services.users.set_password(context.from_form("user"), context.form.get("password", ""))


def _read_role(context: PageContext) -> Role:
    return choose(Role, context.from_form("role"), "choose a role")


USER_ACTIONS: Final[Actions] = {
    "add": act("user-added", _add_user),
    "role": act("user-role", lambda c: c.services.users.set_role(c.from_form("user"), _read_role(c))),
    "password": act("user-password", _set_password),
    "second-factor": act("user-factor", lambda c: c.services.second_factors.reset(c.from_form("user"))),
    "remove": act("user-removed", lambda c: c.services.users.remove(c.from_form("user"))),
}


def show_tokens(context: PageContext, created: str | None = None) -> HtmlPage:
    """Show all tokens, the form for a new token, and once the text of a created token."""
    return HtmlPage(
        "tokens.html",
        tokens=[(token, is_valid(token, context.now)) for token in context.services.tokens.list_all()],
        scopes=SCOPES,
        form=context.typed("name", "scope", "expires"),
        created=created,
    )


def _create_token(context: PageContext) -> HtmlPage:
    scope = choose(Scope, context.from_form("scope"), "choose what the token may do")
    expires_on = parse_day(context.from_form("expires"))
    _, text = context.services.tokens.create(context.from_form("name"), scope, expires_on)
    return show_tokens(context._replace(form={}), text)


TOKEN_ACTIONS: Final[Actions] = {
    "create": _create_token,
    "revoke": act("token-revoked", lambda c: c.services.tokens.revoke(c.from_form("token"))),
}


# --- the HTTP interfaces, as their OpenAPI documents describe them ----------------------------


@cache
def documents() -> Mapping[str, dict[str, Any]]:
    """Return both OpenAPI documents by their file names; they are generated at the first call."""
    from licserver.web.admin.openapi import describe_api  # noqa: PLC0415 - most processes never need it

    text = (files("licserver.protocol") / "openapi.json").read_text(encoding="utf-8")
    return {"openapi.json": json.loads(text), "openapi-admin.json": describe_api()}


def show_api(_context: PageContext) -> HtmlPage:
    """Show all endpoints with parameters and examples."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents().values():
        for endpoint in _endpoints(document):
            groups.setdefault(endpoint["group"], []).append(endpoint)
    return HtmlPage("api.html", groups=groups, files=list(documents()))


def _endpoints(document: dict[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Describe the operations; `request` and `response` are examples as JSON, or empty."""
    for path, operations in document["paths"].items():
        for method in ("get", "post", "put", "patch", "delete"):
            if (described := operations.get(method)) is None:
                continue
            responses, tags = described["responses"], described.get("tags")
            yield {
                "group": f"Admin API: {tags[0]}" if tags else "Installed software",
                "method": method.upper(),
                "path": path,
                "summary": described["summary"].rstrip("."),
                "description": described.get("description", ""),
                "parameters": [
                    _resolve(document, parameter) for parameter in described.get("parameters", [])
                ],
                "request": _example(document, described.get("requestBody", {})),
                "response": _example(document, responses[min(responses)]),
            }


def _example(document: dict[str, Any], part: dict[str, Any]) -> str:
    for content in _resolve(document, part).get("content", {}).values():
        schema = _resolve(document, content.get("schema", {}))
        examples = [named["value"] for named in content.get("examples", {}).values()]
        for example in (content.get("example"), *examples, schema.get("example")):
            if example is not None:
                return json.dumps(example, indent=2, ensure_ascii=False)
    return ""


def _resolve(document: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Follow a reference within the document."""
    target = document
    for name in part["$ref"].split("/")[1:] if "$ref" in part else ():
        target = target[name]
    return target if "$ref" in part else part
