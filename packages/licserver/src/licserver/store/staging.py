"""Licenses on their way in: put aside in temporary tables, and moved into the books all at once.

While they come, which may take minutes, nobody waits for a lock: temporary tables are the connection's own.
Only the move itself is a transaction that writes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Column, Connection, Integer, MetaData, Table, func, insert, select, update

from licserver.store.asks import Row
from licserver.store.bulk import BulkWriter
from licserver.store.engine import WRITES, Database
from licserver.store.licenses import MOVING
from licserver.store.tables import activations, license_words, licenses

_LINE: Final = "line"
_DRAWN: Final = "drawn"

BATCH: Final = 5_000
"""Rows written at a time."""


def _beside(table: Table, *more: Column[Any]) -> Table:
    """Name a temporary table with the columns of another, and no keys: what is wrong is found by asking."""
    columns = (Column(one.name, one.type, nullable=one.nullable) for one in table.columns)
    return Table(f"staged_{table.name}", MetaData(), *more, *columns, prefixes=["TEMPORARY"])


_licenses: Final = _beside(licenses, Column(_LINE, Integer), Column(_DRAWN, Integer))
_activations: Final = _beside(activations)
_words: Final = _beside(license_words)
_WRITERS: Final = {one: BulkWriter(one) for one in (_licenses, _activations, _words)}


class Staging:
    """What was put aside.

    Args:
        connection: Its own, without a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: dict[Table, list[Row]] = {table: [] for table in _WRITERS}
        with connection.begin():
            for table in _WRITERS:
                table.create(connection)

    def add(
        self,
        line: int,
        license_: dict[str, Any],
        slots_taken: Sequence[Row],
        words: Sequence[str],
        *,
        drawn: bool,
    ) -> None:
        """Put a license aside.

        Args:
            line: Where it stands in the file.
            license_: Its row, by the names of the columns.
            slots_taken: Domain, address, and the instants of activation and of being last seen.
            words: By which it is found.
            drawn: Whether its key was drawn just now.
        """
        license_id = license_["id"]
        row = (line, int(drawn), *(license_[column.name] for column in licenses.columns))
        self._waiting[_licenses].append(row)
        self._waiting[_activations] += [(license_id, *one) for one in slots_taken]
        self._waiting[_words] += [(word, license_id) for word in words]
        if len(self._waiting[_licenses]) >= BATCH or len(self._waiting[_activations]) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        with self._connection.begin():
            for table, rows in self._waiting.items():
                if rows:
                    _WRITERS[table].write(self._connection, rows)
                    rows.clear()

    def twice(self) -> Iterator[tuple[int, int]]:
        """Find keys that come twice: the line, and the one on which the key stands first."""
        self._flush()
        first = select(_licenses.c.id, func.min(_licenses.c.line).label("first")).group_by(_licenses.c.id)
        firsts = first.having(func.count() > 1).subquery()
        statement = (
            select(_licenses.c.line, firsts.c.first)
            .join(firsts, firsts.c.id == _licenses.c.id)
            .where(_licenses.c.line > firsts.c.first)
            .order_by(_licenses.c.line)
        )
        with self._connection.begin():
            yield from ((line, first) for line, first in self._connection.execute(statement))

    def taken(self) -> Iterator[int]:
        """Find the lines whose keys are in the books already."""
        self._flush()
        with self._connection.begin():
            yield from self._taken()

    def _taken(self) -> Iterator[int]:
        statement = select(_licenses.c.line).join(licenses, licenses.c.id == _licenses.c.id)
        yield from self._connection.scalars(statement.order_by(_licenses.c.line))

    @contextmanager
    def moving(self) -> Iterator[Connection | None]:
        """Move everything into the books, in one transaction that the block is a part of.

        A license whose subscription is known to have ended ends with it, unless its line said otherwise.

        Yields:
            The connection; None, and nothing was moved, if a key has come into the books meanwhile.

        Raises:
            StoreUnavailable: when the database fails; then nothing was moved.
        """
        self._flush()
        self._connection.execution_options(**{WRITES: True})
        try:
            with self._connection.begin():
                yield self._move()
        finally:
            self._connection.execution_options(**{WRITES: False})  # what follows only reads

    def _move(self) -> Connection | None:
        if next(self._taken(), None) is not None:
            return None
        for staged, table in ((_licenses, licenses), (_activations, activations), (_words, license_words)):
            names = table.columns.keys()
            # In the order of the table's own index: half the page writes.
            key = [staged.c[column.name] for column in table.primary_key]
            rows = select(*(staged.c[name] for name in names)).order_by(*key)
            self._connection.execute(insert(table).from_select(names, rows))
        self._end_with_subscriptions()
        return self._connection

    def _end_with_subscriptions(self) -> None:
        """End what hangs on an ended subscription; last, so that others wait for a moment only."""
        if self._connection.dialect.name != "sqlite":
            self._connection.execute(select(func.pg_advisory_xact_lock(*MOVING)))
        unsaid = select(_licenses.c.id).where(
            _licenses.c.subscription_id.is_not(None), _licenses.c.subscription_ended_at.is_(None)
        )
        other = licenses.alias()
        ended = (
            select(other.c.subscription_id, func.max(other.c.subscription_ended_at).label("at"))
            .where(other.c.subscription_ended_at.is_not(None), other.c.id.not_in(select(_licenses.c.id)))
            .group_by(other.c.subscription_id)
            .subquery()
        )
        self._connection.execute(
            update(licenses)
            .where(licenses.c.id.in_(unsaid), licenses.c.subscription_id == ended.c.subscription_id)
            .values(subscription_ended_at=ended.c.at)
        )

    def drawn(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Give line, id and sealed key of those whose keys were drawn, in the order of the lines."""
        statement = select(_licenses.c.line, _licenses.c.id, _licenses.c.sealed_key)
        statement = statement.where(_licenses.c.drawn == 1).order_by(_licenses.c.line)
        with self._connection.begin():
            for row in self._connection.execution_options(yield_per=BATCH).execute(statement):
                yield row.line, row.id, row.sealed_key


@contextmanager
def staging(database: Database) -> Iterator[Staging]:
    """Put licenses aside for a block; what was not moved is gone at its end.

    Raises:
        StoreUnavailable: when the database fails.
    """
    with database.apart() as connection:
        yield Staging(connection)
