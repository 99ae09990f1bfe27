"""A database that is missing, empty, damaged or another program's, where there must be one (D-158)."""

import json
import os
import sqlite3
from pathlib import Path

import pytest

from harness.engines import postgresql_only
from licserver.errors import StoreError
from licserver.security.secrets_file import new_secrets
from licserver.services.installation import open_services
from licserver.settings import Settings

FILE = "licserver.sqlite3"
COMMANDS = (["serve", "--port", "0"], ["product", "list"], ["db", "upgrade"], ["check"])


def _replace(file):
    file.unlink()
    link = sqlite3.connect(file)
    link.execute("CREATE TABLE customers (name TEXT)")
    link.close()


def _strip(file):
    """Leave the schema and no row, as a database that was set up by hand."""
    link = sqlite3.connect(file, isolation_level=None)
    link.execute("DELETE FROM facts")
    link.close()


LOST = {
    "missing": (Path.unlink, "licserver db create"),
    "empty": (lambda file: file.write_bytes(b""), "licserver db create"),
    "nobody's": (_strip, "licserver db create"),
    "another program's": (_replace, "licserver db create"),
    "cut off": (lambda file: os.truncate(file, file.stat().st_size // 2), "restore FILE --force"),
    "no database": (lambda file: file.write_bytes(b"no database at all " * 1000), "restore FILE --force"),
}


def files(folder):
    """Names and contents, but for what SQLite keeps beside the database."""
    found = (
        path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))
    )
    return {path.relative_to(folder): path.read_bytes() for path in found}


def failing_check(cli):
    """What `check` says of a database that it finds wanting."""
    with pytest.raises(AssertionError) as printed:  # the fixture shows what a failing command printed
        cli("check")
    assert "FAIL  database" in str(printed.value)
    return str(printed.value)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("case", LOST)
def test_a_lost_database_stops_everything(bare_cli, tmp_path, case):
    """Nothing starts and nothing is changed; one sentence says what to do, and a restore does it."""
    break_it, advice = LOST[case]
    folder, backup, zipped = bare_cli.folder, tmp_path / "all.backup", tmp_path / "app.zip"
    zipped.write_bytes(b"zip")
    bare_cli("product", "add", "app", "--name", "App")
    bare_cli("release", "publish", "app", "1.0", str(zipped))
    bare_cli("backup", str(backup))
    break_it(folder / FILE)
    before = files(folder)
    for command in COMMANDS:
        if (case, command[:2]) == ("nobody's", ["db", "upgrade"]):
            continue  # its schema is this program's already
        if command == ["check"]:
            output = failing_check(bare_cli)
        else:
            output = bare_cli(*command, expect=1)
            assert output.count("\n") == 1
        assert advice in output, (command, output)
        assert files(folder) == before
    force = [] if case in ("missing", "empty") else ["--force"]
    if force:
        assert "--force" in bare_cli("restore", str(backup), expect=2)
    bare_cli("restore", str(backup), *force)
    assert "app" in bare_cli("product", "list")
    bare_cli("check")


@pytest.mark.slow
def test_beginning_anew_is_announced(bare_cli):
    """`db create` makes what a lost database was to be, once, and says so in the audit log."""
    bare_cli("product", "add", "app", "--name", "App")
    assert "there is a database already" in bare_cli("db", "create", expect=2)
    (bare_cli.folder / FILE).unlink()
    assert "created" in bare_cli("db", "create")
    assert "no products yet" in bare_cli("product", "list")
    assert "database.create" in bare_cli("audit")


def test_a_log_without_its_file_is_kept(bare_cli):
    """Opening an empty file would have SQLite remove the log with what was last written."""
    bare_cli("product", "list")
    log = bare_cli.folder / f"{FILE}-wal"
    (bare_cli.folder / FILE).unlink()
    log.write_bytes(b"what was last written")
    for command in (["product", "list"], ["db", "create"], ["db", "upgrade"]):
        assert f"{log.name} holds what was last written" in bare_cli(*command, expect=1)
    assert log.read_bytes() == b"what was last written"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stage", ["secrets", "an empty file", "tables", "an owner"])
