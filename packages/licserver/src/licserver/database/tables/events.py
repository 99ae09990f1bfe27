"""What is done beside requests: jobs, webhooks that are sent, and what shops report."""

from typing import Final

import sqlalchemy as sa

from licserver.database.tables.licenses import licenses, products
from licserver.database.tables.types import Id, Instant, Plain, Slug, holds, index, table

jobs = table(
    "jobs",
    sa.Column("id", Id, primary_key=True),
    sa.Column("queue", Slug, nullable=False),
    sa.Column("key", Plain, nullable=False),  # of what asked for it: asking again adds nothing
    sa.Column("payload", sa.Text, nullable=False),  # JSON, without keys and secrets
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due_at", Instant),  # while it runs, the end of its lease; NULL unless waiting
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("finished_at", Instant),
    sa.Column("last_error", sa.Text),
    sa.UniqueConstraint("queue", "key"),
    sa.CheckConstraint("state IN ('waiting', 'done', 'dead')", name="state"),
    sa.CheckConstraint("(state = 'waiting') = (due_at IS NOT NULL)", name="due_at"),
    sa.Index(None, "queue", "state", "id"),
    index("ix_jobs_due", "queue due_at id", holds("due_at")),
    index("ix_jobs_finished", "finished_at", holds("finished_at")),
    comment="Work for the background, which all processes share.",
)

webhook_endpoints = table(
    "webhook_endpoints",
    sa.Column("id", Plain, primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("types", sa.Text, nullable=False),  # separated by spaces; empty for all
    sa.Column("encrypted_secret", sa.LargeBinary, nullable=False),
    sa.Column("encrypted_previous", sa.LargeBinary),
    sa.Column("previous_until", Instant),  # until then both secrets sign
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("disabled_at", Instant),
    sa.Column("disabled_reason", sa.Text),
    sa.Column("failing_since", Instant),  # NULL after a success
    comment="Where the vendor wants to be notified.",
)

webhook_events = table(
    "webhook_events",
    sa.Column("id", Plain, primary_key=True),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("created_at", Instant, nullable=False, index=True),
    sa.Column("body", sa.Text, nullable=False),  # as it is sent at each attempt; without license keys
    comment="What was sent, or is to be sent, to webhook endpoints.",
)

webhook_deliveries = table(
    "webhook_deliveries",
    sa.Column("job_id", Id, sa.ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "endpoint_id", Plain, sa.ForeignKey(webhook_endpoints.c.id, ondelete="CASCADE"), nullable=False
    ),
    sa.Column(
        "event_id", Plain, sa.ForeignKey(webhook_events.c.id, ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("status", sa.Integer),  # of the last response; NULL without one
    sa.Column("answer", sa.Text),  # the beginning of its body, or why there was none
    sa.Column("sent_at", Instant),
    sa.Index(None, "endpoint_id", "job_id"),
    comment="The last attempt to send an event to an endpoint; the job has the others.",
)

sale_sources = table(
    "sale_sources",
    sa.Column("name", Slug, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("secret_env", sa.Text, nullable=False),  # names of environment variables, separated by commas
    sa.Column("is_test", sa.Boolean, nullable=False),
    sa.Column("tolerance", sa.Integer, nullable=False),  # seconds
    sa.Column("grace_days", sa.Integer, nullable=False),
    sa.Column("revokes_partial_refunds", sa.Boolean, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    comment="Shops that deliver events about sales.",
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
    sa.Column("content", sa.Text),  # JSON: only what processing needs of the delivery
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("received_at", Instant, nullable=False),
    sa.Column("finished_at", Instant),
    sa.UniqueConstraint("source", "delivery"),
    sa.CheckConstraint("state IN ('waiting', 'done', 'ignored', 'dead')", name="state"),
    sa.Index(None, "source", "id"),
    sa.Index(None, "finished_at"),
    index("ix_sale_events_unreadable", "id", UNREADABLE),
    comment="What shops have delivered; swept 30 days after it was done.",
)

# No foreign keys to the source: a source that is removed and added again must issue nothing twice.
sale_orders = table(
    "sale_orders",
    sa.Column("source", Slug, primary_key=True),
    sa.Column("order_id", Plain, primary_key=True),
    sa.Column("refund", sa.Integer, nullable=False),
    sa.Column("dispute", sa.Integer, nullable=False),
    sa.Column("subscription_id", Plain),
    comment="What is known of orders (`sources.state`).",
)

sale_licenses = table(
    "sale_licenses",
    sa.Column("source", Slug, primary_key=True),
    sa.Column("order_id", Plain, primary_key=True),
    sa.Column("item", Plain, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), nullable=False, index=True),
    comment="The licenses of each position of an order: none is issued twice.",
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
    sa.Column("cancels_at", Instant),
    comment="What is known of subscriptions (`sources.state`).",
)
