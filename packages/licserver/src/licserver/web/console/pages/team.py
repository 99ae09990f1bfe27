"""Who has access: users of the console, and tokens of the admin API. For owners."""

from collections.abc import Mapping
from typing import Final

from licserver.domain.records import Role, Scope
from licserver.services.tokens import is_valid
from licserver.web.console.formatting import choose, parse_day
from licserver.web.console.pages import Page, PageContext, Show, act

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


def _add_user(context: PageContext) -> None:
    context.services.users.add(
        context.from_form("name"), context.form.get("password", ""), _read_role(context)
    )


def _set_password(context: PageContext) -> None:
    context.services.users.set_password(context.from_form("user"), context.form.get("password", ""))


def _read_role(context: PageContext) -> Role:
    return choose(Role, context.from_form("role"), "choose a role")


USER_ACTIONS: Final[Mapping[str, Show]] = {
    "add": act("user-added", _add_user),
    "role": act("user-role", lambda c: c.services.users.set_role(c.from_form("user"), _read_role(c))),
    "password": act("user-password", _set_password),
    "second-factor": act("user-factor", lambda c: c.services.second_factors.reset(c.from_form("user"))),
    "remove": act("user-removed", lambda c: c.services.users.remove(c.from_form("user"))),
}


def show_tokens(context: PageContext) -> Page:
    """Show all tokens, and the form for a new one."""
    return _tokens_page(context, None)


def _create_token(context: PageContext) -> Page:
    """Create a token; the page shows it this once."""
    scope = choose(Scope, context.from_form("scope"), "choose what the token may do")
    expires_on = parse_day(context.from_form("expires"))
    _, text = context.services.tokens.create(context.from_form("name"), scope, expires_on)
    return _tokens_page(context._replace(form={}), text)


def _tokens_page(context: PageContext, created: str | None) -> Page:
    values = {
        "tokens": [(token, is_valid(token, context.now)) for token in context.services.tokens.list_all()],
        "scopes": SCOPES,
        "form": context.typed("name", "scope", "expires"),
        "created": created,
    }
    return Page("tokens.html", values)


TOKEN_ACTIONS: Final[Mapping[str, Show]] = {
    "create": _create_token,
    "revoke": act("token-revoked", lambda c: c.services.tokens.revoke(c.from_form("token"))),
}
