"""Commands on the database."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from licserver.cli.common import Commands, opened_services, settings_command
from licserver.cli.output import Printer
from licserver.database import schema
from licserver.database.engine import Database, connect
from licserver.errors import StoreError
from licserver.security.secrets_file import (
    SECRETS_FILE,
    expects_database,
    open_vault,
    read_secrets,
    read_vault,
)
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
def create(settings: Settings, printer: Printer) -> None:
    """Create a new database for secrets whose database is lost; it knows no license key."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings, create=True) as database:
        schema.check_new(database)
        open_vault(settings)
        migrate.upgrade(database)
    with opened_services(settings, new_database=True) as services:
        services.audit.record("database.create", ("installation", "-"))
    printer.result({"to": schema.HEAD}, f"created: schema {schema.HEAD}")


@database_group.command("upgrade")
@settings_command
def upgrade(settings: Settings, printer: Printer) -> None:
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
    """Return whether there are secrets that require an existing database."""
    if settings.secrets is None and not (settings.data_dir / SECRETS_FILE).exists():
        return False
    return expects_database(settings, read_vault(read_secrets(settings), SECRETS_FILE))


@database_group.command("check")
@settings_command
def check(settings: Settings, printer: Printer) -> None:
    """Compare the database's schema with that of this program; exit code 1 if they differ."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings) as database:
        schema.check_version(schema.read_version(database))
        if found := migrate.differences(database):
            raise StoreError(f"the database differs from schema {schema.HEAD}: {'; '.join(found)}")
    printer.result({"version": schema.HEAD, "ok": True}, f"the schema is {schema.HEAD}, as it should be")


@database_group.command("status")
@settings_command
def status(settings: Settings, printer: Printer) -> None:
    """Show the database's engine, its schema, and how much it holds."""
    from licserver.database import migrate  # noqa: PLC0415

    with _connected(settings) as database:
        found = migrate.read_status(database)
    printer.details(
        {
            "engine": found.engine,
            "database": found.place,
            "version": found.version,
            "head": found.head,
            **found.counts,
        }
    )
