"""Who has access: users of the console, and tokens of the admin API. For owners."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from licserver.domain.records import Role, Scope
from licserver.errors import InvalidInputError
from licserver.services.tokens import is_valid
from licserver.web.console.formatting import parse_day
from licserver.web.console.pages import Page, PageContext, Redirect, Reply

ROLES: Final = {
    Role.OWNER: "everything",
    Role.SUPPORT: "licenses: issue, change, revoke, free slots",
    Role.READ_ONLY: "look, without whole keys",
}
SCOPES: Final = {Scope.READ: "reads only", Scope.WRITE: "reads and writes"}


def show_users(context: PageContext) -> Page:
    """Show all users, and the form for a new one."""
    form = {"name": context.from_form("name"), "role": context.from_form("role") or Role.SUPPORT.value}
    return Page("users.html", {"users": context.services.users.list_all(), "roles": ROLES, "form": form})


def _add_user(context: PageContext) -> Redirect:
    context.services.users.add(
        context.from_form("name"), context.form.get("password", ""), _read_role(context)
    )
    return Redirect("/console/users", "user-added")


def _set_role(context: PageContext) -> Redirect:
    context.services.users.set_role(context.from_form("user"), _read_role(context))
    return Redirect("/console/users", "user-role")


def _set_password(context: PageContext) -> Redirect:
    context.services.users.set_password(context.from_form("user"), context.form.get("password", ""))
    return Redirect("/console/users", "user-password")


def _reset_second_factor(context: PageContext) -> Redirect:
    context.services.second_factors.reset(context.from_form("user"))
    return Redirect("/console/users", "user-factor")


def _remove_user(context: PageContext) -> Redirect:
    context.services.users.remove(context.from_form("user"))
    return Redirect("/console/users", "user-removed")


def _read_role(context: PageContext) -> Role:
    try:
        return Role(context.from_form("role"))
    except ValueError:
        raise InvalidInputError("choose a role") from None


USER_ACTIONS: Final[Mapping[str, Callable[[PageContext], Reply]]] = {
    "add": _add_user,
    "role": _set_role,
    "password": _set_password,
    "second-factor": _reset_second_factor,
    "remove": _remove_user,
}


def show_tokens(context: PageContext) -> Page:
    """Show all tokens, and the form for a new one."""
    return _tokens_page(context, None)


def _create_token(context: PageContext) -> Page:
    """Create a token; the page shows it this once."""
    try:
        scope = Scope(context.from_form("scope"))
    except ValueError:
        raise InvalidInputError("choose what the token may do") from None
    expires_on = parse_day(context.from_form("expires"))
    _, text = context.services.tokens.create(context.from_form("name"), scope, expires_on)
    return _tokens_page(context._replace(form={}), text)


def _tokens_page(context: PageContext, created: str | None) -> Page:
    form = {name: context.from_form(name) for name in ("name", "scope", "expires")}
    values: dict[str, Any] = {
        "tokens": [(token, is_valid(token, context.now)) for token in context.services.tokens.list_all()],
        "scopes": SCOPES,
        "form": form,
        "created": created,
    }
    return Page("tokens.html", values)


def _revoke_token(context: PageContext) -> Redirect:
    context.services.tokens.revoke(context.from_form("token"))
    return Redirect("/console/tokens", "token-revoked")


TOKEN_ACTIONS: Final[Mapping[str, Callable[[PageContext], Reply]]] = {
    "create": _create_token,
    "revoke": _revoke_token,
}
