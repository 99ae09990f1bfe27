"""Run by Alembic for every command; the connection is the caller's."""

from typing import Any

from alembic import context

from licserver.database.schema import note_oldest_program
from licserver.database.tables import metadata
from licserver.database.tables.types import included_on

_is_online: bool = context.config.attributes.get("online", False)


def _note(ctx: Any, step: Any, *_: Any, **__: Any) -> None:
    """Store which programs the new schema serves, as its step declares; by default only its own."""
    script = step.up_revision if step.is_upgrade else step.down_revisions[0]
    oldest = getattr(script.module, "oldest_program", script.revision)
    note_oldest_program(ctx.connection, script.revision, oldest)


_connection = context.config.attributes["connection"]
context.configure(
    connection=_connection,
    target_metadata=metadata,
    include_object=included_on(_connection.dialect.name),
    render_as_batch=True,  # SQLite changes a table by making it anew
    transaction_per_migration=_is_online,
    on_version_apply=_note,
)
with context.begin_transaction():  # without effect in a transaction of the caller
    context.run_migrations()
