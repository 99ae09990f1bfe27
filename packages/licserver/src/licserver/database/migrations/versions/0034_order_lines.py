"""The line of an order that each license was issued for; what each payment of a subscription pays for."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"
oldest_program = "0028"

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_COLUMNS = (("sale_licenses", "line_id", _PLAIN), ("sale_subscriptions", "period", sa.String(8)))


def upgrade() -> None:
    """Add the columns; a delivery of an order fills its lines in."""
    for table, name, type_ in _COLUMNS:
        op.add_column(table, sa.Column(name, type_, nullable=True))


def downgrade() -> None:
    """Drop them."""
    for table, name, _ in reversed(_COLUMNS):
        op.drop_column(table, name)
