"""Starting the servers that are compared, and reading what they cost."""

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from bench.databases import Stocked

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_START_TIMEOUT: Final = 20.0


@dataclass(frozen=True, slots=True)
class Target:
    """Something that is measured.

    Args:
        name: For the table.
        url: Where it listens.
        pid: The process that does the work; None for an external server, named by its address only.
        database_pids: Processes that work for it as well.
    """

    name: str
    url: str
    pid: int | None = None
    database_pids: tuple[int, ...] = ()

    def processes(self) -> list[int]:
        """The process and all that it has started."""
        return [] if self.pid is None else _family(self.pid)

    def cpu_seconds(self) -> float:
        """What its processes have used so far, and its database's."""
        databases = [pid for first in self.database_pids for pid in _family(first)]
        return sum(_cpu_seconds(pid) for pid in [*self.processes(), *databases])

    def peak_mebibytes(self) -> float:
        """The most memory that any of its processes has held."""
        return max((_peak_kibibytes(pid) for pid in self.processes()), default=0) / 1024


def free_port() -> int:
    """Find a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def running(name: str, command: list[str], port: int, path: str, environ: dict[str, str]) -> Iterator[Target]:
    """Run a server until the block ends.

    Args:
        name: For the table.
        command: What to start.
        port: Where it will listen.
        path: Asked until it answers at all.
        environ: Added to this process's environment.
    """
    process = subprocess.Popen(command, env={**os.environ, **environ}, stdout=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url + path, process)
        yield Target(name, url, process.pid)
    finally:
        process.terminate()
        process.wait(30)


@contextmanager
def floor() -> Iterator[Target]:
    """Run the bare handler."""
    port = free_port()
    with running("floor", [sys.executable, "-m", "bench.floor", str(port)], port, "/", {}) as target:
        yield target


@contextmanager
def product(stocked: Stocked, workers: int = 1) -> Iterator[Target]:
    """Run ``licserver serve``."""
    port = free_port()
    command = [sys.executable, "-m", "licserver", "serve", "--port", str(port), "--workers", str(workers)]
    environ = {"LICSERVER_DATA_DIR": str(stocked.data_dir), **stocked.environ}
    with running(stocked.name, command, port, "/healthz", environ) as target:
        yield replace(target, database_pids=stocked.pids)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        try:
            urllib.request.urlopen(url, timeout=1).close()  # noqa: S310 - our own loopback address
        except urllib.error.HTTPError:
            return
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise TimeoutError(f"{url} did not answer within {_START_TIMEOUT} s")


def _family(pid: int) -> list[int]:
    """A process and all that it has started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(found for child in map(int, children) for found in _family(child))]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _peak_kibibytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0
