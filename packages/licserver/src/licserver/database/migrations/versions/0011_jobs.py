"""Jobs for the background."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "jobs",
        sa.Column("id", _ID, nullable=False),
        sa.Column("queue", _SLUG, nullable=False),
        sa.Column("key", _PLAIN, nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("due_at", _INSTANT, nullable=True),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("finished_at", _INSTANT, nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_jobs"),
        sa.UniqueConstraint("queue", "key", name="uq_jobs_queue_key"),
        sa.CheckConstraint("state IN ('waiting', 'done', 'dead')", name="state"),
        sa.CheckConstraint("(state = 'waiting') = (due_at IS NOT NULL)", name="due_at"),
        comment="Work for the background, which all processes share.",
    )
    op.create_index("ix_jobs_queue_state_id", "jobs", ["queue", "state", "id"])
    for name, column, columns in (
        ("ix_jobs_due", "due_at", ["queue", "due_at", "id"]),
        ("ix_jobs_finished", "finished_at", ["finished_at"]),
    ):
        where = sa.column(column).is_not(None)
        op.create_index(name, "jobs", columns, sqlite_where=where, postgresql_where=where)
