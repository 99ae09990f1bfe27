"""The server is killed under load, over and over: what it has promised holds (Jepsen's way of counting)."""

import os
import random
import sqlite3
from pathlib import Path

import pytest

from harness.ledger import assert_promises_kept, call_until_killed
from harness.programs import licserver, serving_process

CRASHES = int(os.environ.get("LICENSING_CRASHES", "5"))  # `nox -s crash` asks for 200
pytestmark = pytest.mark.crash
KEYS, SLOTS = 12, 5


def test_what_was_promised_outlives_a_kill(tmp_path: Path) -> None:
    """Killed at any moment, the server has lost no admitted environment and let in none too many."""
    home, data = tmp_path / "home", tmp_path / "data"
    environ = {"LICSERVER_DATA_DIR": str(data)}
    licserver(home, "product", "add", "app", "--name", "App", "--environment", "domain", **environ)
    admitted = 0
    for crash in range(CRASHES + 1):  # the first may come before anybody is in
        terms = ("--slots", str(SLOTS), "--count", str(KEYS))
        keys = licserver(home, "license", "issue", "app", *terms, **environ).split()
        with serving_process(["serve", "--port", "0"], home, None, **environ) as (process, printed):
            port, admissions = int(printed.rpartition(":")[2]), random.randint(KEYS + 1, 4 * KEYS)
            ledger = call_until_killed(port, keys, f"c{crash}", admissions if crash else 0, process.kill)
        held = _held(data, crash)
        assert_promises_kept(ledger, held, keys, SLOTS)
        admitted += sum(map(len, ledger.admitted.values()))
    assert admitted > CRASHES * KEYS  # the kills came under load, not before it


def _held(data: Path, crash: int) -> set[str]:
    """The environments that the database holds from this crash's callers, each once."""
    with sqlite3.connect(data / "licserver.sqlite3") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute("SELECT domain FROM activations WHERE domain LIKE ?", (f"c{crash}-%",))
        domains = [domain for (domain,) in found]
    connection.close()
    assert len(domains) == len(set(domains))
    return set(domains)
