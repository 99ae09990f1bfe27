"""Dump and load all rows of a database, for backups that either engine can restore.

A dump names its columns and their kinds, so that one of an older schema can be loaded: its tables are created
as they were, filled, and then upgraded.
"""

import gzip
import io
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from sqlalchemy import Connection, MetaData, delete, func, select
from sqlalchemy.types import TypeDecorator, TypeEngine

from licserver.database.engine import Database
from licserver.database.hot_path.row_writer import RowWriter
from licserver.database.migrate import make_config
from licserver.database.repositories.instants import CLOCK, WATCHED
from licserver.database.schema import HEAD, alembic_version, read_owner, read_version
from licserver.database.tables import metadata
from licserver.database.tables.access import (
    account_codes,
    account_sessions,
    daily_counts,
    failed_logins,
    sessions,
    tries,
)
from licserver.database.tables.licenses import facts, patches, products, releases
from licserver.domain.records import Artifact
from licserver.errors import StoreError

ROWS: Final = 2_500  # rows of a piece, and in memory at a time
MAX_ROW: Final = 4 << 20
"""Characters of a row; the longest possible one, a changelog in emoji, has 2.4 million."""

_BLOCK: Final = 1 << 16  # characters that are decompressed at a time
_FETCHED: Final = 1_000  # rows fetched at a time; the database serves others in between
_FORMER: Final = ("latest_releases", "channel_releases")  # tables of older schemas
_KINDS: Final[Mapping[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "bytes": (lambda value: b64encode(value).decode(), b64decode),
    "instant": (lambda value: value.astimezone(UTC).isoformat(), datetime.fromisoformat),
    "date": (lambda value: value.isoformat(), date.fromisoformat),
}
"""Functions that write and read values that JSON lacks."""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's name and columns, each with its kind; `plain` is what JSON has."""

    name: str
    columns: Sequence[tuple[str, str]]


class DumpSnapshot:
    """One state of a database, read within `Database.snapshot`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection.execution_options(yield_per=_FETCHED)
        self.layouts: Final = [
            Layout(table.name, [(column.name, _kind_of(column.type)) for column in table.columns])
            for table in metadata.sorted_tables
        ]

    def artifacts(self) -> Iterator[Artifact]:
        """Yield the files of all releases and their patches, each once; they are outside the database."""
        files = select(releases.c.file_name, releases.c.size, releases.c.sha256)
        patch_files = select(releases.c.file_name, patches.c.size, patches.c.sha256).join_from(
            patches, releases
        )
        for row in self._connection.execute(files.union(patch_files)):
            yield Artifact(*row)

    def pieces(self, layout: Layout) -> Iterator[tuple[int, bytes]]:
        """Yield a table's rows in pieces for `Loading.add`, each with its number of rows."""
        table = metadata.tables[layout.name]
        writers = _positions(layout, 0)
        result = self._connection.execute(select(table))
        while rows := [_convert(row, writers) for row in islice(result, ROWS)]:
            text = json.dumps(rows, separators=(",", ":")).encode()
            yield len(rows), gzip.compress(text, compresslevel=1, mtime=0)  # equal rows are equal bytes


@contextmanager
def take_snapshot(database: Database) -> Iterator[DumpSnapshot]:
    """Read one state of a database while others write.

    Raises:
        StoreError: if a newer program has added columns: this one would leave them out.
    """
    if (version := read_version(database)) is not None and version > HEAD:
        raise StoreError(
            f"this database has schema {version}, and this program knows {HEAD}: its backup would "
            "lack what was added; make it with the newer licserver"
        )
    with database.snapshot() as connection:
        yield DumpSnapshot(connection)


class Loading:
    """Loads rows within a transaction, of the tables that `layouts` describe."""

    def __init__(self, connection: Connection, layouts: Sequence[Layout]) -> None:
        present = MetaData()
        present.reflect(connection, only=[layout.name for layout in layouts])
        self._connection = connection
        self._layouts = {layout.name: layout for layout in layouts}
        self._writers = {layout.name: RowWriter(_ordered(present, layout)) for layout in layouts}

    def add(self, name: str, piece: bytes) -> int:
        """Write a piece of a table; return its number of rows.

        Raises:
            ValueError, TypeError, EOFError, RecursionError, gzip.BadGzipFile, zlib.error: for a damaged or
                forged piece.
        """
        layout = self._layouts[name]
        readers, width, count = _positions(layout, 1), len(layout.columns), 0
        for rows in _batches(_unpack(piece)):
            if any(len(row) != width for row in rows):
                raise ValueError("a row does not have the columns of its table")
            self._writers[name].write(self._connection, [tuple(_convert(row, readers)) for row in rows])
            count += len(rows)
        return count


@contextmanager
def loading(
    database: Database,
    revision: str,
    layouts: Sequence[Layout],
    *,
    fingerprint: bytes,
    at_last: Callable[[], None] | None = None,
) -> Iterator[Loading]:
    """Load a database in one transaction, and upgrade it to this program's schema.

    Args:
        revision: The schema of the rows.
        fingerprint: Of the secrets that the rows were written with.
        layouts: Of the tables, in the order of their foreign keys.
        at_last: Called before the commit; an exception rolls back.
    """
    config = make_config()
    with database.long_transaction(foreign_keys=False) as connection:
        config.attributes["connection"] = connection
        there = MetaData()  # the target is empty, or is to be replaced
        names = {*metadata.tables, *_FORMER, alembic_version.name}
        there.reflect(connection, only=lambda name, _: name in names)
        there.drop_all(connection)
        command.upgrade(config, revision)
        connection.execute(delete(facts))  # the dump has its own
        yield Loading(connection, layouts)
        if revision != HEAD:
            command.upgrade(config, "head")
        if read_owner(connection) not in (None, fingerprint):
            raise StoreError("the backup's secrets are not those of its database; nothing was changed")
        _forget(connection)
        if database.is_remote:
            _reset_sequences(connection)
        elif connection.exec_driver_sql("PRAGMA foreign_key_check").first():
            raise StoreError("the backup has rows that refer to nothing; nothing was changed")
        if at_last is not None:
            at_last()


def holds_something(database: Database) -> bool:
    """Return whether a database has any product; raises as `read_version`."""
    if read_version(database) is None:
        return False
    with database.reading() as connection:
        return connection.scalar(select(func.count()).select_from(products)) != 0


def _forget(connection: Connection) -> None:
    """Remove what was true on the day of the backup only.

    Activations seen since then are unknown, so the period in which a slot is kept begins again.
    Sessions may have been ended since (D-102), and failed logins of that day do not matter.
    """
    for table in (sessions, account_codes, account_sessions, tries, failed_logins, daily_counts):
        connection.execute(delete(table))
    connection.execute(delete(facts).where(facts.c.name.in_([WATCHED, CLOCK])))


def _reset_sequences(connection: Connection) -> None:
    """Set PostgreSQL's sequences to the highest loaded ids."""
    for table in metadata.sorted_tables:
        if (column := table.autoincrement_column) is None:
            continue
        names = {"name": table.name, "column": column.name}
        sequence = connection.scalar(sa.text("SELECT pg_get_serial_sequence(:name, :column)"), names)
        if sequence is not None:
            highest = connection.scalar(select(func.max(column)))
            connection.execute(
                sa.text("SELECT setval(:sequence, :number, :called)"),
                {"sequence": sequence, "number": highest or 1, "called": highest is not None},
            )


def _ordered(present: MetaData, layout: Layout) -> sa.Table:
    """Return a table with its columns in the dump's order, which differs from that of migrations."""
    table, names = present.tables.get(layout.name), [name for name, _ in layout.columns]
    if table is None or set(table.columns.keys()) != set(names):
        raise StoreError(f"the backup's table {layout.name!r} is not that of its schema")
    return sa.Table(table.name, MetaData(), *(sa.Column(name, table.columns[name].type) for name in names))


def _kind_of(type_: TypeEngine[Any]) -> str:
    if isinstance(type_, TypeDecorator):
        type_ = type_.impl_instance
    match type_:
        case sa.LargeBinary():
            return "bytes"
        case sa.DateTime():
            return "instant"
        case sa.Date():
            return "date"
        case _:
            return "plain"


def _positions(layout: Layout, way: int) -> list[tuple[int, Callable[[Any], Any]]]:
    return [(index, _KINDS[kind][way]) for index, (_, kind) in enumerate(layout.columns) if kind in _KINDS]


def _convert(row: Sequence[Any], converters: Sequence[tuple[int, Callable[[Any], Any]]]) -> list[Any]:
    values = list(row)
    for index, convert in converters:
        if values[index] is not None:
            values[index] = convert(values[index])
    return values


def _batches(rows: Iterator[tuple[list[Any], int]]) -> Iterator[list[list[Any]]]:
    """Group rows, given with their lengths in characters, by number and total length."""
    batch: list[list[Any]] = []
    size = 0
    for row, length in rows:
        batch.append(row)
        size += length
        if len(batch) >= ROWS or size >= MAX_ROW:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _unpack(piece: bytes) -> Iterator[tuple[list[Any], int]]:
    """Yield the rows of a piece, each with its length in characters.

    A forged megabyte may decompress to a gigabyte: neither its text nor its rows are held as a whole.
    """
    source, decode = gzip.GzipFile(fileobj=io.BytesIO(piece)), json.JSONDecoder().raw_decode
    text, start, before = "", 0, "["
    while True:
        mark = text[start : start + 1]
        if mark == "]" and before == ",":
            if text[start + 1 :] or source.read(1):
                raise ValueError("more than rows")
            return
        if mark not in {before, ""}:
            raise ValueError("no rows")
        try:
            row, end = decode(text, start + 1)
        except json.JSONDecodeError:  # it may be cut off
            text, start = text[start:], 0
            if len(text) > MAX_ROW:
                raise ValueError("a row is too long") from None
            more = source.read(max(_BLOCK, len(text)))  # doubles: each row is parsed a few times only
            if not more:
                raise EOFError from None
            text += more.decode("ascii")
            continue
        if not isinstance(row, list):
            raise TypeError("no row")
        yield row, end - start
        start, before = end, ","
