"""What all repositories share: a connection for each call or one transaction for all, and INSERTs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


class Repository:
    """Reads and writes the rows of one subject, each call in the given transaction or in one of its own.

    A failure of the database is a `StoreUnavailableError`; then nothing has changed.
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

    def _first(self, statement: Select[Any]) -> Any:
        """Load one row; None if there is none."""
        with self._reading() as connection:
            return connection.execute(statement).first()

    def _all(self, statement: Select[Any]) -> Sequence[Any]:
        with self._reading() as connection:
            return connection.execute(statement).all()

    def _scalar(self, statement: Select[Any]) -> Any:
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
