"""Servers keep in memory what products offer; the tables for it go."""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    """Drop the tables and the column, and give products without default files the release that lists show."""
    op.execute(
        "UPDATE products SET latest_release_id = (SELECT max(release_id) FROM latest_releases"
        " WHERE latest_releases.product_id = products.id) WHERE latest_release_id IS NULL"
    )
    op.drop_table("latest_releases")
    op.drop_table("channel_releases")
    op.drop_column("products", "latest_manifest_id")
