"""Floating seats (D-239)."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the license's number of seats, and the table."""
    op.add_column("licenses", sa.Column("floating_seats", sa.Integer(), nullable=True))
    op.create_table(
        "seats",
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.Column("seat_id", sa.LargeBinary(16), nullable=False),
        sa.Column("domain", _PLAIN, nullable=False),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("taken_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("is_ended", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("license_id", "seat_id", name="pk_seats"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_seats_license_id"),
        comment="Floating seats: who uses a license now, and until when if the app does not renew it.",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_seats_expires_at", "seats", ["expires_at"])
