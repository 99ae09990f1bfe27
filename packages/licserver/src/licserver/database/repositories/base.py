"""What all of the vendor's books stand on: a database, or one transaction of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self, cast

from sqlalchemy import Connection, CursorResult, Table
from sqlalchemy.exc import IntegrityError

from licserver.database.engine import Database

if TYPE_CHECKING:
    from sqlalchemy.dialects.postgresql import Insert


def adding_to(connection: Connection, table: Table) -> "Insert":
    """Begin an INSERT that can say ``ON CONFLICT``, alike on both engines."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects.postgresql import insert  # noqa: PLC0415 - 3 MiB that SQLite does not need
    else:
        from sqlalchemy.dialects.sqlite import insert  # type: ignore[assignment] # noqa: PLC0415
    return insert(table)


class Repository:
    """Reads and writes the vendor's books, each method in a transaction of its own.

    Every method raises `StoreUnavailable` when the database fails; then nothing has changed.

    Args:
        database: Shared with the public endpoints: the very next request sees a change.
        connection: Within a transaction, of which everything is to be a part; from `together`.
    """

    def __init__(self, database: Database, connection: Connection | None = None) -> None:
        self._database = database
        self._connection = connection

    @contextmanager
    def together(self) -> Iterator[Self]:
        """Do several things in one transaction: all of them, or none when the block raises.

        Yields:
            The same books; whoever else writes waits until the block ends, so it must not wait itself.
        """
        if self._connection is not None:
            yield self
            return
        with self._database.writing() as connection:
            yield type(self)(self._database, connection)

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

    def _update(self, statement: Any) -> int:
        """Run a statement that writes, and say how many rows it met."""
        with self._writing() as connection:
            return cast("CursorResult[Any]", connection.execute(statement)).rowcount

    def _insert_unless_taken(self, statement: Any) -> bool:
        """Insert a row; False when what must be unique is taken."""
        with self._writing() as connection:
            try:
                with connection.begin_nested():
                    connection.execute(statement)
            except IntegrityError:
                return False
            return True
