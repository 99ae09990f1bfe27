"""Honest installations beside hostile clients of all kinds; `nox -s hostile` for ten minutes of it."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.hostile import RATE, percentile
from harness.memory import needs_proc
from harness.programs import environment, serving_process
from licserver.clock import system_clock
from licserver.domain.records import EnvironmentPolicy, LicenseTerms
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.security.secrets_file import add_signing_key
from licserver.services import open_services
from licserver.settings import StandaloneSettings

SECONDS = float(os.environ.get("LICENSING_HOSTILE_SECONDS", "20"))
TIMED = "LICENSING_HOSTILE_SECONDS" in os.environ
"""In a test run it would time the tests beside it."""
MIB = 1 << 20
TESTS = Path(__file__).parent


@pytest.mark.slow
@needs_proc
def test_no_honest_installation_notices_the_hostile_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """200 verifies a second: none fails, memory is flat, and p99 is near that of an unattacked server."""
    with ExitStack() as stack:
        with _processor(0):
            server, attacked = stack.enter_context(_serving(tmp_path / "attacked", tmp_path))
        stack.enter_context(_processor(1))
        _, control = stack.enter_context(_serving(tmp_path / "control", tmp_path))
        for plan in (attacked, control):
            _play(tmp_path, 2.0, ("honest", plan))  # each takes its slot
        (quiet,) = _play(tmp_path, max(4.0, SECONDS / 10), ("honest", attacked))
        memory = [_resident(server)]
        middle = threading.Timer(SECONDS / 2, lambda: memory.append(_resident(server)))
        middle.start()
        spent = _processor_seconds(server)
        # Whatever else the machine does meets both servers alike.
        loaded, beside, *hostile = _play(
            tmp_path,
            SECONDS,
            ("honest", attacked),
            ("honest", control),
            ("requests", attacked),
            ("connections", attacked),
        )
        middle.join()
        spent = _processor_seconds(server) - spent
        memory.append(_resident(server))
        assert server.poll() is None
    measured = {"quiet": quiet, "under attack": loaded, "another server meanwhile": beside}
    p99 = {name: percentile(one["latencies"], 0.99) for name, one in measured.items()}
    report = {
        "seconds": SECONDS,
        "verifies": {name: one["seen"] for name, one in measured.items()},
        "p50 ms": {name: _milliseconds(percentile(one["latencies"], 0.5)) for name, one in measured.items()},
        "p99 ms": {name: _milliseconds(one) for name, one in p99.items()},
        "slowest ms": {name: _milliseconds(max(one["latencies"])) for name, one in measured.items()},
        "memory MiB, start, middle, end": [round(one / MIB, 1) for one in memory],
        "server's processor seconds, and the machine's load": [round(spent, 1), *os.getloadavg()],
        "hostile": [one["seen"] for one in hostile],
    }
    with capsys.disabled():
        sys.stdout.write(f"\n{json.dumps(report, indent=2)}\n")
    assert set(quiet["seen"]) == set(loaded["seen"]) == {"verify: 200"}, report
    assert loaded["seen"]["verify: 200"] > 0.9 * RATE * SECONDS, report
    assert memory[2] - memory[1] < 16 * MIB, report
    assert memory[2] - memory[0] < 64 * MIB, report
    if TIMED:
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
    keys = _set_up(data)
    with serving_process(["serve", "--port", "0", "--data-dir", str(data)], home) as (server, printed):
        found = re.search(r"listening on http://\S+:([0-9]+)", printed)
        assert found
        yield server, {"port": int(found[1]), "keys": keys}


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 1)


def _set_up(data: Path) -> list[str]:
    """Set up a vendor with 100 sold keys, a signing key and a user; returns the keys."""
    services = open_services(StandaloneSettings(data_dir=data))
    try:
        services.products.add("app", "App", EnvironmentPolicy.DOMAIN)
        services.users.add("ann", "four words of a sentence")
        (keys,) = services.licenses.issue_batches("app", LicenseTerms(), 100)
        add_signing_key(services.settings, PrivateKey.generate(), system_clock())
        return keys
    finally:
        services.close()


def _play(home: Path, seconds: float, *roles: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Play roles, each in a process of its own, at the same time; returns what each saw."""
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "harness.hostile", role, json.dumps(plan | {"seconds": seconds})],
                    env=environment(home, PYTHONPATH=str(TESTS)),
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for role, plan in roles
        ]
        try:
            return [json.loads(one.communicate(timeout=seconds + 60)[0]) for one in processes]
        finally:
            for one in processes:
                one.kill()


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
