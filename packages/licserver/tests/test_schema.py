"""The schema and its migrations: one shape by every way, and no other is served."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from harness import engines
from licserver.database import migrate, schema
from licserver.database.engine import connect
from licserver.database.schema import open_database
from licserver.database.tables import metadata
from licserver.errors import StoreError, StoreUnavailableError

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps

SECRETS = b"of this vendor"


@pytest.fixture
def url(engine_name, request, tmp_path):
    """The URL of an empty database, on either engine."""
    if engine_name == "postgresql":
        return request.getfixturevalue("empty_database")
    (tmp_path / "empty.sqlite3").touch()  # a file that is missing is never created by opening it
    return f"sqlite+pysqlite:///{tmp_path / 'empty.sqlite3'}"


@pytest.fixture
def database(url):
    """The empty database, open."""
    database = connect(url)
    yield database
    database.close()


PARTS_OF_POSTGRESQL = """
    SELECT table_name, concat_ws(' ', column_name, data_type, character_maximum_length, collation_name,
           is_nullable, column_default) FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT conrelid::regclass::text, conname || ' ' || pg_get_constraintdef(oid)
              FROM pg_constraint WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT relname, array_to_string(ARRAY(SELECT unnest(reloptions) ORDER BY 1), ' ')
              FROM pg_class WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL
    UNION ALL SELECT objoid::regclass::text, description FROM pg_description
              WHERE classoid = 'pg_class'::regclass AND objoid IN
                    (SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace)
"""


def parts(database):
    """Everything of which a database's schema consists."""
    with database.reading() as connection:
        if database.is_remote:
            return sorted(map(tuple, connection.exec_driver_sql(PARTS_OF_POSTGRESQL)))
        tables = connection.exec_driver_sql("SELECT tbl_name, sql FROM sqlite_master WHERE sql NOT NULL")
        return sorted(
            (
                table,
                re.sub(r"\s+", " ", part.replace('"', "")).strip(" )"),
            )  # a renamed table's name is quoted
            for table, sql in tables
            for part in re.split(r',?\s*\n|, (?="?[a-z0-9_]+"? [A-Z])', sql)  # added later: in the last line
        )


def make_at_once(database):
    """Make the tables as the code has them, without a migration."""
    with database.writing() as connection:
        metadata.create_all(connection)
        schema.alembic_version.create(connection)


def test_tables_made_at_once_and_step_by_step_are_the_same(database):
    """Columns, types, defaults, constraints and indexes: what the code says is what the migrations make."""
    make_at_once(database)
    at_once = parts(database)
    with database.writing() as connection:
        metadata.drop_all(connection)
    migrate.upgrade(database)
    assert parts(database) == at_once
    assert len(at_once) > 40


def test_an_upgraded_schema_is_that_of_the_tables(database):
    """Alembic finds nothing left to change, and a second upgrade changes nothing."""
    assert migrate.upgrade(database) is None
    assert migrate.upgrade(database) == schema.HEAD
    assert migrate.differences(database) == []
    migrate.migrate(database, command.check)


def add_rows(database):
    """Add a product with a release, a license and an activation, by the columns of the first schema."""
    instant = "'2026-06-15 12:00:00+00'" if database.is_remote else "'2026-06-15 12:00:00.000000'"
    with database.writing() as connection:
        connection.exec_driver_sql(
            "INSERT INTO products (id, slug, name, environment_policy, has_support_policy, created_at, "  # noqa: S608
            f"latest_release_id) VALUES (7, 'app', 'App', 'strict', true, {instant}, 9)"
        )
        connection.exec_driver_sql(
            "INSERT INTO releases (id, product_id, version, version_key, changelog, published_at, file_name, "  # noqa: S608
            f"size, sha256) VALUES (9, 7, '1.0', '1', '', {instant}, 'a.zip', 3, ' ')"
        )
        connection.exec_driver_sql(
            "INSERT INTO licenses (id, sealed_key, product_id, product_name, issued_at, lifetime, slots) "  # noqa: S608
            f"VALUES ('0123456789abcdef', 'x', 7, 'App', {instant}, false, 3)"
        )
        connection.exec_driver_sql(
            "INSERT INTO activations (license_id, domain, ip, activated_at) "  # noqa: S608
            f"VALUES ('0123456789abcdef', 'a.example', '192.0.2.1', {instant})"
        )


def held(database):
    """The rows that `add_rows` has added, each as a dictionary."""
    with database.reading() as connection:
        return {
            table: dict(connection.exec_driver_sql(f"SELECT * FROM {table}").mappings().one())  # noqa: S608
            for table in ("products", "releases", "licenses", "activations")
        }


