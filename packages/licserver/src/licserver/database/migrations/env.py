"""What Alembic runs for every command; the connection and its transaction are the caller's."""

from alembic import context

from licserver.database.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by making it anew
)
context.run_migrations()
