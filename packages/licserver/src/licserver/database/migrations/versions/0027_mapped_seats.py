"""Floating seats of licenses that a shop sells."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Add the column."""
    op.add_column("sale_mappings", sa.Column("floating_seats", sa.Integer(), nullable=True))
