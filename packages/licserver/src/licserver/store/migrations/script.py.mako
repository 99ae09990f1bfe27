"""${message}."""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Make the schema of this revision."""
    ${upgrades if upgrades else "pass"}


def downgrade() -> None:
    """Make the schema of the revision before."""
    ${downgrades if downgrades else "pass"}
