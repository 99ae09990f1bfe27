"""`licserver db` and the addresses of databases: what is done, what is refused, and what is never printed."""

import json
import socket
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from harness.engines import both_engines
from harness.standstill import Standstill
from licserver.database import schema
from licserver.database.engine import connect
from licserver.database.schema import HEAD
from licserver.errors import SettingsError, StoreUnavailableError

SECRET = "hunter2"


@pytest.fixture
def cli(bare_cli, engine_name, request):
    """The command line on an empty database of either engine."""
    if engine_name == "postgresql":
        bare_cli.use(request.getfixturevalue("empty_database"))
    return bare_cli


@pytest.mark.slow
@both_engines
def test_a_database_is_set_up_checked_and_counted(cli, engine_name):
    """`db upgrade` makes it, twice is once; `db check` and `db status` say how it stands."""
    cli("db", "check", expect=1)
    assert cli("db", "upgrade") == f"set up: schema {HEAD}\n"
    assert cli("db", "upgrade") == f"the schema is {HEAD} already\n"
    assert json.loads(cli("db", "upgrade", "--json")) == {"from": HEAD, "to": HEAD}
    assert cli("db", "check") == f"the schema is {HEAD}, as it should be\n"
    assert json.loads(cli("db", "check", "--json")) == {"version": HEAD, "ok": True}
    cli("product", "add", "app", "--name", "App")
    cli("license", "issue", "app", "--count", "3")
    found = json.loads(cli("db", "status", "--json"))
    assert found.pop("engine").startswith(engine_name)
    assert found.pop("database")
    assert (found.pop("version"), found.pop("head")) == (HEAD, HEAD)
    assert found == {"products": 1, "releases": 0, "licenses": 3, "activations": 0}
    assert "licenses" in cli("db", "status")


@pytest.mark.slow
def test_an_older_schema_stops_every_command_but_upgrade(cli, monkeypatch):
    """A program that is a step ahead of its database says what to run, in one line."""
    cli("db", "upgrade")
    monkeypatch.setattr(schema, "REVISIONS", (*schema.REVISIONS, "9999"))
    monkeypatch.setattr(schema, "HEAD", "9999")
    for command in ("product list", "license list", "db check"):
        output = cli(*command.split(), expect=1)
        assert output.endswith("run: licserver db upgrade\n")
        assert output.count("\n") == 1


@pytest.mark.parametrize("command", ["status", "check"])
def test_looking_makes_no_file(bare_cli, command):
    """Asked of a folder without a database, they say so and leave it alone."""
    assert "no database yet" in bare_cli("db", command, expect=1)
    assert not bare_cli.folder.exists()
    bare_cli.folder.mkdir()
    assert "no database yet" in bare_cli("db", command, expect=1)
    assert list(bare_cli.folder.iterdir()) == []


def test_the_password_is_never_printed(bare_cli, postgres, empty_database):
    """Neither status nor a failure repeats what stands in the address."""
    url = empty_database.replace("postgres@", f"postgres:{SECRET}@")
    bare_cli.use(url)
    printed = [bare_cli("db", "upgrade"), bare_cli("db", "status"), bare_cli("db", "status", "--json")]
    for wrong in (url.replace("/test_", "/no_"), url.replace("postgres:", "no:"), url + "&sslmode=never"):
        bare_cli.use(wrong)
        printed.append(bare_cli("db", "status", expect=1))
        assert printed[-1].count("\n") == 1
    assert "test_" in printed[1]
    assert SECRET not in "".join(printed)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_every_spelling_of_postgresql_is_psycopg(scheme):
    """What hosting services hand out can be pasted as it is."""
    database = connect(f"{scheme}://me@db.invalid/x")
    assert database.engine.url.drivername == "postgresql+psycopg"
    assert database.is_remote
    database.close()


@pytest.mark.parametrize(
    "url",
    ["postgresql+psycopg2://me@db/x", "postgresql+asyncpg://me@db/x", "mysql://me@db/x", "postgresql:/x"],
)
def test_other_databases_and_drivers_are_refused(url):
    """What cannot be used is reported with the variable's name."""
    with pytest.raises(SettingsError, match="LICSERVER_DATABASE_URL"):
        connect(url)


@pytest.mark.slow
def test_a_missing_driver_names_the_extra():
    """Installed without its extra, licserver says it."""
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from licserver.database.engine import connect\n"
        "connect('postgresql://db.invalid/x')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.endswith("needs the extra postgres; run: pip install 'licserver[postgres]'\n")


def test_a_name_that_leads_nowhere_is_an_outage_and_shows_no_password():
    """A database that cannot be found may be found later."""
    database = connect(f"postgresql://me:{SECRET}@db.invalid/x")
    with pytest.raises(StoreUnavailableError) as failure, database.reading():
        pass
    assert SECRET not in str(failure.value)
    database.close()


def test_a_silent_first_host_does_not_hide_the_second(postgres):
    """Of two hosts in the address the first has vanished: nobody waits for 2 s, and soon the other serves."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"host=127.0.0.1,{postgres.folder}&port={silent.getsockname()[1]},5432"
        database = connect(f"postgresql://postgres@/postgres?{hosts}")
        lane = database.reader()
        began, waits = time.monotonic(), []
        with Standstill() as machine:
            while time.monotonic() - began < 5:
                begun = time.monotonic()
                with suppress(StoreUnavailableError):
                    assert lane.run(lambda link: link.exec_driver_sql("SELECT 7").scalar()) == 7
                    break
                waits.append((begun, time.monotonic()))
                time.sleep(0.05)
            else:
                pytest.fail("the second host was never asked")
        assert all(ended - begun - machine.within(begun, ended) < 2 for begun, ended in waits)
        lane.close()
        database.close()
