"""Roles of the console's users; those who are there already may do everything, as before."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the column."""
    op.add_column("users", sa.Column("role", sa.String(16), nullable=False, server_default="owner"))
