"""SQLite has no index by address any more, which each new activation had to write."""

from alembic import op

revision = "0032"
down_revision = "0031"
oldest_program = "0028"

_INDEX = "ix_activations_by_ip"


def upgrade() -> None:
    """Drop the index; PostgreSQL keeps it."""
    if op.get_bind().dialect.name == "sqlite":
        op.drop_index(_INDEX, "activations")


def downgrade() -> None:
    """Make it again."""
    if op.get_bind().dialect.name == "sqlite":
        op.create_index(_INDEX, "activations", ["ip", "license_id"])
