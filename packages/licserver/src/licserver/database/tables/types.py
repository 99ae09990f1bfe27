"""What all tables share: types of columns, names of constraints, the metadata."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Dialect,
    Index,
    Integer,
    MetaData,
    String,
    Text,
)
from sqlalchemy.types import TypeDecorator


class Instant(TypeDecorator[datetime]):
    """An aware datetime in UTC on both engines; SQLite itself forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

    @property
    def python_type(self) -> type[datetime]:
        """What its values are."""
        return datetime

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> Any:  # noqa: ARG002 - the base's shape
        """Store UTC."""
        return None if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - as above
        """Give back UTC."""
        if value is None:
            return None
        aware: datetime = value if value.tzinfo else value.replace(tzinfo=UTC)
        return aware.astimezone(UTC)


metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

# SQLite numbers rows by itself only for INTEGER, PostgreSQL wants BIGINT.
Id = BigInteger().with_variant(Integer, "sqlite")

# Text that is looked up and sorted is compared byte by byte on both engines. PostgreSQL would else go by the
# database's language, which is slow, and wrong after an update of the system's tables of it.
Plain = Text().with_variant(Text(collation="C"), "postgresql")
Slug = String(100).with_variant(String(100, collation="C"), "postgresql")
Platform = Channel = String(40).with_variant(String(40, collation="C"), "postgresql")


def index_where(column: Column[Any], name: str, *columns: Column[Any]) -> None:
    """Index those rows only in which a column holds something: the others cost nothing."""
    is_set = column.is_not(None)
    Index(name, *columns, sqlite_where=is_set, postgresql_where=is_set)
