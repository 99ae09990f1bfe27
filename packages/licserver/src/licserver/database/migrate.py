"""Upgrade a database's schema, and compare it with the program's, by Alembic."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import DBAPIError

from licserver.database.engine import Database, stop_throttling
from licserver.database.migrations.online import is_busy
from licserver.database.schema import HEAD, REVISIONS, check_version, read_version, serves_this_program
from licserver.database.tables import metadata
from licserver.database.tables.licenses import activations, licenses, products, releases
from licserver.database.tables.types import included_on
from licserver.errors import StoreError

_LOCK: Final = 0x6C6963736572766572 % 2**63  # "licserver"
_PATIENCE: Final = 600.0  # seconds in which a step is tried again and again
_PAUSE: Final = 0.5
_LOCK_TIMEOUTS: Final = ("300ms", "300ms", "300ms", "1100ms")
"""Lock timeouts of the tries in turn, while all later requests wait behind it.

After a second PostgreSQL ends an autovacuum of the table; requests of customers have 1.2 s.
"""


@dataclass(frozen=True, slots=True)
class Status:
    """A database's state; without a schema it is empty, and without this program's nothing was counted."""

    engine: str
    place: str
    version: str | None
    head: str
    counts: dict[str, int]


def upgrade(database: Database) -> str | None:
    """Upgrade a database to this program's schema, unless a newer one serves it; return the one before.

    A database that is set up, and a SQLite file, get all steps in one transaction. On PostgreSQL each step is
    one of its own beside the running servers, and long ones are done online.
    """
    before = read_version(database)
    if before is not None and before not in REVISIONS:
        check_version(database, before)
    else:
        run = migrate if before is None else migrate_beside_servers
        run(database, lambda config: command.upgrade(config, "head"))
    return before


def downgrade(database: Database) -> str:
    """Take back the last step of this program's schema, and return the schema after it."""
    version = read_version(database)
    check_version(database, version)
    step = ScriptDirectory.from_config(make_config()).get_revision("head")
    if version != step.revision:
        raise StoreError(
            f"this database has schema {version}; only the licserver that made it has the way back"
        )
    if not hasattr(step.module, "downgrade"):
        raise StoreError(f"schema {version} has no way back; restore a backup of the older licserver")
    migrate_beside_servers(database, lambda config: command.downgrade(config, "-1"))
    return str(step.down_revision)


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


def migrate_beside_servers(database: Database, act: Callable[[Config], None]) -> None:
    """Run an Alembic command with a transaction for each step, again while others hold what it needs.

    For SQLite it is one transaction, as by `migrate`.
    """
    if not database.is_remote:
        migrate(database, act)
        return
    deadline = time.monotonic() + _PATIENCE
    for lock_timeout in cycle(_LOCK_TIMEOUTS):
        try:
            _try_online(database, act, lock_timeout, deadline)
        except _BusyError as error:
            now = time.monotonic()
            if error.worked > _PATIENCE:  # what took so long is done, and is not done again
                deadline = now + _PATIENCE
            if now > deadline:
                raise StoreError(
                    f"{error}; end long transactions (pg_stat_activity), and run the command again"
                ) from None
            time.sleep(_PAUSE)
        else:
            return


class _BusyError(Exception):
    """Another transaction holds a lock that a step needs; the try had `worked` for so many seconds."""

    def __init__(self, message: str, worked: float = 0.0) -> None:
        super().__init__(message)
        self.worked = worked


def _try_online(
    database: Database, act: Callable[[Config], None], lock_timeout: str, deadline: float
) -> None:
    config = make_config()
    with database.background_connection() as connection:
        if database.is_pooled:
            raise StoreError(
                "servers may be at work: upgrade their database by a connection to PostgreSQL itself, with "
                "its address in LICSERVER_DATABASE_URL and without pooler=transaction"
            )
        stop_throttling(connection)  # what pauses holds no locks meanwhile: `online` does it
        # Not by waiting: a statement that waits is one that CREATE INDEX CONCURRENTLY waits for.
        while not connection.scalar(select(func.pg_try_advisory_lock(_LOCK))):
            connection.rollback()
            if time.monotonic() > deadline:
                raise _BusyError("another process changes the schema")
            time.sleep(_PAUSE)
        connection.exec_driver_sql(f"SET lock_timeout = '{lock_timeout}'")
        connection.commit()
        config.attributes.update(connection=connection, online=True, lock_timeout=lock_timeout)
        began = time.monotonic()
        try:
            act(config)
        except DBAPIError as error:
            if is_busy(error):
                message = "other transactions hold locks that the next step needs"
                raise _BusyError(message, time.monotonic() - began) from None
            raise


def make_config() -> Config:
    """Return Alembic's configuration; its `attributes` take the connection."""
    config = Config()
    config.set_main_option("script_location", "licserver.database:migrations")
    config.set_main_option("path_separator", "os")
    return config


def differences(database: Database) -> list[str]:
    """Describe what differs between a database's tables and the program's, a line each."""
    with database.reading() as connection:
        return [_describe(difference) for difference in compare(connection)]


def compare(connection: Connection) -> list[Any]:
    """Return what Alembic's autogenerate would change."""
    include = included_on(connection.dialect.name)
    options = {"compare_type": True, "compare_server_default": True, "include_object": include}
    changes: list[Any] = compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
    return changes


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
    if version is not None and (version == HEAD or serves_this_program(database, version)):
        with database.long_transaction() as connection:
            for table in (products, releases, licenses, activations):
                counts[table.name] = connection.scalar(select(func.count()).select_from(table)) or 0
    return Status(f"{dialect.name} {numbers}".strip(), place, version, HEAD, counts)
