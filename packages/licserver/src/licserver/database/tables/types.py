"""Shared by all tables: types of columns, names of constraints, the metadata."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator


class Instant(TypeDecorator[datetime]):
    """An aware datetime in UTC on both engines; SQLite itself forgets the zone."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        """The type of its values."""
        return datetime

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> Any:  # noqa: ARG002 - the base's shape
        """Store UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: sa.Dialect) -> datetime | None:  # noqa: ARG002 - as above
        """Give back UTC."""
        if value is None:
            return None
        aware: datetime = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC)


metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
# SQLite numbers rows by itself only for INTEGER, PostgreSQL wants BIGINT.
Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")

# Text that is looked up and sorted is compared byte by byte on both engines. PostgreSQL would else go by the
# database's language, which is slow, and wrong after an update of the system's tables of it.
Plain = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
Slug = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")
Short = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")

# For `postgresql_with` of tables that grow with the licenses: autovacuum's default is to wait for a fifth.
LARGE: Final = {
    "autovacuum_analyze_scale_factor": 0.02,
    "autovacuum_vacuum_insert_scale_factor": 0.05,
    "autovacuum_vacuum_scale_factor": 0.02,
}


def table(name: str, *parts: sa.schema.SchemaItem, **options: Any) -> sa.Table:
    """Add a table to the metadata."""
    return sa.Table(name, metadata, *parts, **options)


def keyed_table(name: str, *parts: sa.schema.SchemaItem, **options: Any) -> sa.Table:
    """Add a table that SQLite stores in the order of its key."""
    return table(name, *parts, sqlite_with_rowid=False, **options)


def index(name: str, columns: str, where: sa.ColumnElement[Any] | None = None) -> sa.Index:
    """Return an index of columns, or with `where` of those rows only: the others cost nothing."""
    return sa.Index(name, *columns.split(), sqlite_where=where, postgresql_where=where)


def holds(column: str) -> sa.ColumnElement[bool]:
    """Return the condition that a column holds something."""
    return sa.column(column).is_not(None)


def included_on(dialect: str) -> Callable[..., bool]:
    """Return Alembic's `include_object` for an engine: it leaves out the indexes of the other one."""
    return lambda part, _name, kind, *_: kind != "index" or part.info.get("dialect", dialect) == dialect
