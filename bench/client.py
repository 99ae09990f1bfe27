"""What licclient costs an app: `python -m bench.client`. Medians of one run, as parts of `import httpx`.

Fresh processes are measured in turns, and in processor time, which a busy machine stretches less than the
clock's; what a bare interpreter takes is in every figure. The last figures are of one process: more answers
from the cache.
"""

import os
import subprocess
import sys
import tempfile
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import process_time, time
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import licclient
from licclient._core.public_keys import PREFIX
from licclient._core.responses import Attempt, Reply
from licclient._core.runners import OwnAddress, Send
from licclient._core.signed_responses import COMPONENTS, TAG, content_digest, signature_base
from licclient._verification.flow import verify

ROUNDS: Final = 25
REPEATS: Final = 300
SERVER: Final = "https://licenses.example.com"
KEY: Final = "CP-BENCH0-BENCH0-BENCH0-BENCH0-BENCH0"
BODY: Final = b'{"valid": true, "product": "Bench", "expiry": null, "lifetime": false}'

IMPORTS: Final = {
    "import httpx": "import httpx",
    "import licclient": "import licclient",
}
# Compiled once and kept, as for every installed package: else it is the compiler that is measured.
ENVIRONMENT: Final = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

TARGETS: Final = {
    "import licclient": 0.35,
    "an answer from the cache": 0.45,
    "the same, signature checked": 0.65,
}
MOST_MICROSECONDS: Final = {"unsigned": 25, "signed": 300}


def main() -> int:
    """Measure and print; returns 1 when a figure is above what is promised."""
    with tempfile.TemporaryDirectory() as folder:
        unsigned, signed = Path(folder, "unsigned"), Path(folder, "signed")
        key = Ed25519PrivateKey.generate()
        pin = PREFIX + urlsafe_b64encode(key.public_key().public_bytes_raw()).rstrip(b"=").decode()
        trust = licclient.Trust(public_keys=[pin])
        clients = {
            "unsigned": licclient.LicenseClient(SERVER, storage=unsigned),
            "signed": licclient.LicenseClient(SERVER, storage=signed, trust=trust),
        }
        for client in clients.values():
            _activate(client, key)
        program = "import licclient; licclient.LicenseClient({!r}, storage={!r}{}).verify()"
        programs = IMPORTS | {
            "an answer from the cache": program.format(SERVER, str(unsigned), ""),
            "the same, signature checked": program.format(
                SERVER, str(signed), f", trust=licclient.Trust(public_keys=[{pin!r}])"
            ),
        }
        for code in programs.values():
            _run(code)  # compiles what is not compiled yet
        taken: dict[str, list[float]] = {name: [] for name in programs}
        for _ in range(ROUNDS):
            for name, code in programs.items():
                taken[name].append(_run(code))
        figures = {name: _in_one_process(client) for name, client in clients.items()}
    base = median(taken["import httpx"])
    good = True
    for name, seconds in taken.items():
        ratio = median(seconds) / base
        target = TARGETS.get(name)
        good &= target is None or ratio <= target
        promised = f"  (at most {target})" if target else ""
        print(f"{name:28} {median(seconds) * 1000:7.1f} ms  {ratio:5.2f}{promised}")
    for kind, calls in figures.items():
        for name, microseconds in calls.items():
            good &= microseconds <= MOST_MICROSECONDS[kind]
            print(f"{name:28} {microseconds:7.1f} us         (at most {MOST_MICROSECONDS[kind]}, {kind})")
    return 0 if good else 1


def _activate(client: licclient.LicenseClient, key: Ed25519PrivateKey) -> None:
    """Leave in a client's folder what an activation leaves, as if the service had answered and signed."""
    context = client._session  # noqa: SLF001 - there is no service
    flow = verify(context, KEY, force=False)
    assert isinstance(next(flow), OwnAddress)
    operation = flow.send("127.0.0.1")
    assert isinstance(operation, Send)
    call = operation.call
    headers = {"content-type": "application/json", "content-digest": content_digest(BODY)}
    if call.nonce is not None:
        now, items = int(time()), " ".join(COMPONENTS)
        signature_input = f'({items});created={now};expires={now + 300};nonce="{call.nonce}";alg="ed25519"'
        signature_input += f';keyid="{context.settings.public_keys[0].id}";tag="{TAG}"'
        signature = key.sign(signature_base(call, Reply(200, BODY, headers), items, signature_input))
        headers["signature-input"] = f"sig={signature_input}"
        headers["signature"] = f"sig=:{b64encode(signature).decode()}:"
    with suppress(StopIteration):
        flow.send(Attempt(Reply(200, BODY, headers)))
    context.remember_key(KEY)


def _run(code: str) -> float:
    process = subprocess.Popen([sys.executable, "-c", code], env=ENVIRONMENT)
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
