"""The first schema; 0001 to 0024 were never released, and are one with it."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = None

# Written out, and not taken from `licserver.database.tables`, which change with every later step.
_METADATA = sa.MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
_SLUG = sa.String(100).with_variant(sa.String(100, collation="C"), "postgresql")
_SHORT = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")
_DECISIVE = "lifetime expires_on revoked_at subscription_ended_at support_until"


def upgrade() -> None:
    """Create all tables."""
    _METADATA.create_all(op.get_bind(), checkfirst=False)


def _table(name: str, comment: str | None, *parts: sa.schema.SchemaItem, rowid: bool = False) -> None:
    sa.Table(name, _METADATA, *parts, comment=comment, sqlite_with_rowid=rowid)


def _index(name: str, columns: str, where: sa.ColumnElement[Any] | None = None) -> sa.Index:
    return sa.Index(name, *columns.split(), sqlite_where=where, postgresql_where=where)


_table(
    "account_codes",
    "Codes that were sent to customers, or would have been: an unknown address has no licenses.",
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
    sa.Column("code_hash", sa.LargeBinary(32), nullable=False),
    sa.Column("address", sa.LargeBinary(16), nullable=False, index=True),
    sa.Column("license_ids", sa.LargeBinary, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("expires_at", _INSTANT, nullable=False, index=True),
)
_table(
    "audit",
    "Who changed what, written in the transaction of the change; never changed, swept when old.",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("at", _INSTANT, nullable=False, index=True),
    sa.Column("actor_kind", sa.String(16), nullable=False),
    sa.Column("actor_name", _PLAIN, nullable=False),
    sa.Column("action", _PLAIN, nullable=False),
    sa.Column("object_kind", sa.String(16), nullable=False),
    sa.Column("object_id", _PLAIN, nullable=False),
    sa.Column("details", sa.Text, nullable=False),
    sa.CheckConstraint("actor_kind IN ('cli', 'token', 'user', 'system')", name="actor_kind"),
    sa.Index(None, "actor_kind", "actor_name", "id"),
    sa.Index(None, "object_kind", "object_id", "id"),
    rowid=True,
)
_table(
    "facts",
    "What the database knows of itself: whose secrets it was written with.",
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
    rowid=True,
)
_table(
    "failed_logins",
    "Failed logins and refused tokens of a day; the audit log has the 1st, the 10th, the 100th.",
    sa.Column("action", sa.String(32), primary_key=True),
    sa.Column("subject", _PLAIN, primary_key=True),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
)
_table(
    "jobs",
    "Work for the background, which all processes share.",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("queue", _SLUG, nullable=False),
    sa.Column("key", _PLAIN, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due_at", _INSTANT),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("finished_at", _INSTANT),
    sa.Column("last_error", sa.Text),
    sa.CheckConstraint("(state = 'waiting') = (due_at IS NOT NULL)", name="due_at"),
    sa.CheckConstraint("state IN ('waiting', 'done', 'dead')", name="state"),
    sa.UniqueConstraint("queue", "key"),
    _index("ix_jobs_due", "queue due_at id", sa.column("due_at").is_not(None)),
    _index("ix_jobs_finished", "finished_at", sa.column("finished_at").is_not(None)),
    sa.Index(None, "queue", "state", "id"),
    rowid=True,
)
_table(
    "products",
    None,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("slug", _SLUG, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("environment_policy", sa.String(16), nullable=False),
    sa.Column("has_support_policy", sa.Boolean, nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("latest_release_id", _ID),
    sa.Column("latest_manifest_id", _ID),
    sa.Column("accepts_imported_keys", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("customer_moves", sa.Integer, nullable=False, server_default=sa.text("3")),
    sa.Column("trial_days", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("minimum_version", sa.Text),
    sa.CheckConstraint("environment_policy IN ('strict', 'domain', 'either')", name="environment_policy"),
    rowid=True,
)
_table(
    "sale_orders",
    "What is known of orders (`sources.state`).",
    sa.Column("source", _SLUG, primary_key=True),
    sa.Column("order_id", _PLAIN, primary_key=True),
    sa.Column("refund", sa.Integer, nullable=False),
    sa.Column("dispute", sa.Integer, nullable=False),
    sa.Column("subscription_id", _PLAIN),
    rowid=True,
)
_table(
    "sale_sources",
    "Shops that deliver events about sales.",
    sa.Column("name", _SLUG, primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("secret_env", sa.Text, nullable=False),
    sa.Column("is_test", sa.Boolean, nullable=False),
    sa.Column("tolerance", sa.Integer, nullable=False),
    sa.Column("grace_days", sa.Integer, nullable=False),
    sa.Column("revokes_partial_refunds", sa.Boolean, nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False),
    rowid=True,
)
_table(
    "sale_subscriptions",
    "What is known of subscriptions (`sources.state`).",
    sa.Column("source", _SLUG, primary_key=True),
    sa.Column("subscription_id", _PLAIN, primary_key=True),
    sa.Column("paid_through", _INSTANT),
    sa.Column("end_reported_at", _INSTANT),
    sa.Column("ended_at", _INSTANT),
    sa.Column("purchased_at", _INSTANT),
    rowid=True,
)
_table(
    "tokens",
    "Who may use the admin API.",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("name", _PLAIN, nullable=False, unique=True),
    sa.Column("token_hash", sa.LargeBinary(32), nullable=False, unique=True),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("expires_on", sa.Date),
    sa.Column("revoked_at", _INSTANT),
    sa.Column("last_used_on", sa.Date),
    sa.CheckConstraint("scope IN ('read', 'write')", name="scope"),
    rowid=True,
)
_table(
    "totals",
    "What is counted of each day, in batches; plots are drawn from it.",
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("product", _SLUG, primary_key=True),
    sa.Column("label", _PLAIN, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
)
_table(
    "tries",
    "How often passwords of the console were tried lately, by address and by name (D-131).",
    sa.Column("minute", sa.BigInteger, primary_key=True),
    sa.Column("who", sa.LargeBinary(16), primary_key=True),
    sa.Column("count", sa.Integer, nullable=False),
)
_table(
    "users",
    "Who may sign in to the console.",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("name", _PLAIN, nullable=False, unique=True),
    sa.Column("password_hash", sa.Text, nullable=False),
    sa.Column("password_changed_at", _INSTANT, nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("role", sa.String(16), nullable=False, server_default="owner"),
    rowid=True,
)
_table(
    "webhook_endpoints",
    "Where the vendor wants to be notified.",
    sa.Column("id", _PLAIN, primary_key=True),
    sa.Column("url", sa.Text, nullable=False),
    sa.Column("types", sa.Text, nullable=False),
    sa.Column("encrypted_secret", sa.LargeBinary, nullable=False),
    sa.Column("encrypted_previous", sa.LargeBinary),
    sa.Column("previous_until", _INSTANT),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("disabled_at", _INSTANT),
    sa.Column("disabled_reason", sa.Text),
    sa.Column("failing_since", _INSTANT),
    rowid=True,
)
_table(
    "webhook_events",
    "What was sent, or is to be sent, to webhook endpoints.",
    sa.Column("id", _PLAIN, primary_key=True),
    sa.Column("type", sa.String(32), nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False, index=True),
    sa.Column("body", sa.Text, nullable=False),
    rowid=True,
)
_table(
    "channel_releases",
    "What update checks offer in channels other than stable; the empty platform is the default.",
    sa.Column("product_id", _ID, sa.ForeignKey("products.id"), primary_key=True),
    sa.Column("channel", _SHORT, primary_key=True),
    sa.Column("platform", _SHORT, primary_key=True),
    sa.Column("release_id", _ID, nullable=False),
    sa.Column("manifest_id", _ID),
)
_table(
    "known_addresses",
    "Where users have signed in from: others cannot use up their attempts there (D-165).",
    sa.Column("user_id", _ID, sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("address", sa.LargeBinary(16), primary_key=True),
    sa.Column("last_used_at", _INSTANT, nullable=False, index=True),
)
_table(
    "latest_releases",
    "What update checks offer to platforms whose latest release is a file of their own.",
    sa.Column("product_id", _ID, sa.ForeignKey("products.id"), primary_key=True),
    sa.Column("platform", _SHORT, primary_key=True),
    sa.Column("release_id", _ID, nullable=False),
    sa.Column("manifest_id", _ID),
)
_table(
    "licenses",
    None,
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("sealed_key", sa.LargeBinary, nullable=False),
    sa.Column("masked_key", _PLAIN),
    sa.Column("product_id", _ID, sa.ForeignKey("products.id"), nullable=False),
    sa.Column("product_name", sa.Text, nullable=False),
    sa.Column("issued_at", _INSTANT, nullable=False),
    sa.Column("expires_on", sa.Date),
    sa.Column("lifetime", sa.Boolean, nullable=False),
    sa.Column("revoked_at", _INSTANT),
    sa.Column("revoked_reason", sa.Text),
    sa.Column("slots", sa.Integer),
    sa.Column("allowed", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.Column("subscription_id", _PLAIN),
    sa.Column("subscription_ended_at", _INSTANT),
    sa.Column("support_until", sa.Date),
    sa.Column("customer_email", sa.Text),
    sa.Column("note", sa.Text),
    sa.Column("plan", _SLUG),
    sa.Column("overrides", sa.Text),
    sa.Column("trial", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("floating_seats", sa.Integer),
    sa.Column("channels", sa.Text, nullable=False, server_default=sa.text("''")),
    sa.CheckConstraint("slots >= 0", name="slots"),
    _index(
        "ix_licenses_by_expiry",
        "expires_on id product_id lifetime revoked_at subscription_ended_at",
        sa.column("expires_on").is_not(None),
    ),
    _index("ix_licenses_by_issue", "issued_at id " + _DECISIVE),
    _index("ix_licenses_by_masked_key", "masked_key id", sa.column("masked_key").is_not(None)),
    _index("ix_licenses_by_plan", "product_id plan", sa.column("plan").is_not(None)),
    _index("ix_licenses_by_product", "product_id issued_at id " + _DECISIVE),
    _index(
        "ix_licenses_by_revocation",
        "issued_at id product_id revoked_at",
        sa.column("revoked_at").is_not(None),
    ),
    _index(
        "ix_licenses_by_subscription_end",
        "subscription_ended_at id product_id lifetime expires_on revoked_at",
        sa.column("subscription_ended_at").is_not(None),
    ),
    _index("ix_licenses_subscription_id", "subscription_id", sa.column("subscription_id").is_not(None)),
    _index("ix_licenses_trials", "issued_at id product_id", sa.column("trial", sa.Boolean).is_(sa.true())),
)
_table(
    "plans",
    "What licenses of a product are entitled to.",
    sa.Column("product_id", _ID, sa.ForeignKey("products.id"), primary_key=True),
    sa.Column("name", _SLUG, primary_key=True),
    sa.Column("entitlements", sa.Text, nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False),
)
_table(
    "receipts",
    "What was answered to a creation, for who asks again; kept for a day.",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("token_id", _ID, sa.ForeignKey("tokens.id")),
    sa.Column("user_id", _ID, sa.ForeignKey("users.id", ondelete="CASCADE")),
    sa.Column("key", _PLAIN, nullable=False),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False, index=True),
    sa.CheckConstraint("(token_id IS NULL) <> (user_id IS NULL)", name="owner"),
    sa.UniqueConstraint("token_id", "key"),
    sa.UniqueConstraint("user_id", "key"),
    rowid=True,
)
_table(
    "recovery_codes",
    "Codes that replace a second factor once; a used one is deleted.",
    sa.Column("user_id", _ID, sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("digest", sa.LargeBinary(16), primary_key=True),
)
_table(
    "releases",
    None,
    sa.Column("id", _ID, primary_key=True),
    sa.Column("product_id", _ID, sa.ForeignKey("products.id"), nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("version_key", _PLAIN, nullable=False),
    sa.Column("changelog", sa.Text, nullable=False),
    sa.Column("published_at", _INSTANT, nullable=False),
    sa.Column("withdrawn_at", _INSTANT),
    sa.Column("file_name", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.LargeBinary(32), nullable=False),
    sa.Column("platform", _SHORT, nullable=False, server_default=sa.text("''")),
    sa.Column("channel", _SHORT, nullable=False, server_default=sa.text("'stable'")),
    sa.UniqueConstraint("product_id", "version_key", "platform"),
    rowid=True,
)
_table(
    "sale_events",
    "What shops have delivered; swept 30 days after it was done.",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("source", _SLUG, sa.ForeignKey("sale_sources.name"), nullable=False),
    sa.Column("delivery", _PLAIN, nullable=False),
    sa.Column("type", sa.Text, nullable=False),
    sa.Column("content", sa.Text),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("reason", sa.Text),
    sa.Column("received_at", _INSTANT, nullable=False),
    sa.Column("finished_at", _INSTANT, index=True),
    sa.CheckConstraint("state IN ('waiting', 'done', 'ignored', 'dead')", name="state"),
    sa.UniqueConstraint("source", "delivery"),
    sa.Index(None, "source", "id"),
    rowid=True,
)
_table(
    "sale_mappings",
    "What is issued for a product or a price of a shop.",
    sa.Column("source", _SLUG, sa.ForeignKey("sale_sources.name"), primary_key=True),
    sa.Column("external_id", _PLAIN, primary_key=True),
    sa.Column("product_id", _ID, sa.ForeignKey("products.id")),
    sa.Column("slots", sa.Integer),
    sa.Column("lifetime", sa.Boolean, nullable=False),
    sa.Column("expires_in", sa.String(8)),
    sa.Column("support", sa.String(8)),
    sa.Column("plan", _SLUG),
    rowid=True,
)
_table(
    "second_factors",
    "The second factor of users of the console: TOTP (RFC 6238).",
    sa.Column("user_id", _ID, sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("sealed_secret", sa.LargeBinary, nullable=False),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("confirmed_at", _INSTANT),
    sa.Column("last_step", sa.BigInteger, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("failed_at", _INSTANT),
    rowid=True,
)
_table(
    "sessions",
    None,
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
    sa.Column("user_id", _ID, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("created_at", _INSTANT, nullable=False),
    sa.Column("expires_at", _INSTANT, nullable=False, index=True),
    sa.Column("last_used_at", _INSTANT, nullable=False),
    sa.Column("is_pending", sa.Boolean, nullable=False),
)
_table(
    "webhook_deliveries",
    "The last attempt to send an event to an endpoint; the job has the others.",
    sa.Column("job_id", _ID, sa.ForeignKey("jobs.id", ondelete="CASCADE"), primary_key=True),
    sa.Column(
        "endpoint_id", _PLAIN, sa.ForeignKey("webhook_endpoints.id", ondelete="CASCADE"), nullable=False
    ),
    sa.Column(
        "event_id", _PLAIN, sa.ForeignKey("webhook_events.id", ondelete="CASCADE"), nullable=False, index=True
    ),
    sa.Column("status", sa.Integer),
    sa.Column("answer", sa.Text),
    sa.Column("sent_at", _INSTANT),
    sa.Index(None, "endpoint_id", "job_id"),
    rowid=True,
)
_table(
    "account_sessions",
    "Sessions of the customer's page, with a row for each license that they may see.",
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True, index=True),
    sa.Column("expires_at", _INSTANT, nullable=False, index=True),
)
_table(
    "activations",
    None,
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True),
    sa.Column("domain", _PLAIN, primary_key=True),
    sa.Column("ip", _PLAIN, primary_key=True),
    sa.Column("activated_at", _INSTANT, nullable=False),
    sa.Column("last_seen_at", _INSTANT),
    sa.Column("label", sa.Text),
    sa.Column("app_version", sa.Text),
    sa.Column("offline_until", _INSTANT),
    _index("ix_activations_domain", "domain license_id", sa.column("last_seen_at").is_not(None)),
    _index("ix_activations_ip", "ip license_id", sa.column("last_seen_at").is_not(None)),
)
_table(
    "license_words",
    "Where a license is found by the beginning of a word of its e-mail address or its note.",
    sa.Column("word", _PLAIN, primary_key=True),
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True),
    sa.Index(None, "license_id", "word"),
)
_table(
    "manifests",
    "Signed words about releases; a renewed one is a new row, and the newest counts.",
    sa.Column("id", _ID, primary_key=True),
    sa.Column("release_id", _ID, sa.ForeignKey("releases.id"), nullable=False, index=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("added_at", _INSTANT, nullable=False),
    rowid=True,
)
_table(
    "moves",
    "Slots that customers freed themselves in the last 30 days, which they may do a few times.",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True),
    sa.Column("domain", _PLAIN, primary_key=True),
    sa.Column("ip", _PLAIN, primary_key=True),
    sa.Column("freed_at", _INSTANT, nullable=False, index=True),
)
_table(
    "patches",
    "Artifacts that make the file of a release out of an older one, named by its digest.",
    sa.Column("release_id", _ID, sa.ForeignKey("releases.id"), primary_key=True),
    sa.Column("base_sha256", sa.LargeBinary(32), primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.LargeBinary(32), nullable=False),
)
_table(
    "refusals",
    "Where a license was refused lately, and why; written in batches, kept for 30 days.",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True),
    sa.Column("domain", _PLAIN, primary_key=True, index=True),
    sa.Column("ip", _PLAIN, primary_key=True, index=True),
    sa.Column("reason", sa.String(16), primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    sa.Column("first_at", _INSTANT, nullable=False),
    sa.Column("last_at", _INSTANT, nullable=False, index=True),
)
_table(
    "sale_licenses",
    "The licenses of each position of an order: none is issued twice.",
    sa.Column("source", _SLUG, primary_key=True),
    sa.Column("order_id", _PLAIN, primary_key=True),
    sa.Column("item", _PLAIN, primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), nullable=False, index=True),
    rowid=True,
)
_table(
    "seats",
    "Floating seats: who uses a license now, and until when if the app does not renew it.",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True),
    sa.Column("seat_id", sa.LargeBinary(16), primary_key=True),
    sa.Column("domain", _PLAIN, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("taken_at", _INSTANT, nullable=False),
    sa.Column("expires_at", _INSTANT, nullable=False, index=True),
    sa.Column("is_ended", sa.Boolean, nullable=False),
)
_table(
    "trials",
    "Machines that have had a trial; they stay here when the license of an ended one is deleted.",
    sa.Column("product_id", _ID, sa.ForeignKey("products.id"), primary_key=True),
    sa.Column("machine", sa.LargeBinary(16), primary_key=True),
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), index=True),
    sa.Column("address", sa.LargeBinary(16), nullable=False),
    sa.Column("started_at", _INSTANT, nullable=False),
    sa.Index(None, "product_id", "started_at"),
)
_table(
    "use_ids",
    "What was counted already: a use that is sent again counts once.",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True),
    sa.Column("use_id", _PLAIN, primary_key=True),
    sa.Column("kept_until", _INSTANT, nullable=False, index=True),
)
_table(
    "uses",
    "How much of a metered entitlement was used in a day, month or year.",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey("licenses.id"), primary_key=True),
    sa.Column("name", _SLUG, primary_key=True),
    sa.Column("period", _SLUG, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("kept_until", _INSTANT, nullable=False, index=True),
)
