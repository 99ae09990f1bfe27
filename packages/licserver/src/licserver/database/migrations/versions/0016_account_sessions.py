"""Sessions of the customer's page."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "account_sessions",
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", "license_id", name="pk_account_sessions"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_account_sessions_license_id"),
        comment="Sessions of the customer's page, with a row for each license that they may see.",
        sqlite_with_rowid=False,
    )
    for column in ("license_id", "expires_at"):
        op.create_index(f"ix_account_sessions_{column}", "account_sessions", [column])
