"""Webhooks that are sent: endpoints, events and deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", _PLAIN, nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("types", sa.Text(), nullable=False),
        sa.Column("encrypted_secret", sa.LargeBinary(), nullable=False),
        sa.Column("encrypted_previous", sa.LargeBinary(), nullable=True),
        sa.Column("previous_until", _INSTANT, nullable=True),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("disabled_at", _INSTANT, nullable=True),
        sa.Column("disabled_reason", sa.Text(), nullable=True),
        sa.Column("failing_since", _INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_endpoints"),
        comment="Where the vendor wants to be notified.",
    )
    op.create_table(
        "webhook_events",
        sa.Column("id", _PLAIN, nullable=False),
        sa.Column("type", sa.String(32), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_webhook_events"),
        comment="What was sent, or is to be sent, to webhook endpoints.",
    )
    op.create_index("ix_webhook_events_created_at", "webhook_events", ["created_at"])
    columns = {"job_id": "jobs", "endpoint_id": "webhook_endpoints", "event_id": "webhook_events"}
    op.create_table(
        "webhook_deliveries",
        sa.Column("job_id", _ID, nullable=False),
        sa.Column("endpoint_id", _PLAIN, nullable=False),
        sa.Column("event_id", _PLAIN, nullable=False),
        sa.Column("status", sa.Integer(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=True),
        sa.Column("sent_at", _INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("job_id", name="pk_webhook_deliveries"),
        *(
            sa.ForeignKeyConstraint(
                [column], [f"{table}.id"], name=f"fk_webhook_deliveries_{column}", ondelete="CASCADE"
            )
            for column, table in columns.items()
        ),
        comment="The last attempt to send an event to an endpoint; the job has the others.",
    )
    op.create_index(
        "ix_webhook_deliveries_endpoint_id_job_id", "webhook_deliveries", ["endpoint_id", "job_id"]
    )
    op.create_index("ix_webhook_deliveries_event_id", "webhook_deliveries", ["event_id"])
