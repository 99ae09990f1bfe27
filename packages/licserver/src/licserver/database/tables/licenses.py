"""Tables of products, releases, licenses and their activations; with the audit log and statistics."""

from secrets import randbelow

import sqlalchemy as sa

from licserver.database.tables.types import (
    LARGE,
    Id,
    Instant,
    Plain,
    Short,
    Slug,
    holds,
    index,
    keyed_table,
    table,
)

facts = table(
    "facts",
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
    comment="What the database knows of itself: whose secrets it was written with.",
)


def _random_number() -> int:
    """Return a number for a state of a row.

    Not a count: after a promotion that lost a change, or a restore, the same count would mean another
    state. Servers of an earlier version count from it.
    """
    return randbelow(2**30)


products = table(
    "products",
    sa.Column("id", Id, primary_key=True),
    sa.Column("slug", Slug, nullable=False, unique=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("environment_policy", sa.String(16), nullable=False, key="policy"),
    sa.Column("has_support_policy", sa.Boolean, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    # What lists show: chosen in the transaction that publishes or withdraws. No foreign key: the two tables
    # would point at each other, and releases are never deleted.
    sa.Column("latest_release_id", Id),
    sa.Column("accepts_imported_keys", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("customer_moves", sa.Integer, nullable=False, server_default=sa.text("3")),
    sa.Column("trial_days", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("minimum_version", sa.Text),
    sa.Column("public_feed", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("after_support", sa.String(16), nullable=False, server_default=sa.text("'none'")),
    sa.Column("idle_days", sa.Integer, nullable=False, server_default=sa.text("0")),
    # Another one after each change of this row or the product's releases: servers keep what they have read
    # until it differs.
    sa.Column(
        "release_changes",
        sa.Integer,
        nullable=False,
        default=_random_number,
        onupdate=_random_number,
        server_default=sa.text("0"),
    ),
    sa.CheckConstraint("environment_policy IN ('strict', 'domain', 'either')", name="environment_policy"),
)

releases = table(
    "releases",
    sa.Column("id", Id, primary_key=True),
    sa.Column("product_id", Id, sa.ForeignKey(products.c.id), nullable=False),
    sa.Column("version", sa.Text, nullable=False),
    sa.Column("version_key", Plain, nullable=False),  # 1.0 and 1.0.0 are one version
    sa.Column("changelog", sa.Text, nullable=False),
    sa.Column("published_at", Instant, nullable=False),
    sa.Column("withdrawn_at", Instant),
    sa.Column("file_name", sa.Text, nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.LargeBinary(32), nullable=False),
    sa.Column("platform", Short, nullable=False, server_default=sa.text("''")),
    sa.Column("channel", Short, nullable=False, server_default=sa.text("'stable'")),
    # The same for all files of a version (`records.Rollout`).
    sa.Column("rollout", sa.Text),
    sa.Column("rollout_started_at", Instant),
    sa.Column("rollout_paused_at", Instant),
    sa.Column("critical_below", sa.Text),
    # Also the same for all files of a version (`records.WordPressFields`).
    sa.Column("requires", sa.Text),
    sa.Column("tested", sa.Text),
    sa.Column("requires_php", sa.Text),
    sa.Column("details_url", sa.Text),
    sa.Column("md5", sa.LargeBinary(16)),  # NULL for files from before schema 0030
    sa.Column("file_signatures", sa.Text),
    sa.Column("security", sa.Text),  # JSON (`records.SecurityNotice`); NULL: no security release
    sa.Column("kind", Short, nullable=False, server_default=sa.text("'folder'")),  # `records.FileKind`
    # The file with the empty platform is the default, for platforms without a file of their own.
    sa.UniqueConstraint("product_id", "version_key", "platform", "kind"),
)

manifests = table(
    "manifests",
    sa.Column("id", Id, primary_key=True),
    sa.Column("release_id", Id, sa.ForeignKey(releases.c.id), nullable=False, index=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("added_at", Instant, nullable=False),
    comment="Signed words about releases; a renewed one is a new row, and the newest counts.",
)

rollbacks = keyed_table(
    "rollbacks",
    sa.Column("release_id", Id, sa.ForeignKey(releases.c.id), primary_key=True),
    sa.Column("installation", sa.LargeBinary(16), primary_key=True),  # a digest of license and domain
    sa.Column("reported_at", Instant, nullable=False),
    sa.Column("exit_code", sa.BigInteger),  # of a set-up; NULL without one
    comment="Installations that went back from a release to the version before, as their apps report.",
)

plans = keyed_table(
    "plans",
    sa.Column("product_id", Id, sa.ForeignKey(products.c.id), primary_key=True),
    sa.Column("name", Slug, primary_key=True),
    sa.Column("entitlements", sa.Text, nullable=False),  # JSON, sent as it is
    sa.Column("created_at", Instant, nullable=False),
    comment="What licenses of a product are entitled to.",
)

patches = keyed_table(
    "patches",
    sa.Column("release_id", Id, sa.ForeignKey(releases.c.id), primary_key=True),
    sa.Column("base_sha256", sa.LargeBinary(32), primary_key=True),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("sha256", sa.LargeBinary(32), nullable=False),
    comment="Artifacts that make the file of a release out of an older one, named by its digest.",
)

_DECISIVE = "lifetime expires_on revoked_at subscription_ended_at support_until"
licenses = keyed_table(
    "licenses",
    sa.Column("id", sa.LargeBinary(16), primary_key=True),
    sa.Column("sealed_key", sa.LargeBinary, nullable=False, key="encrypted_key"),
    sa.Column("masked_key", Plain),  # as people see it: six of its thirty characters
    sa.Column("product_id", Id, sa.ForeignKey(products.c.id), nullable=False),
    sa.Column("product_name", sa.Text, nullable=False),
    sa.Column("issued_at", Instant, nullable=False),
    sa.Column("expires_on", sa.Date),
    sa.Column("lifetime", sa.Boolean, nullable=False),
    sa.Column("revoked_at", Instant),
    sa.Column("revoked_reason", sa.Text),
    sa.Column("slots", sa.Integer),
    sa.Column("allowed", sa.Text, nullable=False, server_default=sa.text("''")),  # an entry a line
    sa.Column("subscription_id", Plain),
    # Kept here and not in a table of subscriptions, so that the evaluation of a license reads no other shard.
    sa.Column("subscription_ended_at", Instant),
    sa.Column("support_until", sa.Date),
    sa.Column("customer_email", sa.Text),  # searched by way of license_words
    sa.Column("note", sa.Text),  # the same
    sa.Column("customer_language", sa.String(8)),
    # No foreign key: SQLite would copy the table to add one. `services.products` keeps plans in use.
    sa.Column("plan", Slug),
    sa.Column("overrides", sa.Text),  # JSON
    sa.Column("trial", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("floating_seats", sa.Integer),
    sa.Column("channels", sa.Text, nullable=False, server_default=sa.text("''")),  # a name a line
    sa.CheckConstraint("slots >= 0", name="slots"),
    # A list is read page by page along an index whose order ends with the id: a million may share an instant.
    # What decides a state follows, so that a license that does not match costs no look-up in the table.
    index("ix_licenses_by_issue", "issued_at id " + _DECISIVE),
    index("ix_licenses_by_product", "product_id issued_at id " + _DECISIVE),
    index("ix_licenses_by_masked_key", "masked_key id", holds("masked_key")),
    index("ix_licenses_subscription_id", "subscription_id", holds("subscription_id")),
    index("ix_licenses_by_plan", "product_id plan", holds("plan")),
    index("ix_licenses_by_revocation", "issued_at id product_id revoked_at", holds("revoked_at")),
    index(
        "ix_licenses_by_expiry",
        "expires_on id product_id lifetime revoked_at subscription_ended_at",
        holds("expires_on"),
    ),
    index(
        "ix_licenses_by_subscription_end",
        "subscription_ended_at id product_id lifetime expires_on revoked_at",
        holds("subscription_ended_at"),
    ),
    index("ix_licenses_trials", "issued_at id product_id", sa.column("trial", sa.Boolean).is_(sa.true())),
    postgresql_with=LARGE,
)

license_words = keyed_table(
    "license_words",
    sa.Column("word", Plain, primary_key=True),
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Index(None, "license_id", "word"),
    comment="Where a license is found by the beginning of a word of its e-mail address or its note.",
    postgresql_with=LARGE,
)

activations = keyed_table(
    "activations",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("domain", Plain, primary_key=True),
    sa.Column("ip", Plain, primary_key=True),
    sa.Column("activated_at", Instant, nullable=False),
    # At first `activated_at`, then stored every day, or as set, beside the hot paths
    # (`statistics.note_seen`). NULL in rows of older programs.
    sa.Column("last_seen_at", Instant),
    # Personal data, if the app sends it (D-195); refreshed with `last_seen_at`.
    sa.Column("label", sa.Text),
    sa.Column("app_version", sa.Text),
    # End of its machine's license file: until then neither customers nor sweeps free the slot.
    sa.Column("offline_until", Instant),
    # Not partial by `last_seen_at`: an update of what an index names, be it in its condition, is never HOT.
    index("ix_activations_by_domain", "domain license_id"),
    # Room for HOT updates of `last_seen_at`.
    postgresql_with={"fillfactor": 85, **LARGE},
)
# Not on SQLite: each new activation would write a page more. A search by address reads the table there.
_by_ip = sa.Index("ix_activations_by_ip", activations.c.ip, activations.c.license_id)
_by_ip.ddl_if(dialect="postgresql").info["dialect"] = "postgresql"

refusals = keyed_table(
    "refusals",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("domain", Plain, primary_key=True),
    sa.Column("ip", Plain, primary_key=True),
    sa.Column("reason", sa.String(16), primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False, key="times"),
    sa.Column("first_at", Instant, nullable=False),
    sa.Column("last_at", Instant, nullable=False, index=True),
    sa.Index(None, "domain"),
    sa.Index(None, "ip"),
    comment="Where a license was refused lately, and why; written in batches, kept for 30 days.",
    postgresql_with=LARGE,
)

trials = keyed_table(
    "trials",
    sa.Column("product_id", Id, sa.ForeignKey(products.c.id), primary_key=True),
    sa.Column("machine", sa.LargeBinary(16), primary_key=True),  # a keyed hash (`KeyVault.pseudonym`)
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), index=True),
    sa.Column("address", sa.LargeBinary(16), nullable=False),  # the same, of the address that started it
    sa.Column("started_at", Instant, nullable=False),
    sa.Column("network", sa.LargeBinary(16)),  # the same, of that address's network
    sa.Index(None, "product_id", "started_at"),
    comment="Machines that have had a trial; they stay here when the license of an ended one is deleted.",
)

moves = keyed_table(
    "moves",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("domain", Plain, primary_key=True),
    sa.Column("ip", Plain, primary_key=True),
    sa.Column("freed_at", Instant, nullable=False, index=True),
    # Of programs before schema 0038, which know no `slot_moves`.
    comment="Slots that customers freed themselves in the last 30 days, which they may do a few times.",
)

slot_moves = keyed_table(
    "slot_moves",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("freed_at", Instant, primary_key=True, index=True),  # of one move, the same in all its rows
    sa.Column("domain", Plain, primary_key=True),
    sa.Column("ip", Plain, primary_key=True),
    comment="Slots that customers freed themselves in the last 30 days, which they may do a few times.",
)

move_records = keyed_table(
    "move_records",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("moved_at", Instant, primary_key=True, index=True),
    sa.Column("domain", Plain, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("to_domain", Plain, nullable=False),
    sa.Column("to_label", sa.Text),
    comment="Which computer got the slot of which in the last 30 days, for what the former one is shown.",
)

shared_licenses = keyed_table(
    "shared_licenses",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("marked_at", Instant, nullable=False, index=True),  # the last time
    sa.Column("announced_at", Instant, nullable=False),  # when the last event was written
    comment="Licenses that went to and fro between computers in the last 30 days.",
)

seats = keyed_table(
    "seats",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("seat_id", sa.LargeBinary(16), primary_key=True),  # drawn by the client
    sa.Column("domain", Plain, nullable=False),
    sa.Column("label", sa.Text),
    sa.Column("taken_at", Instant, nullable=False),
    sa.Column("expires_at", Instant, nullable=False, index=True),
    # Released or taken back: kept until `expires_at`, so that a late request does not take it again.
    sa.Column("is_ended", sa.Boolean, nullable=False),
    comment="Floating seats: who uses a license now, and until when if the app does not renew it.",
)

uses = keyed_table(
    "uses",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("name", Slug, primary_key=True),
    sa.Column("period", Slug, primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    sa.Column("kept_until", Instant, nullable=False, index=True),
    comment="How much of a metered entitlement was used in a day, month or year.",
)

use_ids = keyed_table(
    "use_ids",
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True),
    sa.Column("use_id", Plain, primary_key=True),
    sa.Column("kept_until", Instant, nullable=False, index=True),
    # What was counted under the id; NULL in rows of older programs.
    sa.Column("name", Slug),
    sa.Column("amount", sa.BigInteger),
    comment="What was counted already: a use that is sent again counts once.",
    postgresql_with=LARGE,
)

audit = table(
    "audit",
    sa.Column("id", Id, primary_key=True),
    sa.Column("at", Instant, nullable=False, index=True),
    sa.Column("actor_kind", sa.String(16), nullable=False),
    sa.Column("actor_name", Plain, nullable=False),
    sa.Column("action", Plain, nullable=False),
    sa.Column("object_kind", sa.String(16), nullable=False),
    sa.Column("object_id", Plain, nullable=False),
    sa.Column("details", sa.Text, nullable=False),  # JSON, without keys and secrets
    sa.CheckConstraint("actor_kind IN ('cli', 'token', 'user', 'system')", name="actor_kind"),
    sa.Index(None, "object_kind", "object_id", "id"),
    sa.Index(None, "actor_kind", "actor_name", "id"),
    comment="Who changed what, written in the transaction of the change; never changed, swept when old.",
    postgresql_with=LARGE,
)

totals = keyed_table(
    "totals",
    sa.Column("day", sa.Date, primary_key=True),
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("product", Slug, primary_key=True),  # its slug; empty without a product
    sa.Column("label", Plain, primary_key=True),
    sa.Column("count", sa.BigInteger, nullable=False),
    comment="What is counted of each day, in batches; plots are drawn from it.",
)
