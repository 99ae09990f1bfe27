"""A schema that only adds serves the program before it, and the step to it keeps nobody waiting."""

import io
import os
import threading
import time
from contextlib import suppress

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import MetaData, inspect

from harness import engines
from harness.engines import both_engines, postgresql_only
from licserver.database import migrate, schema
from licserver.database.engine import connect
from licserver.database.migrations import online
from licserver.database.schema import open_database
from licserver.domain.records import LicenseTerms
from licserver.errors import LicserverError, StoreError
from licserver.services.backup import write_backup
from licserver.services.installation import open_services

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, online steps

NEXT = f"""
import sqlalchemy as sa
from alembic import op
from licserver.database.migrations.online import create_index, drop_index, update_in_pieces

revision, down_revision, oldest_program = "9999", "{schema.HEAD}", "{schema.HEAD}"
words = sa.table("licenses", sa.column("id"), sa.column("product_name"), sa.column("shown_name"))


def upgrade():
    if "shown_name" not in {{one["name"] for one in sa.inspect(op.get_bind()).get_columns("licenses")}}:
        op.add_column("licenses", sa.Column("shown_name", sa.Text))
    update_in_pieces(words, "id", {{"shown_name": words.c.product_name}}, words.c.shown_name.is_(None))
    create_index("ix_licenses_shown", "licenses", ["shown_name", "id"])


def downgrade():
    drop_index("ix_licenses_shown", "licenses")
    op.drop_column("licenses", "shown_name")
"""


@pytest.fixture
def make_database_url(engine_name, request):
    """Give the URL of a database whose schema may be changed."""
    if engine_name != "postgresql":
        yield lambda: None
        return
    server = request.getfixturevalue("postgres")
    name = server.lend()
    yield lambda: server.url(name)
    server.drop(name)


@pytest.fixture
def next_step(tmp_path, monkeypatch):
    """Let the program that upgrades have one more step."""

    def write(source=NEXT):
        folder = tmp_path / "next"
        folder.mkdir(exist_ok=True)
        (folder / "9999_next.py").write_text(source)
        config = migrate.make_config()
        config.set_main_option("version_locations", f"{schema._MIGRATIONS}{os.pathsep}{folder}")
        monkeypatch.setattr(migrate, "make_config", lambda: migrate_config(config))

    def migrate_config(config):
        config.attributes.clear()
        return config

    return write


@pytest.fixture
def url(world):
    """The address of the world's database."""
    return world.services.context.settings.database


def step_back(url):
    """Take the next step back, as the program that has it."""
    database = connect(url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "HEAD", "9999")
        patch.setattr(schema, "REVISIONS", (*schema.REVISIONS, "9999"))
        assert migrate.downgrade(database) == schema.REVISIONS[-2]
    database.close()


@both_engines
def test_a_program_serves_its_schema_and_the_next_one(world, url, next_step):
    """It goes on, and starts, on a schema that only adds; a step back is as if nothing had been."""
    keys = [world.key() for _ in range(3)]
    next_step()
    assert migrate.upgrade(world.services.database) == schema.HEAD
    assert schema.read_version(world.services.database) == "9999"
    again = open_services(world.settings, world.clock)
    try:
        keys += [key for batch in again.licenses.issue_batches("app", LicenseTerms(), 2) for key in batch]
        assert migrate.upgrade(again.database) == "9999"  # the older program has nothing to do
        assert migrate.read_status(again.database).counts["licenses"] == 5
    finally:
        again.close()
    step_back(url)
    assert migrate.differences(world.services.database) == []
    assert all(world.services.licenses.get(key) for key in keys)


@both_engines
@pytest.mark.parametrize("oldest", ["", 'oldest_program = "9998"'])
def test_a_step_that_takes_something_away_ends_older_programs(world, url, next_step, oldest):
    """Unless the step says otherwise, a newer schema is refused."""
    next_step(f"{NEXT}\n{oldest or 'del oldest_program'}\n")
    migrate.upgrade(world.services.database)
    with pytest.raises(StoreError, match="use a newer licserver"):
        open_database(url, world.services.vault.fingerprint)


@both_engines
def test_an_older_program_makes_no_backup(world, next_step):
    """It would leave out what the newer one has added."""
    next_step()
    migrate.upgrade(world.services.database)
    with pytest.raises(StoreError, match="make it with the newer licserver"):
        write_backup(world.services, io.BytesIO(), world.clock())


@pytest.mark.slow
@both_engines
def test_without_a_way_back_nothing_is_taken_back(world, next_step, monkeypatch):
    """Neither a step that has none, nor one of another program."""
    next_step(NEXT.partition("def downgrade")[0])
    with pytest.raises(StoreError, match=f"has schema {schema.HEAD}; only the licserver that made it"):
        migrate.downgrade(world.services.database)
    migrate.upgrade(world.services.database)
    monkeypatch.setattr(schema, "HEAD", "9999")
    with pytest.raises(StoreError, match="no way back; restore a backup"):
        migrate.downgrade(world.services.database)


@pytest.mark.slow
def test_a_step_that_older_programs_serve_only_adds():
    """What the older tables have stays; new columns may be left out by who inserts a row."""
    script = ScriptDirectory.from_config(migrate.make_config())
    for step in script.walk_revisions():
        oldest = getattr(step.module, "oldest_program", step.revision)
        if oldest != step.revision:
            compare(*(tables_of(revision) for revision in (oldest, step.revision)))


