"""Many who want the last slot at once, on one database (D-08): threads, and processes."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Barrier

from licserver.model import Environment
from licserver.rules import Valid, judge_verify
from licserver.store import BatchStore, Claim, Sighting


def claims_of(world, key, environments):
    """Claims of a key for many environments, judged by the rules."""

    def make(environment):
        return Claim(
            Sighting(world.vendor.vault.license_id(key), environment),
            lambda license_: judge_verify(key, license_, environment, world.clock()),
            world.clock(),
        )

    return [make(environment) for environment in environments]


def race(world, claims):
    """Let threads admit one claim each, all at the same moment; says how many got in."""
    start = Barrier(len(claims))

    def run(claim):
        with closing(BatchStore(world.vendor.database)) as store:  # with a connection of its own
            start.wait()
            return store.admit([claim])[0]

    with ThreadPoolExecutor(len(claims)) as threads:
        return sum(isinstance(verdict, Valid) for verdict in threads.map(run, claims))


def test_threads_that_race_share_the_slots_exactly(world):
    """Twelve threads with a transaction each get five slots between them, ten times over."""
    for _ in range(10):
        key = world.key(slots=5)
        environments = [Environment(f"{n}.example", f"192.0.2.{n}") for n in range(12)]
        assert race(world, claims_of(world, key, environments)) == 5
        assert len(world.held(key)) == 5


def test_threads_that_race_for_one_environment_take_one_slot(world):
    """Twelve threads that want the same new environment all get in, by one slot."""
    for _ in range(10):
        key = world.key(slots=1)
        assert race(world, claims_of(world, key, [Environment("a.example", "192.0.2.1")] * 12)) == 12
        assert len(world.held(key)) == 1


PROCESS = """
import json, sys
from datetime import UTC, datetime
from pathlib import Path
from licserver.model import Environment
from licserver.rules import Valid, judge_verify
from licserver.settings import Settings
from licserver.store import BatchStore, Claim, Sighting
from licserver.vendor import Vendor
now = datetime(2026, 6, 15, tzinfo=UTC)
vendor = Vendor(Settings(data_dir=Path(sys.argv[1])))  # the database's URL is in the environment
store = BatchStore(vendor.database)
keys = json.loads(sys.stdin.readline())
won = []
for number, key in enumerate(keys):
    environment = Environment(f"{sys.argv[2]}.example", f"192.0.2.{sys.argv[2]}")
    sighting = Sighting(vendor.vault.license_id(key), environment)
    judge = lambda license_: judge_verify(key, license_, environment, now)
    won.append(isinstance(store.admit([Claim(sighting, judge, now)])[0], Valid))
store.close()
vendor.close()
print(json.dumps(won))
"""


def test_processes_that_race_share_the_slots_exactly(world):
    """Four processes race for two slots of each of 60 keys: always two win, and nobody fails."""
    keys = [world.key(slots=2) for _ in range(60)]
    url = world.settings.database_url
    environ = dict(os.environ) | ({"LICSERVER_DATABASE_URL": url.get_secret_value()} if url else {})
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(world.folder / "data"), str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environ,
        )
        for number in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(json.dumps(keys) + "\n")
        process.stdin.flush()
    results = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert [sum(won) for won in zip(*results, strict=True)] == [2] * 60
    assert all(len(world.held(key)) == 2 for key in keys)
