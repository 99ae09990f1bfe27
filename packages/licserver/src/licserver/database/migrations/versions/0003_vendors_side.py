"""What the vendor's side needs: search, an audit log, tokens, users, running totals."""

from contextlib import AbstractContextManager
from typing import Any

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

revision = "0003"
down_revision = "0002"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables, and let licenses and activations say more of themselves."""
    # All of them: a table that SQLite recreates would bring partial ones along as whole ones.
    op.drop_index("ix_licenses_product_id_issued_at", "licenses")
    op.drop_index("ix_licenses_subscription_id", "licenses")
    with _changing("licenses") as licenses:
        licenses.add_column(sa.Column("customer_email", sa.Text(), nullable=True))
        licenses.add_column(sa.Column("note", sa.Text(), nullable=True))
    op.create_index("ix_licenses_product_id_issued_at_id", "licenses", ["product_id", "issued_at", "id"])
    op.create_index("ix_licenses_issued_at_id", "licenses", ["issued_at", "id"])
    _index_where("subscription_id", "ix_licenses_subscription_id", "licenses", "subscription_id")
    _index_where("expires_on", "ix_licenses_expires_on", "licenses", "expires_on", "id")
    _index_where("revoked_at", "ix_licenses_revoked", "licenses", "issued_at", "id")
    with _changing("activations") as activations:
        activations.add_column(sa.Column("last_seen_at", _INSTANT, nullable=True))
    # From the first day on, what is activated is found by its domain.
    op.execute("UPDATE activations SET last_seen_at = activated_at")
    _index_where("last_seen_at", "ix_activations_domain", "activations", "domain", "license_id")
    _make_words()
    _make_audit()
    _make_tokens()
    _make_users()
    _make_totals()


def _make_words() -> None:
    op.create_table(
        "license_words",
        sa.Column("word", _PLAIN, nullable=False),
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("word", "license_id", name="pk_license_words"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_license_words_license_id"),
        comment="Where a license is found by the beginning of a word of its e-mail address or its note.",
        sqlite_with_rowid=False,
    )


def _make_audit() -> None:
    op.create_table(
        "audit",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("at", _INSTANT, nullable=False),
        sa.Column("actor_kind", sa.String(16), nullable=False),
        sa.Column("actor_name", _PLAIN, nullable=False),
        sa.Column("action", _PLAIN, nullable=False),
        sa.Column("object_kind", sa.String(16), nullable=False),
        sa.Column("object_id", _PLAIN, nullable=False),
        sa.Column("details", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
        sa.CheckConstraint(
            "actor_kind IN ('cli', 'token', 'user', 'system')", name=op.f("ck_audit_actor_kind")
        ),
        comment="Who changed what, written in the transaction of the change; never changed, swept when old.",
    )
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_index("ix_audit_object_kind_object_id_id", "audit", ["object_kind", "object_id", "id"])
    op.create_index("ix_audit_actor_kind_actor_name_id", "audit", ["actor_kind", "actor_name", "id"])


def _make_tokens() -> None:
    op.create_table(
        "tokens",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("name", _PLAIN, nullable=False),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("scope", sa.String(16), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("expires_on", sa.Date(), nullable=True),
        sa.Column("revoked_at", _INSTANT, nullable=True),
        sa.Column("last_used_on", sa.Date(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_tokens"),
        sa.UniqueConstraint("name", name="uq_tokens_name"),
        sa.UniqueConstraint("token_hash", name="uq_tokens_token_hash"),
        sa.CheckConstraint("scope IN ('read', 'write')", name=op.f("ck_tokens_scope")),
        comment="Who may use the admin API.",
    )
    op.create_table(
        "idempotency",
        sa.Column("token_id", _NUMBER, nullable=False),
        sa.Column("key", _PLAIN, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("token_id", "key", name="pk_idempotency"),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name="fk_idempotency_token_id"),
        comment="What was answered to a creation, for who asks again as the answer got lost; kept for a day.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_idempotency_created_at", "idempotency", ["created_at"])


def _make_users() -> None:
    op.create_table(
        "users",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("name", _PLAIN, nullable=False),
        sa.Column("password_hash", sa.Text(), nullable=False),
        sa.Column("password_changed_at", _INSTANT, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        sa.UniqueConstraint("name", name="uq_users_name"),
        comment="Who may sign in to the console.",
    )
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("user_id", _NUMBER, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name="pk_sessions"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_sessions_user_id", ondelete="CASCADE"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])


def _make_totals() -> None:
    op.create_table(
        "totals",
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("product", _SLUG, nullable=False),
        sa.Column("label", _PLAIN, nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("day", "name", "product", "label", name="pk_totals"),
        comment="What is counted of each day, in batches; plots are drawn from it.",
        sqlite_with_rowid=False,
    )


def _index_where(held: str, name: str, table: str, *columns: str) -> None:
    where = sa.text(f"{held} IS NOT NULL")
    op.create_index(name, table, list(columns), sqlite_where=where, postgresql_where=where)


def _changing(table: str) -> AbstractContextManager[BatchOperations]:
    # Made anew on SQLite, so that it reads as if it had been made at once.
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    if not on_sqlite:
        return op.batch_alter_table(table, recreate="never")
    # What is read back from the file, and would be written otherwise than it was.
    allowed = sa.Column("allowed", sa.Text(), server_default=sa.text("''"), nullable=False)
    options: dict[str, Any] = {"sqlite_with_rowid": False}
    return op.batch_alter_table(
        table,
        recreate="always",
        reflect_args=(allowed,) if table == "licenses" else (),
        table_kwargs=options,
    )
