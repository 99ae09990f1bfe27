"""The server is killed under load, over and over: what it has promised holds (Jepsen's way of counting)."""

import json
import os
import random
import signal
import sqlite3
import time
from pathlib import Path

import pytest

from harness.ledger import Caller, Ledger, assert_promises_kept, await_load
from harness.programs import SCRIPTS, run, serving_process

CRASHES = int(os.environ.get("LICENSING_CRASHES", "5"))  # `nox -s crash` asks for 200
pytestmark = pytest.mark.crash
CALLERS, KEYS, SLOTS = 8, 12, 5


def test_what_was_promised_outlives_a_kill(tmp_path: Path) -> None:
    """Killed at any moment, the server has lost no admitted environment and let in none too many."""
    home, data = tmp_path / "home", tmp_path / "data"

    def vendor(*arguments: str) -> str:
        done = run([str(SCRIPTS / "licserver"), *arguments, "--data-dir", str(data), "--json"], home)
        assert done.returncode == 0, done
        return done.stdout

    vendor("product", "add", "app", "--name", "App", "--environment", "domain")
    admitted = 0
    for crash in range(CRASHES + 1):  # the first may come before anybody is in
        issued = vendor("license", "issue", "app", "--slots", str(SLOTS), "--count", str(KEYS))
        keys = json.loads(issued)["license_keys"]
        ledger = _play_and_kill(data, home, keys, crash)
        held = _held(data, crash)
        assert_promises_kept(ledger, held, keys, SLOTS)
        admitted += sum(map(len, ledger.admitted.values()))
    assert admitted > CRASHES * KEYS  # the kills came under load, not before it


def _play_and_kill(data: Path, home: Path, keys: list[str], crash: int) -> Ledger:
    """Let the callers at the server, and kill it in the midst of it."""
    ledger = Ledger()
    with serving_process(["serve", "--port", "0", "--data-dir", str(data)], home) as (process, printed):
        port = int(printed.rpartition(":")[2])
        callers = [Caller(port, keys, ledger, f"c{crash}-{number}") for number in range(CALLERS)]
        for caller in callers:
            caller.start()
        # The moment of the kill is what is varied.
        await_load(ledger, callers, random.randint(KEYS + 1, 4 * KEYS) if crash else 0)
        time.sleep(random.uniform(0, 0.02))
        process.send_signal(signal.SIGKILL)
        for caller in callers:
            caller.join()
    return ledger


def _held(data: Path, crash: int) -> set[str]:
    """The environments that the database holds from this crash's callers, each once."""
    with sqlite3.connect(data / "licserver.sqlite3") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = connection.execute("SELECT domain FROM activations WHERE domain LIKE ?", (f"c{crash}-%",))
        domains = [domain for (domain,) in found]
    connection.close()
    assert len(domains) == len(set(domains))
    return set(domains)
