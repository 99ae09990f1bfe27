"""Codes, trials and daily counts by network; what a use id was counted for."""

import sqlalchemy as sa
from alembic import op

from licserver.database.migrations.online import create_index, drop_index

revision = "0038"
down_revision = "0037"
oldest_program = "0028"

_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")
_COLUMNS = (
    ("account_codes", "client", sa.LargeBinary(16)),
    ("account_codes", "network", sa.LargeBinary(16)),
    ("trials", "network", sa.LargeBinary(16)),
    ("use_ids", "name", _SLUG),
    ("use_ids", "amount", sa.BigInteger()),
)


def upgrade() -> None:
    """Add the columns and the table; existing rows are counted as before."""
    inspector = sa.inspect(op.get_bind())
    for table, name, type_ in _COLUMNS:
        # Not again, if the index was interrupted.
        if name not in {existing["name"] for existing in inspector.get_columns(table)}:
            op.add_column(table, sa.Column(name, type_, nullable=True))
    if "daily_counts" not in inspector.get_table_names():
        op.create_table(
            "daily_counts",
            sa.Column("day", sa.Date(), nullable=False),
            sa.Column("who", sa.LargeBinary(16), nullable=False),
            sa.Column("count", sa.Integer(), nullable=False),
            sa.PrimaryKeyConstraint("day", "who", name="pk_daily_counts"),
            sqlite_with_rowid=False,
            comment="How often something was done on a day that is bounded by day; swept after two days.",
        )
    create_index("ix_account_codes_network", "account_codes", ["network"])


def downgrade() -> None:
    """Drop them."""
    drop_index("ix_account_codes_network", "account_codes")
    op.drop_table("daily_counts")
    for table, name, _ in reversed(_COLUMNS):
        op.drop_column(table, name)
