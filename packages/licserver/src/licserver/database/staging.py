"""Licenses on their way in: put aside in temporary tables, and moved into the books all at once.

While they come, which may take minutes, nobody waits for a lock: temporary tables are the connection's own.
Only the move itself is a transaction that writes.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import (
    Column,
    Connection,
    Insert,
    Integer,
    MetaData,
    RootTransaction,
    Table,
    bindparam,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from licserver.database.bulk import BulkWriter
from licserver.database.engine import WRITES, Database, stop_throttling
from licserver.database.hot_path.statements import Row
from licserver.database.repositories.subscriptions import IMPORT_LOCK
from licserver.database.rows import license_row
from licserver.database.tables import activations, license_words, licenses
from licserver.domain.records import IssuedLicense
from licserver.errors import Conflict

_LINE: Final = "line"
_DRAWN: Final = "drawn"

BATCH: Final = 500
"""Rows put aside at a time."""

_STEP: Final = 50
"""Lines that one statement looks at or moves where it is to be short: some milliseconds of a processor."""


def _beside(table: Table, *more: Column[Any]) -> Table:
    """Name a temporary table with the columns of another, and no keys: what is wrong is found by asking."""
    columns = (Column(one.name, one.type, nullable=one.nullable) for one in table.columns)
    line = Column(_LINE, Integer, index=True)
    return Table(f"staged_{table.name}", MetaData(), line, *more, *columns, prefixes=["TEMPORARY"])


_licenses: Final = _beside(licenses, Column(_DRAWN, Integer))
_activations: Final = _beside(activations)
_words: Final = _beside(license_words)
_FIRST: Final = "first_line"
_LAST: Final = "last_line"


def _mover(staged: Table, table: Table) -> Insert:
    """Write the statement that moves lines in the order of the table's own index: half the page writes."""
    names = table.columns.keys()
    rows = select(*(staged.c[name] for name in names)).order_by(
        *(staged.c[one.name] for one in table.primary_key)
    )
    return insert(table).from_select(
        names, rows.where(staged.c.line.between(bindparam(_FIRST), bindparam(_LAST)))
    )


_MOVES: Final = {
    _licenses: _mover(_licenses, licenses),
    _activations: _mover(_activations, activations),
    _words: _mover(_words, license_words),
}
_WRITERS: Final = {one: BulkWriter(one) for one in (_licenses, _activations, _words)}


class Staging:
    """What was put aside.

    Args:
        connection: Its own, without a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last_line = 0
        self._filled: set[Table] = set()
        self._begun: RootTransaction | None = None
        self._waiting: dict[Table, list[Row]] = {table: [] for table in _WRITERS}
        with connection.begin():
            for table in _WRITERS:
                table.create(connection)

    def add(
        self,
        line: int,
        license_: IssuedLicense,
        slots_taken: Sequence[Row],
        words: Sequence[str],
        *,
        drawn: bool,
    ) -> None:
        """Put a license aside.

        Args:
            line: Where it stands in the file.
            license_: The license.
            slots_taken: Domain, address, and the instants of activation and of being last seen.
            words: By which it is found.
            drawn: Whether its key was drawn just now.
        """
        self._waiting[_licenses].append((line, int(drawn), *license_row(license_)))
        self._waiting[_activations] += [(line, license_.id, *one) for one in slots_taken]
        self._waiting[_words] += [(line, word, license_.id) for word in words]
        self._last_line = line
        if len(self._waiting[_licenses]) >= BATCH or len(self._waiting[_activations]) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        with self._connection.begin():
            for table, rows in self._waiting.items():
                if rows:
                    _WRITERS[table].write(self._connection, rows)
                    self._filled.add(table)
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
        taken = select(_licenses.c.line).join(licenses, licenses.c.id == _licenses.c.id)
        for step in self._steps():
            with self._connection.begin():
                of_step = taken.where(_licenses.c.line.between(*step)).order_by(_licenses.c.line)
                yield from self._connection.scalars(of_step)

    def _steps(self) -> Iterator[tuple[int, int]]:
        """Give the first and the last line of each step.

        Where everybody who writes waits for the move there is one step, which is fastest. Where nobody does,
        the database answers others between short ones (D-152).
        """
        step = max(1, self._last_line) if self._connection.dialect.name == "sqlite" else _STEP
        for first in range(1, self._last_line + 1, step):
            yield first, first + step - 1

    def prepare(self) -> None:
        """Move the rows already, within the transaction that `moving` ends, if nobody waits for that.

        Raises:
            Conflict: when a key has come into the books meanwhile.
            StoreUnavailable: when the database fails.
        """
        if self._connection.dialect.name != "sqlite":
            self._begun = self._begin()
            self._move()

    @contextmanager
    def moving(self) -> Iterator[Connection]:
        """Move everything into the books, in one transaction that the block is a part of.

        A license whose subscription is known to have ended ends with it, unless its line said otherwise.

        Yields:
            The connection.

        Raises:
            Conflict: when a key has come into the books meanwhile; then nothing was moved.
            StoreUnavailable: when the database fails; the same.
        """
        begun, self._begun = self._begun, None
        try:
            with begun or self._begin():
                if begun is None:
                    self._move()
                self._end_with_subscriptions()
                yield self._connection
        finally:
            self._connection.execution_options(**{WRITES: False})  # what follows only reads

    def _begin(self) -> RootTransaction:
        self._flush()
        self._connection.execution_options(**{WRITES: True})
        return self._connection.begin()

    def _move(self) -> None:
        for first, last in self._steps():
            for staged in _MOVES:
                if staged in self._filled:
                    self._move_lines(staged, {_FIRST: first, _LAST: last})

    def _move_lines(self, staged: Table, lines: dict[str, int]) -> None:
        try:
            self._connection.execute(_MOVES[staged], lines)
        except IntegrityError:
            if staged is not _licenses:
                raise
            raise Conflict("a key of the file has come into the books meanwhile; import it again") from None

    def _end_with_subscriptions(self) -> None:
        """End what hangs on an ended subscription; last, so that others wait for a moment only."""
        if self._connection.dialect.name != "sqlite":
            stop_throttling(self._connection)
            self._connection.execute(select(func.pg_advisory_xact_lock(*IMPORT_LOCK)))
        unsaid = select(_licenses.c.id).where(
            _licenses.c.subscription_id.is_not(None), _licenses.c.subscription_ended_at.is_(None)
        )
        other = licenses.alias()
        ended = (
            select(other.c.subscription_id, func.max(other.c.subscription_ended_at).label("at"))
            .where(other.c.subscription_ended_at.is_not(None), ~exists().where(_licenses.c.id == other.c.id))
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
    with database.background_connection() as connection:
        yield Staging(connection)
