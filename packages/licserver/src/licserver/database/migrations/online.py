"""Long operations for steps, which on PostgreSQL block neither readers nor writers.

Each is outside of the step's transaction there, and goes on with what an interrupted run has left: a step
that uses one is run again from its beginning. On SQLite, and while a backup is restored, they are part of
the transaction.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from alembic import context, op
from sqlalchemy.exc import DBAPIError

_PIECE: Final = 1_000  # rows, some 50 ms; activations of these wait
_BUSY: Final = {"40P01", "55P03"}  # a deadlock, or a lock that was not available in time


def is_busy(error: DBAPIError) -> bool:
    """Return whether a statement failed because of another transaction, and may be run again."""
    return getattr(error.orig, "sqlstate", None) in _BUSY


def create_index(name: str, table: str, columns: list[str], **options: Any) -> None:
    """Create an index; `options` are those of Alembic."""
    if not _is_online():
        op.create_index(name, table, columns, **options)
        return
    with _patiently() as connection:
        is_invalid = sa.text(
            "SELECT true FROM pg_index WHERE indexrelid = to_regclass(:name) AND NOT indisvalid"
        )
        if connection.scalar(is_invalid, {"name": name}):  # of a run that was interrupted
            op.drop_index(name, table, postgresql_concurrently=True)
        op.create_index(name, table, columns, if_not_exists=True, postgresql_concurrently=True, **options)


def drop_index(name: str, table: str) -> None:
    """Drop an index."""
    if not _is_online():
        op.drop_index(name, table)
        return
    with _patiently():
        op.drop_index(name, table, if_exists=True, postgresql_concurrently=True)


def set_storage(table: str, **parameters: float) -> None:
    """Set storage parameters of a table; SQLite has none."""
    if op.get_bind().dialect.name == "sqlite":
        return
    changes = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    statement = f"ALTER TABLE {table} SET ({changes})"
    if not _is_online():
        op.execute(statement)
        return
    with _patiently():
        op.execute(statement)


def update_in_pieces(
    table: sa.TableClause, key: str, values: Mapping[str, Any], where: sa.ColumnElement[bool]
) -> None:
    """Update the rows that `where` selects, along a key; those that are done must not be selected again."""
    change, column = sa.update(table).where(where).values(values), table.c[key]
    if not _is_online():
        op.execute(change)
        return
    with op.get_context().autocommit_block():
        after: list[sa.ColumnElement[bool]] = []
        while True:
            ends = sa.select(column).where(*after).order_by(column).offset(_PIECE - 1).limit(1)
            end = op.get_bind().scalar(ends)
            _update(change.where(*after, *([] if end is None else [column <= end])))
            if end is None:
                return
            after = [column > end]


def apply_changes(find: Callable[[sa.Connection], Iterable[Callable[[sa.Connection], None]]]) -> None:
    """Apply changes of single rows until none is found; each is a transaction that skips locked rows."""
    if not _is_online():
        while changes := list(islice(find(op.get_bind()), _PIECE)):
            for change in changes:
                change(op.get_bind())
        return
    with op.get_context().autocommit_block():
        while changes := list(islice(find(op.get_bind()), _PIECE)):
            for change in changes:
                _run(change)


def _update(piece: sa.Update) -> None:
    """Update some rows, as soon as none of them is locked; then leave as much time to others."""
    _run(lambda connection: connection.execute(piece))


def _run(change: Callable[[sa.Connection], Any]) -> None:
    while True:
        began = time.monotonic()
        try:
            change(op.get_bind())
        except DBAPIError as error:
            if not is_busy(error):
                raise
        else:
            time.sleep(time.monotonic() - began)
            return


def _is_online() -> bool:
    return bool(context.config.attributes.get("online"))


@contextmanager
def _patiently() -> Iterator[sa.Connection]:
    """Wait for other transactions without a limit: these changes block no other."""
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")
        yield op.get_bind()
        op.execute(f"SET lock_timeout = '{context.config.attributes['lock_timeout']}'")
