"""One statement for everybody who waits: a SELECT joined to a table of asks, an INSERT of all their rows.

SQLAlchemy Core writes the statements, for whichever engine, once for each size of batch. They are run on the
driver's own cursor: to run them through Core costs three times what SQLite needs to answer. PostgreSQL's
driver has the server prepare them when they come again.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    CTE,
    Boolean,
    ColumnClause,
    Connection,
    Dialect,
    Integer,
    Select,
    Table,
    bindparam,
    column,
    insert,
    literal_column,
    values,
)

Row = tuple[Any, ...]
_Process = Callable[[Any], Any]


class BatchedQuery:
    """A SELECT over a table of asks, ``asked``, whose column ``n`` numbers them.

    Args:
        columns: The other columns of ``asked``, typed.
        build: Makes the SELECT from ``asked``; its first column must be ``n``.
    """

    def __init__(self, columns: Sequence[ColumnClause[Any]], build: Callable[[CTE], Select[Any]]) -> None:
        self._columns: Final = columns
        self._build: Final = build
        self._compiled: Final[dict[tuple[str, int], tuple[str, _Processors | None]]] = {}

    def rows(self, connection: Connection, asks: Sequence[Row]) -> list[Row]:
        """Run the statement for a batch of asks.

        Args:
            connection: Within a transaction, or set to commit by itself.
            asks: For each one the values of `columns`; at least one.

        Returns:
            The rows in any order; the first value of each is the number of its ask.
        """
        count = len(asks)
        size = 1 << (count - 1).bit_length()  # few sizes, so few statements to compile and prepare
        sql, processors = self._statement(connection, size)
        parameters = list(chain.from_iterable(asks))
        parameters += asks[-1] * (size - count)  # the last one again, under numbers that nobody asked
        cursor = connection.connection.cursor()
        try:
            cursor.execute(sql, parameters)
            rows = list(cursor.fetchall())
        finally:
            cursor.close()
        if size > count:
            rows = [row for row in rows if row[0] < count]
        return [processors.process(row) for row in rows] if processors else rows

    def _statement(self, connection: Connection, size: int) -> "tuple[str, _Processors | None]":
        dialect = connection.dialect
        key = (dialect.name, size)
        if key not in self._compiled:
            numbered = [
                (
                    literal_column(str(row), Integer),
                    *(bindparam(f"{one.name}_{row}", type_=one.type) for one in self._columns),
                )
                for row in range(size)
            ]
            asked = values(column("n", Integer), *self._columns, name="asked").data(numbered).cte("asked")
            select = self._build(asked)
            compiled = select.compile(dialect=dialect)
            wanted = [f"{one.name}_{row}" for row in range(size) for one in self._columns]
            if list(compiled.positiontup or ()) != wanted:
                raise AssertionError("a statement over asks takes no parameter but the asks")
            processors = {
                at: process
                for at, one in enumerate(select.selected_columns)
                if not isinstance(one.type, Boolean)  # 0 and 1 are as good
                and (process := one.type.dialect_impl(dialect).result_processor(dialect, None)) is not None
            }
            self._compiled[key] = str(compiled), _Processors(processors) if processors else None
        return self._compiled[key]


class RowWriter:
    """An INSERT of rows.

    Args:
        table: Where to.
        leaving: Columns that are not written.
    """

    def __init__(self, table: Table, leaving: Collection[str] = ()) -> None:
        self._table: Final = table
        self._columns: Final = [one for one in table.columns if one.key not in leaving]
        self._compiled: Final[dict[str, tuple[str, list[tuple[int, _Process]]]]] = {}

    def write(self, connection: Connection, rows: Sequence[Row]) -> None:
        """Write rows.

        Args:
            connection: Within a transaction.
            rows: For each one the values of the columns, in their order.
        """
        sql, processors = self._statement(connection.dialect)
        ready = [list(row) for row in rows]
        for at, process in processors:
            for row in ready:
                row[at] = process(row[at])
        cursor = connection.connection.cursor()
        try:
            cursor.executemany(sql, ready)
        finally:
            cursor.close()

    def _statement(self, dialect: Dialect) -> tuple[str, list[tuple[int, _Process]]]:
        if dialect.name not in self._compiled:
            names = [one.key for one in self._columns]
            compiled = insert(self._table).compile(dialect=dialect, column_keys=names)
            if list(compiled.positiontup or ()) != names:
                raise AssertionError("an INSERT of rows takes their values in the table's order")
            processors: list[tuple[int, _Process]] = [
                (at, process)
                for at, one in enumerate(self._columns)
                if (process := one.type.dialect_impl(dialect).bind_processor(dialect)) is not None
            ]
            self._compiled[dialect.name] = str(compiled), processors
        return self._compiled[dialect.name]


class _Processors:
    """Turns what the driver gives into what the columns' types promise.

    Args:
        processors: Positions in a row, and what makes the promised type of what stands there.
    """

    def __init__(self, processors: Mapping[int, _Process]) -> None:
        self._processors = tuple(processors.items())
        # itemgetter gives a value for one position, and a tuple for more
        self._pick = itemgetter(*processors)
        self._nothing = None if len(processors) == 1 else (None,) * len(processors)

    def process(self, row: Row) -> Row:
        """Process one row."""
        if self._pick(row) == self._nothing:  # dates and instants mostly are not there
            return row
        held = list(row)
        for at, process in self._processors:
            if held[at] is not None:
                held[at] = process(held[at])
        return tuple(held)
