"""Commands on the database itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from licserver.cli.common import Commands, Printer, data_dir_option, load_command_settings, opened_services
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


@click.group("db", cls=Commands)
def database_group() -> None:
    """Create, upgrade, check and count the database."""


def _database_command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command ``--data-dir`` and ``--json``, and hand it the settings and a printer."""

    @data_dir_option
    @click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
    def command(data_dir: Path | None, *, as_json: bool) -> None:
        function(load_command_settings(data_dir), Printer(as_json=as_json))

    command.__doc__ = function.__doc__
    return command


@contextmanager
def _connected(settings: Settings, *, make: bool = False) -> Iterator[Database]:
    """Connect to the database; a SQLite file that does not exist is not made by looking at it."""
    if make:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    elif settings.database_url is None and not settings.data_dir.is_dir():
        raise _none_yet()
    database = connect(settings.database)
    try:
        if not (make or database.file is None or database.file.exists()):
            raise _none_yet()
        yield database
    finally:
        database.close()


def _none_yet() -> StoreError:
    return StoreError("there is no database yet; the first command that needs one makes it")


@database_group.command("create")
@_database_command
def create(settings: Settings, printer: Printer) -> None:
    """Create a new database for secrets that had one, which is lost: no license key is known in it."""
    from licserver.database import migrate  # noqa: PLC0415 - Alembic takes as long as all the rest

    with _connected(settings, make=True) as database:
        schema.check_new(database)
        open_vault(settings)
        migrate.upgrade(database)
    with opened_services(settings, new_database=True) as services:
        services.audit.record("database.create", ("installation", "-"))
    printer.one({"to": schema.HEAD}, f"created: schema {schema.HEAD}")


@database_group.command("upgrade")
@_database_command
def upgrade(settings: Settings, printer: Printer) -> None:
    """Bring the database to the schema of this program."""
    from licserver.database import migrate  # noqa: PLC0415 - the same

    with _connected(settings, make=True) as database:
        if schema.read_version(database) is None:
            schema.check_expected(database, None, expected=_is_expected(settings))
            schema.check_new(database)
        before = migrate.upgrade(database)
    done = f"upgraded from {before}" if before else "set up"
    printer.one(
        {"from": before, "to": schema.HEAD},
        f"the schema is {schema.HEAD} already" if before == schema.HEAD else f"{done}: schema {schema.HEAD}",
    )


def _is_expected(settings: Settings) -> bool:
    """Return whether the secrets at hand, if there are any, belong to a database."""
    if settings.secrets is None and not (settings.data_dir / SECRETS_FILE).exists():
        return False
    return expects_database(settings, read_vault(read_secrets(settings), SECRETS_FILE))


@database_group.command("check")
@_database_command
def check(settings: Settings, printer: Printer) -> None:
    """Say whether the database's schema is that of this program; exit code 1 if not."""
    from licserver.database import migrate  # noqa: PLC0415 - the same

    with _connected(settings) as database:
        schema.check_version(schema.read_version(database))
        if found := migrate.differences(database):
            raise StoreError(f"the schema says {schema.HEAD} and is not: {'; '.join(found)}")
    printer.one({"version": schema.HEAD, "ok": True}, f"the schema is {schema.HEAD}, as it should be")


@database_group.command("status")
@_database_command
def status(settings: Settings, printer: Printer) -> None:
    """Show the database's engine, its schema, and how much it holds."""
    from licserver.database import migrate  # noqa: PLC0415 - the same

    with _connected(settings) as database:
        found = migrate.read_status(database)
    record: dict[str, Any] = {
        "engine": found.engine,
        "database": found.place,
        "version": found.version,
        "head": found.head,
        **found.counts,
    }
    printer.fields(record)
