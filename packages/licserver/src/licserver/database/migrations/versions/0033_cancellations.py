"""Subscriptions that were cancelled and end later; unreadable deliveries are counted."""

import sqlalchemy as sa
from alembic import op

from licserver.database.migrations.online import create_index, drop_index

revision = "0033"
down_revision = "0032"
oldest_program = "0028"

_COLUMNS = ("change_reported_at", "cancels_at")


def upgrade() -> None:
    """Add the columns; without a report a subscription was not cancelled."""
    is_unreadable = sa.text("state = 'dead' AND content IS NULL")
    where = {"sqlite_where": is_unreadable, "postgresql_where": is_unreadable}
    create_index("ix_sale_events_unreadable", "sale_events", ["id"], **where)
    for name in _COLUMNS:
        op.add_column("sale_subscriptions", sa.Column(name, sa.DateTime(timezone=True), nullable=True))


def downgrade() -> None:
    """Drop them."""
    drop_index("ix_sale_events_unreadable", "sale_events")
    for name in reversed(_COLUMNS):
        op.drop_column("sale_subscriptions", name)
