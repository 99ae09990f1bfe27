"""Commands on what gives access: console users, tokens, secrets of links, signing keys; and the audit log."""

import shlex
import subprocess
import sys
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, date, timedelta
from pathlib import Path
from typing import Any

import click

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    limit_option,
    name_argument,
    open_command_services,
    parse_day,
    pick,
    read_file,
    read_stdin_line,
    services_command,
    settings_command,
)
from licserver.cli.output import echo
from licserver.clock import system_clock
from licserver.database.repositories.audit import AuditFilter
from licserver.database.repositories.tokens import Token
from licserver.domain.records import Role, Scope
from licserver.domain.text import format_details
from licserver.errors import InvalidInputError, LicserverError, SecretsError
from licserver.protocol.ed25519_keys import PrivateKey, SigningKey
from licserver.protocol.response_signatures import live_keys
from licserver.security import link_secrets, secrets_file
from licserver.security.redaction import mask
from licserver.security.secrets_file import open_vault
from licserver.services.installation import Services
from licserver.settings import Settings

_LONGEST_SECRETS = 1 << 20
_SECRET_WIDTHS = (8, 24, 24, 0)


# --- users ------------------------------------------------------------------------------------


user_group = Commands(
    "user", help="Add, list and remove console users; change passwords, reset second factors."
)


password_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from the first line of standard input."
)
_ROLES = click.Choice([role.value for role in Role])


@services_command("add", user_group)
@name_argument
@password_option
@click.option(
    "--role", type=_ROLES, default=Role.OWNER.value, show_default=True, help="What the user may do."
)
def add_user(services: Services, printer: Printer, name: str, role: str, *, password_stdin: bool) -> None:
    """Add the user NAME, and ask for a password."""
    services.users.check_new_name(name)
    name = services.users.add(name, _ask_password(from_stdin=password_stdin), Role(role))
    printer.result({"user": name, "role": role}, f"added {name} ({role}); sign in at /console")


@services_command("role", user_group)
@name_argument
@click.argument("role", metavar="ROLE", type=_ROLES)
def set_role(services: Services, printer: Printer, name: str, role: str) -> None:
    """Change what the user NAME may do: everything, support customers, or only look."""
    services.users.set_role(name, Role(role))
    printer.result({"user": name, "role": role}, f"{name} is {role} now")


@services_command("list", user_group)
def list_users(services: Services, printer: Printer) -> None:
    """List all users."""
    records = (
        {"user": user.name, "role": user.role.value, "added_at": user.created_at}
        | {"password_changed_at": user.password_changed_at, "second_factor": user.has_second_factor}
        for user in services.users.list_all()
    )
    printer.table(records, (32, 10, 23, 23, 0), "no users yet; add one: licserver user add NAME")


@services_command("password", user_group)
@name_argument
@password_option
def change_password(services: Services, printer: Printer, name: str, *, password_stdin: bool) -> None:
    """Change the password of the user NAME, and end their sessions."""
    services.users.get(name)
    services.users.set_password(name, _ask_password(from_stdin=password_stdin))
    printer.result({"user": name}, f"changed the password of {name}, and signed out all sessions")


@services_command("remove", user_group)
@name_argument
def remove_user(services: Services, printer: Printer, name: str) -> None:
    """Remove the user NAME, and end their sessions."""
    services.users.remove(name)
    printer.result({"user": name}, f"removed {name}")


@services_command("reset-second-factor", user_group)
@name_argument
def reset_second_factor(services: Services, printer: Printer, name: str) -> None:
    """Remove the second factor of the user NAME, after the loss of it and the recovery codes."""
    services.second_factors.reset(name)
    printer.result({"user": name}, f"removed the second factor of {name}, and signed out all sessions")


def _ask_password(*, from_stdin: bool) -> str:
    if from_stdin:
        return read_stdin_line("password")
    if sys.stdin is None or not sys.stdin.isatty():  # getpass would show the password, after a warning
        raise InvalidInputError("there is no terminal to ask for the password; use --password-stdin")
    typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    return typed


# --- tokens of the admin API ------------------------------------------------------------------


token_group = Commands("token", help="Create, list and revoke tokens of the admin API.")


