"""Commands on console users."""

import sys
from typing import Any

import click

from licserver.cli.common import Commands, services_command
from licserver.cli.output import Printer
from licserver.cli.parameters import read_stdin_line
from licserver.database.repositories.users import User
from licserver.errors import InvalidInputError
from licserver.services import Services

password_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from the first line of standard input."
)


@click.group("user", cls=Commands)
def user_group() -> None:
    """Add, list and remove console users; change passwords, reset second factors."""


@user_group.command("add")
@click.argument("name")
@password_option
@services_command
def add(services: Services, printer: Printer, name: str, *, password_stdin: bool) -> None:
    """Add the user NAME, and ask for a password."""
    services.users.check_new_name(name)
    name = services.users.add(name, _ask_password(from_stdin=password_stdin))
    printer.result({"user": name}, f"added {name}; sign in at /console")


@user_group.command("list")
@services_command
def list_users(services: Services, printer: Printer) -> None:
    """List all users."""
    empty = "no users yet; add one: licserver user add NAME"
    printer.table(map(_record, services.users.list_all()), (32, 23, 23, 0), empty)


@user_group.command("password")
@click.argument("name")
@password_option
@services_command
def password(services: Services, printer: Printer, name: str, *, password_stdin: bool) -> None:
    """Change the password of the user NAME, and end their sessions."""
    services.users.get(name)
    services.users.set_password(name, _ask_password(from_stdin=password_stdin))
    printer.result({"user": name}, f"changed the password of {name}, who is signed out everywhere")


@user_group.command("remove")
@click.argument("name")
@services_command
def remove(services: Services, printer: Printer, name: str) -> None:
    """Remove the user NAME, and end their sessions."""
    services.users.remove(name)
    printer.result({"user": name}, f"removed {name}")


@user_group.command("reset-second-factor")
@click.argument("name")
@services_command
def reset_second_factor(services: Services, printer: Printer, name: str) -> None:
    """Remove the second factor of the user NAME, who has lost it and the recovery codes."""
    services.second_factors.reset(name)
    printer.result({"user": name}, f"removed the second factor of {name}, who is signed out everywhere")


def _ask_password(*, from_stdin: bool) -> str:
    if from_stdin:
        return read_stdin_line("password")
    if sys.stdin is None or not sys.stdin.isatty():  # getpass would show the password, after a warning
        raise InvalidInputError("there is no terminal to ask for the password; use --password-stdin")
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return typed


def _record(user: User) -> dict[str, Any]:
    return {
        "user": user.name,
        "added_at": user.created_at,
        "password_changed_at": user.password_changed_at,
        "second_factor": user.has_second_factor,
    }
