"""Restarts under load: nobody who calls in the midst of one is left without an answer."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest

from harness.commands import list_processes
from harness.programs import licserver, serving_process

RESTARTS = int(os.environ.get("LICENSING_RESTARTS", "2"))  # `nox -s crash` asks for 20

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGHUP, and gunicorn no Windows"),
]


class Caller(threading.Thread):
    """Calls without a pause and without a retry, and counts what is not a 200."""

    def __init__(self, port: int, key: str, *, keep_alive: bool) -> None:
        super().__init__()
        self._port, self._keep_alive = port, keep_alive
        self._body = json.dumps({"license_key": key, "domain": "home.example", "ip": "192.0.2.1"})
        self.enough = threading.Event()
        self.good = 0
        self.bad: list[str] = []

    def run(self) -> None:
        """Call until it is enough."""
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=20)) as connection:
            while not self.enough.is_set():
                try:
                    connection.request("POST", "/api/v1/licenses/verify", self._body)
                    response = connection.getresponse()
                    body = response.read()
                except (OSError, http.client.HTTPException) as problem:
                    self.bad.append(repr(problem))
                    connection.close()
                    continue
                if response.status == 200:
                    self.good += 1
                else:
                    self.bad.append(f"{response.status} {body!r}")
                if not self._keep_alive:
                    connection.close()


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Path, str]:
    """A data folder with one product, and a key for it."""
    home, data = tmp_path / "home", tmp_path / "data"
    environ = {"LICSERVER_DATA_DIR": str(data)}
    licserver(home, "product", "add", "app", "--name", "App", "--environment", "domain", **environ)
    return data, licserver(home, "license", "issue", "app", **environ)


def _workers(manager: subprocess.Popen[str]) -> set[int]:
    return list_processes(manager)[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the worker processes from /proc")
def test_a_rolling_restart_fails_no_request(shop: tuple[Path, str], tmp_path: Path) -> None:
    """While SIGHUP replaces all processes again and again, each call gets its 200, without a retry."""
    data, key = shop
    command = ["serve", "--port", "0", "--workers", "2", "--data-dir", str(data)]
    with serving_process(command, tmp_path / "home") as (manager, printed):
        port = int(printed.rpartition(":")[2])
        callers = [Caller(port, key, keep_alive=number % 2 == 0) for number in range(6)]
        for caller in callers:
            caller.start()
        for _ in range(RESTARTS):
            before, served = _workers(manager), sum(caller.good for caller in callers)
            manager.send_signal(signal.SIGHUP)
            _wait_until(lambda before=before: not before & _workers(manager))
            _wait_until(lambda served=served: sum(caller.good for caller in callers) > served + 100)
        for caller in callers:
            caller.enough.set()
        for caller in callers:
            caller.join()
    assert [problem for caller in callers for problem in caller.bad] == []
    assert all(caller.good > RESTARTS for caller in callers)
    assert manager.returncode == 0


@pytest.mark.parametrize("workers", ["1", "2"])
def test_on_the_way_out_each_answer_is_the_last(shop: tuple[Path, str], tmp_path: Path, workers: str) -> None:
    """After SIGTERM a held connection gets one more answer with `Connection: close`; readiness is false."""
    data, _ = shop
    command = ["serve", "--port", "0", "--workers", workers, "--data-dir", str(data)]
    with serving_process(command, tmp_path / "home") as (server, printed):
        port = int(printed.rpartition(":")[2])
        held = [http.client.HTTPConnection("127.0.0.1", port, timeout=20) for _ in range(8)]
        for connection in held:
            connection.request("GET", "/readyz")
            response = connection.getresponse()
            assert (response.status, response.read()) == (200, b'{"status":"ready"}')
        server.send_signal(signal.SIGTERM)
        last: list[int] = []
        while held:  # by turns: who is idle for two seconds is not answered any more
            for connection in [*held]:
                connection.request("GET", "/readyz")
                response = connection.getresponse()
                response.read()
                if response.headers["Connection"] == "close":
                    assert response.status == 200 or response.headers["Retry-After"]
                    last.append(response.status)
                    connection.close()
                    held.remove(connection)
        assert last.count(200) <= int(
            workers
        )  # in each process the one that it was at when it got the signal
        assert last.count(503) == len(last) - last.count(200)
        _wait_until(lambda: not _accepts(port))
        assert server.wait(30) == 0  # before another signal, which would end it at once


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def _wait_until(holds: object) -> None:
    assert callable(holds)
    waiting = threading.Event()
    for _ in range(1500):
        if holds():
            return
        waiting.wait(0.02)
    raise AssertionError("it did not come to pass within 30 s")
