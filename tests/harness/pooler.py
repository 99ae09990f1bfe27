"""A real PgBouncer on loopback, in front of a test's PostgreSQL."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from harness.cluster import Node
from harness.engines import Postgres

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
MISSING = "there is no pgbouncer: apt install pgbouncer"


class Pooler:
    """A PgBouncer that lends connections to all databases of a PostgreSQL server.

    Args:
        server: Must be running.
        mode: ``session``, ``transaction`` or ``statement``.
        settings: More of its configuration file's settings.
    """

    def __init__(self, server: Postgres | Node, mode: str = "transaction", **settings: object) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        self._folder = Path(tempfile.mkdtemp(prefix="licserver-pooler-"))
        self.log = self._folder / "log"
        chosen = {
            "pool_mode": mode,
            "listen_addr": "127.0.0.1",
            "listen_port": self.port,
            "unix_socket_dir": "",
            "auth_type": "any",
            "default_pool_size": 10,
            "max_client_conn": 500,
            "logfile": self.log,
            **settings,
        }
        file = self._folder / "pgbouncer.ini"
        lines = [f"{name} = {value}\n" for name, value in chosen.items()]
        host = f"127.0.0.1 port={server.port}" if isinstance(server, Node) else server.folder
        databases = f"[databases]\n* = host={host} user=postgres\n"
        file.write_text(f"{databases}[pgbouncer]\n{''.join(lines)}")
        # It refuses root; and only their owner may enter the folder of PostgreSQL's socket.
        owner = server.folder.owner()
        for path in (self._folder, file):
            shutil.chown(path, owner)
        assert PROGRAM is not None
        self._process = subprocess.Popen(
            [PROGRAM, "-q", file],
            user=owner,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await()

    def _await(self) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                assert self._process.poll() is None, self.log.read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)  # it has no event for it
            else:
                return

    def url(self, database: str, *, pooler: str | None = "transaction") -> str:
        """The SQLAlchemy URL of a database behind it, with our own parameter unless that is None."""
        query = f"?pooler={pooler}" if pooler else ""
        return f"postgresql+psycopg://postgres@127.0.0.1:{self.port}/{database}{query}"

    def send(self, number: signal.Signals) -> None:
        """Send it a signal: SIGSTOP and SIGCONT freeze and wake it."""
        self._process.send_signal(number)

    def close(self) -> None:
        """End it and remove its folder."""
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


@contextmanager
def running_pooler(
    server: Postgres | Node, mode: str = "transaction", **settings: object
) -> Iterator[Pooler]:
    """Run one for a block."""
    pooler = Pooler(server, mode, **settings)
    try:
        yield pooler
    finally:
        pooler.close()


@pytest.fixture
def make_pooler() -> Iterator[Callable[..., Pooler]]:
    """Start poolers, which end with the test; it is skipped where there is no pgbouncer."""
    if PROGRAM is None:
        pytest.skip(MISSING)
    with ExitStack() as stack:
        yield lambda *arguments, **settings: stack.enter_context(running_pooler(*arguments, **settings))
