"""What WordPress shows of a version, and the MD5 that it checks (D-199, D-206)."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"
oldest_program = "0028"


def upgrade() -> None:
    """Add the columns; releases that exist have none of it."""
    for name in ("requires", "tested", "requires_php", "details_url"):
        op.add_column("releases", sa.Column(name, sa.Text(), nullable=True))
    op.add_column("releases", sa.Column("md5", sa.LargeBinary(16), nullable=True))


def downgrade() -> None:
    """Drop the columns."""
    for name in ("requires", "tested", "requires_php", "details_url", "md5"):
        op.drop_column("releases", name)
