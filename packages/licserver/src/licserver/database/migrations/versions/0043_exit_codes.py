"""The exit code of a set-up that left its installation on the version before."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"
oldest_program = "0039"


def upgrade() -> None:
    """Add the column; nothing is known of earlier reports."""
    op.add_column("rollbacks", sa.Column("exit_code", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Drop it."""
    op.drop_column("rollbacks", "exit_code")
