"""What is done beside requests: jobs, webhooks that are sent, and what shops report."""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from licserver.database.tables.licenses import licenses, products
from licserver.database.tables.types import Id, Instant, Plain, Slug, index_where, metadata

jobs = Table(
    "jobs",
    metadata,
    Column("id", Id, primary_key=True),
    Column("queue", Slug, nullable=False),
    Column("key", Plain, nullable=False),  # of what asked for it: asking again adds nothing
    Column("payload", Text, nullable=False),  # JSON, without keys and secrets
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_at", Instant, nullable=True),  # while a job runs, the end of its lease; NULL unless waiting
    Column("created_at", Instant, nullable=False),
    Column("finished_at", Instant, nullable=True),
    Column("last_error", Text, nullable=True),
    UniqueConstraint("queue", "key"),
    CheckConstraint("state IN ('waiting', 'done', 'dead')", name="state"),
    CheckConstraint("(state = 'waiting') = (due_at IS NOT NULL)", name="due_at"),
    Index(None, "queue", "state", "id"),
    comment="Work for the background, which all processes share.",
)
index_where(jobs.c.due_at, "ix_jobs_due", jobs.c.queue, jobs.c.due_at, jobs.c.id)
index_where(jobs.c.finished_at, "ix_jobs_finished", jobs.c.finished_at)


webhook_endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Plain, primary_key=True),
    Column("url", Text, nullable=False),
    Column("types", Text, nullable=False),  # separated by spaces; empty for all
    Column("encrypted_secret", LargeBinary, nullable=False),
    Column("encrypted_previous", LargeBinary, nullable=True),
    Column("previous_until", Instant, nullable=True),  # until then both secrets sign
    Column("created_at", Instant, nullable=False),
    Column("disabled_at", Instant, nullable=True),
    Column("disabled_reason", Text, nullable=True),
    Column("failing_since", Instant, nullable=True),  # NULL after a success
    comment="Where the vendor wants to be notified.",
)


webhook_events = Table(
    "webhook_events",
    metadata,
    Column("id", Plain, primary_key=True),
    Column("type", String(32), nullable=False),
    Column("created_at", Instant, nullable=False, index=True),
    Column("body", Text, nullable=False),  # as it is sent at each attempt; without license keys
    comment="What was sent, or is to be sent, to webhook endpoints.",
)


webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("job_id", Id, ForeignKey(jobs.c.id, ondelete="CASCADE"), primary_key=True),
    Column("endpoint_id", Plain, ForeignKey(webhook_endpoints.c.id, ondelete="CASCADE"), nullable=False),
    Column(
        "event_id", Plain, ForeignKey(webhook_events.c.id, ondelete="CASCADE"), nullable=False, index=True
    ),
    Column("status", Integer, nullable=True),  # of the last response; NULL without one
    Column("answer", Text, nullable=True),  # the beginning of its body, or why there was none
    Column("sent_at", Instant, nullable=True),
    Index(None, "endpoint_id", "job_id"),
    comment="The last attempt to send an event to an endpoint; the job has the others.",
)


sale_sources = Table(
    "sale_sources",
    metadata,
    Column("name", Slug, primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("secret_env", Text, nullable=False),  # names of environment variables, separated by commas
    Column("is_test", Boolean, nullable=False),
    Column("tolerance", Integer, nullable=False),  # seconds
    Column("grace_days", Integer, nullable=False),
    Column("revokes_partial_refunds", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    comment="Shops that deliver events about sales.",
)

sale_mappings = Table(
    "sale_mappings",
    metadata,
    Column("source", Slug, ForeignKey(sale_sources.c.name), primary_key=True),
    Column("external_id", Plain, primary_key=True),
    Column("product_id", Id, ForeignKey(products.c.id), nullable=True),  # NULL: nothing is issued
    Column("slots", Integer, nullable=True),
    Column("lifetime", Boolean, nullable=False),
    Column("expires_in", String(8), nullable=True),
    Column("support", String(8), nullable=True),
    Column("plan", Slug, nullable=True),
    Column("floating_seats", Integer, nullable=True),
    comment="What is issued for a product or a price of a shop.",
)

sale_events = Table(
    "sale_events",
    metadata,
    Column("id", Id, primary_key=True),
    Column("source", Slug, ForeignKey(sale_sources.c.name), nullable=False),
    Column("delivery", Plain, nullable=False),
    Column("type", Text, nullable=False),
    Column("content", Text, nullable=True),  # JSON: only what processing needs of the delivery
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=True),
    Column("received_at", Instant, nullable=False),
    Column("finished_at", Instant, nullable=True),
    UniqueConstraint("source", "delivery"),
    CheckConstraint("state IN ('waiting', 'done', 'ignored', 'dead')", name="state"),
    Index(None, "source", "id"),
    Index(None, "finished_at"),
    comment="What shops have delivered; swept 30 days after it was done.",
)

# No foreign keys to the source: a source that is removed and added again must issue nothing twice.
sale_orders = Table(
    "sale_orders",
    metadata,
    Column("source", Slug, primary_key=True),
    Column("order_id", Plain, primary_key=True),
    Column("refund", Integer, nullable=False),
    Column("dispute", Integer, nullable=False),
    Column("subscription_id", Plain, nullable=True),
    comment="What is known of orders (`sources.state`).",
)

sale_licenses = Table(
    "sale_licenses",
    metadata,
    Column("source", Slug, primary_key=True),
    Column("order_id", Plain, primary_key=True),
    Column("item", Plain, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), nullable=False, index=True),
    comment="The licenses of each position of an order: none is issued twice.",
)

sale_subscriptions = Table(
    "sale_subscriptions",
    metadata,
    Column("source", Slug, primary_key=True),
    Column("subscription_id", Plain, primary_key=True),
    Column("paid_through", Instant, nullable=True),
    Column("end_reported_at", Instant, nullable=True),
    Column("ended_at", Instant, nullable=True),
    Column("purchased_at", Instant, nullable=True),
    comment="What is known of subscriptions (`sources.state`).",
)
