"""Staged rollouts, and reports of installations that went back (D-230 to D-232)."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    """Add the columns, without any rollout, and the table."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    changes: sa.Column[int] = sa.Column(
        "release_changes", sa.Integer(), nullable=False, server_default=sa.text("0")
    )
    op.add_column("products", changes)
    for name in ("rollout", "critical_below"):
        op.add_column("releases", sa.Column(name, sa.Text(), nullable=True))
    for name in ("rollout_started_at", "rollout_paused_at"):
        op.add_column("releases", sa.Column(name, sa.DateTime(timezone=True), nullable=True))
    op.create_table(
        "rollbacks",
        sa.Column("release_id", number, nullable=False),
        sa.Column("installation", sa.LargeBinary(16), nullable=False),
        sa.Column("reported_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("release_id", "installation", name="pk_rollbacks"),
        sa.ForeignKeyConstraint(["release_id"], ["releases.id"], name="fk_rollbacks_release_id"),
        comment="Installations that went back from a release to the version before, as their apps report.",
        sqlite_with_rowid=False,
    )
