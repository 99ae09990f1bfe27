"""Signed manifests of releases."""

from contextlib import AbstractContextManager

import sqlalchemy as sa
from alembic import op
from alembic.operations import BatchOperations

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
    with _changing_products() as products:
        products.add_column(sa.Column("latest_manifest_id", number, nullable=True))


def _changing_products() -> AbstractContextManager[BatchOperations]:
    # Made anew on SQLite, so that it reads as if it had been made at once.
    on_sqlite = op.get_bind().dialect.name == "sqlite"
    return op.batch_alter_table("products", recreate="always" if on_sqlite else "never")
