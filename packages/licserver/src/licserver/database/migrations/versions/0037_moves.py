"""Moves of customers, each with all environments of its computer; the former table had each once."""

import sqlalchemy as sa
from alembic import op

from licserver.database.tables.types import Instant

revision = "0037"
down_revision = "0036"
oldest_program = "0028"

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_NAME = "slot_moves"
_COMMENT = "Slots that customers freed themselves in the last 30 days, which they may do a few times."


def upgrade() -> None:
    """Create the table with what the former one has; a program of before goes on with that for a while."""
    op.create_table(
        _NAME,
        sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), nullable=False),
        sa.Column("freed_at", Instant(), nullable=False),
        sa.Column("domain", _PLAIN, nullable=False),
        sa.Column("ip", _PLAIN, nullable=False),
        sa.PrimaryKeyConstraint("license_id", "freed_at", "domain", "ip", name=op.f("pk_slot_moves")),
        comment=_COMMENT,
        sqlite_with_rowid=False,
    )
    op.create_index("ix_slot_moves_freed_at", _NAME, ["freed_at"])
    op.execute(
        "INSERT INTO slot_moves (license_id, freed_at, domain, ip)"
        " SELECT license_id, freed_at, domain, ip FROM moves"
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table(_NAME)
