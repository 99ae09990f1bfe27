"""Moves that a customer makes in the app: which computer got the slot of which; slots of idle computers."""

import sqlalchemy as sa
from alembic import op

from licserver.database.tables.types import Instant

revision = "0041"
down_revision = "0040"
oldest_program = "0039"

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_RECORDS = "Which computer got the slot of which in the last 30 days, for what the former one is shown."
_SHARED = "Licenses that went to and fro between computers in the last 30 days."


def _license_id() -> sa.Column[bytes]:
    return sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), nullable=False)


def upgrade() -> None:
    """Create the tables; no product gives away the slots of idle computers."""
    op.create_table(
        "move_records",
        _license_id(),
        sa.Column("moved_at", Instant(), nullable=False),
        sa.Column("domain", _PLAIN, nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("to_domain", _PLAIN, nullable=False),
        sa.Column("to_label", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("license_id", "moved_at", name=op.f("pk_move_records")),
        comment=_RECORDS,
        sqlite_with_rowid=False,
    )
    op.create_index("ix_move_records_moved_at", "move_records", ["moved_at"])
    op.create_table(
        "shared_licenses",
        _license_id(),
        sa.Column("marked_at", Instant(), nullable=False),
        sa.Column("announced_at", Instant(), nullable=False),
        sa.PrimaryKeyConstraint("license_id", name=op.f("pk_shared_licenses")),
        comment=_SHARED,
        sqlite_with_rowid=False,
    )
    op.create_index("ix_shared_licenses_marked_at", "shared_licenses", ["marked_at"])
    days: sa.Column[int] = sa.Column("idle_days", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("products", days)


def downgrade() -> None:
    """Drop them: computers no longer learn where their slots went, and no idle one loses its slot."""
    op.drop_column("products", "idle_days")
    op.drop_table("shared_licenses")
    op.drop_table("move_records")
