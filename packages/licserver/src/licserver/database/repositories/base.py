"""Shared by all repositories: a connection for each call or one transaction for all, and INSERTs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
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
Value = TypeVar("Value")

BATCH: Final = 1_000  # rows that one transaction removes


def insert_into(connection: Connection, table: Table) -> "Insert":
    """Begin an INSERT that supports ``ON CONFLICT`` on both engines."""
    return _insert(connection.dialect.name, table)


def _insert(dialect: str, table: Table) -> "Insert":
    if dialect == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - 3 MiB that SQLite does not need
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment] # noqa: PLC0415
    return insert(table)


def put_into(
    connection: Connection, table: Table, *rows: Mapping[str, Any], added: str = "", unchanged: str = ""
) -> None:
    """Insert rows with the same columns; one whose primary key is there gets the other columns.

    The number in the column `added` is added to that of the row there; its column `unchanged` stays as it is.
    """
    statement = _upsert(connection.dialect.name, table, tuple(rows[0]), added, unchanged)
    connection.execute(statement, rows)


@lru_cache(maxsize=64)  # to make it costs a third of a customer's request that writes
def _upsert(dialect: str, table: Table, names: tuple[str, ...], added: str, unchanged: str) -> "Insert":
    add = _insert(dialect, table)
    keys = list(table.primary_key.columns)
    fixed = {unchanged, *(column.key for column in keys)}
    changed: dict[str, Any] = {name: add.excluded[name] for name in names if name not in fixed}
    if added:
        changed[added] = table.c[added] + add.excluded[added]
    return add.on_conflict_do_update(index_elements=keys, set_=changed)


def matching(table: Table, **values: Any) -> ColumnElement[bool]:
    """Return the condition that columns of a table have some values."""
    return and_(*(table.c[name] == value for name, value in values.items()))


def in_batches(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    """Yield values, at most `size` at a time."""
    for first in range(0, len(values), size):
        yield values[first : first + size]


def delete_free(table: Table, keys: Select[*tuple[Any, ...]]) -> Delete:
    """Delete the rows whose primary keys a query selects, unless another transaction has locked them.

    To wait would be an error after some seconds, and could be a deadlock.
    """
    free = keys.with_for_update(skip_locked=True)  # SQLite has one writer, and ignores it
    return delete(table).where(tuple_(*table.primary_key).in_(free))


class Repository:
    """Reads and writes the rows of one subject, each call in the given transaction or in one of its own.

    A failure of the database is a `StoreUnavailableError`; then nothing has changed. A statement that is made
    once, with `bindparam` for its values, takes a tenth of the time of a statement made for each call.
    """

    def __init__(self, database: Database, connection: Connection | None = None) -> None:
        self._database = database
        self._connection = connection

    def _reading(self) -> AbstractContextManager[Connection]:
        return self._database.reading() if self._connection is None else nullcontext(self._connection)

    def _writing(self) -> AbstractContextManager[Connection]:
        return self._database.writing() if self._connection is None else nullcontext(self._connection)

    def _first(self, statement: Select[*tuple[Any, ...]], **values: Any) -> Any:
        """Load one row, or None."""
        with self._reading() as connection:
            return connection.execute(statement, values).first()

    def _find(
        self, statement: Select[*tuple[Any, ...]], read: Callable[[Any], Record], **values: Any
    ) -> Record | None:
        """Load one row as a record, or None."""
        row = self._first(statement, **values)
        return None if row is None else read(row)

    def _all(self, statement: Select[*tuple[Any, ...]], **values: Any) -> Sequence[Any]:
        with self._reading() as connection:
            return connection.execute(statement, values).all()

    def _scalar(self, statement: Select[*tuple[Any, ...]]) -> Any:
        with self._reading() as connection:
            return connection.scalar(statement)

    def _execute(self, statement: Any, **values: Any) -> int:
        """Run a statement that writes; return the number of rows that matched."""
        with self._writing() as connection:
            return cast("CursorResult[Any]", connection.execute(statement, values)).rowcount

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
