"""An INSERT of many rows by the driver's own cursor, or PostgreSQL's COPY."""

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table, insert

from licserver.database.hot_path.driver import Processors, Row

_COPY_FROM: Final = 500  # rows from which on PostgreSQL's COPY is faster than INSERT; many take half the time


class RowWriter:
    """An INSERT of rows into a table, without the columns `leaving`."""

    def __init__(self, table: Table, leaving: Collection[str] = ()) -> None:
        self._table: Final = table
        self._columns: Final = [one for one in table.columns if one.key not in leaving]
        self._compiled: Final[dict[str, tuple[str, Processors]]] = {}

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rows within a transaction; each has the values of the columns in their order."""
        sql, processors = self._statement(connection.dialect)
        ready = [list(row) for row in rows]
        for at, process in processors:
            for row in ready:
                row[at] = process(row[at])
        cursor: Any = connection.connection.cursor()
        try:
            if len(ready) < _COPY_FROM or connection.dialect.name == "sqlite":
                cursor.executemany(sql, ready)
                return
            with cursor.copy(self._copy_statement(connection.dialect)) as copy:
                for row in ready:
                    copy.write_row(row)
        finally:
            cursor.close()

    def _copy_statement(self, dialect: Dialect) -> str:
        quote = dialect.identifier_preparer.quote
        names = ", ".join(quote(one.name) for one in self._columns)
        return f"COPY {quote(self._table.name)} ({names}) FROM STDIN"

    def _statement(self, dialect: Dialect) -> tuple[str, Processors]:
        if dialect.name not in self._compiled:
            names = [one.key for one in self._columns]
            compiled = insert(self._table).compile(dialect=dialect, column_keys=names)
            if list(compiled.positiontup or ()) != names:
                raise AssertionError("an INSERT of rows takes their values in the table's order")
            processors: Processors = [
                (at, process)
                for at, one in enumerate(self._columns)
                if (process := one.type.dialect_impl(dialect).bind_processor(dialect)) is not None
            ]
            self._compiled[dialect.name] = str(compiled), processors
        return self._compiled[dialect.name]
