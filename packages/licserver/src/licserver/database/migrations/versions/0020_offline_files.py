"""Offline license files: until when a machine without a network holds its slot."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Add the column, empty."""
    op.add_column("activations", sa.Column("offline_until", sa.DateTime(timezone=True), nullable=True))
