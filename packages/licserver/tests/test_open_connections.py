"""Connections and memory that one client can take from the others (D-161, D-163), seen from outside."""

import contextlib
import http.client
import json
import socket
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harness import oracle
from harness.commands import Program
from harness.engines import sqlite_only
from harness.memory import needs_proc
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.security.secrets_file import add_signing_key

if sys.platform == "win32":
    pytest.skip("the limits of a process are those of Unix", allow_module_level=True)

import resource

pytestmark = sqlite_only
MIB = 1 << 20
VERIFY = b"POST /api/v1/licenses/verify HTTP/1.1\r\nHost: x\r\n"
SLOW_BODY = VERIFY + b"Content-Length: 500\r\n\r\n{"
WITHOUT_LIMIT = """
import runpy, licserver.serving.server as serving
serving.raise_descriptor_limit = lambda: None
runpy.run_module("licserver", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def serve(make_world):
    """Run a server as a process with few descriptors; gives the process, its port and a key that was sold."""

    @contextlib.contextmanager
    def run(*arguments: str, descriptors=256, command=None, **settings: str):
        def limit():
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        world = make_world()
        add_signing_key(world.settings, PrivateKey.generate(), world.clock())
        program = Program(world.settings.data_dir)
        program.command = command or program.command
        program.environ |= {f"LICSERVER_{name.upper()}": value for name, value in settings.items()}
        with program.serve(*arguments, preexec_fn=limit) as (process, url):
            yield process, urlsplit(url).port, world.key(slots=None)

    return run


@contextlib.contextmanager
def held(port, count, sent=b"", source="127.0.0.9", sources=1):
    """Open connections of one address or of several, send something on each, and keep them."""
    with contextlib.ExitStack() as stack:
        sockets = []
        for number in range(count):
            host, _, last = source.rpartition(".")
            address = (f"{host}.{int(last) + number % sources}", 0)
            sockets.append(stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, address)))
            with contextlib.suppress(ConnectionError):
                sockets[-1].sendall(sent)
        yield sockets


def still_open(sockets):
    """Return the connections that the server has not closed."""
    found = []
    for connection in sockets:
        connection.settimeout(0)
        try:
            closed = not connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            closed = False
        except ConnectionError:
            closed = True
        found += [] if closed else [connection]
    return found


def wait_for_open(sockets, most):
    """Wait until no more than so many are open; return those."""
    deadline = time.monotonic() + 10
    while len(found := still_open(sockets)) > most and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def verify(port, key, source="127.0.0.1"):
    """Verify on a fresh connection; returns the status and the seconds that it took."""
    began = time.monotonic()
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10, source_address=(source, 0))
    with contextlib.closing(link):
        body = json.dumps({"license_key": key, "domain": "a.example", "ip": "192.0.2.1"})
        link.request("POST", "/api/v1/licenses/verify", body)
        return link.getresponse().status, time.monotonic() - began


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "sources", "descriptors", "count"),
    [
        ((), 100, 96, 200),
        pytest.param((), 1, 256, 600, marks=pytest.mark.slow),
        pytest.param((), 100, 256, 600, marks=pytest.mark.slow),
        pytest.param(("--workers", "2"), 100, 256, 600, marks=pytest.mark.slow),
    ],
)
def test_idle_connections_end_no_service(serve, arguments, sources, descriptors, count):
    """More of them than a process may open files, of one address or of many: all others are served."""
    with serve(*arguments, descriptors=descriptors) as (_, port, key), held(port, count, sources=sources):
        for _ in range(5):
            status, seconds = verify(port, key)
            assert (status, seconds < 2) == (200, True)


@pytest.mark.slow
def test_one_address_has_its_share_and_loses_the_oldest(serve):
    """Above the limit its own oldest idle connections are closed; nobody else's, and none that works."""
    with (
        serve(descriptors=1024, connection_limit="20", body_timeout="60") as (_, port, key),
        held(port, 1, VERIFY, source="127.0.0.8") as other,
        held(port, 5, SLOW_BODY) as busy,
        held(port, 60, VERIFY) as idle,
    ):
        assert wait_for_open(idle, 15) == idle[-15:]
        assert still_open([*other, *busy]) == [*other, *busy]
        assert verify(port, key, "127.0.0.9")[0] == 200  # the address is not refused
        assert wait_for_open(idle, 14) == idle[-14:]


@pytest.mark.slow
def test_an_address_whose_connections_all_work_gets_no_more(serve):
    """Bodies that do not come hold an address's share, and no other address's."""
    settings = {"connection_limit": "20", "body_timeout": "60"}
    with serve(**settings) as (_, port, key), held(port, 20, SLOW_BODY) as busy:
        verify(port, key)  # what has been sent was read
        with held(port, 20, SLOW_BODY) as more:
            assert wait_for_open(more, 0) == []
            assert still_open(busy) == busy
            assert verify(port, key)[0] == 200


@pytest.mark.slow
def test_connections_of_a_proxy_have_no_limit(serve):
    """Many customers share its address: it limits them itself."""
    settings = {"connection_limit": "20", "trusted_proxies": "127.0.0.9"}
    with serve(descriptors=1024, **settings) as (_, port, key), held(port, 100) as idle:
        assert verify(port, key)[0] == 200
        assert still_open(idle) == idle


@pytest.mark.slow
def test_without_a_descriptor_left_the_server_recovers(serve):
    """Should accept fail all the same, idle connections are closed, and the log gets a line a second.

    Whoever takes the very last descriptor gets a 503, because none is left for the database.
    """
    command = [sys.executable, "-c", WITHOUT_LIMIT]
    with serve(descriptors=64, command=command) as (process, port, key):
        with held(port, 80):
            answers = [verify(port, key), verify(port, key)]
            assert answers[0][0] in (200, 503)
            assert answers[1][0] == 200
            assert sum(seconds for _, seconds in answers) < 8
        process.terminate()
        log = process.communicate(timeout=30)[1]
    assert "file descriptors are scarce" in log
    assert "Traceback" not in log
    assert len(log.splitlines()) < 10


@pytest.mark.slow
@needs_proc
def test_large_fields_leave_nothing_behind(serve):
    """300 heads full of `Accept-Signature`, each another one: less than 3 MiB more."""
    with serve(miss_limit="0", descriptors=1024) as (process, port, _):
        for number in range(320):
            if number == 20:
                before = resident(process)
            fields = [f'Accept-Signature: sig=("@status{"x" * 7900}")'] * 3
            fields += [f'Accept-Signature: n{number}=("x");nonce="n"']
            fields += [f"Content-Digest: {oracle.digest(b'')}"]
            head = "\r\n".join([*fields, "Content-Length: 0", "Connection: close", "", ""])
            with socket.create_connection(("127.0.0.1", port), 10) as link:
                link.sendall(VERIFY + head.encode())
                assert link.recv(100)[:12] == b"HTTP/1.1 422"
        assert resident(process) - before < 3 * MIB


def resident(process):
    """Return the memory of a process, in bytes."""
    return int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * resource.getpagesize()
