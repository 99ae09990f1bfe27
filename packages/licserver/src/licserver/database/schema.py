"""Setting a database up, and refusing one of another schema or of other secrets.

Alembic is not imported here: it takes as long as all the rest of a command.
"""

from datetime import datetime
from pathlib import Path
from typing import Final

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    func,
    insert,
    inspect,
    select,
)
from sqlalchemy.exc import IntegrityError

from licserver.database.engine import Database, connect
from licserver.database.tables import facts, metadata
from licserver.errors import Conflict, StoreError
from licserver.security.private_files import describe_link

REVISIONS: Final = ("0001", "0002", "0003", "0004", "0005")
"""All schemas that ever were, the oldest first, as the files in `migrations/versions` name them."""

HEAD: Final = REVISIONS[-1]
"""The schema of this program."""

_FINGERPRINT: Final = "vault_fingerprint"
_OWNER: Final = select(facts.c.value).where(facts.c.name == _FINGERPRINT)

alembic_version: Final = Table(
    "alembic_version",
    MetaData(),  # it is Alembic's
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def open_database(url: str, fingerprint: bytes, *, expected: bool = False) -> Database:
    """Open the vendor's database; a fresh SQLite file is set up first.

    A PostgreSQL database is not: it may be somebody else's, or not be meant at all.

    Args:
        url: SQLAlchemy URL.
        fingerprint: `Vault.fingerprint` of the secrets at hand.
        expected: Whether it must have been written with them already, so that none is set up (D-158).

    Raises:
        StoreError: when it is expected and missing, when its schema is not this program's, or when it belongs
            to other secrets, so that no key could be found in it. Then nothing has changed.
        StoreUnavailable: when it cannot be opened, or is damaged.
    """
    database = connect(url)
    try:
        version = read_version(database)
        check_expected(database, version, expected=expected)
        if version is None and not database.is_remote:
            version = _set_up(database)
        check_version(version)
        _probe(database)
        _check_fingerprint(database, fingerprint, expected=expected)
    except BaseException:
        database.close()
        raise
    return database


def is_in_use(url: str) -> bool:
    """Tell whether a database was written with somebody's secrets; one that is not there is not made.

    Args:
        url: As in `open_database`.

    Raises:
        StoreError: when it has tables of our names that are not ours.
        StoreUnavailable: when it cannot be asked.
    """
    database = connect(url)
    try:
        return has_owner(database)
    finally:
        database.close()


def has_owner(database: Database) -> bool:
    """Return whether a database was written with somebody's secrets; raises as `is_in_use`."""
    if read_version(database) is None:
        return False
    with database.reading() as connection:
        return connection.scalar(_OWNER) is not None


def read_version(database: Database) -> str | None:
    """Read which schema a database has.

    Returns:
        Its revision, or None when it is empty or a file that is missing, which is not created.

    Raises:
        StoreError: when it has tables of our names that are not ours, cannot hold all text, or is a link.
        StoreUnavailable: when it fails.
    """
    if database.file is not None and not _has_content(database.file):
        return None
    with database.reading() as connection:
        if database.is_remote:
            _check_encoding(connection)
        return _read_version(connection)


def _has_content(file: Path) -> bool:
    """Return whether a SQLite file is there and not empty, without opening it.

    Opening an empty one removes the log beside it. And closing a file of our own accord would release the
    locks that SQLite holds on it in this process.
    """
    beside = [file.with_name(file.name + ending) for ending in ("-wal", "-shm", "-journal")]
    for one in (file, *beside):
        if linked := describe_link(one):
            raise StoreError(linked)
    if file.exists() and file.stat().st_size:
        return True
    if beside[0].exists() and beside[0].stat().st_size:
        raise StoreError(
            f"{file} is missing or empty, and {beside[0].name} holds what was last written to it: put the "
            "file back beside it, restore a backup (licserver restore FILE --force), or move both away"
        )
    return False


def _check_encoding(connection: Connection) -> None:
    """Refuse a database that lacks characters: one customer's would fail those beside him (D-128)."""
    encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
    if encoding != "UTF8":
        raise StoreError(
            f"this database has the encoding {encoding} and licserver needs UTF8; make another one with: "
            "CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0"
        )


def _read_version(connection: Connection) -> str | None:
    there = set(inspect(connection).get_table_names())
    if alembic_version.name in there:
        version: str | None = connection.scalar(select(alembic_version.c.version_num))
        if version is not None:
            return version
    if not there.isdisjoint(metadata.tables):
        raise StoreError(
            "this database has tables of ours and no schema version: it was made by an unreleased licserver "
            "or by another program; give licserver an empty one"
        )
    return None


def read_clock(database: Database) -> datetime | None:
    """Read the clock of a database's machine; None for a file, which has none of its own.

    Raises:
        StoreUnavailable: when it fails.
    """
    if not database.is_remote:
        return None
    with database.reading() as connection:
        now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return now


def check_version(version: str | None) -> None:
    """Refuse a schema that is not this program's.

    Args:
        version: From `read_version`.

    Raises:
        StoreError: saying what to do about it.
    """
    if version is None:
        raise StoreError("this database is not set up yet; run: licserver db upgrade")
    if version in REVISIONS[:-1]:
        raise StoreError(
            f"this database has schema {version} and this program needs {HEAD}; run: licserver db upgrade"
        )
    if version != HEAD:
        raise StoreError(
            f"this database has schema {version}, which this program does not know (its own is {HEAD}); "
            "use a newer licserver"
        )


def check_expected(database: Database, version: str | None, *, expected: bool) -> None:
    """Refuse an empty or missing database where there must be one.

    Args:
        database: The one.
        version: From `read_version`.
        expected: As `open_database`.

    Raises:
        StoreError: saying what to do about it.
    """
    if version is None and expected:
        raise _lost(database)


def _lost(database: Database) -> StoreError:
    what = (
        "this PostgreSQL database holds none of licserver's"
        if database.file is None
        else f"{database.file} is missing, or holds no database of licserver"
    )
    return StoreError(
        f"{what}, and the secrets belong to one; nothing was changed. See that LICSERVER_DATA_DIR and "
        "LICSERVER_DATABASE_URL name the right one, restore a backup (licserver restore FILE), or create a "
        "new database, in which no license key is known: licserver db create"
    )


def check_new(database: Database) -> None:
    """Refuse to create a database where there is one.

    Raises:
        Conflict: when it was written with secrets, or is a file with another program's tables.
        StoreError, StoreUnavailable: as `read_version`.
    """
    if has_owner(database):
        raise Conflict(
            f"there is a database already: {database.file or 'the one that LICSERVER_DATABASE_URL names'}; "
            "to begin anew, name another one, or move this one away"
        )
    check_not_foreign(database)


def check_not_foreign(database: Database) -> None:
    """Refuse a SQLite file with another program's tables; a PostgreSQL database may be shared.

    Raises:
        Conflict: when it is one.
        StoreError, StoreUnavailable: as `read_version`.
    """
    if database.file is not None and read_version(database) is None and _has_content(database.file):
        with database.reading() as connection:
            _check_no_tables(connection)


def _check_no_tables(connection: Connection) -> None:
    if set(inspect(connection).get_table_names()) - {alembic_version.name}:
        raise Conflict(
            "this SQLite file holds tables of another program; name another file in LICSERVER_DATABASE_URL"
        )


def _set_up(database: Database) -> str | None:
    """Make all tables at once; that the migrations come to the same is tested."""
    database.create_file()
    with database.writing() as connection:
        if (version := _read_version(connection)) is None:  # else somebody was faster
            _check_no_tables(connection)
            metadata.create_all(connection)
            alembic_version.create(connection)
            connection.execute(insert(alembic_version).values(version_num=HEAD))
            version = HEAD
    return version


def _probe(database: Database) -> None:
    """Read a row of each table of a SQLite file: a damaged one is to be found now, and not by a customer.

    SQLite compares the file's length with what its header says, and reads each table's first page.
    `check_pages` reads all of them, which takes seconds.
    """
    if database.file is not None:
        with database.reading() as connection:
            for table in metadata.tables.values():
                columns = ", ".join(table.columns.keys())
                connection.exec_driver_sql(f"SELECT {columns} FROM {table.name} LIMIT 1").fetchone()  # noqa: S608 - our own names


def check_pages(database: Database) -> None:
    """Read every page of a SQLite file; does nothing for PostgreSQL.

    Raises:
        StoreError: when it is damaged.
        StoreUnavailable: the same, or when it cannot be read.
    """
    if database.file is not None:
        _probe(database)
        with database.reading() as connection:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        if found != "ok":
            raise StoreError(
                f"{database.file} is damaged ({found}); stop the server, and restore a backup: licserver "
                "restore FILE --force"
            )


def check_owner(database: Database, fingerprint: bytes, *, expected: bool) -> bool:
    """Refuse a database that was written with other secrets; one that nobody has written into is nobody's.

    Args:
        database: With a schema.
        fingerprint: As `open_database`.
        expected: As `open_database`.

    Returns:
        Whether it was written with these.

    Raises:
        StoreError: when it was written with others, or with none although it is expected.
        StoreUnavailable: when it fails.
    """
    with database.reading() as connection:
        known = connection.scalar(_OWNER)
    if known is None and expected:
        raise _lost(database)
    if known is not None and known != fingerprint:
        raise _not_ours()
    return known is not None


def _not_ours() -> StoreError:
    return StoreError(
        "this database was written with other secrets; put the secrets file that belongs to it "
        "beside it, or its content into LICSERVER_SECRETS"
    )


def _check_fingerprint(database: Database, fingerprint: bytes, *, expected: bool) -> None:
    if check_owner(database, fingerprint, expected=expected):
        return
    with database.writing() as connection:
        try:
            with connection.begin_nested():
                connection.execute(insert(facts).values(name=_FINGERPRINT, value=fingerprint))
        except IntegrityError:  # another process was faster, perhaps with other secrets
            pass
        known = connection.scalar(_OWNER)
    if known != fingerprint:
        raise _not_ours()
