"""Tables of access: users, tokens, sessions, and attempts to sign in."""

import sqlalchemy as sa

from licserver.database.tables.licenses import licenses
from licserver.database.tables.types import Id, Instant, Plain, keyed_table, table

tokens = table(
    "tokens",
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", Plain, nullable=False, unique=True),
    sa.Column("token_hash", sa.LargeBinary(32), nullable=False, unique=True),
    sa.Column("scope", sa.String(16), nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("expires_on", sa.Date),
    sa.Column("revoked_at", Instant),
    sa.Column("last_used_on", sa.Date),
    sa.CheckConstraint("scope IN ('read', 'write')", name="scope"),
    comment="Who may use the admin API.",
)

users = table(
    "users",
    sa.Column("id", Id, primary_key=True),
    sa.Column("name", Plain, nullable=False, unique=True),
    sa.Column("password_hash", sa.Text, nullable=False),  # argon2
    sa.Column("password_changed_at", Instant, nullable=False),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("role", sa.String(16), nullable=False, server_default="owner"),
    comment="Who may sign in to the console.",
)

sessions = keyed_table(
    "sessions",
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False, index=True),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("expires_at", Instant, nullable=False, index=True),
    sa.Column("last_used_at", Instant, nullable=False),  # to the minute
    sa.Column("is_pending", sa.Boolean, nullable=False),  # the second factor is still missing
)

account_sessions = keyed_table(
    "account_sessions",
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),
    sa.Column("license_id", sa.LargeBinary(16), sa.ForeignKey(licenses.c.id), primary_key=True, index=True),
    sa.Column("expires_at", Instant, nullable=False, index=True),
    comment="Sessions of the customer's page, with a row for each license that they may see.",
)

account_codes = keyed_table(
    "account_codes",
    sa.Column("token_hash", sa.LargeBinary(32), primary_key=True),  # of the requesting browser
    sa.Column("code_hash", sa.LargeBinary(32), nullable=False),
    # Keyed digests: of the e-mail address; of the client's address and its network, NULL of older programs.
    sa.Column("address", sa.LargeBinary(16), nullable=False, index=True),
    sa.Column("license_ids", sa.LargeBinary, nullable=False),  # one after the other
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("expires_at", Instant, nullable=False, index=True),
    sa.Column("client", sa.LargeBinary(16)),
    sa.Column("network", sa.LargeBinary(16), index=True),
    comment="Codes that were sent to customers, or would have been: an unknown address has no licenses.",
)

second_factors = table(
    "second_factors",
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("sealed_secret", sa.LargeBinary, nullable=False, key="encrypted_secret"),
    sa.Column("created_at", Instant, nullable=False),
    sa.Column("confirmed_at", Instant),  # NULL until a first code was right
    sa.Column("last_step", sa.BigInteger, nullable=False),  # of the last accepted code: none is used twice
    sa.Column("failures", sa.Integer, nullable=False),  # wrong codes in a row
    sa.Column("failed_at", Instant),
    comment="The second factor of users of the console: TOTP (RFC 6238).",
)

recovery_codes = keyed_table(
    "recovery_codes",
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("digest", sa.LargeBinary(16), primary_key=True),  # keyed
    comment="Codes that replace a second factor once; a used one is deleted.",
)

known_addresses = keyed_table(
    "known_addresses",
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    sa.Column("address", sa.LargeBinary(16), primary_key=True),  # a keyed digest
    sa.Column("last_used_at", Instant, nullable=False, index=True),
    comment="Where users have signed in from: others cannot use up their attempts there (D-165).",
)

failed_logins = keyed_table(
    "failed_logins",
    sa.Column("action", sa.String(32), primary_key=True),
    sa.Column("subject", Plain, primary_key=True),  # an existing user or token; empty for all others together
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("count", sa.BigInteger, nullable=False),
    comment="Failed logins and refused tokens of a day; the audit log has the 1st, the 10th, the 100th.",
)

idempotency_keys = table(
    "receipts",
    sa.Column("id", Id, primary_key=True),
    # Whose it is: of one of the two.
    sa.Column("token_id", Id, sa.ForeignKey(tokens.c.id)),
    sa.Column("user_id", Id, sa.ForeignKey(users.c.id, ondelete="CASCADE")),
    sa.Column("key", Plain, nullable=False),
    sa.Column("digest", sa.LargeBinary(32), nullable=False),
    sa.Column("status", sa.Integer, nullable=False),
    sa.Column("answer", sa.LargeBinary, nullable=False, key="response"),  # encrypted: may hold license keys
    sa.Column("created_at", Instant, nullable=False, index=True),
    sa.UniqueConstraint("token_id", "key"),
    sa.UniqueConstraint("user_id", "key"),
    sa.CheckConstraint("(token_id IS NULL) <> (user_id IS NULL)", name="owner"),
    comment="What was answered to a creation, for who asks again; kept for a day.",
)

tries = keyed_table(
    "tries",
    sa.Column("minute", sa.BigInteger, primary_key=True),  # since 1970
    # An address or a name, keyed hash.
    sa.Column("who", sa.LargeBinary(16), primary_key=True, key="subject"),
    sa.Column("count", sa.Integer, nullable=False),
    comment="How often passwords of the console were tried lately, by address and by name (D-131).",
)

daily_counts = keyed_table(
    "daily_counts",
    sa.Column("day", sa.Date, primary_key=True),
    # The counter and its subject, keyed hash.
    sa.Column("who", sa.LargeBinary(16), primary_key=True, key="subject"),
    sa.Column("count", sa.Integer, nullable=False),
    comment="How often something was done on a day that is bounded by day; swept after two days.",
)