@services_command("create", token_group)
@name_argument
@click.option(
    "--scope",
    type=click.Choice([scope.value for scope in Scope]),
    required=True,
    help="The permission: read only, or everything.",
)
@click.option(
    "--expires", type=parse_day, metavar="YYYY-MM-DD", help="Its last day, UTC; default: never expires."
)
def create_token(services: Services, printer: Printer, name: str, scope: str, expires: date | None) -> None:
    """Create the token NAME and print it; it cannot be shown again."""
    token, text = services.tokens.create(name, Scope(scope), expires)
    printer.result({"token": text, **_token_record(token)}, text)


@services_command("list", token_group)
def list_tokens(services: Services, printer: Printer) -> None:
    """List all tokens, including revoked ones."""
    printer.table(map(_token_record, services.tokens.list_all()), (24, 6, 24, 10, 24, 0), "no tokens yet")


@services_command("revoke", token_group)
@name_argument
def revoke_token(services: Services, printer: Printer, name: str) -> None:
    """Revoke the token NAME; it is refused from now on."""
    token = services.tokens.revoke(name)
    printer.result(_token_record(token), f"revoked {token.name}")


def _token_record(token: Token) -> dict[str, Any]:
    return pick(token, "name", "scope", "created_at", "expires_on", "revoked_at", "last_used_on")


# --- secrets of download links ----------------------------------------------------------------


secret_group = Commands(
    "secret",
    help="List and rotate the secrets that sign download links; the secrets themselves are never shown.",
)


@settings_command("list", secret_group)
def list_secrets(settings: Settings, printer: Printer) -> None:
    """List the accepted secrets, the newest first."""
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    statuses = link_secrets.secret_statuses(open_vault(settings).link_secrets, system_clock())
    printer.table(map(asdict, statuses), _SECRET_WIDTHS, "none")


@settings_command("rotate", secret_group)
@click.option(
    "--after",
    type=click.IntRange(1, 7 * 24 * 60),
    metavar="MINUTES",
    default=1,
    show_default=True,
    help="When the new secret starts to sign; until then, `secret copy` it to all machines.",
)
@click.option("--leaked", is_flag=True, help="Refuse the old secrets at once: existing links stop working.")
def rotate_secrets(settings: Settings, printer: Printer, after: int, *, leaked: bool) -> None:
    """Generate a new secret for download links; running servers read it within seconds.

    Existing links stay valid for their hour.
    """
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    statuses = link_secrets.rotate(settings, system_clock(), lead=timedelta(minutes=after), leaked=leaked)
    new = statuses[0]
    _record_change(settings, "secret.rotate", ("secret", new.id), signs_from=new.signs_from, leaked=leaked)
    printer.table(map(asdict, statuses), _SECRET_WIDTHS, "none")


@settings_command("copy", secret_group)
@click.argument("hosts", nargs=-1, required=True, metavar="HOST...")
@click.option("--ssh", default="ssh", show_default=True, help="Program that runs a command on HOST.")
@click.option("--command", default="licserver", show_default=True, help="How licserver is called there.")
def copy_secrets(
    settings: Settings, printer: Printer, hosts: tuple[str, ...], ssh: str, command: str
) -> None:
    """Copy all secrets to each HOST, by `licserver secret receive` there.

    For a new machine, and after each change. They pass through standard input: no argument or log has them.
    """
    text, failed = secrets_file.export_secrets(settings), dict[str, str]()
    for host in hosts:
        if problem := _copy_to(host, [*shlex.split(ssh), host, f"{command} secret receive"], text):
            failed[host] = problem
        else:
            _record_change(settings, "secret.copy", ("machine", host))
    lines = (f"{host}: {failed.get(host, 'has the secrets')}" for host in hosts)
    printer.result({"failed": failed}, "\n".join(lines))
    if failed:
        raise SecretsError(f"not all machines have the secrets: {', '.join(failed)}")


def _copy_to(host: str, command: list[str], text: str) -> str | None:
    """Run a command with the secrets as its input; return what went wrong."""
    if host.startswith("-"):
        raise InvalidInputError(f"{host!r} is not the name of a machine")
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        return f"{command[0]}: {error.strerror}"
    lines = done.stderr.strip().splitlines()
    return None if done.returncode == 0 else mask(lines[-1] if lines else f"exit code {done.returncode}")


