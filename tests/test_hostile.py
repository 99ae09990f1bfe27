"""Honest installations beside hostile clients of all kinds; `nox -s hostile` for ten minutes of it."""

import json
import math
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from bench.growth import measure_size
from sqlalchemy import insert

from harness.hostile import FIRST, RATE, percentile
from harness.memory import needs_proc
from harness.programs import environment, serving_process
from licserver.clock import system_clock
from licserver.database.tables.licenses import activations
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.security.secrets_file import add_signing_key
from licserver.services.installation import Services, open_services
from licserver.settings import StandaloneSettings

SECONDS = float(os.environ.get("LICENSING_HOSTILE_SECONDS", "10"))
TIMED = "LICENSING_HOSTILE_SECONDS" in os.environ
"""In a test run it would time the tests beside it."""
IS_FIRST = "LICENSING_HOSTILE_FIRST" in os.environ
"""Whether the server and honest clients come before all else on the machine; it takes root."""
PATIENCE = 30.0
"""Seconds in which a code and an event must arrive."""
LOADS = (
    "digits: 403",
    "name: 403",
    "cookies, customer: 200",
    "cookies, console: 200",
    "code: 303",
    "verify and deactivate: 200 200",
    "seats: 200 200",
    "page: 200 303",
    "new computers: 200",
)
"""Loads by what comes of them: each was really there."""
OTHERS = 60_000  # licenses beside those of the honest ones: as many as made a search of them slow
HOSTILE = 20
"""Hostile customers, each with a key of its own."""
FORWARDED = {"LICENSING_HOSTILE_FIRST": "1"} if IS_FIRST else {}
NETWORKS = "127.0.0.1/32"
MIB = 1 << 20
TESTS = Path(__file__).parent


@pytest.mark.slow
@needs_proc
def test_no_honest_installation_notices_the_hostile_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """200 verifies a second: none fails, memory is flat, and p99 is near that of an unattacked server.

    Beside them customers sign in by mail, whose codes arrive within 30 s, and so do events at an endpoint
    beside silent ones. What the hostile ones send costs more than usual, or writes and undoes, and each kind
    of it was really answered.
    """
    with ExitStack() as stack:
        with _processor(0):
            server, attacked = stack.enter_context(_serving(tmp_path / "attacked", tmp_path))
        stack.enter_context(_processor(1))
        _, control = stack.enter_context(_serving(tmp_path / "control", tmp_path))
        for plan in (attacked, control):
            _play(tmp_path, 2.0, ("honest", plan))  # each takes its slot
        (quiet,) = _play(tmp_path, max(4.0, SECONDS / 10), ("honest", attacked))
        memory, disk, data = [_resident(server)], [], tmp_path / "attacked"

        def measure() -> None:
            memory.append(_resident(server))
            disk.append(measure_size(data))

        middle = threading.Timer(SECONDS / 2, measure)
        middle.start()
        spent = _processor_seconds(server)
        # Whatever else the machine does meets both servers alike.
        loaded, beside, customers, received, *hostile = _play(
            tmp_path,
            SECONDS,
            ("honest", attacked),
            ("honest", control),
            ("customer", attacked),
            ("receivers", attacked),
            ("requests", attacked),
            ("connections", attacked),
            ("costly", attacked),
            ("writing", attacked),
        )
        middle.join()
        spent = _processor_seconds(server) - spent
        measure()
        assert server.poll() is None
    measured = {"quiet": quiet, "under attack": loaded, "another server meanwhile": beside}
    p99 = {name: percentile(measure_["latencies"], 0.99) for name, measure_ in measured.items()}
    report = {
        "seconds": SECONDS,
        "verifies": {name: measure_["seen"] for name, measure_ in measured.items()},
        "p50 ms": {
            name: _milliseconds(percentile(measure_["latencies"], 0.5)) for name, measure_ in measured.items()
        },
        "p99 ms": {name: _milliseconds(duration) for name, duration in p99.items()},
        "slowest ms": {
            name: _milliseconds(max(measure_["latencies"])) for name, measure_ in measured.items()
        },
        "memory MiB, start, middle, end": [round(size / MIB, 1) for size in memory],
        "data folder MB, middle, end": [round(size / 1e6, 1) for size in disk],
        "server's processor seconds, and the machine's load": [round(spent, 1), *os.getloadavg()],
        "sign-ins, and the longest wait for a code in s": [
            customers["seen"],
            round(max(customers["waits"], default=math.inf), 1),
        ],
        "events, and the longest wait for one in s, beside silent endpoints": [
            len(received["waits"]),
            round(max(received["waits"], default=math.inf), 1),
            received["seen"],
        ],
        "hostile": [attack["seen"] for attack in hostile],
    }
    sent = Counter[str]()
    for attack in hostile:
        sent.update(attack["seen"])
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(report, indent=2)}\n")
    assert set(quiet["seen"]) == set(loaded["seen"]) == {"verify: 200"}, report
    assert set(customers["seen"]) == {"sign-in: 303"}, report
    assert max(customers["waits"]) < PATIENCE, report
    assert received["seen"]["silent"] > 0, report
    assert received["waits"], report
    assert max(received["waits"]) < PATIENCE, report
    assert not {kind for kind in LOADS if sent[kind] == 0}, report
    assert disk[1] - disk[0] < 4 * MIB, report
    assert memory[2] - memory[0] < 128 * MIB, report
    if TIMED:
        assert loaded["seen"]["verify: 200"] > 0.9 * RATE * SECONDS, report
        # A hash of a password takes 64 MiB, and on a machine that is busy with tests longer than a second.
        assert memory[2] - memory[1] < 16 * MIB, report
        assert memory[2] - memory[0] < 64 * MIB, report
        assert p99["under attack"] < 10 * max(p99["quiet"], p99["another server meanwhile"]), report


