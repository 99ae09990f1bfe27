"""The tables, one definition for SQLite and PostgreSQL.

Every statement of the hot paths names a license: `licenses.id` is the key's index, and the
activations' primary key begins with it, so that both can be spread over machines by license.
"""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.types import TypeDecorator


class Instant(TypeDecorator[datetime]):
    """An aware datetime in UTC on both engines; SQLite itself forgets the zone."""

    impl = DateTime(timezone=True)
    cache_ok = True

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
_Id = BigInteger().with_variant(Integer, "sqlite")

# Text that is looked up and sorted is compared byte by byte on both engines. PostgreSQL would else go by the
# database's language, which is slow, and wrong after an update of the system's tables of it.
_Plain = Text().with_variant(Text(collation="C"), "postgresql")
_Slug = String(100).with_variant(String(100, collation="C"), "postgresql")

facts = Table(
    "facts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    comment="What the database knows of itself: whose secrets it was written with.",
)

products = Table(
    "products",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("slug", _Slug, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("environment_policy", String(16), nullable=False),
    Column("has_support_policy", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    # Chosen by rules.latest in the transaction that publishes or withdraws. No foreign key: the
    # two tables would point at each other, and releases are never deleted.
    Column("latest_release_id", _Id, nullable=True),
    # Chosen with it, so that an update check sees a renewed manifest in the row that it reads anyway.
    Column("latest_manifest_id", _Id, nullable=True),
    CheckConstraint("environment_policy IN ('strict', 'domain', 'either')", name="environment_policy"),
)

releases = Table(
    "releases",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("product_id", _Id, ForeignKey(products.c.id), nullable=False),
    Column("version", Text, nullable=False),
    Column("version_key", _Plain, nullable=False),  # 1.0 and 1.0.0 are one version
    Column("changelog", Text, nullable=False),
    Column("published_at", Instant, nullable=False),
    Column("withdrawn_at", Instant, nullable=True),
    Column("file_name", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", LargeBinary(32), nullable=False),
    UniqueConstraint("product_id", "version_key"),
)

manifests = Table(
    "manifests",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("release_id", _Id, ForeignKey(releases.c.id), nullable=False, index=True),
    Column("document", Text, nullable=False),
    Column("added_at", Instant, nullable=False),
    comment="Signed words about releases; a renewed one is a new row, and the newest counts.",
)

licenses = Table(
    "licenses",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("sealed_key", LargeBinary, nullable=False),
    Column("product_id", _Id, ForeignKey(products.c.id), nullable=False),
    Column("product_name", Text, nullable=False),
    Column("issued_at", Instant, nullable=False),
    Column("expires_on", Date, nullable=True),
    Column("lifetime", Boolean, nullable=False),
    Column("revoked_at", Instant, nullable=True),
    Column("revoked_reason", Text, nullable=True),
    Column("slots", Integer, nullable=True),
    Column("allowed", Text, nullable=False, server_default=text("''")),  # an entry a line
    Column("subscription_id", _Plain, nullable=True),
    # Kept here and not in a table of subscriptions, so that judging a license reads no other shard.
    Column("subscription_ended_at", Instant, nullable=True),
    Column("support_until", Date, nullable=True),
    CheckConstraint("slots >= 0", name="slots"),
    Index(None, "product_id", "issued_at"),
    sqlite_with_rowid=False,
)
Index(
    "ix_licenses_subscription_id",
    licenses.c.subscription_id,
    sqlite_where=licenses.c.subscription_id.is_not(None),
    postgresql_where=licenses.c.subscription_id.is_not(None),
)

activations = Table(
    "activations",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("domain", _Plain, primary_key=True),
    Column("ip", _Plain, primary_key=True),
    Column("activated_at", Instant, nullable=False),
    sqlite_with_rowid=False,
)
