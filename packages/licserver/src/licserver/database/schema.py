"""Create a database's tables; refuse a database of another schema or other secrets.

Alembic is not imported here: it takes as long as all the rest of a command.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import Connection, delete, func, insert, inspect, select

from licserver.database.engine import Database, connect
from licserver.database.repositories.base import insert_into
from licserver.database.tables import metadata
from licserver.database.tables.licenses import facts
from licserver.database.timelines import Timelines
from licserver.errors import ConflictError, StoreError
from licserver.security.private_files import describe_link

_MIGRATIONS: Final = Path(__file__).parent / "migrations" / "versions"
REVISIONS: Final = tuple(sorted(file.name[:4] for file in _MIGRATIONS.glob("[0-9]*.py")))
"""All schemas, the oldest first, by the names of their files."""

HEAD: Final = REVISIONS[-1]  # the schema of this program
OLDEST_PROGRAM: Final = "0039"
"""The schema of the oldest program that `HEAD` still serves, as its step declares."""

_SERVED: Final = "oldest_program"
_FINGERPRINT: Final = "vault_fingerprint"
_OWNER: Final = select(facts.c.value).where(facts.c.name == _FINGERPRINT)

alembic_version: Final = sa.Table(
    "alembic_version",
    sa.MetaData(),  # Alembic creates it
    sa.Column("version_num", sa.String(32), nullable=False),
    sa.PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def open_database(
    url: str, fingerprint: bytes, timelines: Timelines | None = None, *, expected: bool = False
) -> Database:
    """Open a database; create the tables of an empty SQLite file.

    PostgreSQL's are created by ``licserver db upgrade``: a database there may belong to another program.
    Nothing is changed in a database with another schema or other secrets, or where an expected one is missing
    (D-158): that is a `StoreError`.
    """
    database = connect(url, timelines)
    try:
        version = read_version(database)
        check_expected(database, version, expected=expected)
        if version is None and not database.is_remote:
            version = _set_up(database)
        check_version(database, version)
        _probe(database)
        if not check_owner(database, fingerprint, expected=expected):
            with database.writing() as connection:
                first = insert_into(connection, facts).values(name=_FINGERPRINT, value=fingerprint)
                connection.execute(first.on_conflict_do_nothing())
            check_owner(database, fingerprint, expected=True)  # another process may have been faster
    except BaseException:
        database.close()
        raise
    return database


def is_in_use(url: str, timelines: Timelines | None = None) -> bool:
    """Return whether a database was written with some secrets; a missing one is not created."""
    database = connect(url, timelines)
    try:
        return has_owner(database)
    finally:
        database.close()


def has_owner(database: Database) -> bool:
    """Return whether a database was written with some secrets; raises as `is_in_use`."""
    if read_version(database) is None:
        return False
    with database.reading() as connection:
        return connection.scalar(_OWNER) is not None


def read_version(database: Database) -> str | None:
    """Return a database's schema version; None for an empty or missing one, which is not created.

    A `StoreError` if it has tables of our names without a version, is not UTF-8, or is a link.
    """
    if database.file is not None and not _has_content(database.file):
        return None
    database.check_pooler()
    with database.reading() as connection:
        if database.is_remote:
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
            if encoding != "UTF8":  # one client's text would fail the batch of all others (D-128)
                raise StoreError(
                    f"this database has the encoding {encoding} and licserver needs UTF8; create another one "
                    "with: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
                )
        return _read_version(connection)


def _has_content(file: Path) -> bool:
    """Return whether a SQLite file exists and is not empty, without opening it.

    SQLite would remove the log beside an empty file, and closing a file of our own would release the locks
    that SQLite holds on it in this process.
    """
    log, *others = (file.with_name(file.name + ending) for ending in ("-wal", "-shm", "-journal"))
    for path in (file, log, *others):
        if problem := describe_link(path):
            raise StoreError(problem)
    if file.exists() and file.stat().st_size:
        return True
    if log.exists() and log.stat().st_size:
        raise StoreError(
            f"{file} is missing or empty, and {log.name} holds what was last written to it: put the "
            "file back beside it, restore a backup (licserver restore FILE --force), or move both away"
        )
    return False


def _read_version(connection: Connection) -> str | None:
    tables = set(inspect(connection).get_table_names())
    if alembic_version.name in tables:
        version: str | None = connection.scalar(select(alembic_version.c.version_num))
        if version is not None:
            return version
    if not tables.isdisjoint(metadata.tables):
        raise StoreError(
            "this database has tables with the names of licserver's and no schema version: an unreleased "
            "licserver or another program created it; give licserver an empty one"
        )
    return None


def read_clock(database: Database) -> datetime | None:
    """Return the time of a PostgreSQL server; None for SQLite."""
    if not database.is_remote:
        return None
    with database.reading() as connection:
        now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now


def note_oldest_program(connection: Connection, version: str, oldest: str) -> None:
    """Store which programs a schema serves; a step of the schema calls this in its transaction."""
    connection.execute(delete(facts).where(facts.c.name == _SERVED))
    connection.execute(insert(facts).values(name=_SERVED, value=f"{version} {oldest}".encode()))


def serves_this_program(database: Database, version: str) -> bool:
    """Return whether a schema newer than this program's only adds to it."""
    with database.reading() as connection:
        value = connection.scalar(select(facts.c.value).where(facts.c.name == _SERVED))
    noted, _, oldest = ("" if value is None else bytes(value).decode()).partition(" ")
    return version > HEAD and noted == version and oldest <= HEAD


