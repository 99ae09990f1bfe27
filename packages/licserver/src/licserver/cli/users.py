"""Commands on the console's users."""

import sys
from typing import Any

import click

from licserver.cli.common import Commands, Printer, services_command
from licserver.database.repositories.users import User
from licserver.errors import WrongUse
from licserver.services import Services


@click.group("user", cls=Commands)
def user_group() -> None:
    """Add, list and remove users of the console; change passwords, reset second factors."""


@user_group.command("add")
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input: one line.")
@services_command
def add(services: Services, printer: Printer, name: str, *, password_stdin: bool) -> None:
    """Add the user NAME; the password is asked for, never an argument that others could see."""
    services.users.check_new_name(name)
    name = services.users.add(name, _ask_password(from_stdin=password_stdin))
    printer.one({"user": name}, f"added {name}; sign in at /console")


@user_group.command("list")
@services_command
def list_users(services: Services, printer: Printer) -> None:
    """List all users."""
    printer.rows(
        map(_user, services.users.list_all()),
        (32, 23, 23, 0),
        "no users yet; add one: licserver user add NAME",
    )


@user_group.command("password")
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input: one line.")
@services_command
def password(services: Services, printer: Printer, name: str, *, password_stdin: bool) -> None:
    """Give the user NAME another password; whoever is signed in with the name is signed out."""
    services.users.get(name)
    services.users.set_password(name, _ask_password(from_stdin=password_stdin))
    printer.one({"user": name}, f"changed the password of {name}, who is signed out everywhere")


@user_group.command("remove")
@click.argument("name")
@services_command
def remove(services: Services, printer: Printer, name: str) -> None:
    """Remove the user NAME; whoever is signed in with the name is signed out."""
    services.users.remove(name)
    printer.one({"user": name}, f"removed {name}")


@user_group.command("reset-second-factor")
@click.argument("name")
@services_command
def reset_second_factor(services: Services, printer: Printer, name: str) -> None:
    """Remove the second factor of the user NAME, who has lost it and the recovery codes."""
    services.second_factors.reset(name)
    printer.one({"user": name}, f"removed the second factor of {name}, who is signed out everywhere")


def _ask_password(*, from_stdin: bool) -> str:
    if from_stdin:
        if sys.stdin is None:
            raise WrongUse("there is no standard input to read the password from")
        try:
            return sys.stdin.readline().rstrip("\r\n")
        except UnicodeDecodeError:
            raise WrongUse("standard input is no text") from None
    if sys.stdin is None or not sys.stdin.isatty():  # getpass would show what is typed, after a warning
        raise WrongUse("there is no terminal to ask for the password; use --password-stdin")
    asked: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return asked


def _user(user: User) -> dict[str, Any]:
    return {
        "user": user.name,
        "added_at": user.created_at,
        "password_changed_at": user.password_changed_at,
        "second_factor": user.has_second_factor,
    }
