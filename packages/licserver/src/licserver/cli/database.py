"""Commands on the database: Alembic, which they need, would double the time of all others."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from licserver.cli import Commands
from licserver.cli.common import (
    Printer,
    open_command_services,
    settings_command,
)
from licserver.database import migrate, schema
from licserver.database.engine import Database, connect
from licserver.database.timelines import Timelines
from licserver.errors import StoreError
from licserver.security import secrets_file
from licserver.settings import Settings

database_group = Commands("db", help="Create, upgrade, check and count the database.")


@contextmanager
def _connected(settings: Settings, *, create: bool = False) -> Iterator[Database]:
    """Connect to the database; unless `create`, to an existing SQLite file only."""
    missing = StoreError("there is no database yet; the first command that needs one creates it")
    if create:
        settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    elif settings.database_url is None and not settings.data_dir.is_dir():
        raise missing
    with closing(connect(settings.database, Timelines(settings.data_dir))) as database:
        if not (create or database.file is None or database.file.exists()):
            raise missing
        yield database


@settings_command("create", database_group)
def create_database(settings: Settings, printer: Printer) -> None:
    """Create a new database for secrets whose database is lost; it knows no license key."""
    with _connected(settings, create=True) as database:
        schema.check_new(database)
        secrets_file.open_vault(settings)
        migrate.upgrade(database)
    with closing(open_command_services(settings, new_database=True)) as services:
        services.audit.record("database.create", ("installation", "-"))
    printer.result({"to": schema.HEAD}, f"created: schema {schema.HEAD}")


@settings_command("upgrade", database_group)
def upgrade_database(settings: Settings, printer: Printer) -> None:
    """Upgrade the database to the schema of this program; on PostgreSQL the servers go on."""
    with _connected(settings, create=True) as database:
        if schema.read_version(database) is None:
            schema.check_expected(database, None, expected=_is_expected(settings))
            schema.check_new(database)
        before = migrate.upgrade(database)
    if before is not None and before > schema.HEAD:
        printer.result({"from": before, "to": before}, f"the schema is {before}, which serves this program")
        return
    done = f"{f'upgraded from {before}' if before else 'set up'}: schema {schema.HEAD}"
    sentence = f"the schema is {schema.HEAD} already" if before == schema.HEAD else done
    printer.result({"from": before, "to": schema.HEAD}, sentence)


@settings_command("downgrade", database_group)
def downgrade_database(settings: Settings, printer: Printer) -> None:
    """Take back the last step of the schema, once no server of this version runs any more."""
    with _connected(settings) as database:
        after = migrate.downgrade(database)
    printer.result({"from": schema.HEAD, "to": after}, f"taken back from {schema.HEAD}: schema {after}")


def _is_expected(settings: Settings) -> bool:
    """Return whether there are secrets that require an existing database."""
    if settings.secrets is None and not (settings.data_dir / secrets_file.SECRETS_FILE).exists():
        return False
    vault = secrets_file.read_vault(secrets_file.read_secrets(settings), secrets_file.SECRETS_FILE)
    return secrets_file.expects_database(settings, vault)


@settings_command("check", database_group)
def check_database(settings: Settings, printer: Printer) -> None:
    """Compare the database's schema with that of this program; exit code 1 if they differ."""
    with _connected(settings) as database:
        version = schema.read_version(database)
        schema.check_version(database, version)
        is_newer = version != schema.HEAD
        if not is_newer and (differences := migrate.differences(database)):
            raise StoreError(f"the database differs from schema {schema.HEAD}: {'; '.join(differences)}")
    ending = f"which serves this program ({schema.HEAD})" if is_newer else "as it should be"
    printer.result({"version": version, "ok": True}, f"the schema is {version}, {ending}")


@settings_command("status", database_group)
def show_status(settings: Settings, printer: Printer) -> None:
    """Show the database's engine, its schema, and how much it holds."""
    with _connected(settings) as database:
        status = migrate.read_status(database)
    shown = {
        "engine": status.engine,
        "database": status.place,
        "version": status.version,
        "head": status.head,
    }
    printer.details({**shown, **status.counts})