def check_version(database: Database, version: str | None) -> None:
    """Raise `StoreError` unless a version from `read_version` is this program's, or newer and serves it."""
    if version is None:
        raise StoreError("this database is not set up yet; run: licserver db upgrade")
    if version in REVISIONS[:-1]:
        raise StoreError(
            f"this database has schema {version} and this program needs {HEAD}; run: licserver db upgrade"
        )
    if version < REVISIONS[0]:
        raise StoreError(
            f"this database has schema {version}, which no released licserver had: export its licenses with "
            "the licserver that wrote it, and import them into a new database"
        )
    if version != HEAD and not serves_this_program(database, version):
        raise StoreError(
            f"this database has schema {version}, which this program does not know (its own is {HEAD}); "
            "use a newer licserver"
        )


def check_expected(database: Database, version: str | None, *, expected: bool) -> None:
    """Raise `StoreError` if an expected database is empty or missing: `version` is None."""
    if version is None and expected:
        raise _lost(database)


def _lost(database: Database) -> StoreError:
    finding = (
        "this PostgreSQL database is not licserver's"
        if database.file is None
        else f"{database.file} is missing, or holds no database of licserver"
    )
    return StoreError(
        f"{finding}, and the secrets belong to one; nothing was changed. Check that LICSERVER_DATA_DIR and "
        "LICSERVER_DATABASE_URL name the right one, restore a backup (licserver restore FILE), or create a "
        "new database, in which no license key is known: licserver db create"
    )


def check_new(database: Database) -> None:
    """Raise `ConflictError` if a database exists already, or is a file with another program's tables."""
    if has_owner(database):
        raise ConflictError(
            f"there is a database already: {database.file or 'the one that LICSERVER_DATABASE_URL names'}; "
            "to start again, name another one, or move this one away"
        )
    check_not_foreign(database)


def check_not_foreign(database: Database) -> None:
    """Raise `ConflictError` for a SQLite file with another program's tables; PostgreSQL may be shared."""
    if database.file is not None and read_version(database) is None and _has_content(database.file):
        with database.reading() as connection:
            _check_no_tables(connection)


def _check_no_tables(connection: Connection) -> None:
    if set(inspect(connection).get_table_names()) - {alembic_version.name}:
        raise ConflictError(
            "this SQLite file holds tables of another program; name another file in LICSERVER_DATABASE_URL"
        )


def _set_up(database: Database) -> str | None:
    """Create all tables at once; a test checks that the migrations create the same."""
    database.create_file()
    with database.writing() as connection:
        if (version := _read_version(connection)) is None:  # else another process was faster
            _check_no_tables(connection)
            metadata.create_all(connection)
            alembic_version.create(connection)
            connection.execute(insert(alembic_version).values(version_num=HEAD))
            note_oldest_program(connection, HEAD, OLDEST_PROGRAM)
            version = HEAD
    return version


def _probe(database: Database) -> None:
    """Read a row of each table of a SQLite file, to find damage before requests do.

    SQLite compares the file's length with its header and reads each table's first page; `check_pages` reads
    all, which takes seconds.
    """
    if database.file is not None:
        with database.reading() as connection:
            cursor = connection.connection.cursor()  # the driver's own: a tenth of the time
            for table in metadata.tables.values():
                columns = ", ".join(column.name for column in table.columns)
                cursor.execute(f"SELECT {columns} FROM {table.name} LIMIT 1")  # noqa: S608 - our own names
                cursor.fetchone()
            cursor.close()


def check_pages(database: Database) -> None:
    """Read every page of a SQLite file; raise `StoreError` if it is damaged."""
    if database.file is not None:
        _probe(database)
        with database.reading() as connection:
            result = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if result != "ok":
            raise StoreError(
                f"{database.file} is damaged ({result}); stop the server, and restore a backup: licserver "
                "restore FILE --force"
            )


def read_owner(connection: Connection) -> bytes | None:
    """Return the fingerprint of the secrets that a database was written with."""
    owner: bytes | None = connection.scalar(_OWNER)
    return owner


def check_owner(database: Database, fingerprint: bytes, *, expected: bool) -> bool:
    """Return whether a database was written with these secrets; False if with none, and not expected."""
    with database.reading() as connection:
        owner = read_owner(connection)
    if owner is None and expected:
        raise _lost(database)
    if owner is not None and owner != fingerprint:
        raise StoreError(
            "this database was written with other secrets; put the secrets file that belongs to it "
            "beside it, or its content into LICSERVER_SECRETS"
        )
    return owner is not None
