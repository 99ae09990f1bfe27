"""Commands on tokens of the admin API."""

from datetime import date
from typing import Any

import click

from licserver.cli.common import Commands, services_command
from licserver.cli.output import Printer, plain
from licserver.cli.parameters import Day
from licserver.database.repositories.tokens import Token
from licserver.domain.records import Scope
from licserver.services import Services


@click.group("token", cls=Commands)
def token_group() -> None:
    """Create, list and revoke tokens of the admin API."""


@token_group.command("create")
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    required=True,
    help="What it permits: reading only, or everything.",
)
@click.option("--expires", type=Day(), help="Its last day, UTC; default: never expires.")
@services_command
def create(services: Services, printer: Printer, name: str, scope: str, expires: date | None) -> None:
    """Create the token NAME and print it; it cannot be shown again."""
    token, text = services.tokens.create(name, Scope(scope), expires)
    printer.result({"token": text, **_record(token)}, text)


@token_group.command("list")
@services_command
def list_tokens(services: Services, printer: Printer) -> None:
    """List all tokens, including revoked ones."""
    printer.table(map(_record, services.tokens.list_all()), (24, 6, 24, 10, 24, 0), "no tokens yet")


@token_group.command("revoke")
@click.argument("name")
@services_command
def revoke(services: Services, printer: Printer, name: str) -> None:
    """Revoke the token NAME; it is refused from now on."""
    token = services.tokens.revoke(name)
    printer.result(_record(token), f"revoked {token.name}")


def _record(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "scope": token.scope.value,
        "created_at": token.created_at,
        "expires_on": token.expires_on and plain(token.expires_on),
        "revoked_at": token.revoked_at,
        "last_used_on": token.last_used_on and plain(token.last_used_on),
    }
