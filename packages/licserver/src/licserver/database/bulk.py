"""Rows by the thousand: licenses that are issued, imported or restored."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Dialect

from licserver.database.hot_path.statements import Row, RowWriter

_MANY: Final = 500
"""Rows from which on PostgreSQL's own way for many is the faster one."""


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