def test_what_is_in_the_database_outlives_an_upgrade(database):
    """Products, and what refers to them, are the same after `db upgrade`."""
    migrate.migrate(database, lambda config: command.upgrade(config, schema.REVISIONS[0]))
    add_rows(database)
    before = held(database)
    del before["products"]["latest_manifest_id"]  # servers keep it in memory
    assert migrate.upgrade(database) == schema.REVISIONS[0]
    after = held(database)
    assert {table: {name: after[table][name] for name in before[table]} for table in before} == before
    assert after["products"]["release_changes"] == 0


@pytest.mark.slow
def test_a_product_with_files_of_platforms_alone_is_shown_with_the_newest(database):
    """Its row named no release before 0028."""
    migrate.migrate(database, lambda config: command.upgrade(config, "0027"))
    add_rows(database)
    with database.writing() as connection:
        connection.exec_driver_sql("UPDATE products SET latest_release_id = NULL")
        connection.exec_driver_sql(
            "INSERT INTO latest_releases VALUES (7, 'linux', 8, NULL), (7, 'win', 9, NULL)"
        )
    migrate.upgrade(database)
    assert held(database)["products"]["latest_release_id"] == 9


NEXT = f"""
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9999", "{schema.HEAD}"


def upgrade():
    with op.batch_alter_table("products", recreate="auto") as products:
        products.alter_column("name", type_=sa.String(300))
"""


@pytest.fixture
def next_step(tmp_path, monkeypatch):
    """Write the step of a later licserver; give the function that does it."""

    def write(source):
        folder = tmp_path / "next"
        folder.mkdir()
        (folder / "9999_next.py").write_text(source)
        config = migrate.make_config()
        config.set_main_option("version_locations", f"{schema._MIGRATIONS}{os.pathsep}{folder}")
        monkeypatch.setattr(migrate, "make_config", lambda: config)

    return write


@pytest.mark.slow
def test_what_refers_to_a_table_outlives_its_recreation(database, next_step):
    """SQLite changes a column by making the table anew, while others refer to its rows."""
    migrate.upgrade(database)
    add_rows(database)
    before = held(database)
    next_step(NEXT)
    migrate.upgrade(database)
    assert schema.read_version(database) == "9999"
    assert held(database) == before


def test_a_step_that_leaves_rows_without_what_they_refer_to_changes_nothing(database, next_step):
    """Foreign keys are not held while tables are recreated, so they are checked at the end."""
    migrate.upgrade(database)
    add_rows(database)
    before = held(database)
    next_step(f'{NEXT}\n    op.execute(sa.delete(sa.table("products")))\n')
    with pytest.raises(StoreError):
        migrate.upgrade(database)
    assert held(database) == before
    assert schema.read_version(database) == schema.HEAD


def test_a_recorded_response_has_one_owner(database):
    """Neither nobody nor a token and a user together."""
    migrate.upgrade(database)
    instant = "'2026-06-15 12:00:00+00'" if database.is_remote else "'2026-06-15 12:00:00.000000'"
    with database.writing() as connection:
        connection.exec_driver_sql(
            "INSERT INTO tokens (id, name, token_hash, scope, created_at) "  # noqa: S608
            f"VALUES (7, 'shop', 'h', 'write', {instant})"
        )
        connection.exec_driver_sql(
            "INSERT INTO users (id, name, password_hash, password_changed_at, created_at) "  # noqa: S608
            f"VALUES (7, 'ann', 'h', {instant}, {instant})"
        )

    def record(owners, values):
        with database.writing() as connection:
            connection.exec_driver_sql(
                f"INSERT INTO receipts ({owners}key, digest, status, answer, created_at) "  # noqa: S608
                f"VALUES ({values}'k', '{'d' * 32}', 201, 'sealed', {instant})"
            )

    record("token_id, ", "7, ")
    record("user_id, ", "7, ")
    for owners, values in (("", ""), ("token_id, user_id, ", "7, 7, ")):
        with pytest.raises(StoreUnavailableError):
            record(owners, values)


def test_the_program_knows_all_revisions_without_alembic():
    """The list in the code is that of the files."""
    config = Config()
    config.set_main_option("script_location", "licserver.database:migrations")
    script = ScriptDirectory.from_config(config)
    assert tuple(step.revision for step in reversed(list(script.walk_revisions()))) == schema.REVISIONS
    assert script.get_revision("head").module.oldest_program == schema.OLDEST_PROGRAM


@pytest.mark.slow
def test_a_change_that_no_migration_made_is_found(database):
    """What somebody changed by hand is named."""
    migrate.upgrade(database)
    with database.writing() as connection:
        connection.exec_driver_sql("ALTER TABLE licenses ADD COLUMN scribble TEXT")
        connection.exec_driver_sql("DROP INDEX ix_licenses_subscription_id")
    found = " ".join(migrate.differences(database))
    assert "scribble" in found
    assert "ix_licenses_subscription_id" in found


