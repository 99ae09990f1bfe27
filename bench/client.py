"""What licclient costs an app: `python -m bench.client`. Medians of one run, as parts of `import httpx`.

Fresh processes are measured in turns, and in processor time, which a busy machine stretches less than the
clock's; what a bare interpreter takes is in every figure. The last figures are of one process: more answers
from the cache.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import process_time
from typing import Final

import licclient
from licclient.testing import fake_service

ROUNDS: Final = 25
REPEATS: Final = 300
SERVER: Final = "https://licenses.example.com"
KEY: Final = "CP-BENCH0-BENCH0-BENCH0-BENCH0-BENCH0"

IMPORTS: Final = {
    "import httpx": "import httpx",
    "import licclient": "import licclient",
}
TARGETS: Final = {"import licclient": 0.35, "an answer from the cache": 0.45}
MOST_MICROSECONDS: Final = 25


def main() -> int:
    """Measure and print; returns 1 when a figure is above what is promised."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder)
        _activate(state)
        answer = f"import licclient; licclient.LicenseClient({SERVER!r}, state_dir={folder!r}).verify()"
        programs = IMPORTS | {"an answer from the cache": answer}
        taken: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(ROUNDS):
            for name, code in programs.items():
                taken[name].append(_run(code))
        figures = _in_one_process(licclient.LicenseClient(SERVER, state_dir=state))
    base = median(taken["import httpx"])
    good = True
    for name, seconds in taken.items():
        ratio = median(seconds) / base
        target = TARGETS.get(name)
        good &= target is None or ratio <= target
        promised = f"  (at most {target})" if target else ""
        print(f"{name:28} {median(seconds) * 1000:7.1f} ms  {ratio:5.2f}{promised}")
    for name, microseconds in figures.items():
        good &= microseconds <= MOST_MICROSECONDS
        print(f"{name:28} {microseconds:7.1f} us         (at most {MOST_MICROSECONDS})")
    return 0 if good else 1


def _activate(state: Path) -> None:
    """Leave in a folder what an activation leaves."""
    with fake_service() as service:
        service.issue("Bench", key=KEY)
    client = licclient.LicenseClient(SERVER, state_dir=state)
    steps = client._steps  # noqa: SLF001 - as if the service had answered
    asking = steps.begin_verify(KEY, recheck=False)
    assert not isinstance(asking, licclient.License)
    with fake_service() as service:
        service.issue("Bench", key=KEY)
        body = service.answer("POST", "/api/v1/licenses/verify", body=_body(asking.domain)).body
    from licclient._wire import Reply  # noqa: PLC0415

    steps.end_verify(asking, steps.verify_call(asking, "127.0.0.1"), Reply(200, body))
    steps.remember_key(KEY)


def _body(domain: str) -> bytes:
    return f'{{"license_key": "{KEY}", "domain": "{domain}", "ip": "127.0.0.1"}}'.encode()


def _run(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code])
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def _in_one_process(client: licclient.LicenseClient) -> dict[str, float]:
    calls: dict[str, Callable[[], object]] = {
        "again: verify(key)": lambda: client.verify(KEY),
        "again: verify()": client.verify,
        "again: require()": client.require,
    }
    return {name: _microseconds(call) for name, call in calls.items()}


def _microseconds(call: Callable[[], object]) -> float:
    call()
    rounds = []
    for _ in range(ROUNDS):
        began = process_time()
        for _ in range(REPEATS):
            call()
        rounds.append((process_time() - began) / REPEATS * 1e6)
    return median(rounds)


if __name__ == "__main__":
    sys.exit(main())
