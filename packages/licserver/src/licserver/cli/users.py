"""Commands on the console's users."""

import sys
from typing import Any

import click

from licserver.cli.common import Commands, Printer, vendor_command
from licserver.database.repositories.users import UserRow
from licserver.errors import WrongUse
from licserver.services import Vendor


@click.group("user", cls=Commands)
def user_group() -> None:
    """Add, list and remove users of the console; change passwords, reset second factors."""


@user_group.command("add")
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input: one line.")
@vendor_command
def add(vendor: Vendor, printer: Printer, name: str, *, password_stdin: bool) -> None:
    """Add the user NAME; the password is asked for, never an argument that others could see."""
    vendor.check_new_user(name)
    name = vendor.add_user(name, _ask_password(from_stdin=password_stdin))
    printer.one({"user": name}, f"added {name}; sign in at /console")


@user_group.command("list")
@vendor_command
def list_users(vendor: Vendor, printer: Printer) -> None:
    """List all users."""
    printer.rows(
        map(_user, vendor.users()), (32, 23, 23, 0), "no users yet; add one: licserver user add NAME"
    )


@user_group.command("password")
@click.argument("name")
@click.option("--password-stdin", is_flag=True, help="Read the password from standard input: one line.")
@vendor_command
def password(vendor: Vendor, printer: Printer, name: str, *, password_stdin: bool) -> None:
    """Give the user NAME another password; whoever is signed in with the name is signed out."""
    vendor.user(name)
    vendor.set_password(name, _ask_password(from_stdin=password_stdin))
    printer.one({"user": name}, f"changed the password of {name}, who is signed out everywhere")


@user_group.command("remove")
@click.argument("name")
@vendor_command
def remove(vendor: Vendor, printer: Printer, name: str) -> None:
    """Remove the user NAME; whoever is signed in with the name is signed out."""
    vendor.remove_user(name)
    printer.one({"user": name}, f"removed {name}")


@user_group.command("reset-second-factor")
@click.argument("name")
@vendor_command
def reset_second_factor(vendor: Vendor, printer: Printer, name: str) -> None:
    """Remove the second factor of the user NAME, who has lost it and the recovery codes."""
    vendor.reset_second_factor(name)
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


def _user(user: UserRow) -> dict[str, Any]:
    return {
        "user": user.name,
        "added_at": user.created_at,
        "password_changed_at": user.password_changed_at,
        "second_factor": user.has_second_factor,
    }
