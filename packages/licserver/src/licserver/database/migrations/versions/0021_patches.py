"""Patches, by which a download becomes smaller."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add the table."""
    id_ = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "patches",
        sa.Column("release_id", id_, nullable=False),
        sa.Column("base_sha256", sa.LargeBinary(32), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(32), nullable=False),
        sa.ForeignKeyConstraint(["release_id"], ["releases.id"], name="fk_patches_release_id"),
        sa.PrimaryKeyConstraint("release_id", "base_sha256", name="pk_patches"),
        comment="Artifacts that make the file of a release out of an older one, named by its digest.",
        sqlite_with_rowid=False,
    )
