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
    false,
    text,
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
    # Chosen by decisions.latest in the transaction that publishes or withdraws. No foreign key: the
    # two tables would point at each other, and releases are never deleted.
    Column("latest_release_id", _Id, nullable=True),
    # Chosen with it, so that an update check sees a renewed manifest in the row that it reads anyway.
    Column("latest_manifest_id", _Id, nullable=True),
    Column("accepts_imported_keys", Boolean, nullable=False, server_default=false()),
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
    Column("sealed_key", LargeBinary, nullable=False, key="encrypted_key"),
    Column("masked_key", _Plain, nullable=True),  # as people see it: six of its thirty characters
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
    Column("customer_email", Text, nullable=True),  # searched by way of license_words
    Column("note", Text, nullable=True),  # the same
    CheckConstraint("slots >= 0", name="slots"),
    sqlite_with_rowid=False,
)
# A list is read page by page along an index whose order ends with the id: a million may share an instant.
# What decides a state follows, so that a license that does not match costs no look-up in the table.
_DECISIVE = tuple(
    licenses.c[name]
    for name in ("lifetime", "expires_on", "revoked_at", "subscription_ended_at", "support_until")
)
Index("ix_licenses_by_issue", licenses.c.issued_at, licenses.c.id, *_DECISIVE)
Index("ix_licenses_by_product", licenses.c.product_id, licenses.c.issued_at, licenses.c.id, *_DECISIVE)


def _index_where(column: Column[Any], name: str, *columns: Column[Any]) -> None:
    """Index those rows only in which a column holds something: the others cost nothing."""
    is_set = column.is_not(None)
    Index(name, *columns, sqlite_where=is_set, postgresql_where=is_set)


_index_where(licenses.c.masked_key, "ix_licenses_by_masked_key", licenses.c.masked_key, licenses.c.id)
_index_where(licenses.c.subscription_id, "ix_licenses_subscription_id", licenses.c.subscription_id)
_index_where(
    licenses.c.expires_on,
    "ix_licenses_by_expiry",
    licenses.c.expires_on,
    licenses.c.id,
    *(licenses.c[name] for name in ("product_id", "lifetime", "revoked_at", "subscription_ended_at")),
)
_index_where(
    licenses.c.subscription_ended_at,
    "ix_licenses_by_subscription_end",
    licenses.c.subscription_ended_at,
    licenses.c.id,
    *(licenses.c[name] for name in ("product_id", "lifetime", "expires_on", "revoked_at")),
)
_index_where(
    licenses.c.revoked_at,
    "ix_licenses_by_revocation",
    licenses.c.issued_at,
    licenses.c.id,
    licenses.c.product_id,
    licenses.c.revoked_at,
)

license_words = Table(
    "license_words",
    metadata,
    Column("word", _Plain, primary_key=True),
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Index(None, "license_id", "word"),
    comment="Where a license is found by the beginning of a word of its e-mail address or its note.",
    sqlite_with_rowid=False,
)

activations = Table(
    "activations",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("domain", _Plain, primary_key=True),
    Column("ip", _Plain, primary_key=True),
    Column("activated_at", Instant, nullable=False),
    # Noted once a day, in batches beside the hot paths (`statistics.note_seen`); NULL until the first time.
    Column("last_seen_at", Instant, nullable=True),
    sqlite_with_rowid=False,
)
# Partial, so that a new activation does not pay for it; noting that it was seen adds it.
_index_where(
    activations.c.last_seen_at, "ix_activations_domain", activations.c.domain, activations.c.license_id
)
_index_where(activations.c.last_seen_at, "ix_activations_ip", activations.c.ip, activations.c.license_id)

refusals = Table(
    "refusals",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("domain", _Plain, primary_key=True),
    Column("ip", _Plain, primary_key=True),
    Column("reason", String(16), primary_key=True),
    Column("count", BigInteger, nullable=False, key="times"),
    Column("first_at", Instant, nullable=False),
    Column("last_at", Instant, nullable=False, index=True),
    Index(None, "domain"),
    Index(None, "ip"),
    comment="Where a license was refused lately, and why; written in batches, kept for 30 days.",
    sqlite_with_rowid=False,
)

