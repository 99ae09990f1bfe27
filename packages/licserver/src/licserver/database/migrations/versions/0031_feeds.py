"""Feeds for other updaters: signatures of files, and products whose feed is public."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"
oldest_program = "0028"


def upgrade() -> None:
    """Add the columns; no feed is public."""
    op.add_column("releases", sa.Column("file_signatures", sa.Text(), nullable=True))
    public: sa.Column[bool] = sa.Column(
        "public_feed", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("products", public)


def downgrade() -> None:
    """Drop them."""
    op.drop_column("products", "public_feed")
    op.drop_column("releases", "file_signatures")
