"""The customer's language, and for whom a job is done."""

import sqlalchemy as sa
from alembic import op

from licserver.database.migrations.online import create_index, drop_index

revision = "0035"
down_revision = "0034"
oldest_program = "0028"

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the columns; waiting jobs have no owner."""
    for table, column in (
        ("licenses", sa.Column("customer_language", sa.String(8))),
        ("jobs", sa.Column("owner", _PLAIN)),
    ):
        # Not again, if the index was interrupted.
        if column.name not in {existing["name"] for existing in sa.inspect(op.get_bind()).get_columns(table)}:
            op.add_column(table, column)
    is_waiting = sa.text("owner IS NOT NULL AND due_at IS NOT NULL")
    where = {"sqlite_where": is_waiting, "postgresql_where": is_waiting}
    create_index("ix_jobs_owner", "jobs", ["queue", "owner", "due_at", "id"], **where)


def downgrade() -> None:
    """Drop them."""
    drop_index("ix_jobs_owner", "jobs")
    op.drop_column("jobs", "owner")
    op.drop_column("licenses", "customer_language")
