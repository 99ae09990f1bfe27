"""Codes by which customers sign in to their page."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "account_codes",
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("code_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("address", sa.LargeBinary(16), nullable=False),
        sa.Column("license_ids", sa.LargeBinary(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name="pk_account_codes"),
        comment="Codes that were sent to customers, or would have been: an unknown address has no licenses.",
        sqlite_with_rowid=False,
    )
    for column in ("address", "expires_at"):
        op.create_index(f"ix_account_codes_{column}", "account_codes", [column])
