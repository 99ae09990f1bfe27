"""Second factors, idle sessions, known addresses and counts of failed logins."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_INSTANT = sa.DateTime(timezone=True)
_PLAIN = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    """Add the tables. All users sign in anew: it is not known when their sessions were last used."""
    op.drop_table("sessions")
    op.create_table(
        "sessions",
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("user_id", _NUMBER, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.Column("last_used_at", _INSTANT, nullable=False),
        sa.Column("is_pending", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("token_hash", name="pk_sessions"),
        _of_user("sessions"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_sessions_user_id", "sessions", ["user_id"])
    op.create_index("ix_sessions_expires_at", "sessions", ["expires_at"])
    op.create_table(
        "second_factors",
        sa.Column("user_id", _NUMBER, nullable=False),
        sa.Column("sealed_secret", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("confirmed_at", _INSTANT, nullable=True),
        sa.Column("last_step", sa.BigInteger(), nullable=False),
        sa.Column("failures", sa.Integer(), nullable=False),
        sa.Column("failed_at", _INSTANT, nullable=True),
        sa.PrimaryKeyConstraint("user_id", name="pk_second_factors"),
        _of_user("second_factors"),
        comment="The second factor of users of the console: TOTP (RFC 6238).",
    )
    op.create_table(
        "recovery_codes",
        sa.Column("user_id", _NUMBER, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.PrimaryKeyConstraint("user_id", "digest", name="pk_recovery_codes"),
        _of_user("recovery_codes"),
        comment="Codes that replace a second factor once; a used one is deleted.",
        sqlite_with_rowid=False,
    )
    op.create_table(
        "known_addresses",
        sa.Column("user_id", _NUMBER, nullable=False),
        sa.Column("address", sa.LargeBinary(16), nullable=False),
        sa.Column("last_used_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("user_id", "address", name="pk_known_addresses"),
        _of_user("known_addresses"),
        comment="Where users have signed in from: others cannot use up their attempts there (D-165).",
        sqlite_with_rowid=False,
    )
    op.create_index("ix_known_addresses_last_used_at", "known_addresses", ["last_used_at"])
    op.create_table(
        "failed_logins",
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("subject", _PLAIN, nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("count", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("action", "subject", name="pk_failed_logins"),
        comment="Failed logins and refused tokens of a day; the audit log has the 1st, the 10th, the 100th.",
        sqlite_with_rowid=False,
    )


def _of_user(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["user_id"], ["users.id"], name=f"fk_{table}_user_id", ondelete="CASCADE")
