"""The server is killed under load, over and over: what it has promised holds (Jepsen's way of counting)."""

import http.client
import json
import os
import random
import signal
import sqlite3
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from harness.programs import SCRIPTS, run, serving_process

CRASHES = int(os.environ.get("LICENSING_CRASHES", "5"))  # `nox -s crash` asks for 200
CALLERS, KEYS, SLOTS = 8, 12, 5


@dataclass
class Ledger:
    """What the callers were told, per key: which of their environments are in, which were refused.

    An environment whose call ended in neither may be in or not.
    """

    admitted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    refused: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unknown: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class Caller(threading.Thread):
    """Claims slots for new environments, one after the other, until the server is gone."""

    def __init__(self, port: int, keys: list[str], ledger: Ledger, name: str) -> None:
        super().__init__(name=name)
        self._port, self._keys, self._ledger = port, keys, ledger

    def run(self) -> None:
        """Call until a call gets no answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        for number in range(10_000):
            key, domain = random.choice(self._keys), f"{self.name}-{number}.example"
            try:
                body = json.dumps({"license_key": key, "domain": domain, "ip": "192.0.2.1"})
                connection.request("POST", "/api/v1/licenses/verify", body)
                response = connection.getresponse()
                response.read()
            except (OSError, http.client.HTTPException):
                self._ledger.unknown[key].add(domain)
                break
            told = {200: self._ledger.admitted, 403: self._ledger.refused}[response.status]
            told[key].add(domain)
        connection.close()


def test_what_was_promised_outlives_a_kill(tmp_path: Path) -> None:
    """Killed at any moment, the server has lost no admitted environment and let in none too many."""
    home, data = tmp_path / "home", tmp_path / "data"

    def vendor(*arguments: str) -> str:
        done = run([str(SCRIPTS / "licserver"), *arguments, "--data-dir", str(data), "--json"], home)
        assert done.returncode == 0, done
        return done.stdout

    vendor("product", "add", "app", "--name", "App", "--environment", "domain")
    admitted = 0
    for crash in range(CRASHES):
        issued = vendor("license", "issue", "app", "--slots", str(SLOTS), "--count", str(KEYS))
        keys = json.loads(issued)["license_keys"]
        ledger = _play_and_kill(data, home, keys, crash)
        held = _held(data, crash)
        _assert_promises_kept(ledger, held, keys)
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
        time.sleep(random.uniform(0.01, 0.15))  # the moment of the kill is what is varied
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


def _assert_promises_kept(ledger: Ledger, held: set[str], keys: list[str]) -> None:
    for key in keys:
        admitted, refused, unknown = ledger.admitted[key], ledger.refused[key], ledger.unknown[key]
        mine = held & (admitted | refused | unknown)
        assert admitted <= held  # none that was acknowledged is lost
        assert mine <= admitted | unknown  # none that was refused is in
        assert len(mine) <= SLOTS
        if refused:  # and nobody was refused while a slot was free
            assert len(mine) == SLOTS
