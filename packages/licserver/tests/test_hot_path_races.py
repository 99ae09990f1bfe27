"""Many who want the last slot at once, on one database (D-08): threads, and processes."""

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from threading import Barrier

import pytest

from harness import engines
from licserver.database import engine
from licserver.database.hot_path.store import BatchStore
from licserver.domain.decisions import Valid
from licserver.domain.records import Environment, Product
from licserver.errors import LicenseLockedError

engine_name = engines.engine_name  # what differs on PostgreSQL: locks, plans, types, COPY, dumps


@pytest.fixture(autouse=True)
def _patience(monkeypatch):
    """Of SQLite's writers each waits for its turn: a slow disk is not what is tried here."""
    monkeypatch.setattr(engine, "RUN_LIMIT", 20 * engine.RUN_LIMIT)


def claims_of(world, key, environments):
    """Requests of many environments for slots of a key."""
    return [world.request_slot(key, *environment) for environment in environments]


def admit(store, claims):
    """Admit claims; those whose license another transaction has locked are tried again, as by the server."""
    while claims:
        verdicts = store.activate(claims)
        for verdict in verdicts:
            if not isinstance(verdict, LicenseLockedError):
                yield verdict
        both = zip(claims, verdicts, strict=True)
        claims = [claim for claim, verdict in both if isinstance(verdict, LicenseLockedError)]


def race(world, claims):
    """Let threads admit one claim each, all at the same moment; says how many got in."""
    start = Barrier(len(claims))

    def run(claim):
        with closing(BatchStore(world.services.database)) as store:  # with a connection of its own
            start.wait()
            return next(admit(store, [claim]))

    with ThreadPoolExecutor(len(claims)) as threads:
        return sum(isinstance(verdict, Valid) for verdict in threads.map(run, claims))


def test_threads_that_race_share_the_slots_exactly(world):
    """Twelve threads with a transaction each get five slots between them, several times over."""
    for _ in range(4):
        key = world.key(slots=5)
        environments = [Environment(f"{n}.example", f"192.0.2.{n}") for n in range(12)]
        assert race(world, claims_of(world, key, environments)) == 5
        assert len(world.held(key)) == 5


def test_threads_that_race_for_one_environment_take_one_slot(world):
    """Twelve threads that want the same new environment all get in, by one slot."""
    for _ in range(4):
        key = world.key(slots=1)
        assert race(world, claims_of(world, key, [Environment("a.example", "192.0.2.1")] * 12)) == 12
        assert len(world.held(key)) == 1


PROCESS = """
import json, sys
import licserver.database.engine
licserver.database.engine.RUN_LIMIT *= 20
from datetime import UTC, datetime
from pathlib import Path
from licserver.errors import LicenseLockedError
from licserver.domain.records import Environment
from licserver.domain.decisions import Valid, evaluate_verify
from licserver.settings import Settings
from licserver.database.hot_path.activations import ActivationRequest
from licserver.database.hot_path.lookups import Lookup
from licserver.database.hot_path.store import BatchStore
from licserver.services.installation import open_services
now = datetime(2026, 6, 15, tzinfo=UTC)
services = open_services(Settings(data_dir=Path(sys.argv[1])))  # the database's URL is in the environment
store = BatchStore(services.database)
keys = json.loads(sys.stdin.readline())
won = []
for number, key in enumerate(keys):
    environment = Environment(f"{sys.argv[2]}.example", f"192.0.2.{sys.argv[2]}")
    lookup = Lookup(services.vault.license_id(key), environment)
    judge = lambda license_: evaluate_verify(key, license_, environment, now)
    request = ActivationRequest(lookup, judge, now)
    while isinstance(verdict := store.activate([request])[0], LicenseLockedError):
        pass
    won.append(isinstance(verdict, Valid))
store.close()
services.close()
print(json.dumps(won))
"""


@pytest.mark.slow
def test_processes_that_race_share_the_slots_exactly(world):
    """Four processes race for two slots of each of 20 keys: always two win, and nobody fails."""
    keys = [world.key(slots=2) for _ in range(20)]
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
    assert [sum(won) for won in zip(*results, strict=True)] == [2] * 20
    assert all(len(world.held(key)) == 2 for key in keys)


def test_the_first_to_publish_or_add_wins_and_the_others_get_an_error(world):
    """The same slug or version from six threads at once: one is new, five are taken, and nobody fails."""
    artifact = world.publish("0.1").artifact
    product = world.services.products.get("app")
    start = Barrier(6)

    def add(number):
        start.wait()
        return world.repositories.products.add(Product(0, f"new-{number}", "New"), world.clock())

    def publish(number):
        start.wait()
        return world.repositories.releases.add(product.id, "1.0", f"1.{number}", "", artifact, world.clock())

    for act in (add, publish):
        for number in range(5):
            with ThreadPoolExecutor(6) as threads:
                assert sum(threads.map(act, [number] * 6)) == 1
    assert len(world.services.releases.list_all("app")) == 6


def test_claims_and_the_end_of_a_subscription_never_wait_for_each_other(world):
    """Both take many licenses at once; the claims of a locked license are tried again (D-08)."""
    keys = [world.key(slots=9, subscription_id="s-1") for _ in range(40)]

    def claim(number):
        environment = Environment(f"{number}.example", f"192.0.2.{number}")
        mixed = random.Random(number).sample(keys, len(keys))
        claims = [claim for key in mixed for claim in claims_of(world, key, [environment])]
        with closing(BatchStore(world.services.database)) as store:
            return len(list(admit(store, claims)))

    def end(number):
        return world.services.subscriptions.end("s-1", datetime(2026, 7, 1 + number, tzinfo=UTC))

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(act, number) for number in range(6) for act in (claim, end)]
        assert [task.result() for task in running] == [40] * 12
    assert all(len(world.held(key)) == 6 for key in keys)


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_instants_far_away_are_kept(world, year):
    """The first and the last day that can be written come back as they were, on either engine."""
    at = datetime(year, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    key = world.key(subscription_id="s-1", expires_on=at.date())
    world.services.subscriptions.end("s-1", at)
    found = world.services.licenses.get(key)
    assert (found.subscription_ended_at, found.expires_on) == (at, at.date())
