"""One statement for everybody who waits: a SELECT joined to a table of asks.

SQLAlchemy Core writes the statement, for whichever engine, once for each size of batch. It is run on the
driver's own cursor: to run it through Core costs three times what SQLite needs to answer it.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import CTE, Boolean, ColumnClause, Connection, Integer, Select, bindparam, column, values

Row = tuple[Any, ...]
Processors = list[tuple[int, Callable[[Any], Any]]]
"""Positions in a row, and what makes the promised type of what the driver gives there."""


class AskTable:
    """A SELECT over a table of asks, ``asked``, whose column ``n`` numbers them.

    Args:
        columns: The other columns of ``asked``, typed.
        build: Makes the SELECT from ``asked``; its first column must be ``n``.
    """

    def __init__(self, columns: Sequence[ColumnClause[Any]], build: Callable[[CTE], Select[Any]]) -> None:
        self._columns: Final = columns
        self._build: Final = build
        self._compiled: Final[dict[tuple[str, int], tuple[str, Processors]]] = {}

    def rows(self, connection: Connection, asks: Sequence[Row]) -> list[Row]:
        """Run the statement for a batch of asks.

        Args:
            connection: Within a transaction, or set to commit by itself.
            asks: For each one the values of `columns`; at least one.

        Returns:
            The rows in any order; the first value of each is the number of its ask.
        """
        size = 1 << (len(asks) - 1).bit_length()  # few sizes, so few statements to compile and prepare
        sql, processors = self._statement(connection, size)
        numbered = [value for number, ask in enumerate(asks) for value in (number, *ask)]
        numbered += [len(asks) - 1, *asks[-1]] * (size - len(asks))  # the last one again, with its number
        cursor = connection.connection.cursor()
        try:
            cursor.execute(sql, numbered)
            rows = cursor.fetchall()
        finally:
            cursor.close()
        if not processors:
            return list(rows)
        return [_processed(row, processors) for row in rows]

    def _statement(self, connection: Connection, size: int) -> tuple[str, Processors]:
        dialect = connection.dialect
        key = (dialect.name, size)
        if key not in self._compiled:
            names = [column("n", Integer), *self._columns]
            asked = (
                values(*names, name="asked")
                .data(
                    [
                        tuple(bindparam(f"{one.name}_{row}", type_=one.type) for one in names)
                        for row in range(size)
                    ]
                )
                .cte("asked")
            )
            select = self._build(asked)
            compiled = select.compile(dialect=dialect)
            wanted = [f"{one.name}_{row}" for row in range(size) for one in names]
            if list(compiled.positiontup or ()) != wanted:
                raise AssertionError("a statement over asks takes no parameter but the asks")
            processors: Processors = [
                (at, process)
                for at, one in enumerate(select.selected_columns)
                if not isinstance(one.type, Boolean)  # 0 and 1 are as good
                and (process := one.type.dialect_impl(dialect).result_processor(dialect, None)) is not None
            ]
            self._compiled[key] = str(compiled), processors
        return self._compiled[key]


def _processed(row: Row, processors: Processors) -> Row:
    """Turn what the driver gives into what the columns' types promise."""
    if all(row[at] is None for at, _ in processors):  # dates and instants mostly are
        return row
    held = list(row)
    for at, process in processors:
        if held[at] is not None:
            held[at] = process(held[at])
    return tuple(held)
