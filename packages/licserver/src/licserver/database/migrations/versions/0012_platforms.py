"""Files for platforms: a version has a file for each platform that needs its own."""

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Make each release the default file of its version, and make the table of the platforms' latest ones."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    platform = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")
    # Recreated on SQLite, which changes no constraint of a table.
    recreate: Literal["always", "never"] = "always" if op.get_bind().dialect.name == "sqlite" else "never"
    with op.batch_alter_table("releases", recreate=recreate) as releases:
        releases.add_column(sa.Column("platform", platform, nullable=False, server_default=sa.text("''")))
        releases.drop_constraint("uq_releases_product_id_version_key", type_="unique")
        releases.create_unique_constraint(
            "uq_releases_product_id_version_key_platform", ["product_id", "version_key", "platform"]
        )
    op.create_table(
        "latest_releases",
        sa.Column("product_id", number, nullable=False),
        sa.Column("platform", platform, nullable=False),
        sa.Column("release_id", number, nullable=False),
        sa.Column("manifest_id", number, nullable=True),
        sa.PrimaryKeyConstraint("product_id", "platform", name="pk_latest_releases"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="fk_latest_releases_product_id"),
        comment="What update checks offer to platforms whose latest release is a file of their own.",
        sqlite_with_rowid=False,
    )
