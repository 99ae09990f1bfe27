"""What is sold: products, releases, licenses and their activations; with the audit log and statistics."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)

from licserver.database.tables.types import (
    Channel,
    Id,
    Instant,
    Plain,
    Platform,
    Slug,
    index_where,
    metadata,
)

facts = Table(
    "facts",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", LargeBinary, nullable=False),
    comment="What the database knows of itself: whose secrets it was written with.",
)

products = Table(
    "products",
    metadata,
    Column("id", Id, primary_key=True),
    Column("slug", Slug, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("environment_policy", String(16), nullable=False, key="policy"),
    Column("has_support_policy", Boolean, nullable=False),
    Column("created_at", Instant, nullable=False),
    # Chosen by decisions.latest in the transaction that publishes or withdraws. No foreign key: the
    # two tables would point at each other, and releases are never deleted.
    Column("latest_release_id", Id, nullable=True),
    # Chosen with it, so that an update check sees a renewed manifest in the row that it reads anyway.
    Column("latest_manifest_id", Id, nullable=True),
    Column("accepts_imported_keys", Boolean, nullable=False, server_default=false()),
    Column("customer_moves", Integer, nullable=False, server_default=text("3")),
    Column("trial_days", Integer, nullable=False, server_default=text("0")),
    Column("minimum_version", Text, nullable=True),
    # Counted with each choice of the latest release: servers keep what they have read of releases under it.
    Column("release_changes", Integer, nullable=False, server_default=text("0")),
    CheckConstraint("environment_policy IN ('strict', 'domain', 'either')", name="environment_policy"),
)

releases = Table(
    "releases",
    metadata,
    Column("id", Id, primary_key=True),
    Column("product_id", Id, ForeignKey(products.c.id), nullable=False),
    Column("version", Text, nullable=False),
    Column("version_key", Plain, nullable=False),  # 1.0 and 1.0.0 are one version
    Column("changelog", Text, nullable=False),
    Column("published_at", Instant, nullable=False),
    Column("withdrawn_at", Instant, nullable=True),
    Column("file_name", Text, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", LargeBinary(32), nullable=False),
    Column("platform", Platform, nullable=False, server_default=text("''")),
    Column("channel", Channel, nullable=False, server_default=text("'stable'")),
    # The same for all files of a version (`records.Rollout`).
    Column("rollout", Text, nullable=True),
    Column("rollout_started_at", Instant, nullable=True),
    Column("rollout_paused_at", Instant, nullable=True),
    Column("critical_below", Text, nullable=True),
    # The file with the empty platform is the default, for platforms without a file of their own.
    UniqueConstraint("product_id", "version_key", "platform"),
)

latest_releases = Table(
    "latest_releases",
    metadata,
    Column("product_id", Id, ForeignKey(products.c.id), primary_key=True),
    Column("platform", Platform, primary_key=True),
    Column("release_id", Id, nullable=False),
    Column("manifest_id", Id, nullable=True),
    comment="What update checks offer to platforms whose latest release is a file of their own.",
    sqlite_with_rowid=False,
)

channel_releases = Table(
    "channel_releases",
    metadata,
    Column("product_id", Id, ForeignKey(products.c.id), primary_key=True),
    Column("channel", Channel, primary_key=True),
    Column("platform", Platform, primary_key=True),
    Column("release_id", Id, nullable=False),
    Column("manifest_id", Id, nullable=True),
    comment="What update checks offer in channels other than stable; the empty platform is the default.",
    sqlite_with_rowid=False,
)

manifests = Table(
    "manifests",
    metadata,
    Column("id", Id, primary_key=True),
    Column("release_id", Id, ForeignKey(releases.c.id), nullable=False, index=True),
    Column("document", Text, nullable=False),
    Column("added_at", Instant, nullable=False),
    comment="Signed words about releases; a renewed one is a new row, and the newest counts.",
)

rollbacks = Table(
    "rollbacks",
    metadata,
    Column("release_id", Id, ForeignKey(releases.c.id), primary_key=True),
    Column("installation", LargeBinary(16), primary_key=True),  # a digest of license and domain
    Column("reported_at", Instant, nullable=False),
    comment="Installations that went back from a release to the version before, as their apps report.",
    sqlite_with_rowid=False,
)

plans = Table(
    "plans",
    metadata,
    Column("product_id", Id, ForeignKey(products.c.id), primary_key=True),
    Column("name", Slug, primary_key=True),
    Column("entitlements", Text, nullable=False),  # JSON, sent as it is
    Column("created_at", Instant, nullable=False),
    comment="What licenses of a product are entitled to.",
    sqlite_with_rowid=False,
)

patches = Table(
    "patches",
    metadata,
    Column("release_id", Id, ForeignKey(releases.c.id), primary_key=True),
    Column("base_sha256", LargeBinary(32), primary_key=True),
    Column("size", BigInteger, nullable=False),
    Column("sha256", LargeBinary(32), nullable=False),
    comment="Artifacts that make the file of a release out of an older one, named by its digest.",
    sqlite_with_rowid=False,
)

licenses = Table(
    "licenses",
    metadata,
    Column("id", LargeBinary(16), primary_key=True),
    Column("sealed_key", LargeBinary, nullable=False, key="encrypted_key"),
    Column("masked_key", Plain, nullable=True),  # as people see it: six of its thirty characters
    Column("product_id", Id, ForeignKey(products.c.id), nullable=False),
    Column("product_name", Text, nullable=False),
    Column("issued_at", Instant, nullable=False),
    Column("expires_on", Date, nullable=True),
    Column("lifetime", Boolean, nullable=False),
    Column("revoked_at", Instant, nullable=True),
    Column("revoked_reason", Text, nullable=True),
    Column("slots", Integer, nullable=True),
    Column("allowed", Text, nullable=False, server_default=text("''")),  # an entry a line
    Column("subscription_id", Plain, nullable=True),
    # Kept here and not in a table of subscriptions, so that judging a license reads no other shard.
    Column("subscription_ended_at", Instant, nullable=True),
    Column("support_until", Date, nullable=True),
    Column("customer_email", Text, nullable=True),  # searched by way of license_words
    Column("note", Text, nullable=True),  # the same
    # No foreign key: SQLite would copy the table to add one. `services.plans` keeps a plan that has licenses.
    Column("plan", Slug, nullable=True),
    Column("overrides", Text, nullable=True),  # JSON
    Column("trial", Boolean, nullable=False, server_default=false()),
    Column("floating_seats", Integer, nullable=True),
    Column("channels", Text, nullable=False, server_default=text("''")),  # a name a line
    CheckConstraint("slots >= 0", name="slots"),
    sqlite_with_rowid=False,
)
# A list is read page by page along an index whose order ends with the id: a million may share an instant.
# What decides a state follows, so that a license that does not match costs no look-up in the table.
_DECISIVE = tuple(
    licenses.c[name]
    for name in ("lifetime", "expires_on", "revoked_at", "subscription_ended_at", "support_until")
)
Index("ix_licenses_by_issue", licenses.c.issued_at, licenses.c.id, *_DECISIVE)
Index("ix_licenses_by_product", licenses.c.product_id, licenses.c.issued_at, licenses.c.id, *_DECISIVE)


index_where(licenses.c.masked_key, "ix_licenses_by_masked_key", licenses.c.masked_key, licenses.c.id)
index_where(licenses.c.subscription_id, "ix_licenses_subscription_id", licenses.c.subscription_id)
index_where(licenses.c.plan, "ix_licenses_by_plan", licenses.c.product_id, licenses.c.plan)
index_where(
    licenses.c.expires_on,
    "ix_licenses_by_expiry",
    licenses.c.expires_on,
    licenses.c.id,
    *(licenses.c[name] for name in ("product_id", "lifetime", "revoked_at", "subscription_ended_at")),
)
index_where(
    licenses.c.subscription_ended_at,
    "ix_licenses_by_subscription_end",
    licenses.c.subscription_ended_at,
    licenses.c.id,
    *(licenses.c[name] for name in ("product_id", "lifetime", "expires_on", "revoked_at")),
)
index_where(
    licenses.c.revoked_at,
    "ix_licenses_by_revocation",
    licenses.c.issued_at,
    licenses.c.id,
    licenses.c.product_id,
    licenses.c.revoked_at,
)

_IS_TRIAL = licenses.c.trial.is_(true())
Index(
    "ix_licenses_trials",
    licenses.c.issued_at,
    licenses.c.id,
    licenses.c.product_id,
    sqlite_where=_IS_TRIAL,
    postgresql_where=_IS_TRIAL,
)

license_words = Table(
    "license_words",
    metadata,
    Column("word", Plain, primary_key=True),
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Index(None, "license_id", "word"),
    comment="Where a license is found by the beginning of a word of its e-mail address or its note.",
    sqlite_with_rowid=False,
)

activations = Table(
    "activations",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("domain", Plain, primary_key=True),
    Column("ip", Plain, primary_key=True),
    Column("activated_at", Instant, nullable=False),
    # Noted once a day, in batches beside the hot paths (`statistics.note_seen`); NULL until the first time.
    Column("last_seen_at", Instant, nullable=True),
    # Personal data, if the app sends it (D-195); refreshed with `last_seen_at`.
    Column("label", Text, nullable=True),
    Column("app_version", Text, nullable=True),
    # End of its machine's license file: until then neither customers nor sweeps free the slot.
    Column("offline_until", Instant, nullable=True),
    sqlite_with_rowid=False,
)
# Partial, so that a new activation does not pay for it; noting that it was seen adds it.
index_where(
    activations.c.last_seen_at, "ix_activations_domain", activations.c.domain, activations.c.license_id
)
index_where(activations.c.last_seen_at, "ix_activations_ip", activations.c.ip, activations.c.license_id)

refusals = Table(
    "refusals",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("domain", Plain, primary_key=True),
    Column("ip", Plain, primary_key=True),
    Column("reason", String(16), primary_key=True),
    Column("count", BigInteger, nullable=False, key="times"),
    Column("first_at", Instant, nullable=False),
    Column("last_at", Instant, nullable=False, index=True),
    Index(None, "domain"),
    Index(None, "ip"),
    comment="Where a license was refused lately, and why; written in batches, kept for 30 days.",
    sqlite_with_rowid=False,
)

trials = Table(
    "trials",
    metadata,
    Column("product_id", Id, ForeignKey(products.c.id), primary_key=True),
    Column("machine", LargeBinary(16), primary_key=True),  # a keyed hash (`KeyVault.pseudonym`)
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), nullable=True, index=True),
    Column("address", LargeBinary(16), nullable=False),  # the same, of the address that started it
    Column("started_at", Instant, nullable=False),
    Index(None, "product_id", "started_at"),
    comment="Machines that have had a trial; they stay here when the license of an ended one is deleted.",
    sqlite_with_rowid=False,
)

moves = Table(
    "moves",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("domain", Plain, primary_key=True),
    Column("ip", Plain, primary_key=True),
    Column("freed_at", Instant, nullable=False, index=True),
    comment="Slots that customers freed themselves in the last 30 days, which they may do a few times.",
    sqlite_with_rowid=False,
)

seats = Table(
    "seats",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("seat_id", LargeBinary(16), primary_key=True),  # drawn by the client
    Column("domain", Plain, nullable=False),
    Column("label", Text, nullable=True),
    Column("taken_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    # Released or taken back: kept until `expires_at`, so that a late request does not take it again.
    Column("is_ended", Boolean, nullable=False),
    comment="Floating seats: who uses a license now, and until when if the app does not renew it.",
    sqlite_with_rowid=False,
)

uses = Table(
    "uses",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("name", Slug, primary_key=True),
    Column("period", Slug, primary_key=True),
    Column("used", BigInteger, nullable=False),
    Column("kept_until", Instant, nullable=False, index=True),
    comment="How much of a metered entitlement was used in a day, month or year.",
    sqlite_with_rowid=False,
)

use_ids = Table(
    "use_ids",
    metadata,
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True),
    Column("use_id", Plain, primary_key=True),
    Column("kept_until", Instant, nullable=False, index=True),
    comment="What was counted already: a use that is sent again counts once.",
    sqlite_with_rowid=False,
)

audit = Table(
    "audit",
    metadata,
    Column("id", Id, primary_key=True),
    Column("at", Instant, nullable=False, index=True),
    Column("actor_kind", String(16), nullable=False),
    Column("actor_name", Plain, nullable=False),
    Column("action", Plain, nullable=False),
    Column("object_kind", String(16), nullable=False),
    Column("object_id", Plain, nullable=False),
    Column("details", Text, nullable=False),  # JSON, without keys and secrets
    CheckConstraint("actor_kind IN ('cli', 'token', 'user', 'system')", name="actor_kind"),
    Index(None, "object_kind", "object_id", "id"),
    Index(None, "actor_kind", "actor_name", "id"),
    comment="Who changed what, written in the transaction of the change; never changed, swept when old.",
)


totals = Table(
    "totals",
    metadata,
    Column("day", Date, primary_key=True),
    Column("name", String(64), primary_key=True),
    Column("product", Slug, primary_key=True),  # its slug; empty when it is nobody's
    Column("label", Plain, primary_key=True),
    Column("count", BigInteger, nullable=False),
    comment="What is counted of each day, in batches; plots are drawn from it.",
    sqlite_with_rowid=False,
)
