"""A version has a file for each platform and kind."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
oldest_program = "0039"

_SHORT = sa.String(40).with_variant(sa.String(40, collation="C"), "postgresql")
_FILE = ["product_id", "version_key", "platform"]
_UNIQUE = "uq_releases_product_id_version_key_platform"
_KINDS = ("folder", "appimage", "nsis", "inno", "msi", "app")


def _platform() -> sa.Column[str]:
    """Return the column as it is: SQLite's batch would write its empty default in parentheses."""
    return sa.Column("platform", _SHORT, nullable=False, server_default=sa.text("''"))


def upgrade() -> None:
    """Add the column: files from before are offered to apps that name no kind, as until now."""
    kind: sa.Column[str] = sa.Column("kind", _SHORT, nullable=False, server_default=sa.text("'folder'"))
    with op.batch_alter_table("releases", reflect_args=(_platform(),)) as releases:
        releases.add_column(kind)
        releases.drop_constraint(_UNIQUE, type_="unique")
        releases.create_unique_constraint(f"{_UNIQUE}_kind", [*_FILE, "kind"])


def downgrade() -> None:
    """Drop it. Of a version's files for a platform one stays; the others get a platform that no app names."""
    releases = sa.table("releases", *map(sa.column, ("id", *_FILE, "kind")))
    others = releases.alias("others")
    own, of_others = (
        sa.case({kind: index for index, kind in enumerate(_KINDS)}, value=table.c.kind)
        for table in (releases, others)
    )
    same = [releases.c[name] == others.c[name] for name in _FILE]
    has_better = sa.exists().where(*same, of_others < own)
    renamed = sa.func.substr(releases.c.kind + "." + releases.c.platform, 1, 40)
    # All rows are compared before the first is changed: by then the platforms would differ.
    op.execute(sa.update(releases).where(has_better).values(platform=renamed))
    with op.batch_alter_table("releases", reflect_args=(_platform(),)) as table:
        table.drop_constraint(f"{_UNIQUE}_kind", type_="unique")
        table.create_unique_constraint(_UNIQUE, _FILE)
        table.drop_column("kind")
