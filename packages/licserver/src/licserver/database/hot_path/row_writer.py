"""An INSERT of many rows by the driver's own cursor, or PostgreSQL's COPY."""

from collections.abc import Collection, Sequence
from contextlib import closing
from itertools import chain
from typing import Any, Final

from sqlalchemy import Connection, Dialect, Table, bindparam, insert

from licserver.database.hot_path.driver import Processors, Row, written

_COPY_FROM: Final = 500  # rows from which on PostgreSQL's COPY is faster than INSERT; many take half the time
_TOGETHER: Final = 32  # rows of one statement on PostgreSQL, at most


class RowWriter:
    """An INSERT of rows into a table, without the columns `leaving`."""

    def __init__(self, table: Table, leaving: Collection[str] = ()) -> None:
        self._table: Final = table
        self._columns: Final = [column for column in table.columns if column.key not in leaving]
        self._compiled: Final[dict[tuple[str, int], tuple[str, Processors]]] = {}

    def compile(self, dialect: Dialect) -> None:
        """Compile the statements of all sizes."""
        for power in range(_TOGETHER.bit_length()):
            self._statement(dialect, 1 << power)

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rows within a transaction; each has the values of the columns in their order."""
        dialect = connection.dialect
        sql, processors = self._statement(dialect)
        ready = [list(row) for row in rows]
        for index, process in processors:
            for row in ready:
                row[index] = process(row[index])
        driver: Any = connection.connection.driver_connection
        is_sqlite = dialect.name == "sqlite"
        with closing(connection.connection.cursor() if is_sqlite else driver.raw_cursor(driver)) as cursor:
            if is_sqlite:
                cursor.executemany(sql, ready)
            elif len(ready) < _COPY_FROM:
                self._write_together(cursor, dialect, ready)
            else:
                with cursor.copy(self._copy_statement(dialect)) as copy:
                    for row in ready:
                        copy.write_row(row)

    def _write_together(self, cursor: Any, dialect: Dialect, rows: Sequence[list[Any]]) -> None:
        """Write rows by as few statements as there are powers of two in their number."""
        begin = 0
        while remaining := len(rows) - begin:
            count = min(_TOGETHER, 1 << (remaining.bit_length() - 1))
            batch = rows[begin : begin + count]
            sql, _ = self._statement(dialect, count)
            cursor.execute(sql, list(chain.from_iterable(batch)), prepare=True)
            begin += count

    def _copy_statement(self, dialect: Dialect) -> str:
        quote = dialect.identifier_preparer.quote
        names = ", ".join(quote(column.name) for column in self._columns)
        return f"COPY {quote(self._table.name)} ({names}) FROM STDIN"

    def _statement(self, dialect: Dialect, count: int = 1) -> tuple[str, Processors]:
        key = dialect.name, count
        if key not in self._compiled:
            names = [f"{column.key}_{row}" for row in range(count) for column in self._columns]
            row_values = [
                {column.key: bindparam(f"{column.key}_{row}", type_=column.type) for column in self._columns}
                for row in range(count)
            ]
            statement = insert(self._table).values(row_values)
            compiled = statement.compile(dialect=dialect)
            if list(compiled.positiontup or ()) != names:
                raise AssertionError("an INSERT of rows takes their values in the table's order")
            processors: Processors = [
                (index, process)
                for index, column in enumerate(self._columns)
                if (process := column.type.dialect_impl(dialect).bind_processor(dialect)) is not None
            ]
            self._compiled[key] = written(compiled), processors
        return self._compiled[key]