@settings_command("receive", secret_group)
def receive_secrets(settings: Settings, printer: Printer) -> None:
    """Read secrets from standard input, as `secret copy` on another machine sends them.

    Running servers use link secrets within seconds, and signing keys after a restart or SIGHUP.
    """
    changed = secrets_file.import_secrets(settings, sys.stdin.read(_LONGEST_SECRETS))
    advice = f"; {_RESTART}" if "signing_keys" in changed else ""
    printer.result({"changed": changed}, f"changed: {', '.join(changed) or 'nothing'}{advice}")


def _record_change(settings: Settings, action: str, object_: tuple[str, str], **details: Any) -> None:
    """Record a change of the secrets in the audit log; print a warning if the database fails (D-132)."""
    try:
        with closing(open_command_services(settings)) as services:
            services.audit.record(action, object_, **details)
    except (LicserverError, OSError) as error:
        echo(f"warning: done, but not recorded in the audit log: {mask(str(error))}", err=True)


# --- keys that sign responses -----------------------------------------------------------------

_RESTART = "restart running servers to use this, or send SIGHUP with --workers"


signing_key_group = Commands(
    "signing-key",
    help="Add, list and retire the keys that sign responses, and print the public keys for apps to pin.",
)


@settings_command("add", signing_key_group)
@click.option(
    "--pem",
    type=click.Path(path_type=Path),
    help="A key file of openssl genpkey -algorithm ed25519; default: generate a key.",
)
def add_key(settings: Settings, printer: Printer, pem: Path | None) -> None:
    """Add a key that signs responses."""
    private = PrivateKey.generate() if pem is None else PrivateKey.from_pem(read_file(pem), str(pem))
    key = secrets_file.add_signing_key(settings, private, system_clock().astimezone(UTC))
    _record_change(settings, "signing_key.add", ("signing-key", key.id), given=pem is not None)
    printer.result(_key_record(key), f"added {key.id}; {_RESTART}\napps pin {key.private.public.text}")


@settings_command("list", signing_key_group)
def list_keys(settings: Settings, printer: Printer) -> None:
    """List all keys, the oldest first."""
    keys = secrets_file.signing_keys(settings)
    printer.table(map(_key_record, keys), (43, 24, 24, 0), "no signing keys: responses are not signed")


# An id may begin with a hyphen, and its letters are no options, not even -h.
@settings_command(
    "retire",
    signing_key_group,
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
)
@click.argument("key_id", metavar="ID")
@click.option("--last", is_flag=True, help="Retire even the last key: responses are then not signed.")
def retire_key(settings: Settings, printer: Printer, key_id: str, *, last: bool) -> None:
    """Retire the key ID, or the only key that starts with ID: it signs nothing any more."""
    key = secrets_file.retire_signing_key(settings, key_id, system_clock().astimezone(UTC), last=last)
    _record_change(settings, "signing_key.retire", ("signing-key", key.id), last=last)
    printer.result(_key_record(key), f"retired {key.id}; {_RESTART}")


@settings_command("public", signing_key_group)
def print_public_keys(settings: Settings, printer: Printer) -> None:
    """Print the public keys for apps to pin, of all live keys, the newest first."""
    pins = [key.private.public.text for key in live_keys(secrets_file.signing_keys(settings))]
    if not pins:
        raise InvalidInputError("there is no live signing key; add one with: licserver signing-key add")
    printer.result({"public_keys": pins}, "\n".join(pins))


def _key_record(key: SigningKey) -> dict[str, Any]:
    return {**pick(key, "id", "added_at", "retired_at"), "public_key": key.private.public.text}


# --- audit log --------------------------------------------------------------------------------


@services_command("audit")
@click.option("--license", "license_", metavar="KEY", help="Only changes of this license (key or id).")
@limit_option
def audit(services: Services, printer: Printer, license_: str | None, limit: int) -> None:
    """Show changes and their authors, the latest first."""
    object_ = None if license_ is None else ("license", services.licenses.get(license_).id.hex())
    records = (
        {"at": entry.at, "actor": f"{entry.actor.kind}:{entry.actor.name}", "action": entry.action}
        | {"kind": entry.object_kind, "object": entry.object_id}
        | {"details": entry.details if printer.as_json else format_details(entry.details)}
        for entry in services.audit.list_page(AuditFilter(object=object_), limit=limit).items
    )
    printer.table(records, (24, 16, 20, 12, 32, 0), "no changes yet")
