"""The answers to callers, to be compared with the database: ok, fail or unknown (Jepsen's way)."""

import http.client
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus


@dataclass
class Ledger:
    """The answers to the callers, per key: which of their environments are in, which were refused.

    An environment whose call ended in neither may be in or not.
    """

    admitted: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    refused: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    unknown: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))


class Caller(threading.Thread):
    """Claim slots for new environments, one after the other, until the server is gone."""

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
            outcomes = {200: self._ledger.admitted, 403: self._ledger.refused, 503: self._ledger.unknown}
            outcomes[response.status][key].add(domain)
            if response.status == HTTPStatus.SERVICE_UNAVAILABLE:
                break
        connection.close()


def call_until_killed(
    port: int, keys: list[str], name: str, admissions: int, kill: Callable[[], None]
) -> Ledger:
    """Let eight callers claim slots, and kill what answers them after so many admissions."""
    ledger = Ledger()
    callers = [Caller(port, keys, ledger, f"{name}-{number}") for number in range(8)]
    for caller in callers:
        caller.start()
    while sum(map(len, list(ledger.admitted.values()))) < admissions and any(
        caller.is_alive() for caller in callers
    ):
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.02))  # the moment of the kill varies
    kill()
    for caller in callers:
        caller.join()
    return ledger


def assert_promises_kept(ledger: Ledger, held: set[str], keys: list[str], slots: int) -> None:
    """Compare the answers with what the database holds."""
    for key in keys:
        admitted, refused, unknown = ledger.admitted[key], ledger.refused[key], ledger.unknown[key]
        mine = held & (admitted | refused | unknown)
        assert admitted <= held  # none that was acknowledged is lost
        assert mine <= admitted | unknown  # none that was refused is in
        assert len(mine) <= slots
        if refused:  # and nobody was refused while a slot was free
            assert len(mine) == slots
