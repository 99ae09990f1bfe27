"""Channels of releases, and the lowest version that a product supports."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Put each release into the channel `stable`, and make the table of what the other channels offer."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    name = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")
    stable: sa.Column[str] = sa.Column("channel", name, nullable=False, server_default=sa.text("'stable'"))
    channels: sa.Column[str] = sa.Column("channels", sa.Text(), nullable=False, server_default=sa.text("''"))
    op.add_column("releases", stable)
    op.add_column("licenses", channels)
    op.add_column("products", sa.Column("minimum_version", sa.Text(), nullable=True))
    op.create_table(
        "channel_releases",
        sa.Column("product_id", number, nullable=False),
        sa.Column("channel", name, nullable=False),
        sa.Column("platform", name, nullable=False),
        sa.Column("release_id", number, nullable=False),
        sa.Column("manifest_id", number, nullable=True),
        sa.PrimaryKeyConstraint("product_id", "channel", "platform", name="pk_channel_releases"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="fk_channel_releases_product_id"),
        comment="What update checks offer in channels other than stable; the empty platform is the default.",
        sqlite_with_rowid=False,
    )
