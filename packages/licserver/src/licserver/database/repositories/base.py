"""What all repositories share: a connection for each call or one transaction for all, and INSERTs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, cast

from sqlalchemy import Connection, CursorResult, Dialect, Table
from sqlalchemy.exc import IntegrityError

from licserver.database.engine import Database
from licserver.database.hot_path.statements import Row, RowWriter

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert


_MANY: Final = 500
"""Rows from which on PostgreSQL's own way for many is the faster one."""


def insert_into(connection: Connection, table: Table) -> "Insert":
    """Begin an INSERT that supports ``ON CONFLICT`` on both engines."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - 3 MiB that SQLite does not need
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment] # noqa: PLC0415
    return insert(table)


class Repository:
    """Reads and writes the rows of one subject.

    Every method raises `StoreUnavailableError` when the database fails; then nothing has changed.

    Args:
        database: Where the rows are.
        connection: Within a transaction that all calls are part of. Without one, each call is a
            transaction of its own.
    """

    def __init__(self, database: Database, connection: Connection | None = None) -> None:
        self._database = database
        self._connection = connection

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        if self._connection is not None:
            yield self._connection
            return
        with self._database.reading() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        if self._connection is not None:
            yield self._connection
            return
        with self._database.writing() as connection:
            yield connection

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


class BulkWriter(RowWriter):
    """An INSERT of rows that are many at a time: PostgreSQL takes them by COPY, in half the time.

    Args:
        As `RowWriter`.
    """

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rows, as `RowWriter` does."""
        if connection.dialect.name == "sqlite" or len(rows) < _MANY:
            super().write(connection, rows)
            return
        dialect = connection.dialect
        processors: dict[int, Any] = dict(self._statement(dialect)[1])
        cursor: Any = connection.connection.cursor()
        try:
            with cursor.copy(self._copy_statement(dialect)) as copy:
                for row in rows:
                    copy.write_row(
                        [processors[at](value) if at in processors else value for at, value in enumerate(row)]
                        if processors
                        else row
                    )
        finally:
            cursor.close()

    def _copy_statement(self, dialect: Dialect) -> str:
        quote = dialect.identifier_preparer.quote
        names = ", ".join(quote(column.key) for column in self._columns)
        return f"COPY {quote(self._table.name)} ({names}) FROM STDIN"