def tables_of(revision):
    """Return the columns and unique constraints of a revision's tables."""
    with engines.sqlite_file() as url:
        database = connect(url)
        migrate.migrate(database, lambda config: command.upgrade(config, revision))
        found, tables = MetaData(), inspect(database.engine)
        found.reflect(database.engine)
        unique = {name: tables.get_unique_constraints(name) for name in found.tables}
        database.close()
    return found.tables, unique


def compare(before, after):
    """Check that rows of the tables before can be read and written in those after."""
    for name, table in before[0].items():
        later = after[0][name]
        for column in table.columns:
            assert str(later.c[column.name].type) == str(column.type)
            assert later.c[column.name].nullable == column.nullable
        for column in later.columns:
            assert column.name in table.c or column.nullable or column.server_default is not None
        columns = [{*constraint["column_names"]} for constraint in before[1][name]]
        assert len(columns) == len(after[1][name])
        for constraint in after[1][name]:  # of more columns refuses no row that was good before
            assert any(fewer <= {*constraint["column_names"]} for fewer in columns)


@postgresql_only
def test_a_step_waits_for_others_and_nobody_for_it(world, url, next_step, monkeypatch):
    """While a long transaction holds the table, tries fail after 0.3 s; requests pass between them."""
    monkeypatch.setattr(migrate, "_LOCK_TIMEOUTS", ("300ms",))
    key = world.key()
    next_step()
    database, done = connect(url), threading.Event()

    def upgrade():
        migrate.upgrade(database)
        done.set()

    thread = threading.Thread(target=upgrade)
    with world.services.database.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM licenses")
        thread.start()
        longest, until = 0.0, time.monotonic() + 2
        while time.monotonic() < until:
            began = time.monotonic()
            assert world.services.licenses.get(key)
            longest = max(longest, time.monotonic() - began)
        assert not done.is_set()
    thread.join(30)
    assert done.is_set()
    database.close()
    assert 0.1 < longest < 1.2


@postgresql_only
def test_after_too_long_a_step_gives_up_and_can_be_run_again(world, url, next_step, monkeypatch):
    """The command ends with one line; once the way is free the next one does it."""
    monkeypatch.setattr(migrate, "_PATIENCE", 0.5)
    next_step()
    database = connect(url)
    with world.services.database.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM licenses")
        with pytest.raises(LicserverError, match="end long transactions"):
            migrate.upgrade(database)
    assert schema.read_version(database) == schema.HEAD
    migrate.upgrade(database)
    assert schema.read_version(database) == "9999"
    database.close()


@postgresql_only
def test_the_time_that_a_step_works_is_no_waiting(world, url, next_step, monkeypatch):
    """A step that has changed rows for longer than others are waited for waits for them all the same."""
    monkeypatch.setattr(migrate, "_PATIENCE", 0.5)
    next_step(NEXT.replace("def upgrade():", "def upgrade():\n    import time\n    time.sleep(0.6)"))
    database, problems = connect(url), []

    def upgrade():
        try:
            migrate.upgrade(database)
        except LicserverError as problem:
            problems.append(problem)

    thread = threading.Thread(target=upgrade)
    with world.services.database.reading() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM licenses")
        thread.start()
        time.sleep(1.5)  # the first try has failed
    thread.join(30)
    assert problems == []
    assert schema.read_version(database) == "9999"
    database.close()


@postgresql_only
def test_an_interrupted_index_is_made_anew(world, next_step):
    """PostgreSQL leaves an invalid one behind, which no query uses."""
    world.key()
    next_step(NEXT.replace("def downgrade", '    raise RuntimeError("power cut")\n\n\ndef downgrade'))
    database = world.services.database
    with pytest.raises(RuntimeError):
        migrate.upgrade(database)
    with database.writing() as connection:
        connection.exec_driver_sql(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'ix_licenses_shown'::regclass"
        )
    next_step()
    migrate.upgrade(database)
    with database.reading() as connection:
        assert connection.exec_driver_sql(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'ix_licenses_shown'::regclass"
        ).scalar_one()
        assert connection.exec_driver_sql("SELECT DISTINCT shown_name FROM licenses").scalars().all() == [
            "App"
        ]


@pytest.mark.postgresql
def test_steps_that_are_interrupted_go_on(empty_database, monkeypatch):
    """After each of their long operations: what a step did before it is done again without harm."""
    done = set()

    def interrupt_after(name, work):
        def run(*arguments, **options):  # noqa: ANN002, ANN003
            work(*arguments, **options)
            if (call := (name, str(arguments))) not in done:
                done.add(call)
                raise InterruptedError

        monkeypatch.setattr(online, name, run)

    database = connect(empty_database)
    migrate.migrate(database, lambda config: command.upgrade(config, schema.REVISIONS[0]))
    for name in ("create_index", "drop_index", "set_storage", "update_in_pieces"):
        interrupt_after(name, getattr(online, name))
    while schema.read_version(database) != schema.HEAD:
        with suppress(InterruptedError):
            migrate.upgrade(database)
    assert {name for name, _ in done} >= {"create_index", "drop_index", "set_storage"}
    assert migrate.differences(database) == []
    database.close()
