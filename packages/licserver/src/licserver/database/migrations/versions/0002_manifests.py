"""Signed manifests of releases."""

from typing import Literal

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Make the table, and let products say which manifest is the latest release's."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "manifests",
        sa.Column("id", number, nullable=False),
        sa.Column("release_id", number, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column("added_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_manifests"),
        sa.ForeignKeyConstraint(["release_id"], ["releases.id"], name="fk_manifests_release_id"),
        comment="Signed words about releases; a renewed one is a new row, and the newest counts.",
    )
    op.create_index("ix_manifests_release_id", "manifests", ["release_id"])
    # Recreated on SQLite, so that it reads as if it had been created at once.
    recreate: Literal["always", "never"] = "always" if op.get_bind().dialect.name == "sqlite" else "never"
    with op.batch_alter_table("products", recreate=recreate) as products:
        products.add_column(sa.Column("latest_manifest_id", number, nullable=True))
