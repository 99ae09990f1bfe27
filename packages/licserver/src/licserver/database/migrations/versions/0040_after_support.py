"""What a product offers a license whose support is over; security releases."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
oldest_program = "0039"


def upgrade() -> None:
    """Add the columns; no product offers anything else than before."""
    op.add_column("releases", sa.Column("security", sa.Text(), nullable=True))
    after: sa.Column[str] = sa.Column(
        "after_support", sa.String(16), nullable=False, server_default=sa.text("'none'")
    )
    op.add_column("products", after)


def downgrade() -> None:
    """Drop them: nothing is a security release any more."""
    op.drop_column("products", "after_support")
    op.drop_column("releases", "security")