@contextmanager
def _processor(number: int) -> Iterator[None]:
    """Start processes on one processor, as an attacker has a machine of his own and not the server's."""
    allowed = os.sched_getaffinity(0)
    if TIMED:
        os.sched_setaffinity(0, {sorted(allowed)[number % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


@contextmanager
def _serving(data: Path, home: Path) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Serve a vendor of its own; gives the process, and what clients need to know."""
    mail_port, hooks = _free_port(), [_free_port() for _ in range(5)]
    plan = _set_up(data, hooks) | {"hook_port": hooks[0], "silent_ports": hooks[1:]}
    mail = {"HOST": "127.0.0.1", "PORT": str(mail_port), "TLS": "none", "SENDER": "shop@example.com"}
    options = {
        "LICSERVER_ACCOUNT": "true",
        "LICSERVER_WEBHOOK_NETWORKS": NETWORKS,
        **{f"LICSERVER_MAIL_{name}": value for name, value in mail.items()},
    }
    arguments = ["serve", "--port", "0", "--data-dir", str(data)]
    with serving_process(arguments, home, None, **options) as (server, printed):
        found = re.search(r"listening on http://\S+:([0-9]+)", printed)
        assert found
        if IS_FIRST:
            _put_first(server.pid)
        yield server, {"port": int(found[1]), "mail_port": mail_port, **plan}


def _put_first(process: int) -> None:
    """Let a server come before all else, and before its own process for jobs."""
    folder = Path(f"/proc/{process}/task")
    for thread in folder.iterdir():
        os.sched_setscheduler(int(thread.name), os.SCHED_RR, os.sched_param(FIRST))
        for child in (thread / "children").read_text().split():
            for its in Path(f"/proc/{child}/task").iterdir():
                os.sched_setscheduler(int(its.name), os.SCHED_RR, os.sched_param(FIRST // 2))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 1)


def _set_up(data: Path, hooks: Sequence[int]) -> dict[str, Any]:
    """Set up a vendor with 60,000 activated licenses, a signing key and a user; return what clients know."""
    own: dict[str, Any] = {"webhook_networks": NETWORKS}
    services = open_services(StandaloneSettings(data_dir=data, **own))
    try:
        services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
        services.users.add("ann", "four words of a sentence")
        (keys,) = services.licenses.issue_batches("app", LicenseTerms(), 100)
        customers = [f"customer{number}@example.com" for number in range(50)]
        terms = LicenseTerms(slots=2, floating_seats=9)
        (own_keys,) = services.licenses.issue_batches("app", terms, HOSTILE)
        _, unlimited_key = services.licenses.issue("app", LicenseTerms(slots=None))
        for email in customers:
            services.licenses.issue("app", LicenseTerms(customer_email=email))
        add_signing_key(services.settings, PrivateKey.generate(), system_clock())
        for _ in services.licenses.issue_batches("app", LicenseTerms(), OTHERS):
            pass
        _activate_all(services)
        for port in hooks:
            services.webhooks.add(f"http://127.0.0.1:{port}/")
        hostile = {"own_keys": own_keys, "unlimited_key": unlimited_key}
        return {"keys": keys, "customers": customers, **hostile}
    finally:
        services.close()


def _activate_all(services: Services) -> None:
    """Activate every license but the first ones at a site of its own, whose name begins with ``www``."""
    now, numbers = services.now(), count()
    rows = [
        {"license_id": license_.id, "domain": f"www.site{next(numbers)}.example", "ip": "192.0.2.1"}
        for license_ in services.licenses.list_all()
    ]
    with services.database.writing() as connection:
        others = rows[151 + HOSTILE :]
        connection.execute(insert(activations), [row | {"activated_at": now} for row in others])


def _play(home: Path, seconds: float, *roles: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Play roles, each in a process of its own, at the same time; returns what each saw."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "harness.hostile", role, json.dumps(plan | {"seconds": seconds})],
                    env=environment(home, PYTHONPATH=str(TESTS), **FORWARDED),
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for role, plan in roles
        ]
        try:
            return [json.loads(process.communicate(timeout=seconds + 180)[0]) for process in processes]
        finally:
            for process in processes:
                process.kill()


def _processor_seconds(process: subprocess.Popen[str]) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(process: subprocess.Popen[str]) -> int:
    """Return the memory of a process, in bytes: the least within a second, so without that of a hash."""
    statm, pages = Path(f"/proc/{process.pid}/statm"), []
    for _ in range(20):
        pages.append(int(statm.read_text().split()[1]))
        time.sleep(0.05)
    return min(pages) * os.sysconf("SC_PAGESIZE")