def test_an_upgrade_that_fails_changes_nothing(database):
    """The steps are one transaction, on SQLite as well."""
    with database.writing() as connection:
        connection.exec_driver_sql("CREATE VIEW activations AS SELECT 1 AS in_the_way")
    before = parts(database)
    with pytest.raises(StoreUnavailableError):
        migrate.upgrade(database)
    assert parts(database) == before


@pytest.mark.slow
def test_two_who_upgrade_at_once_do_not_meet(url, database):
    """The second waits for the first and finds nothing to do."""
    start = Barrier(2)

    def run(_):
        own = connect(url)
        start.wait()
        migrate.upgrade(own)
        own.close()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, range(2)))
    assert migrate.differences(database) == []


def test_an_empty_database_is_set_up_only_where_nobody_else_can_be(url, database):
    """A SQLite file by itself; a PostgreSQL database on request."""
    if database.is_remote:
        with pytest.raises(StoreError, match="run: licserver db upgrade"):
            open_database(url, SECRETS)
        assert parts(database) == []
        migrate.upgrade(database)
    open_database(url, SECRETS).close()
    assert schema.read_version(database) == schema.HEAD
    assert migrate.differences(database) == []


def test_two_who_open_a_fresh_database_with_other_secrets_are_distinguished(url, database):
    """Whoever is first, the database is theirs alone."""
    migrate.upgrade(database)
    start = Barrier(4)

    def run(number):
        start.wait()
        try:
            open_database(url, b"%d" % number).close()
        except StoreError as refusal:
            return str(refusal)
        return None

    with ThreadPoolExecutor(4) as threads:
        refusals = [message for message in threads.map(run, range(4)) if message]
    assert ["other secrets" in message for message in refusals] == [True] * 3


@pytest.mark.parametrize(
    ("version", "advice"), [("9999", "use a newer licserver"), ("0024", "export its licenses")]
)
def test_an_unknown_schema_is_refused_and_not_changed(url, database, version, advice):
    """A program that is too old, or too new for an unreleased schema, says so to who serves and upgrades."""
    migrate.upgrade(database)
    with database.writing() as connection:
        connection.execute(schema.alembic_version.update().values(version_num=version))
    with pytest.raises(StoreError, match=advice):
        open_database(url, SECRETS)
    with pytest.raises(StoreError, match=advice):
        migrate.upgrade(database)


def test_tables_without_a_version_are_not_touched(url, database):
    """What an unreleased licserver made, or somebody else, is neither served nor upgraded."""
    with database.writing() as connection:
        metadata.create_all(connection)
    before = parts(database)
    for act in (lambda: open_database(url, SECRETS), lambda: migrate.upgrade(database)):
        with pytest.raises(StoreError, match="no schema version"):
            act()
    assert parts(database) == before


@pytest.mark.slow
def test_serving_does_not_import_alembic(program):
    """It takes as long as all the rest of a command, so only `db` imports it."""
    done = program.run("product", "list", env={**program.environ, "PYTHONPROFILEIMPORTTIME": "1"})
    assert "sqlalchemy" in done.stderr
    assert "alembic" not in done.stderr


@pytest.mark.slow
def test_many_who_meet_at_a_fresh_file_all_get_in(tmp_path):
    """Commands and workers that start at once on an empty folder do not tell each other that it is locked."""
    for number in range(10):
        start, url = Barrier(4), f"sqlite+pysqlite:///{tmp_path / f'{number}.sqlite3'}"

        def run(_, start=start, url=url):
            start.wait()
            open_database(url, SECRETS).close()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(run, range(4)))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_a_database_that_lacks_characters_is_refused(postgres, encoding):
    """One caller's domain would fail all who are served beside him; found at the first check, in a line."""
    name = f"of_{encoding.lower()}"
    postgres.run(
        f"CREATE DATABASE {name} ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
    )
    database = connect(postgres.url(name))
    try:
        with pytest.raises(StoreError, match=f"the encoding {encoding} and licserver needs UTF8"):
            migrate.upgrade(database)
        with pytest.raises(StoreError, match=f"the encoding {encoding} and licserver needs UTF8"):
            open_database(postgres.url(name), SECRETS)
    finally:
        database.close()
        postgres.drop(name)


def test_the_connections_encoding_is_ours(empty_database, monkeypatch):
    """Whatever the vendor's environment says: each text is sent as it is."""
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    database = connect(empty_database)
    with database.reading() as connection:
        assert connection.exec_driver_sql("SELECT '中'").scalar() == "中"
    database.close()
