"""An S3 server (moto) on loopback. It checks no signatures and no policies."""

import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class S3Server:
    """A process of its own; `environ` holds what a client needs to find and open it."""

    def __init__(self, log: Path) -> None:
        self._log, self._buckets = log, 0
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output)
        self.port = self._read_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environ = {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIDOFTESTS",
            "AWS_SECRET_ACCESS_KEY": "the-bucket-secret",
            "AWS_REGION": "us-east-1",
        }

    def _read_port(self) -> int:
        deadline = time.monotonic() + 30
        while not (found := re.search(rb"Running on http://127\.0\.0\.1:([0-9]+)", self._log.read_bytes())):
            assert self.process.poll() is None, self._log.read_text()
            assert time.monotonic() < deadline, self._log.read_text()
            time.sleep(0.01)  # a log file cannot be waited for
        return int(found[1])

    def new_bucket(self) -> str:
        """Make an empty bucket; returns the setting that names it."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        make = urllib.request.Request(f"{self.url}/{name}", method="PUT")  # noqa: S310 - our own
        urllib.request.urlopen(make).close()  # noqa: S310 - our own
        return f"s3://{name}/releases"

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Be silent for a block."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """End it, with everything in it."""
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """An S3 server for the whole run."""
    server = S3Server(tmp_path_factory.mktemp("s3") / "log")
    yield server
    server.stop()


@pytest.fixture
def own_s3(tmp_path: Path) -> Iterator[S3Server]:
    """An S3 server that this test may stop."""
    server = S3Server(tmp_path / "s3.log")
    yield server
    server.stop()


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """The setting that names an empty bucket, with all that is needed to get at it in the environment."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    return s3.new_bucket()
