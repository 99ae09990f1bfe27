"""Find licenses by the masked form of their keys, and by an IP address."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a column, which `LicenseService.complete_index` fills, and two indexes."""
    plain = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.add_column("licenses", sa.Column("masked_key", plain, nullable=True))
    for name, table, columns, held in (
        ("ix_licenses_by_masked_key", "licenses", ["masked_key", "id"], "masked_key"),
        ("ix_activations_ip", "activations", ["ip", "license_id"], "last_seen_at"),
    ):
        where = sa.column(held).is_not(None)
        op.create_index(name, table, columns, sqlite_where=where, postgresql_where=where)
