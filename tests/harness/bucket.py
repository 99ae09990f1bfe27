"""An S3 server (moto) on loopback, as a process of its own. It checks no signatures."""

import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path


class S3Server:
    """A running S3 server.

    Args:
        log: File for what it writes.
    """

    def __init__(self, log: Path) -> None:
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
        with log.open("wb") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output)
        deadline = time.monotonic() + 30
        while not (found := re.search(r"Running on http://127\.0\.0\.1:([0-9]+)", log.read_text())):
            assert self._process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.01)  # a log file cannot be waited for
        self.port = int(found[1])
        self.log = log
        self._count = 0

    def new_bucket(self) -> str:
        """Make an empty bucket; returns the setting that names it."""
        self._count += 1
        url = f"http://127.0.0.1:{self.port}/store-{self._count}"
        urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
        return f"s3://store-{self._count}/files"

    def stop(self) -> None:
        """End it, with everything in it."""
        self._process.kill()
        self._process.wait()
