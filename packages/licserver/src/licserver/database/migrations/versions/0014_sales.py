"""Sales that shops report."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "sale_sources",
        sa.Column("name", _SLUG, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("secret_env", sa.Text(), nullable=False),
        sa.Column("is_test", sa.Boolean(), nullable=False),
        sa.Column("tolerance", sa.Integer(), nullable=False),
        sa.Column("grace_days", sa.Integer(), nullable=False),
        sa.Column("revokes_partial_refunds", sa.Boolean(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_sale_sources"),
        comment="Shops that deliver events about sales.",
    )
    op.create_table(
        "sale_mappings",
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("external_id", _PLAIN, nullable=False),
        sa.Column("product_id", _ID, nullable=True),
        sa.Column("slots", sa.Integer(), nullable=True),
        sa.Column("lifetime", sa.Boolean(), nullable=False),
        sa.Column("expires_in", sa.String(8), nullable=True),
        sa.Column("support", sa.String(8), nullable=True),
        sa.PrimaryKeyConstraint("source", "external_id", name="pk_sale_mappings"),
        sa.ForeignKeyConstraint(["source"], ["sale_sources.name"], name="fk_sale_mappings_source"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="fk_sale_mappings_product_id"),
        comment="What is issued for a product or a price of a shop.",
    )
    op.create_table(
        "sale_events",
        sa.Column("id", _ID, nullable=False),
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("delivery", _PLAIN, nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("content", sa.Text(), nullable=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("received_at", _INSTANT, nullable=False),
        sa.Column("finished_at", _INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_sale_events"),
        sa.ForeignKeyConstraint(["source"], ["sale_sources.name"], name="fk_sale_events_source"),
        sa.UniqueConstraint("source", "delivery", name="uq_sale_events_source_delivery"),
        sa.CheckConstraint("state IN ('waiting', 'done', 'ignored', 'dead')", name="state"),
        comment="What shops have delivered; swept 30 days after it was done.",
    )
    op.create_index("ix_sale_events_source_id", "sale_events", ["source", "id"])
    op.create_index("ix_sale_events_finished_at", "sale_events", ["finished_at"])
    op.create_table(
        "sale_orders",
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("order_id", _PLAIN, nullable=False),
        sa.Column("refund", sa.Integer(), nullable=False),
        sa.Column("dispute", sa.Integer(), nullable=False),
        sa.Column("subscription_id", _PLAIN, nullable=True),
        sa.PrimaryKeyConstraint("source", "order_id", name="pk_sale_orders"),
        comment="What is known of orders (`sources.state`).",
    )
    op.create_table(
        "sale_licenses",
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("order_id", _PLAIN, nullable=False),
        sa.Column("item", _PLAIN, nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("source", "order_id", "item", "number", name="pk_sale_licenses"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_sale_licenses_license_id"),
        comment="The licenses of each position of an order: none is issued twice.",
    )
    op.create_index("ix_sale_licenses_license_id", "sale_licenses", ["license_id"])
    op.create_table(
        "sale_subscriptions",
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("subscription_id", _PLAIN, nullable=False),
        sa.Column("paid_through", _INSTANT, nullable=True),
        sa.Column("end_reported_at", _INSTANT, nullable=True),
        sa.Column("ended_at", _INSTANT, nullable=True),
        sa.Column("purchased_at", _INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("source", "subscription_id", name="pk_sale_subscriptions"),
        comment="What is known of subscriptions (`sources.state`).",
    )