audit = Table(
    "audit",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("at", Instant, nullable=False, index=True),
    Column("actor_kind", String(16), nullable=False),
    Column("actor_name", _Plain, nullable=False),
    Column("action", _Plain, nullable=False),
    Column("object_kind", String(16), nullable=False),
    Column("object_id", _Plain, nullable=False),
    Column("details", Text, nullable=False),  # JSON, without keys and secrets
    CheckConstraint("actor_kind IN ('cli', 'token', 'user', 'system')", name="actor_kind"),
    Index(None, "object_kind", "object_id", "id"),
    Index(None, "actor_kind", "actor_name", "id"),
    comment="Who changed what, written in the transaction of the change; never changed, swept when old.",
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", _Plain, nullable=False, unique=True),
    Column("token_hash", LargeBinary(32), nullable=False, unique=True),
    Column("scope", String(16), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_on", Date, nullable=True),
    Column("revoked_at", Instant, nullable=True),
    Column("last_used_on", Date, nullable=True),
    CheckConstraint("scope IN ('read', 'write')", name="scope"),
    comment="Who may use the admin API.",
)

users = Table(
    "users",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", _Plain, nullable=False, unique=True),
    Column("password_hash", Text, nullable=False),  # argon2
    Column("password_changed_at", Instant, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("role", String(16), nullable=False, server_default="owner"),
    comment="Who may sign in to the console.",
)

sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),
    Column("user_id", _Id, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("last_used_at", Instant, nullable=False),  # to the minute
    Column(
        "is_pending", Boolean, nullable=False
    ),  # the password was right, the second factor is still missing
    sqlite_with_rowid=False,
)

second_factors = Table(
    "second_factors",
    metadata,
    Column("user_id", _Id, ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("sealed_secret", LargeBinary, nullable=False, key="encrypted_secret"),
    Column("created_at", Instant, nullable=False),
    Column("confirmed_at", Instant, nullable=True),  # NULL until a first code was right
    Column("last_step", BigInteger, nullable=False),  # of the last code that was accepted: none is used twice
    Column("failures", Integer, nullable=False),  # wrong codes in a row
    Column("failed_at", Instant, nullable=True),
    comment="The second factor of users of the console: TOTP (RFC 6238).",
)

recovery_codes = Table(
    "recovery_codes",
    metadata,
    Column("user_id", _Id, ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("digest", LargeBinary(16), primary_key=True),  # keyed
    comment="Codes that replace a second factor once; a used one is deleted.",
    sqlite_with_rowid=False,
)

known_addresses = Table(
    "known_addresses",
    metadata,
    Column("user_id", _Id, ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("address", LargeBinary(16), primary_key=True),  # a keyed digest
    Column("last_used_at", Instant, nullable=False, index=True),
    comment="Where users have signed in from: others cannot use up their attempts there (D-165).",
    sqlite_with_rowid=False,
)

failed_logins = Table(
    "failed_logins",
    metadata,
    Column("action", String(32), primary_key=True),
    Column("subject", _Plain, primary_key=True),  # an existing user or token; empty for all others together
    Column("day", Date, nullable=False),
    Column("count", BigInteger, nullable=False),
    comment="Failed logins and refused tokens of a day; the audit log has the 1st, the 10th, the 100th.",
    sqlite_with_rowid=False,
)

idempotency_keys = Table(
    "receipts",
    metadata,
    Column("id", _Id, primary_key=True),
    # Whose it is: of one of the two.
    Column("token_id", _Id, ForeignKey(tokens.c.id), nullable=True),
    Column("user_id", _Id, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=True),
    Column("key", _Plain, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", LargeBinary, nullable=False, key="response"),  # encrypted: it may hold license keys
    Column("created_at", Instant, nullable=False, index=True),
    UniqueConstraint("token_id", "key"),
    UniqueConstraint("user_id", "key"),
    CheckConstraint("(token_id IS NULL) <> (user_id IS NULL)", name="owner"),
    comment="What was answered to a creation, for who asks again; kept for a day.",
)

tries = Table(
    "tries",
    metadata,
    Column("minute", BigInteger, primary_key=True),  # since 1970
    Column("who", LargeBinary(16), primary_key=True),  # an address or a name, by a secret of ours
    Column("count", Integer, nullable=False),
    comment="How often passwords of the console were tried lately, by address and by name (D-131).",
    sqlite_with_rowid=False,
)

totals = Table(
    "totals",
    metadata,
    Column("day", Date, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("product", _Slug, primary_key=True),  # its slug; empty when it is nobody's
    Column("label", _Plain, primary_key=True),
    Column("count", BigInteger, nullable=False),
    comment="What is counted of each day, in batches; plots are drawn from it.",
    sqlite_with_rowid=False,
)
