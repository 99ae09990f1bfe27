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

from licserver.errors import StoreError
from licserver.files import hand_over
from licserver.store.engine import Database, connect
from licserver.store.tables import facts, metadata

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


def open_database(url: str, fingerprint: bytes) -> Database:
    """Open the vendor's database; a fresh SQLite file is set up first.

    A PostgreSQL database is not: it may be somebody else's, or not be meant at all.

    Args:
        url: SQLAlchemy URL.
        fingerprint: `Vault.fingerprint` of the secrets at hand.

    Raises:
        StoreError: when its schema is not this program's, or when it belongs to other secrets, so that
            no key could be found in it.
        StoreUnavailable: when it cannot be opened.
    """
    database = connect(url)
    try:
        version = read_version(database)
        if version is None and not database.is_remote:
            version = _set_up(database)
            _hand_over(Path(str(database.engine.url.database)))
        check_version(version)
        _check_fingerprint(database, fingerprint)
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
        if not (database.is_remote or Path(str(database.engine.url.database)).exists()):
            return False
        if read_version(database) is None:
            return False
        with database.reading() as connection:
            return connection.scalar(_OWNER) is not None
    finally:
        database.close()


def read_version(database: Database) -> str | None:
    """Read which schema a database has.

    Returns:
        Its revision, or None when it is empty.

    Raises:
        StoreError: when it has tables of our names that are not ours, or cannot hold all text.
        StoreUnavailable: when it fails.
    """
    with database.reading() as connection:
        if database.is_remote:
            _check_encoding(connection)
        return _read_version(connection)


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


def _set_up(database: Database) -> str | None:
    """Make all tables at once; that the migrations come to the same is tested."""
    with database.writing() as connection:
        if (version := _read_version(connection)) is None:  # else somebody was faster
            metadata.create_all(connection)
            alembic_version.create(connection)
            connection.execute(insert(alembic_version).values(version_num=HEAD))
            version = HEAD
    return version


def _hand_over(file: Path) -> None:
    """Give a fresh file, with what SQLite has put beside it, to whom the folder belongs (D-126)."""
    for one in (file, *file.parent.glob(f"{file.name}-*")):
        hand_over(one, file.parent)


def check_owner(database: Database, fingerprint: bytes) -> None:
    """Refuse a database that was written with other secrets; one that nobody has written into is nobody's.

    Raises:
        StoreError: when it was.
        StoreUnavailable: when it fails.
    """
    with database.reading() as connection:
        known = connection.scalar(_OWNER)
    if known is not None and known != fingerprint:
        raise _not_ours()


def _not_ours() -> StoreError:
    return StoreError(
        "this database was written with other secrets; put the secrets file that belongs to it "
        "beside it, or its content into LICSERVER_SECRETS"
    )


def _check_fingerprint(database: Database, fingerprint: bytes) -> None:
    with database.reading() as connection:
        known = connection.scalar(_OWNER)
    if known is None:
        with database.writing() as connection:
            try:
                with connection.begin_nested():
                    connection.execute(insert(facts).values(name=_FINGERPRINT, value=fingerprint))
            except IntegrityError:  # somebody was faster, perhaps with other secrets
                pass
            known = connection.scalar(_OWNER)
    if known != fingerprint:
        raise _not_ours()
