"""Slots that customers free themselves (D-218)."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the product's setting, and the table."""
    setting: sa.Column[int] = sa.Column(
        "customer_moves", sa.Integer(), nullable=False, server_default=sa.text("3")
    )
    op.add_column("products", setting)
    op.create_table(
        "moves",
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.Column("domain", _PLAIN, nullable=False),
        sa.Column("ip", _PLAIN, nullable=False),
        sa.Column("freed_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("license_id", "domain", "ip", name="pk_moves"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_moves_license_id"),
        comment="Slots that customers freed themselves in the last 30 days, which they may do a few times.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_moves_freed_at", "moves", ["freed_at"])
