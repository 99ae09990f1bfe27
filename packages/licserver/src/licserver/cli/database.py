"""Commands that check an installation, and that create, upgrade and check its database."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    data_dir_option,
    json_option,
    load_command_settings,
    opened_services,
    settings_command,
)
from licserver.clock import system_clock
from licserver.database import schema
from licserver.database.engine import Database, connect
from licserver.errors import SettingsError, StoreError
from licserver.security import secrets_file
from licserver.services.self_check import Finding, Level, check_installation
from licserver.settings import Settings

# `migrate` is imported by the commands, because Alembic would double the time of all others.


@click.group("db", cls=Commands)
def database_group() -> None:
    """Create, upgrade, check and count the database."""


@contextmanager
def _connected(settings: Settings, *, create: bool = False) -> Iterator[Database]:
    """Connect to the database; unless `create`, to an existing SQLite file only."""
    missing = StoreError("there is no database yet; the first command that needs one creates it")
    if create:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    elif settings.database_url is None and not settings.data_dir.is_dir():
        raise missing
    database = connect(settings.database)
    try:
        if not (create or database.file is None or database.file.exists()):
            raise missing
        yield database
    finally:
        database.close()


@database_group.command("create")
@settings_command
def create_database(settings: Settings, printer: Printer) -> None:
    """Create a new database for secrets whose database is lost; it knows no license key."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings, create=True) as database:
        schema.check_new(database)
        secrets_file.open_vault(settings)
        migrate.upgrade(database)
    with opened_services(settings, new_database=True) as services:
        services.audit.record("database.create", ("installation", "-"))
    printer.result({"to": schema.HEAD}, f"created: schema {schema.HEAD}")


@database_group.command("upgrade")
@settings_command
def upgrade_database(settings: Settings, printer: Printer) -> None:
    """Upgrade the database to the schema of this program."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings, create=True) as database:
        if schema.read_version(database) is None:
            schema.check_expected(database, None, expected=_is_expected(settings))
            schema.check_new(database)
        before = migrate.upgrade(database)
    done = f"upgraded from {before}" if before else "set up"
    printer.result(
        {"from": before, "to": schema.HEAD},
        f"the schema is {schema.HEAD} already" if before == schema.HEAD else f"{done}: schema {schema.HEAD}",
    )


def _is_expected(settings: Settings) -> bool:
    # Secrets may require an existing database.
    if settings.secrets is None and not (settings.data_dir / secrets_file.SECRETS_FILE).exists():
        return False
    secrets = secrets_file.read_secrets(settings)
    return secrets_file.expects_database(
        settings, secrets_file.read_vault(secrets, secrets_file.SECRETS_FILE)
    )


@database_group.command("check")
@settings_command
def check_database(settings: Settings, printer: Printer) -> None:
    """Compare the database's schema with that of this program; exit code 1 if they differ."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings) as database:
        schema.check_version(schema.read_version(database))
        if found := migrate.differences(database):
            raise StoreError(f"the database differs from schema {schema.HEAD}: {'; '.join(found)}")
    printer.result({"version": schema.HEAD, "ok": True}, f"the schema is {schema.HEAD}, as it should be")


@database_group.command("status")
@settings_command
def show_status(settings: Settings, printer: Printer) -> None:
    """Show the database's engine, its schema, and how much it holds."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings) as database:
        found = migrate.read_status(database)
    shown = {"engine": found.engine, "database": found.place, "version": found.version, "head": found.head}
    printer.details({**shown, **found.counts})


# --- the whole installation -------------------------------------------------------------------

_SIGNS = {Level.OK: "ok  ", Level.WARNING: "WARN", Level.FAILED: "FAIL"}


@click.command("check")
@data_dir_option
@json_option
@click.option("--reach", is_flag=True, help="Also request LICSERVER_BASE_URL over the network, within 5 s.")
def check(data_dir: Path | None, *, as_json: bool, reach: bool) -> None:
    """Check settings, permissions, clock, database, files and keys; change nothing.

    The exit code is 1 if a check has failed; warnings do not count.
    """
    try:
        settings = load_command_settings(data_dir)
    except SettingsError as error:
        findings = [Finding("settings", Level.FAILED, str(error), "correct the variable that it names")]
    else:
        findings = list(check_installation(settings, system_clock(), reach=reach))
    failed = [one for one in findings if one.level is Level.FAILED]
    if as_json:
        Printer(as_json=True).result({"ok": not failed, "findings": list(map(asdict, findings))}, "")
    else:
        for one in findings:
            click.echo(f"{_SIGNS[one.level]}  {one.about}: {one.said}")
            if one.advice:
                click.echo(f"      → {one.advice}")
    if failed:
        sys.exit(1)
