"""The first schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make all tables."""
    number = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    instant = sa.DateTime(timezone=True)
    op.create_table(
        "facts",
        sa.Column("name", sa.String(64), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_facts"),
        comment="What the database knows of itself: whose secrets it was written with.",
    )
    op.create_table(
        "products",
        sa.Column("id", number, nullable=False),
        sa.Column("slug", _plain(sa.String, 100), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("environment_policy", sa.String(16), nullable=False),
        sa.Column("has_support_policy", sa.Boolean(), nullable=False),
        sa.Column("created_at", instant, nullable=False),
        sa.Column("latest_release_id", number, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_products"),
        sa.UniqueConstraint("slug", name="uq_products_slug"),
        sa.CheckConstraint(
            "environment_policy IN ('strict', 'domain', 'either')",
            name=op.f("ck_products_environment_policy"),
        ),
    )
    op.create_table(
        "releases",
        sa.Column("id", number, nullable=False),
        sa.Column("product_id", number, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("version_key", _plain(sa.Text), nullable=False),
        sa.Column("changelog", sa.Text(), nullable=False),
        sa.Column("published_at", instant, nullable=False),
        sa.Column("withdrawn_at", instant, nullable=True),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("sha256", sa.LargeBinary(32), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_releases"),
        sa.UniqueConstraint("product_id", "version_key", name="uq_releases_product_id_version_key"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="fk_releases_product_id"),
    )
    _make_licenses(number, instant)
    op.create_table(
        "activations",
        sa.Column("license_id", sa.LargeBinary(16), nullable=False),
        sa.Column("domain", _plain(sa.Text), nullable=False),
        sa.Column("ip", _plain(sa.Text), nullable=False),
        sa.Column("activated_at", instant, nullable=False),
        sa.PrimaryKeyConstraint("license_id", "domain", "ip", name="pk_activations"),
        sa.ForeignKeyConstraint(["license_id"], ["licenses.id"], name="fk_activations_license_id"),
        sqlite_with_rowid=False,
    )


def _make_licenses(number: sa.types.TypeEngine[int], instant: sa.DateTime) -> None:
    op.create_table(
        "licenses",
        sa.Column("id", sa.LargeBinary(16), nullable=False),
        sa.Column("sealed_key", sa.LargeBinary(), nullable=False),
        sa.Column("product_id", number, nullable=False),
        sa.Column("product_name", sa.Text(), nullable=False),
        sa.Column("issued_at", instant, nullable=False),
        sa.Column("expires_on", sa.Date(), nullable=True),
        sa.Column("lifetime", sa.Boolean(), nullable=False),
        sa.Column("revoked_at", instant, nullable=True),
        sa.Column("revoked_reason", sa.Text(), nullable=True),
        sa.Column("slots", sa.Integer(), nullable=True),
        sa.Column("allowed", sa.Text(), server_default=sa.text("''"), nullable=False),
        sa.Column("subscription_id", _plain(sa.Text), nullable=True),
        sa.Column("subscription_ended_at", instant, nullable=True),
        sa.Column("support_until", sa.Date(), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_licenses"),
        sa.ForeignKeyConstraint(["product_id"], ["products.id"], name="fk_licenses_product_id"),
        sa.CheckConstraint("slots >= 0", name=op.f("ck_licenses_slots")),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_licenses_product_id_issued_at", "licenses", ["product_id", "issued_at"])
    op.create_index(
        "ix_licenses_subscription_id",
        "licenses",
        ["subscription_id"],
        sqlite_where=sa.text("subscription_id IS NOT NULL"),
        postgresql_where=sa.text("subscription_id IS NOT NULL"),
    )


def _plain(kind: type[sa.String], length: int | None = None) -> sa.String:
    """Text that is compared byte by byte, whatever the database's language."""
    return kind(length).with_variant(kind(length, collation="C"), "postgresql")
