"""Sales: sources, what is mapped, what shops have delivered, and which licenses were issued for it."""

from typing import Final

import sqlalchemy as sa

from licserver.database.tables.licenses import licenses, products
from licserver.database.tables.types import Id, Instant, Plain, Slug, holds, index, keyed_table, table

sale_sources = table(
    "sale_sources",
    sa.Column("name", Slug, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("secret_env", sa.Text, nullable=False),  # names of environment variables, separated by commas
    sa.Column("is_test", sa.Boolean, nullable=False),
    sa.Column("tolerance", sa.Integer, nullable=False),  # seconds
    sa.Column("grace_days", sa.Integer, nullable=False),
    sa.Column("revokes_partial_refunds", sa.Boolean, nullable=False),
    # Whether fewer seats in use are taken away at once, or a person is asked.
    sa.Column("changes", sa.String(8), nullable=False, server_default="follow"),
    sa.Column("states", sa.Text),  # JSON: the shop's own state of an order → what it means
    sa.Column("renewal_field", sa.Text),  # by which an order names the subscription that it renews
    sa.Column("key_env", sa.Text),  # the name of an environment variable
    sa.Column("url", sa.Text),
    sa.Column("created_at", Instant, nullable=False),
    comment="Connections to shops that deliver events about sales.",
)

sale_mappings = table(
    "sale_mappings",
    sa.Column("source", Slug, sa.ForeignKey(sale_sources.c.name), primary_key=True),
    sa.Column("external_id", Plain, primary_key=True),
    sa.Column("product_id", Id, sa.ForeignKey(products.c.id)),  # NULL: nothing is issued
    sa.Column("slots", sa.Integer),
    sa.Column("lifetime", sa.Boolean, nullable=False),
    sa.Column("expires_in", sa.String(8)),
    sa.Column("support", sa.String(8)),
    sa.Column("plan", Slug),
    sa.Column("floating_seats", sa.Integer),
    sa.Column("quantity", sa.Integer),  # of a purchase, where the shop does not report it
    comment="What is issued for a product or a price of a shop.",
)

# Literal, as in the index: with parameters SQLite would not use it.
UNREADABLE: Final = sa.and_(
    sa.column("state") == sa.literal_column("'dead'"), sa.column("content", sa.Text).is_(None)
)

sale_events = table(
    "sale_events",
    sa.Column("id", Id, primary_key=True),
    sa.Column("source", Slug, sa.ForeignKey(sale_sources.c.name), nullable=False),
    sa.Column("delivery", Plain, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("content", sa.Text),  # JSON: the facts in it, or events of before facts were stored
    sa.Column("object", Plain),  # what the first fact is about, as `kind:id`
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("received_at", Instant, nullable=False),
    sa.Column("finished_at", Instant),
    sa.UniqueConstraint("source", "delivery"),
    sa.CheckConstraint("state IN ('waiting', 'done', 'ignored', 'dead')", name="state"),
    sa.Index(None, "source", "id"),
    sa.Index(None, "finished_at"),
    index("ix_sale_events_unreadable", "id", UNREADABLE),
    index("ix_sale_events_object", "source object", holds("object")),
    comment="What shops have delivered; swept 30 days after it was done.",
)

# No foreign keys to the source: a source that is removed and added again must issue nothing twice.
sale_facts = keyed_table(
    "sale_facts",
    sa.Column("source", Slug, primary_key=True),
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("id", Plain, primary_key=True),
    sa.Column("reported_at", Instant, nullable=False),
    sa.Column("content", sa.Text, nullable=False),  # JSON, without the customer's address
    sa.Column("customer_email", sa.Text),  # deleted by a sweep
    sa.Column("stored_at", Instant, nullable=False),
    index("ix_sale_facts_email", "stored_at", holds("customer_email")),
    comment="The newest report of each object of a shop.",
)

sale_links = keyed_table(
    "sale_links",
    sa.Column("source", Slug, primary_key=True),
    sa.Column("object", Plain, primary_key=True),  # as `kind:id`
    sa.Column("kind", sa.String(16), primary_key=True),
    sa.Column("id", Plain, primary_key=True),
    comment="Which facts name an object: what is joined so is one contract.",
)

sale_licenses = table(
    "sale_licenses",
    sa.Column("source", Slug, primary_key=True),
    sa.Column("order_id", Plain, primary_key=True),
    sa.Column("item", Plain, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("line_id", Plain),  # of what was issued before facts were stored
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), nullable=False, index=True),
    # What was bought, which of several of it, and the object of the shop that it belongs to; NULL of what was
    # issued before facts were stored, until a delivery shows which line it belongs to.
    sa.Column("thing", Plain),
    sa.Column("place", sa.Integer),
    sa.Column("object", Plain),
    sa.Column("applied", sa.Text),  # JSON: what the source has set last; any other value is a person's
    sa.Column("mail_due", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Index(None, "source", "object"),
    sa.Index("uq_sale_licenses_thing", "source", "thing", "place", unique=True),
    comment="The licenses of each thing that was bought: none is issued twice.",
)

sale_problems = table(
    "sale_problems",
    sa.Column("id", Id, primary_key=True),
    sa.Column("source", Slug, nullable=False),
    sa.Column("object", Plain, nullable=False),  # of the contract
    sa.Column("name", Plain, nullable=False),  # the same for the same problem
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("external_ids", sa.Text),  # JSON: what can be mapped to mend it
    sa.Column("found_at", Instant, nullable=False),
    sa.Column("closed_at", Instant),
    sa.Column("kind", sa.String(32), nullable=False),
    sa.Column("answers", sa.Text, nullable=False),  # that a person can give, separated by spaces
    sa.Column("answer", sa.String(8)),  # which one was given
    sa.Column("mailed_at", Instant),  # to the vendor
    sa.UniqueConstraint("source", "object", "name"),
    index("ix_sale_problems_open", "id", sa.column("closed_at").is_(None)),
    comment="What a person has to look at.",
)

# What was stored before facts were, which is read together with them.
sale_orders = table(
    "sale_orders",
    sa.Column("source", Slug, primary_key=True),
    sa.Column("order_id", Plain, primary_key=True),
    sa.Column("refund", sa.Integer, nullable=False),
    sa.Column("dispute", sa.Integer, nullable=False),
    sa.Column("subscription_id", Plain),
    comment="What was known of orders before facts were stored.",
)

sale_subscriptions = table(
    "sale_subscriptions",
    sa.Column("source", Slug, primary_key=True),
    sa.Column("subscription_id", Plain, primary_key=True),
    sa.Column("paid_through", Instant),
    sa.Column("end_reported_at", Instant),
    sa.Column("ended_at", Instant),
    sa.Column("purchased_at", Instant),
    sa.Column("change_reported_at", Instant),
    sa.Column("cancels_at", Instant),  # when it ends, if that is known for good
    sa.Column("period", sa.String(8)),
    sa.Column("applied_end", Instant),  # what the source has set last
    sa.Column("is_applied", sa.Boolean, nullable=False, server_default=sa.false()),
    comment="Ends of subscriptions, and what was known of them before facts were stored.",
)