def test_a_first_run_that_was_killed(bare_cli, stage):
    """Wherever a first command was killed, the next one goes on as if it were the first."""
    folder = bare_cli.folder
    folder.mkdir()
    if stage != "secrets":
        bare_cli("product", "list")
        (folder / FILE).unlink() if stage == "an empty file" else None
        (folder / FILE).touch()
        if stage == "tables":
            _strip(folder / FILE)
        held = json.loads((folder / "secrets.json").read_text())
        assert held.pop("has_database") is True
        (folder / "secrets.json").write_text(json.dumps(held))
    else:
        bare_cli("secret", "list")
    assert "no products yet" in bare_cli("product", "list")
    assert json.loads((folder / "secrets.json").read_text())["has_database"] is True


def test_another_programs_file_is_not_set_up(bare_cli, tmp_path):
    """Also on a first run, nothing is created among another program's tables."""
    theirs = tmp_path / "theirs.sqlite3"
    theirs.touch()
    _replace(theirs)
    bare_cli.use(f"sqlite+pysqlite:///{theirs}")
    for command in (["product", "list"], ["db", "upgrade"], ["db", "create"]):
        assert "tables of another program" in bare_cli(*command, expect=2)


def test_secrets_of_the_environment_create_nothing(bare_cli, monkeypatch):
    """They come from elsewhere and cannot be noted in: only `db create` creates a database for them."""
    monkeypatch.setenv("LICSERVER_SECRETS", json.dumps(new_secrets()))
    assert "licserver db create" in bare_cli("product", "list", expect=1)
    assert not (bare_cli.folder / FILE).exists()
    bare_cli("db", "create")
    assert "no products yet" in bare_cli("product", "list")


@postgresql_only
@pytest.mark.parametrize("state", ["empty", "nobody's", "another program's"])
def test_a_lost_postgresql_database(bare_cli, postgres, make_database_url, empty_database, state):
    """Secrets that belong to a database refuse one that is not theirs; `db create` takes it."""
    bare_cli.use(make_database_url())
    bare_cli("product", "add", "app", "--name", "App")
    bare_cli.use(make_database_url() if state == "nobody's" else empty_database)
    if state == "another program's":
        name = empty_database.partition("?")[0].rpartition("/")[2]
        postgres.run("CREATE TABLE customers (name TEXT)", database=name)
    for command in COMMANDS[:2] if state == "nobody's" else COMMANDS[:3]:
        output = bare_cli(*command, expect=1)
        assert "licserver db create" in output, (command, output)
        assert output.count("\n") == 1
    bare_cli("db", "create")
    assert "no products yet" in bare_cli("product", "list")


def test_a_folder_of_an_older_licserver(make_world):
    """Its secrets do not note the database yet: the first opening does; a read-only file is left alone."""
    world = make_world()
    path = world.settings.data_dir / "secrets.json"
    held = json.loads(path.read_text())
    del held["has_database"]
    path.write_text(json.dumps(held))
    open_services(world.settings).close()
    assert json.loads(path.read_text()) == {**held, "has_database": True}


def test_a_damaged_page_is_found_by_check(bare_cli):
    """`check` reads every page, also those that no table begins with."""
    bare_cli("product", "add", "app", "--name", "App")
    bare_cli("license", "issue", "app", "--count", "2000")
    file = bare_cli.folder / FILE
    with file.open("r+b") as held:
        held.seek(file.stat().st_size // 2 // 4096 * 4096)
        held.write(b"\xff" * 4096)
    failing_check(bare_cli)


def test_a_file_that_vanishes_is_not_created_anew(tmp_path):
    """A server whose database is removed answers that it is unavailable, and leaves no empty one behind."""
    services = open_services(Settings(data_dir=tmp_path / "data"))
    services.database.close()
    Path(tmp_path / "data" / FILE).unlink()
    with pytest.raises(StoreError):
        services.products.list_all()
    assert not (tmp_path / "data" / FILE).exists()
