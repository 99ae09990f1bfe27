"""Indexes for lists of licenses whose filters are SQL: with what decides a state, and words by license."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_DECISIVE = ("lifetime", "expires_on", "revoked_at", "subscription_ended_at", "support_until")
_INDEXES: dict[str, tuple[str | None, str]] = {
    "ix_licenses_by_issue": (None, " ".join(("issued_at id", *_DECISIVE))),
    "ix_licenses_by_product": (None, " ".join(("product_id issued_at id", *_DECISIVE))),
    "ix_licenses_by_expiry": (
        "expires_on",
        "expires_on id product_id lifetime revoked_at subscription_ended_at",
    ),
    "ix_licenses_by_subscription_end": (
        "subscription_ended_at",
        "subscription_ended_at id product_id lifetime expires_on revoked_at",
    ),
    "ix_licenses_by_revocation": ("revoked_at", "issued_at id product_id revoked_at"),
}


def upgrade() -> None:
    """Replace the indexes: new ones first, because dropping an index of PostgreSQL blocks its readers."""
    op.create_index("ix_license_words_license_id_word", "license_words", ["license_id", "word"])
    for name, (held, columns) in _INDEXES.items():
        where = None if held is None else sa.column(held).is_not(None)
        op.create_index(name, "licenses", columns.split(), sqlite_where=where, postgresql_where=where)
    for name in ("issued_at_id", "product_id_issued_at_id", "expires_on", "revoked"):
        op.drop_index(f"ix_licenses_{name}", "licenses")
