"""A server that starts while PostgreSQL is away: it waits, and says 503 meanwhile."""

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest

from harness.cluster import wait_for
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.runtime import shutdown
from licserver.serving import waiting
from licserver.settings import StandaloneSettings

BACK_WITHIN = 2.0  # seconds: docs/server/postgresql.md


def ask(port, path, body=None):
    """Send a request; gives its status, 0 for none."""
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", data, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code if refused.headers.get("Retry-After", "5") == "5" else 0
    except OSError:
        return 0


@pytest.fixture
def port():
    """A port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


@pytest.fixture
def installed(program, own_postgres):
    """A vendor with one key, whose database is stopped; the key."""
    url = own_postgres.url(own_postgres.make())
    database = connect(url)
    migrate.upgrade(database)
    database.close()
    program.environ["LICSERVER_DATABASE_URL"] = url
    (key,) = program.stock(policy="domain")
    own_postgres.stop()
    return key


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_waits_for_its_database(program, own_postgres, installed, port, tmp_path, workers):
    """It lives, is not ready, refuses nobody; it serves soon after the database is there."""
    body = {"license_key": installed, "domain": "a.example", "ip": "192.0.2.1"}
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.settimeout(30)
        environ = {**program.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}
        with program.start("serve", "--port", str(port), "--workers", workers, env=environ) as process:
            assert systemd.recv(100) == b"EXTEND_TIMEOUT_USEC=60000000"
            assert ask(port, "/healthz") == 200
            assert ask(port, "/readyz") == 503
            assert ask(port, "/api/v1/licenses/verify", body) == 503
            own_postgres.start()
            began = time.monotonic()
            wait_for(lambda: ask(port, "/api/v1/licenses/verify", body) == 200)
            assert workers == "2" or time.monotonic() - began < BACK_WITHIN
            while (message := systemd.recv(100)) != b"READY=1":
                assert message.startswith(b"EXTEND")
            process.terminate()
            assert process.wait(30) == 0


@pytest.mark.slow
def test_a_server_that_waits_can_be_stopped(program, installed, port):
    """With SIGTERM, and exit code 0."""
    with program.start("serve", "--port", str(port)) as process:
        wait_for(lambda: ask(port, "/healthz") == 200)
        process.terminate()
        assert process.wait(30) == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM")
async def test_a_server_that_is_stopped_while_it_finds_its_database_does_not_serve(monkeypatch):
    """The signal is not lost; it once was, and the server began to serve."""
    monkeypatch.setattr(shutdown, "_start_timer", lambda *_: None)
    closed = []

    def open_services():
        os.kill(os.getpid(), signal.SIGTERM)
        stopped.wait(20)
        return SimpleNamespace(close=lambda: closed.append(True))

    stopped = threading.Event()
    monkeypatch.setattr(waiting, "exit_at_next_signal", stopped.set)
    with pytest.raises(SystemExit) as ended:
        await waiting.open_when_possible(open_services, [], StandaloneSettings(), print)
    assert ended.value.code == 0
    assert closed == [True]


@pytest.mark.slow
def test_what_waiting_does_not_mend_ends_at_once(program, own_postgres, port):
    """A database that was never created: one line, as from every command."""
    program.environ["LICSERVER_DATABASE_URL"] = own_postgres.url("nowhere")
    done = program.run("serve", "--port", str(port), check=False)
    assert done.returncode == 1
    assert "does not exist" in done.stderr
    assert "Traceback" not in done.stderr
