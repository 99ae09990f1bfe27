"""HOT updates of `last_seen_at`, and an autovacuum that keeps up with large tables."""

import sqlalchemy as sa

from licserver.database.migrations.online import create_index, drop_index, set_storage

revision = "0029"
down_revision = "0028"
oldest_program = "0028"

_LARGE = {
    "autovacuum_analyze_scale_factor": 0.02,
    "autovacuum_vacuum_insert_scale_factor": 0.05,
    "autovacuum_vacuum_scale_factor": 0.02,
}
_DEFAULTS = dict(zip(_LARGE, (0.1, 0.2, 0.2), strict=True))
_TABLES = ("audit", "license_words", "licenses", "refusals", "use_ids")


def upgrade() -> None:
    """Replace the indexes whose condition names `last_seen_at`; leave room in the pages of the table."""
    for column in ("domain", "ip"):
        create_index(f"ix_activations_by_{column}", "activations", [column, "license_id"])
        drop_index(f"ix_activations_{column}", "activations")
    set_storage("activations", fillfactor=85, **_LARGE)
    for table in _TABLES:
        set_storage(table, **_LARGE)


def downgrade() -> None:
    """Make the old indexes again."""
    is_seen = sa.column("last_seen_at").is_not(None)
    where = {"sqlite_where": is_seen, "postgresql_where": is_seen}
    for column in ("domain", "ip"):
        create_index(f"ix_activations_{column}", "activations", [column, "license_id"], **where)
        drop_index(f"ix_activations_by_{column}", "activations")
    set_storage("activations", fillfactor=100, **_DEFAULTS)
    for table in _TABLES:
        set_storage(table, **_DEFAULTS)
