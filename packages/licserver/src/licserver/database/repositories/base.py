"""What all repositories share: a connection for each call or one transaction for all, and INSERTs."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    CursorResult,
    Delete,
    Select,
    Table,
    and_,
    delete,
    select,
    tuple_,
)
from sqlalchemy.exc import IntegrityError

from licserver.database.engine import Database

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert

Record = TypeVar("Record")

BATCH: Final = 1_000  # rows that one transaction removes


def insert_into(connection: Connection, table: Table) -> "Insert":
    """Begin an INSERT that supports ``ON CONFLICT`` on both engines."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - 3 MiB that SQLite does not need
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment] # noqa: PLC0415
    return insert(table)


def put_into(
    connection: Connection, table: Table, *rows: Mapping[str, Any], added: str = "", kept: str = ""
) -> None:
    """Insert rows with the same columns; one whose primary key is there gets the other columns.

    The number in the column `added` is added to that of the row there, whose column `kept` stays as it is.
    """
    add = insert_into(connection, table)
    keys = list(table.primary_key.columns)
    fixed = {kept, *(one.key for one in keys)}
    changed: dict[str, Any] = {name: add.excluded[name] for name in rows[0] if name not in fixed}
    if added:
        changed[added] = table.c[added] + add.excluded[added]
    connection.execute(add.on_conflict_do_update(index_elements=keys, set_=changed), rows)


def matching(table: Table, **values: Any) -> ColumnElement[bool]:
    """Return the condition that columns of a table have some values."""
    return and_(*(table.c[name] == value for name, value in values.items()))


def delete_free(table: Table, keys: Select[*tuple[Any, ...]]) -> Delete:
    """Delete the rows whose primary keys a query selects, unless another transaction has locked them.

    To wait would be an error after some seconds, and could be a deadlock.
    """
    free = keys.with_for_update(skip_locked=True)  # SQLite has one writer, and ignores it
    return delete(table).where(tuple_(*table.primary_key).in_(free))


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
        """Load one row, or None."""
        with self._reading() as connection:
            return connection.execute(statement).first()

    def _find(self, statement: Select[*tuple[Any, ...]], read: Callable[[Any], Record]) -> Record | None:
        """Load one row as a record, or None."""
        row = self._first(statement)
        return None if row is None else read(row)

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

    def _delete(self, table: Table, condition: ColumnElement[bool]) -> int:
        """Delete the rows that a condition selects, some in each transaction; return their number.

        What another transaction has locked stays, such as a seat that is being renewed.
        """
        these = delete_free(table, select(*table.primary_key).where(condition).limit(BATCH))
        total = 0
        while count := self._execute(these):
            total += count
        return total

    def _put(self, table: Table, *rows: Mapping[str, Any]) -> None:
        with self._writing() as connection:
            put_into(connection, table, *rows)

    def _insert_unless_taken(self, statement: Any) -> bool:
        """Insert a row; return False when a unique value is taken."""
        with self._writing() as connection:
            try:
                with connection.begin_nested():
                    connection.execute(statement)
            except IntegrityError:
                return False
            return True
