"""Changing a database's schema, and comparing it with the program's; the only user of Alembic."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, func, select

from licserver.database.engine import Database
from licserver.database.schema import HEAD, REVISIONS, check_version, read_version
from licserver.database.tables import activations, licenses, metadata, products, releases
from licserver.errors import StoreError

_ONE_AT_A_TIME = 0x6C6963736572766572  # "licserver", cut to a signed 64-bit number below


@dataclass(frozen=True, slots=True)
class Status:
    """How a database stands.

    Args:
        engine: Its kind and version.
        place: The file, or the database's name and host.
        version: Of its schema; None when it is empty.
        head: The schema of this program.
        counts: Rows of the vendor's tables; empty when there are none.
    """

    engine: str
    place: str
    version: str | None
    head: str
    counts: dict[str, int]


def upgrade(database: Database) -> str | None:
    """Bring a database to the schema of this program, in one transaction.

    Returns:
        The schema that it had before; None when it was empty.

    Raises:
        StoreError: when it cannot be: its schema is newer, or its tables are not ours.
        StoreUnavailable: when the database fails; then nothing has changed.
    """
    before = read_version(database)
    if before is not None and before not in REVISIONS:
        check_version(before)
    migrate(database, lambda config: command.upgrade(config, "head"))
    return before


def migrate(database: Database, act: Callable[[Config], None]) -> None:
    """Run an Alembic command on a database, in one transaction, alone.

    Raises:
        StoreError: when rows would be left that refer to nothing.
        StoreUnavailable: when the database fails; then nothing has changed.
    """
    config = make_config()
    database.create_file()
    with database.unhurried(enforced=False) as connection:
        if database.is_remote:
            connection.execute(select(func.pg_advisory_xact_lock(_ONE_AT_A_TIME % 2**63)))
        config.attributes["connection"] = connection
        act(config)
        if not database.is_remote and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
            raise StoreError("the new schema would leave rows that refer to nothing; nothing was changed")


def make_config() -> Config:
    """Tell Alembic where our migrations are; the connection goes into its `attributes`."""
    config = Config()
    config.set_main_option("script_location", "licserver.database:migrations")
    config.set_main_option("path_separator", "os")
    return config


def differences(database: Database) -> list[str]:
    """Compare a database's tables with the program's.

    Returns:
        What differs, a line each; none when all is as it should be.

    Raises:
        StoreUnavailable: when the database fails.
    """
    with database.reading() as connection:
        return [_describe(one) for one in compare(connection)]


def compare(connection: Connection) -> list[Any]:
    """What Alembic's autogenerate would change."""
    options = {"compare_type": True, "compare_server_default": True}
    found: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    return found


def _describe(difference: Any) -> str:
    """Say in words what Alembic says in tuples, or in lists of tuples: what would be done, and to what."""
    verb, *parts = difference[0] if isinstance(difference, list) else difference
    names = [getattr(part, "name", part) for part in parts if part is not None and not isinstance(part, dict)]
    return f"{verb.replace('_', ' ')}: {' '.join(map(str, names[:3]))}"


def read_status(database: Database) -> Status:
    """Read how a database stands; counts its rows, however many.

    Raises:
        StoreError: when its tables are not ours.
        StoreUnavailable: when the database fails.
    """
    version = read_version(database)
    url, dialect = database.engine.url, database.engine.dialect
    numbers = ".".join(map(str, dialect.server_version_info or ()))
    place = f"{url.database} on {url.host or 'this machine'}" if database.is_remote else str(url.database)
    counts: dict[str, int] = {}
    if version == HEAD:
        with database.unhurried() as connection:
            for table in (products, releases, licenses, activations):
                counts[table.name] = connection.scalar(select(func.count()).select_from(table)) or 0
    return Status(f"{dialect.name} {numbers}".strip(), place, version, HEAD, counts)
