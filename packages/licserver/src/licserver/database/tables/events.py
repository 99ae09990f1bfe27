"""Tables of work beside requests: jobs, and webhooks that are sent."""

import sqlalchemy as sa

from licserver.database.tables.types import Id, Instant, Plain, Slug, holds, index, table

jobs = table(
    "jobs",
    sa.Column("id", Id, primary_key=True),
    sa.Column("queue", Slug, nullable=False),
    sa.Column("key", Plain, nullable=False),  # of its origin: the same origin again adds nothing
    sa.Column("payload", sa.Text, nullable=False),  # JSON, without keys and secrets
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due_at", Instant),  # while it runs, the end of its lease; NULL unless waiting
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("finished_at", Instant),
    sa.Column("last_error", sa.Text),
    sa.Column("owner", Plain),  # the owner, as a keyed hash: each owner gets at most a share of a queue
    sa.UniqueConstraint("queue", "key"),
    sa.CheckConstraint("state IN ('waiting', 'done', 'dead')", name="state"),
    sa.CheckConstraint("(state = 'waiting') = (due_at IS NOT NULL)", name="due_at"),
    sa.Index(None, "queue", "state", "id"),
    index("ix_jobs_due", "queue due_at id", holds("due_at")),
    index("ix_jobs_owner", "queue owner due_at id", sa.and_(holds("owner"), holds("due_at"))),
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
    # The beginning of its body, or why there was none.
    sa.Column("answer", sa.Text, key="response"),
    sa.Column("sent_at", Instant),
    sa.Index(None, "endpoint_id", "job_id"),
    comment="The last attempt to send an event to an endpoint; the job has the others.",
)
