"""Upgrade a database's schema, and compare it with the program's, by Alembic."""

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
from licserver.database.tables import metadata
from licserver.database.tables.licenses import activations, licenses, products, releases
from licserver.errors import StoreError

_LOCK = 0x6C6963736572766572 % 2**63  # "licserver"


@dataclass(frozen=True, slots=True)
class Status:
    """A database's state; without a schema it is empty, and without this program's nothing was counted."""

    engine: str
    place: str
    version: str | None
    head: str
    counts: dict[str, int]


def upgrade(database: Database) -> str | None:
    """Upgrade a database to this program's schema, in one transaction; return the schema before."""
    before = read_version(database)
    if before is not None and before not in REVISIONS:
        check_version(before)
    migrate(database, lambda config: command.upgrade(config, "head"))
    return before


def migrate(database: Database, act: Callable[[Config], None]) -> None:
    """Run an Alembic command on a database in one transaction, one process at a time."""
    config = make_config()
    database.create_file()
    with database.long_transaction(foreign_keys=False) as connection:
        if database.is_remote:
            connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
        config.attributes["connection"] = connection
        act(config)
        if not database.is_remote and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
            raise StoreError("the new schema would leave rows that refer to nothing; nothing was changed")


def make_config() -> Config:
    """Return Alembic's configuration; its `attributes` take the connection."""
    config = Config()
    config.set_main_option("script_location", "licserver.database:migrations")
    config.set_main_option("path_separator", "os")
    return config


def differences(database: Database) -> list[str]:
    """Describe what differs between a database's tables and the program's, a line each."""
    with database.reading() as connection:
        return [_describe(one) for one in compare(connection)]


def compare(connection: Connection) -> list[Any]:
    """Return what Alembic's autogenerate would change."""
    options = {"compare_type": True, "compare_server_default": True}
    found: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    return found


def _describe(difference: Any) -> str:
    """Describe one of Alembic's differences, a tuple or a list of tuples."""
    verb, *parts = difference[0] if isinstance(difference, list) else difference
    names = [getattr(part, "name", part) for part in parts if part is not None and not isinstance(part, dict)]
    return f"{verb.replace('_', ' ')}: {' '.join(map(str, names[:3]))}"


def read_status(database: Database) -> Status:
    """Read a database's state; counts all rows."""
    version = read_version(database)
    url, dialect = database.engine.url, database.engine.dialect
    numbers = ".".join(map(str, dialect.server_version_info or ()))
    place = f"{url.database} on {url.host or 'this machine'}" if database.is_remote else str(url.database)
    counts: dict[str, int] = {}
    if version == HEAD:
        with database.long_transaction() as connection:
            for table in (products, releases, licenses, activations):
                counts[table.name] = connection.scalar(select(func.count()).select_from(table)) or 0
    return Status(f"{dialect.name} {numbers}".strip(), place, version, HEAD, counts)
