"""Machines with names: what an app tells about the computer that it runs on (D-195)."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add the columns, empty."""
    for name in ("label", "app_version"):
        op.add_column("activations", sa.Column(name, sa.Text(), nullable=True))
