"""Plans, and what licenses are entitled to."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")


def upgrade() -> None:
    """Add the table and the columns."""
    op.create_table(
        "plans",
        sa.Column("product_id", _ID, nullable=False),
        sa.Column("name", _SLUG, nullable=False),
        sa.Column("entitlements", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("product_id", "name", name="pk_plans"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="fk_plans_product_id"),
        comment="What licenses of a product are entitled to.",
        sqlite_with_rowid=False,
    )
    op.add_column("licenses", sa.Column("plan", _SLUG, nullable=True))
    op.add_column("licenses", sa.Column("overrides", sa.Text(), nullable=True))
    op.add_column("sale_mappings", sa.Column("plan", _SLUG, nullable=True))
    has_plan = sa.text("plan IS NOT NULL")
    op.create_index(
        "ix_licenses_by_plan",
        "licenses",
        ["product_id", "plan"],
        postgresql_where=has_plan,
        sqlite_where=has_plan,
    )
