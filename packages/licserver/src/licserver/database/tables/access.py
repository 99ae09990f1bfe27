"""Who may do what: users, tokens, sessions, and attempts to sign in."""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Integer,
    LargeBinary,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from licserver.database.tables.licenses import licenses
from licserver.database.tables.types import Id, Instant, Plain, metadata

tokens = Table(
    "tokens",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Plain, nullable=False, unique=True),
    Column("token_hash", LargeBinary(32), nullable=False, unique=True),
    Column("scope", String(16), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_on", Date, nullable=True),
    Column("revoked_at", Instant, nullable=True),
    Column("last_used_on", Date, nullable=True),
    CheckConstraint("scope IN ('read', 'write')", name="scope"),
    comment="Who may use the admin API.",
)


users = Table(
    "users",
    metadata,
    Column("id", Id, primary_key=True),
    Column("name", Plain, nullable=False, unique=True),
    Column("password_hash", Text, nullable=False),  # argon2
    Column("password_changed_at", Instant, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("role", String(16), nullable=False, server_default="owner"),
    comment="Who may sign in to the console.",
)


sessions = Table(
    "sessions",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),
    Column("user_id", Id, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=False, index=True),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    Column("last_used_at", Instant, nullable=False),  # to the minute
    Column(
        "is_pending", Boolean, nullable=False
    ),  # the password was right, the second factor is still missing
    sqlite_with_rowid=False,
)


account_sessions = Table(
    "account_sessions",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),
    Column("license_id", LargeBinary(16), ForeignKey(licenses.c.id), primary_key=True, index=True),
    Column("expires_at", Instant, nullable=False, index=True),
    comment="Sessions of the customer's page, with a row for each license that they may see.",
    sqlite_with_rowid=False,
)

account_codes = Table(
    "account_codes",
    metadata,
    Column("token_hash", LargeBinary(32), primary_key=True),  # of the browser that asked
    Column("code_hash", LargeBinary(32), nullable=False),
    Column("address", LargeBinary(16), nullable=False, index=True),  # a keyed digest
    Column("license_ids", LargeBinary, nullable=False),  # one after the other
    Column("attempts", Integer, nullable=False),
    Column("expires_at", Instant, nullable=False, index=True),
    comment="Codes that were sent to customers, or would have been: an unknown address has no licenses.",
    sqlite_with_rowid=False,
)


second_factors = Table(
    "second_factors",
    metadata,
    Column("user_id", Id, ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("sealed_secret", LargeBinary, nullable=False, key="encrypted_secret"),
    Column("created_at", Instant, nullable=False),
    Column("confirmed_at", Instant, nullable=True),  # NULL until a first code was right
    Column("last_step", BigInteger, nullable=False),  # of the last code that was accepted: none is used twice
    Column("failures", Integer, nullable=False),  # wrong codes in a row
    Column("failed_at", Instant, nullable=True),
    comment="The second factor of users of the console: TOTP (RFC 6238).",
)


recovery_codes = Table(
    "recovery_codes",
    metadata,
    Column("user_id", Id, ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("digest", LargeBinary(16), primary_key=True),  # keyed
    comment="Codes that replace a second factor once; a used one is deleted.",
    sqlite_with_rowid=False,
)


known_addresses = Table(
    "known_addresses",
    metadata,
    Column("user_id", Id, ForeignKey(users.c.id, ondelete="CASCADE"), primary_key=True),
    Column("address", LargeBinary(16), primary_key=True),  # a keyed digest
    Column("last_used_at", Instant, nullable=False, index=True),
    comment="Where users have signed in from: others cannot use up their attempts there (D-165).",
    sqlite_with_rowid=False,
)


failed_logins = Table(
    "failed_logins",
    metadata,
    Column("action", String(32), primary_key=True),
    Column("subject", Plain, primary_key=True),  # an existing user or token; empty for all others together
    Column("day", Date, nullable=False),
    Column("count", BigInteger, nullable=False),
    comment="Failed logins and refused tokens of a day; the audit log has the 1st, the 10th, the 100th.",
    sqlite_with_rowid=False,
)


idempotency_keys = Table(
    "receipts",
    metadata,
    Column("id", Id, primary_key=True),
    # Whose it is: of one of the two.
    Column("token_id", Id, ForeignKey(tokens.c.id), nullable=True),
    Column("user_id", Id, ForeignKey(users.c.id, ondelete="CASCADE"), nullable=True),
    Column("key", Plain, nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("status", Integer, nullable=False),
    Column("answer", LargeBinary, nullable=False, key="response"),  # encrypted: it may hold license keys
    Column("created_at", Instant, nullable=False, index=True),
    UniqueConstraint("token_id", "key"),
    UniqueConstraint("user_id", "key"),
    CheckConstraint("(token_id IS NULL) <> (user_id IS NULL)", name="owner"),
    comment="What was answered to a creation, for who asks again; kept for a day.",
)


tries = Table(
    "tries",
    metadata,
    Column("minute", BigInteger, primary_key=True),  # since 1970
    Column("who", LargeBinary(16), primary_key=True),  # an address or a name, by a secret of ours
    Column("count", Integer, nullable=False),
    comment="How often passwords of the console were tried lately, by address and by name (D-131).",
    sqlite_with_rowid=False,
)
