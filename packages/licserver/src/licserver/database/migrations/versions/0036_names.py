"""Domains in their normal form (D-06): one machine has one slot, for every spelling of the name."""

from licserver.database.migrations.online import apply_changes
from licserver.database.names import find_changes

revision = "0036"
down_revision = "0035"
oldest_program = "0028"


def upgrade() -> None:
    """Rename the rows of names with underscores, emoji, ports and the like; merge those of one environment.

    A server of an earlier version does not find such a row under the name that it stores, and takes a slot
    under that name. The next sweep merges the two.
    """
    apply_changes(find_changes)


def downgrade() -> None:
    """Leave the rows: what was sent is not stored."""
