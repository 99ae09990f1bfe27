"""Facts of shops, what binds licenses to the things that were bought, and what a person has to look at.

Older programs know of none of it, and would issue a second license of what a newer one has sold: they have to
be stopped for this step.
"""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"
oldest_program = "0039"

_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")
_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_FALSE = sa.false()


def _make_columns() -> dict[str, list[sa.Column[Any]]]:
    """Make the columns anew: each belongs to one table."""
    return {
        "sale_sources": [
            sa.Column("changes", sa.String(8), nullable=False, server_default="follow"),
            sa.Column("states", sa.Text()),
            sa.Column("renewal_field", sa.Text()),
            sa.Column("key_env", sa.Text()),
            sa.Column("url", sa.Text()),
        ],
        "sale_mappings": [sa.Column("quantity", sa.Integer())],
        "sale_events": [sa.Column("object", _PLAIN)],
        "sale_licenses": [
            sa.Column("thing", _PLAIN),
            sa.Column("place", sa.Integer()),
            sa.Column("object", _PLAIN),
            sa.Column("applied", sa.Text()),
            sa.Column("mail_due", sa.Boolean(), nullable=False, server_default=_FALSE),
        ],
        "sale_subscriptions": [
            sa.Column("applied_end", _INSTANT),
            sa.Column("is_applied", sa.Boolean(), nullable=False, server_default=_FALSE),
        ],
    }


_COMMENTS = {
    "sale_sources": (
        "Connections to shops that deliver events about sales.",
        "Shops that deliver events about sales.",
    ),
    "sale_licenses": (
        "The licenses of each thing that was bought: none is issued twice.",
        "The licenses of each position of an order: none is issued twice.",
    ),
    "sale_orders": (
        "What was known of orders before facts were stored.",
        "What is known of orders (`sources.state`).",
    ),
    "sale_subscriptions": (
        "Ends of subscriptions, and what was known of them before facts were stored.",
        "What is known of subscriptions (`sources.state`).",
    ),
}


def _where(text: str) -> dict[str, Any]:
    return {"sqlite_where": sa.text(text), "postgresql_where": sa.text(text)}


def upgrade() -> None:
    """Add tables and columns; what is known of orders and subscriptions stays where it is."""
    for table, columns in _make_columns().items():
        for column in columns:
            op.add_column(table, column)
    op.create_index(
        "ix_sale_events_object", "sale_events", ["source", "object"], **_where("object IS NOT NULL")
    )
    op.create_index("ix_sale_licenses_source_object", "sale_licenses", ["source", "object"])
    op.create_index("uq_sale_licenses_thing", "sale_licenses", ["source", "thing", "place"], unique=True)
    op.create_table(
        "sale_facts",
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("id", _PLAIN, nullable=False),
        sa.Column("reported_at", _INSTANT, nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("customer_email", sa.Text()),
        sa.Column("stored_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("source", "kind", "id", name="pk_sale_facts"),
        comment="The newest report of each object of a shop.",
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_sale_facts_email", "sale_facts", ["stored_at"], **_where("customer_email IS NOT NULL")
    )
    op.create_table(
        "sale_links",
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("object", _PLAIN, nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("id", _PLAIN, nullable=False),
        sa.PrimaryKeyConstraint("source", "object", "kind", "id", name="pk_sale_links"),
        comment="Which facts name an object: what is joined so is one contract.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sale_problems",
        sa.Column("id", _ID, nullable=False),
        sa.Column("source", _SLUG, nullable=False),
        sa.Column("object", _PLAIN, nullable=False),
        sa.Column("name", _PLAIN, nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("external_ids", sa.Text()),
        sa.Column("found_at", _INSTANT, nullable=False),
        sa.Column("closed_at", _INSTANT),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("answers", sa.Text(), nullable=False),
        sa.Column("answer", sa.String(8)),
        sa.Column("mailed_at", _INSTANT),
        sa.PrimaryKeyConstraint("id", name="pk_sale_problems"),
        sa.UniqueConstraint("source", "object", "name", name="uq_sale_problems_source_object_name"),
        comment="What a person has to look at.",
    )
    op.create_index("ix_sale_problems_open", "sale_problems", ["id"], **_where("closed_at IS NULL"))
    _comment(0)


def downgrade() -> None:
    """Drop them: what was sold since is then known by its orders alone."""
    _comment(1)
    for table in ("sale_problems", "sale_links", "sale_facts"):
        op.drop_table(table)
    for index, table in (
        ("uq_sale_licenses_thing", "sale_licenses"),
        ("ix_sale_licenses_source_object", "sale_licenses"),
        ("ix_sale_events_object", "sale_events"),
    ):
        op.drop_index(index, table)
    for table, columns in _make_columns().items():
        for column in columns:
            op.drop_column(table, column.name)


def _comment(place: int) -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table, comments in _COMMENTS.items():
            op.create_table_comment(table, comments[place])
