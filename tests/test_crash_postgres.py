"""PostgreSQL itself is killed under a server under load, over and over: what was promised holds."""

import http.client
import json
import os
import random
import time
from pathlib import Path

import pytest

from harness.engines import Postgres
from harness.ledger import assert_promises_kept, call_until_killed
from harness.programs import licserver, serving_process

pytestmark = pytest.mark.crash
CRASHES = int(os.environ.get("LICENSING_POSTGRES_CRASHES", "2"))  # `nox -s crash` asks for 20
KEYS, SLOTS = 12, 5
BACK_WITHIN = 5.0
"""Seconds from the database's return to the first good answer."""


@pytest.fixture
def durable(own_postgres: Postgres) -> Postgres:
    """A PostgreSQL that waits for its disk, as one in service does."""
    own_postgres.run("ALTER SYSTEM RESET fsync", "SELECT pg_reload_conf()")
    return own_postgres


def test_what_was_promised_outlives_a_kill_of_the_database(durable: Postgres, tmp_path: Path) -> None:
    """Killed at any moment, it has lost no admitted environment, and the server comes back by itself."""
    home, database = tmp_path / "home", durable.make()
    environ = {"LICSERVER_DATA_DIR": str(tmp_path / "data"), "LICSERVER_DATABASE_URL": durable.url(database)}
    licserver(home, "db", "upgrade", **environ)
    licserver(home, "product", "add", "app", "--name", "App", "--environment", "domain", **environ)
    admitted = 0
    with serving_process(["serve", "--port", "0"], home, None, **environ) as (process, printed):
        port = int(printed.rpartition(":")[2])
        for crash in range(CRASHES + 1):  # the first may come before anybody is in
            terms = ("--slots", str(SLOTS), "--count", str(KEYS))
            keys = licserver(home, "license", "issue", "app", *terms, **environ).split()
            admissions = random.randint(KEYS + 1, 4 * KEYS) if crash else 0
            ledger = call_until_killed(port, keys, f"c{crash}", admissions, durable.crash)
            durable.start()
            _await_return(port, keys[0])
            assert_promises_kept(ledger, _held(durable, database, crash), keys, SLOTS)
            admitted += sum(map(len, ledger.admitted.values()))
        assert process.poll() is None  # it has lived through all of it
    assert admitted > CRASHES * KEYS  # the kills came under load, not before it


def _await_return(port: int, key: str) -> None:
    """Ask, as a customer would, until there is a verdict again."""
    deadline = time.monotonic() + BACK_WITHIN
    body = json.dumps({"license_key": key, "domain": "after.example", "ip": "192.0.2.1"})
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("POST", "/api/v1/licenses/verify", body)
        status = connection.getresponse().status
        connection.close()
        if status in {200, 403}:
            return
        assert status == 503
        assert time.monotonic() < deadline, "it did not come back"
        time.sleep(0.05)


def _held(server: Postgres, database: str, crash: int) -> set[str]:
    """The environments that the database holds from this crash's callers, each once."""
    import psycopg  # noqa: PLC0415 - an extra

    with psycopg.connect(server.conninfo(database)) as connection:
        found = connection.execute("SELECT domain FROM activations WHERE domain LIKE %s", [f"c{crash}-%"])
        domains = [domain for (domain,) in found]
    assert len(domains) == len(set(domains))
    return set(domains)
