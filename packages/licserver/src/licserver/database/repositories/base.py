"""What all repositories share: a connection for each call or one transaction for all, and INSERTs."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from sqlalchemy import Connection, CursorResult, Select, Table
from sqlalchemy.exc import IntegrityError

from licserver.database.engine import Database

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert


def insert_into(connection: Connection, table: Table) -> "Insert":
    """Begin an INSERT that supports ``ON CONFLICT`` on both engines."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - 3 MiB that SQLite does not need
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment] # noqa: PLC0415
    return insert(table)


def put_into(connection: Connection, table: Table, *rows: Mapping[str, Any]) -> None:
    """Insert rows with the same columns; one whose primary key is there gets the other columns."""
    add = insert_into(connection, table)
    changed = {name: add.excluded[name] for name in rows[0] if not table.c[name].primary_key}
    keys = list(table.primary_key.columns)
    connection.execute(add.on_conflict_do_update(index_elements=keys, set_=changed), rows)


class Repository:
    """Reads and writes the rows of one subject, each call in the given transaction or in one of its own.

    A failure of the database is a `StoreUnavailableError`; then nothing has changed.
    """

    def __init__(self, database: Database, connection: Connection | None = None) -> None:
        self._database = database
        self._connection = connection

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._database.reading() if self._connection is None else nullcontext(self._connection)

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._database.writing() if self._connection is None else nullcontext(self._connection)

    def _first(self, statement: Select[*tuple[Any, ...]]) -> Any:
        """Load one row; None if there is none."""
        with self._reading() as connection:
            return connection.execute(statement).first()

    def _all(self, statement: Select[*tuple[Any, ...]]) -> Sequence[Any]:
        with self._reading() as connection:
            return connection.execute(statement).all()

    def _scalar(self, statement: Select[*tuple[Any, ...]]) -> Any:
        with self._reading() as connection:
            return connection.scalar(statement)

    def _execute(self, statement: Any) -> int:
        """Run a statement that writes; return the number of rows that matched."""
        with self._writing() as connection:
            return cast("CursorResult[Any]", connection.execute(statement)).rowcount

    def _insert_unless_taken(self, statement: Any) -> bool:
        """Insert a row; return False when a unique value is taken."""
        with self._writing() as connection:
            try:
                with connection.begin_nested():
                    connection.execute(statement)
            except IntegrityError:
                return False
            return True
