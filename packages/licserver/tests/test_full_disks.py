"""A disk that is full, or fills up: what can be read is read, and what fails is said."""

import errno
import io
import os
import resource
import subprocess
import tarfile
from contextlib import closing
from typing import Any

import pytest

from harness.commands import Program
from harness.engines import postgresql_only, sqlite_only
from licserver.database import engine, log_growth
from licserver.database.hot_path.store import BatchStore
from licserver.domain.decisions import Valid
from licserver.errors import NotWritableError
from licserver.services.self_check import check_installation

pytestmark = pytest.mark.skipif(os.name == "nt", reason="limits of a process are POSIX")


FULL = (
    """CREATE FUNCTION fail_as_full() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '{code}'; END $$""",
    "CREATE TRIGGER is_full BEFORE INSERT ON activations EXECUTE FUNCTION fail_as_full()",
)
"""The error of a PostgreSQL server whose disk is full, or that lacks a right to write."""


def fill_disk(most: int) -> Any:
    """Let a process write no file beyond a size, as a full disk does; pipes have no size."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))


@pytest.mark.slow
def test_a_full_disk_is_backed_up_to_another_one(program: Program) -> None:
    """The first reader of a database needs 32 KiB for the index of its log, and the audit log a line."""
    program.stock(count=3)
    done = subprocess.run(
        [*program.command, "backup", "-"],
        env={**program.environ, "PYTHONDONTWRITEBYTECODE": "1"},  # a cut one would break later runs
        capture_output=True,
        check=False,
        preexec_fn=fill_disk(16 << 10),
        timeout=120,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert b"3 licenses" in done.stderr
    assert b"not recorded in the audit log" in done.stderr
    with tarfile.open(fileobj=io.BytesIO(done.stdout)) as backup:
        assert "contents.json" in backup.getnames()


@sqlite_only
async def test_a_server_that_cannot_write_is_not_ready(
    site: Any, world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openclaw/openclaw#96090: ready with a full disk, while every write failed."""
    assert (await site.call("GET", "/readyz"))[0] == 200
    key = world.key()

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(engine.tempfile, "TemporaryFile", fail)
    status, _, answer = await site.call("GET", "/readyz")
    assert (status, answer["error"]) == (503, "unavailable")
    assert (await site.call("GET", "/healthz"))[0] == 200
    assert (await site.verify(key))[0] == 200
    monkeypatch.undo()
    assert (await site.call("GET", "/readyz"))[0] == 200
    assert [path for path in world.settings.data_dir.iterdir() if "probe" in path.name] == []


@postgresql_only
@pytest.mark.parametrize("code", ["53100", "42501"])
def test_a_write_that_found_no_room_counts_until_the_next_one(world: Any, code: str) -> None:
    """blinklabs-io/bursa#674: `/readyz` was 200. Nothing of a server elsewhere can be probed."""
    database, request = world.services.database, world.request_slot(world.key(slots=5), "pc.example")
    with database.writing() as connection:
        for statement in FULL:
            connection.exec_driver_sql(statement.format(code=code))
    with closing(BatchStore(database)) as store:
        store.ping()
        with pytest.raises(NotWritableError):
            store.activate([request])
        with pytest.raises(NotWritableError):
            store.ping()
        with database.writing() as connection:
            connection.exec_driver_sql("DROP FUNCTION fail_as_full CASCADE")
        store.ping()
        assert isinstance(store.activate([request])[0], Valid)
        with pytest.raises(NotWritableError), database.writing() as connection:
            connection.exec_driver_sql(f"DO $$ BEGIN RAISE 'full' USING ERRCODE = '{code}'; END $$")
        with pytest.raises(NotWritableError):
            store.ping()


def complaints(world: Any) -> list[str]:
    """Return what `check` says about the log."""
    findings = check_installation(world.settings, world.clock(), reach=False)
    return [f"{finding.message}; {finding.advice}" for finding in findings if finding.about == "database log"]


@sqlite_only
def test_a_log_that_a_reader_holds_is_reported(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """superseriousbusiness/gotosocial#2808: a reader that does not end, and a log that grows for ever."""
    monkeypatch.setattr(log_growth, "MAX_LOG", 1 << 20)
    assert complaints(world) == []
    database = world.services.database
    with closing(database.engine.connect()) as reader:
        reader.exec_driver_sql("SELECT count(*) FROM products").scalar()
        with database.writing() as connection:
            connection.exec_driver_sql("CREATE TABLE filling (content BLOB)")
            connection.exec_driver_sql("INSERT INTO filling VALUES (zeroblob(3000000))")
            connection.exec_driver_sql("DROP TABLE filling")
        (complaint,) = complaints(world)
    assert "has 2 MiB: a reader that does not end" in complaint


@sqlite_only
def test_a_log_is_cut_once_the_reader_is_gone(world: Any) -> None:
    """openclaw/openclaw#112950: it stayed as large as it ever was until the restart."""
    with world.services.database.reading() as connection:
        limit = connection.exec_driver_sql("PRAGMA journal_size_limit").scalar()
    assert 0 < limit < log_growth.MAX_LOG


@postgresql_only
def test_a_slot_and_a_transaction_that_are_left_are_reported(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of PostgreSQL grows until its disk is full, and nothing is cleaned up."""
    assert complaints(world) == []
    monkeypatch.setattr(log_growth, "MAX_RETAINED", -1)
    database = world.services.database
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("SELECT pg_create_physical_replication_slot('left_over', true)")
        try:
            (complaint,) = [complaint_ for complaint_ in complaints(world) if "left_over" in complaint_]
        finally:
            connection.exec_driver_sql("SELECT pg_drop_replication_slot('left_over')")
    assert "that nothing reads, retains" in complaint
    monkeypatch.setattr(log_growth, "MAX_AGE", -log_growth.MAX_AGE)
    with database.engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.exec_driver_sql("SELECT count(*) FROM products").scalar()
        (complaint,) = complaints(world)
    assert "pg_terminate_backend" in complaint
