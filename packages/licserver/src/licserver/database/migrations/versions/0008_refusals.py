"""The last refusals of each license."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "refusals",
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.Column("domain", _PLAIN, nullable=False),
        sa.Column("ip", _PLAIN, nullable=False),
        sa.Column("reason", sa.String(16), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.Column("first_at", _INSTANT, nullable=False),
        sa.Column("last_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("license_id", "domain", "ip", "reason", name="pk_refusals"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_refusals_license_id"),
        comment="Where a license was refused lately, and why; written in batches, kept for 30 days.",
        sqlite_with_rowid=False,
    )
    for column in ("last_at", "domain", "ip"):
        op.create_index(f"ix_refusals_{column}", "refusals", [column])
