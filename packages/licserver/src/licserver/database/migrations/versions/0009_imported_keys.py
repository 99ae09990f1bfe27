"""Products that accept keys that were sold elsewhere (D-185)."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the setting, off."""
    setting: sa.Column[bool] = sa.Column(
        "accepts_imported_keys", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("products", setting)
