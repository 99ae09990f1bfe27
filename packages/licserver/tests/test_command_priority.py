"""Commands that take long give way to the server beside them (D-135)."""

import os
import subprocess
import sys
import time

import pytest

from harness.engines import postgresql_only

ASK = """
import os, sys
os.getloadavg = lambda: (float(sys.argv[1]) * os.cpu_count(), 0, 0)
from licserver.cli.installation import in_background

def rank():
    return os.sched_getscheduler(0), os.nice(0)

with in_background() as run_transaction:
    print([rank(), run_transaction(rank)])
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="SCHED_IDLE is Linux's")
@pytest.mark.parametrize(("load", "aside"), [(0.5, True), (2.5, False)])
def test_the_rest_gives_way_to_all_and_the_commit_to_some(load, aside):
    """What reads and prepares runs when nobody else wants to; what holds a lock never waits for that.

    On a machine that never rests, where it would come to no end, it has stepped back and no more.
    """
    command = [sys.executable, "-c", ASK, str(load)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    stepped = min(19, os.nice(0) + 10)
    rank = os.SCHED_IDLE if aside else os.SCHED_OTHER
    assert output.strip() == str([(rank, stepped), (os.SCHED_OTHER, stepped)])


def test_who_may_not_give_way_works_all_the_same(bare_cli, monkeypatch, tmp_path):
    """As in a systemd unit that filters system calls: a backup is made, and keys go out and in."""

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    for name in ("nice", "sched_setscheduler"):
        monkeypatch.setattr(f"os.{name}", refuse, raising=False)
    bare_cli("product", "add", "app", "--name", "App")
    new, keys, backup = (tmp_path / name for name in ("new.jsonl", "keys.jsonl", "all.backup"))
    new.write_text('{"product": "app", "slots": 1, "expires_on": null}\n')
    assert bare_cli("import", str(new)).startswith("CP-")
    assert "exported 1 license " in bare_cli("export", str(keys))
    keys.unlink()  # it holds a key
    assert "backed up" in bare_cli("backup", str(backup))
    bare_cli("sweep")


@postgresql_only
@pytest.mark.parametrize("kind", ["background_connection", "snapshot"])
def test_postgresql_works_for_others_as_long_as_for_a_long_reader(world, monkeypatch, kind):
    """Before each question there is a rest as long as the last answer took, and our own work counts as one.

    PostgreSQL's processes have no rank of ours (D-152).
    """
    rests: list[float] = []
    sleep = time.sleep
    with getattr(world.services.database, kind)() as connection:
        sleep(0.5)
        monkeypatch.setattr(
            "licserver.database.limited_connection.time.sleep", lambda rest: (rests.append(rest), sleep(rest))
        )
        connection.exec_driver_sql("SELECT pg_sleep(0.8)")
        assert rests == []
        connection.exec_driver_sql("SELECT 1")
        assert sum(rests) > 0.2
        rests.clear()
        connection.exec_driver_sql("SELECT pg_sleep(0.2)")
        sleep(2.5)
        connection.exec_driver_sql("SELECT 1")
        assert sum(rests) < 0.1
    with world.services.database.reading() as connection:
        rests.clear()
        for _ in range(3):
            connection.exec_driver_sql("SELECT pg_sleep(0.01)")
        assert rests == []  # without that option nothing gives way
