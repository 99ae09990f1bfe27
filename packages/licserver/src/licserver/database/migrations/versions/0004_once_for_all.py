"""Receipts that belong to a token or to a user, and tries of passwords that all servers count together."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_HELD = "key, digest, status, answer, created_at"


def upgrade() -> None:
    """Let users have receipts beside tokens, whose own go on; and make room to count tries."""
    op.create_table(
        "receipts",
        sa.Column("id", _NUMBER, nullable=False),
        sa.Column("token_id", _NUMBER, nullable=True),
        sa.Column("user_id", _NUMBER, nullable=True),
        sa.Column("key", _PLAIN, nullable=False),
        sa.Column("digest", sa.LargeBinary(32), nullable=False),
        sa.Column("status", sa.Integer(), nullable=False),
        sa.Column("answer", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_receipts"),
        sa.ForeignKeyConstraint(["token_id"], ["tokens.id"], name="fk_receipts_token_id"),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_receipts_user_id", ondelete="CASCADE"),
        sa.UniqueConstraint("token_id", "key", name="uq_receipts_token_id_key"),
        sa.UniqueConstraint("user_id", "key", name="uq_receipts_user_id_key"),
        sa.CheckConstraint("(token_id IS NULL) <> (user_id IS NULL)", name=op.f("ck_receipts_owner")),
        comment="What was answered to a creation, for who asks again; kept for a day.",
    )
    op.create_index("ix_receipts_created_at", "receipts", ["created_at"])
    op.execute(f"INSERT INTO receipts (token_id, {_HELD}) SELECT token_id, {_HELD} FROM idempotency")  # noqa: S608
    op.drop_table("idempotency")
    op.create_table(
        "tries",
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("who", sa.LargeBinary(16), nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("minute", "who", name="pk_tries"),
        comment="How often passwords of the console were tried lately, by address and by name (D-131).",
        sqlite_with_rowid=False,
    )
