"""Import of licenses: staged in temporary tables, then inserted in one transaction.

Reading a file may take minutes and holds no lock: temporary tables belong to one connection.
"""

from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import Connection, Table, func, select
from sqlalchemy.exc import IntegrityError

from licserver.database.engine import WRITES, Database, stop_throttling
from licserver.database.hot_path.driver import Row
from licserver.database.hot_path.row_writer import RowWriter
from licserver.database.repositories.licenses import IMPORT_LOCK, license_row
from licserver.database.tables.licenses import activations, license_words, licenses
from licserver.domain.records import TERMS, IssuedLicense
from licserver.errors import ConflictError

_LINE: Final = "line"
_GENERATED: Final = "generated"
_GIVEN: Final = "given"

COMPARED: Final = ("product_id", *TERMS, "subscription_ended_at", "revoked_at")
"""Columns in which a line and its license in the database must agree (`_differ`)."""

_SHOWN: Final = ("product_id", *TERMS, "revoked_at")

BATCH: Final = 500  # rows staged at a time
_STEP: Final = 50
"""Lines that one statement reads or inserts where it must be short: some milliseconds of a processor."""


def _staging_table(table: Table, *more: sa.Column[Any]) -> Table:
    """Return a temporary table with the columns of another, without keys: queries find conflicts."""
    columns = (
        sa.Column(column.name, column.type, nullable=column.nullable, key=column.key)
        for column in table.columns
    )
    line = sa.Column(_LINE, sa.Integer, index=True)
    return Table(f"staged_{table.name}", sa.MetaData(), line, *more, *columns, prefixes=["TEMPORARY"])


_licenses: Final = _staging_table(licenses, sa.Column(_GENERATED, sa.Integer), sa.Column(_GIVEN, sa.Integer))
_activations: Final = _staging_table(activations)
_words: Final = _staging_table(license_words)
_FIRST: Final = "first_line"
_LAST: Final = "last_line"


def _insert_statement(staged: Table, table: Table) -> sa.Insert:
    """Return the statement that inserts lines in the order of the table's index: half the page writes."""
    names = table.columns.keys()
    rows = select(*(staged.c[name] for name in names)).order_by(
        *(staged.c[column.name] for column in table.primary_key)
    )
    return sa.insert(table).from_select(
        names, rows.where(staged.c.line.between(sa.bindparam(_FIRST), sa.bindparam(_LAST)))
    )


_STAGED: Final = {_licenses: licenses, _activations: activations, _words: license_words}
_INSERTS: Final = {staged: _insert_statement(staged, table) for staged, table in _STAGED.items()}
_WRITERS: Final = {staged: RowWriter(staged) for staged in _STAGED}


