"""How much of metered entitlements was used."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "uses",
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.Column("name", _SLUG, nullable=False),
        sa.Column("period", _SLUG, nullable=False),
        sa.Column("used", sa.BigInteger(), nullable=False),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("license_id", "name", "period", name="pk_uses"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_uses_license_id"),
        comment="How much of a metered entitlement was used in a day, month or year.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "use_ids",
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.Column("use_id", _PLAIN, nullable=False),
        sa.Column("kept_until", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("license_id", "use_id", name="pk_use_ids"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_use_ids_license_id"),
        comment="What was counted already: a use that is sent again counts once.",
        sqlite_with_rowid=False,
    )
    for table in ("uses", "use_ids"):
        op.create_index(f"ix_{table}_kept_until", table, ["kept_until"])
