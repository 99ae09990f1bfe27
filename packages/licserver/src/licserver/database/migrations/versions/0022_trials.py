"""Trials: how long those of a product last, which licenses are trials, and which machines have had one."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Add the columns, the index of trials, and the table."""
    days: sa.Column[int] = sa.Column("trial_days", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("products", days)
    op.add_column("licenses", sa.Column("trial", sa.Boolean(), nullable=False, server_default=sa.false()))
    is_trial = sa.column("trial", sa.Boolean()).is_(sa.true())
    op.create_index(
        "ix_licenses_trials",
        "licenses",
        ["issued_at", "id", "product_id"],
        sqlite_where=is_trial,
        postgresql_where=is_trial,
    )
    op.create_table(
        "trials",
        sa.Column("product_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("machine", sa.LargeBinary(16), nullable=False),
        sa.Column("license_id", sa.LargeBinary(16), nullable=True),
        sa.Column("address", sa.LargeBinary(16), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("product_id", "machine", name="pk_trials"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="fk_trials_product_id"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_trials_license_id"),
        comment="Machines that have had a trial; they stay here when the license of an ended one is deleted.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_trials_license_id", "trials", ["license_id"])
    op.create_index("ix_trials_product_id_started_at", "trials", ["product_id", "started_at"])