class Staging:
    """Staged licenses; the connection is used by nothing else, and has no transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._last_line = 0
        self._filled: set[Table] = set()
        self._begun: sa.RootTransaction | None = None
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
        generated: bool,
        given: int = 0,
    ) -> None:
        """Stage a line: a license, its slots (domain, address, activation, last use), and its words.

        `given` is for the caller: which columns the file has.
        """
        self._waiting[_licenses].append((line, int(generated), given, *license_row(license_)))
        self._waiting[_activations] += [(line, license_.id, *slot) for slot in slots_taken]
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

    def duplicates(self) -> Iterator[tuple[int, int, str]]:
        """Return keys that occur twice: the line, the first line with the key, and the masked key."""
        self._flush()
        first = select(_licenses.c.id, func.min(_licenses.c.line).label("first")).group_by(_licenses.c.id)
        firsts = first.having(func.count() > 1).subquery()
        statement = (
            select(_licenses.c.line, firsts.c.first, _licenses.c.masked_key)
            .join(firsts, firsts.c.id == _licenses.c.id)
            .where(_licenses.c.line > firsts.c.first)
            .order_by(_licenses.c.line)
        )
        with self._connection.begin():
            yield from ((line, first, masked) for line, first, masked in self._connection.execute(statement))

    def existing(
        self, compared: Sequence[Container[str]]
    ) -> Iterator[tuple[int, bytes, str, dict[str, Any]]]:
        """Return lines whose keys are in the database: line, id, masked key, and the terms that differ.

        Of a line only those terms are compared that `compared` has at the line's `given`.
        """
        self._flush()
        pairs = [column for name in COMPARED for column in (_licenses.c[name], licenses.c[name])]
        names = (_LINE, "id", "masked_key", _GIVEN, "revoked_reason")
        existing = select(*(_licenses.c[name] for name in names), *pairs).join(
            licenses, licenses.c.id == _licenses.c.id
        )
        for step in self._steps():
            with self._connection.begin():
                of_step = existing.where(_licenses.c.line.between(*step)).order_by(_licenses.c.line)
                for line, license_id, masked, given, reason, *values in self._connection.execute(of_step):
                    different = {
                        name: new
                        for name, new, old in zip(COMPARED, values[::2], values[1::2], strict=True)
                        if name in compared[given] and _differ(name, new, old)
                    }
                    if different.get("revoked_at") is not None:
                        different["revoked_reason"] = reason
                    yield line, license_id, masked, different

    def drop(self, lines: Sequence[int]) -> None:
        """Remove lines, which are not to be inserted."""
        for first in range(0, len(lines), BATCH):
            with self._connection.begin():
                for table in _WRITERS:
                    is_dropped = table.c.line.in_(lines[first : first + BATCH])
                    self._connection.execute(sa.delete(table).where(is_dropped))

    def rows(self) -> Iterator[Any]:
        """Return what is to be inserted: line, masked key, whether it is new, product and stored terms."""
        self._flush()
        columns = (_licenses.c[name] for name in (_LINE, "masked_key", _GENERATED, *_SHOWN))
        shown = select(*columns).order_by(_licenses.c.line)
        with self._connection.begin():
            yield from self._connection.execution_options(yield_per=BATCH).execute(shown)

    def _steps(self) -> Iterator[tuple[int, int]]:
        """Return the first and the last line of each step.

        On SQLite, where all writers wait, there is one step, which is fastest. On PostgreSQL the database
        answers others between short steps.
        """
        step = max(1, self._last_line) if self._connection.dialect.name == "sqlite" else _STEP
        for first in range(1, self._last_line + 1, step):
            yield first, first + step - 1

    def prepare(self) -> None:
        """Insert in the transaction that `committing` ends, unless that would block other writers."""
        if self._connection.dialect.name != "sqlite":
            self._begun = self._begin()
            self._insert()

    @contextmanager
    def committing(self) -> Iterator[Connection]:
        """Insert everything, in one transaction that includes the block, unless a key was added meanwhile.

        A license whose subscription has ended ends with it, unless its line names another end.
        """
        begun, self._begun = self._begun, None
        try:
            with begun or self._begin():
                if begun is None:
                    self._insert()
                self._end_with_subscriptions()
                yield self._connection
        finally:
            self._connection.execution_options(**{WRITES: False})

    def _begin(self) -> sa.RootTransaction:
        self._flush()
        self._connection.execution_options(**{WRITES: True})
        return self._connection.begin()

    def _insert(self) -> None:
        for first, last in self._steps():
            for staged in _INSERTS:
                if staged not in self._filled:
                    continue
                try:
                    self._connection.execute(_INSERTS[staged], {_FIRST: first, _LAST: last})
                except IntegrityError:
                    if staged is not _licenses:
                        raise
                    raise ConflictError(
                        "a key of the file was added to the database meanwhile; import the file again"
                    ) from None

    def _end_with_subscriptions(self) -> None:
        """End licenses of ended subscriptions; last, so that others wait only for a moment."""
        if self._connection.dialect.name != "sqlite":
            stop_throttling(self._connection)
            self._connection.execute(select(func.pg_advisory_xact_lock(*IMPORT_LOCK)))
        open_ended = select(_licenses.c.id).where(
            _licenses.c.subscription_id.is_not(None), _licenses.c.subscription_ended_at.is_(None)
        )
        other = licenses.alias()
        is_new = sa.exists().where(_licenses.c.id == other.c.id)
        ended = (
            select(other.c.subscription_id, func.max(other.c.subscription_ended_at).label("at"))
            .where(other.c.subscription_ended_at.is_not(None), ~is_new)
            .group_by(other.c.subscription_id)
            .subquery()
        )
        self._connection.execute(
            sa.update(licenses)
            .where(licenses.c.id.in_(open_ended), licenses.c.subscription_id == ended.c.subscription_id)
            .values(subscription_ended_at=ended.c.at)
        )

    def generated(self) -> Iterator[tuple[int, bytes, bytes]]:
        """Return line, id and encrypted key of the licenses with generated keys, by line."""
        statement = select(_licenses.c.line, _licenses.c.id, _licenses.c.encrypted_key)
        statement = statement.where(_licenses.c.generated == 1).order_by(_licenses.c.line)
        with self._connection.begin():
            for row in self._connection.execution_options(yield_per=BATCH).execute(statement):
                yield row.line, row.id, row.encrypted_key


def _differ(name: str, staged: Any, stored: Any) -> bool:
    match name:
        case (
            "revoked_at"
        ):  # only that it is revoked: the file may be from before the license's revocation here
            return (staged is None) != (stored is None)
        case "subscription_ended_at":  # without an instant a line ends when its subscription does
            return staged is not None and bool(staged != stored)
        case _:
            return bool(staged != stored)


@contextmanager
def staging(database: Database) -> Iterator[Staging]:
    """Open a staging area for a block; what was not inserted is gone at its end."""
    with database.background_connection() as connection:
        yield Staging(connection)
