"""Worker processes that die, or cannot begin: the others go on, and they come back (D-125)."""

import asyncio
import os
import signal
import socket
import sys
import time
from types import SimpleNamespace

import pytest

from harness.commands import list_processes
from harness.engines import own_engine
from harness.fetching import verify
from licserver.database import migrate
from licserver.database.engine import connect

if sys.platform.startswith("linux"):
    from licserver.serving import workers as startups

pytestmark = [
    pytest.mark.crash,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the worker processes from /proc"),
]
LONG = 30.0  # seconds: more than anything here may take, however busy the machine


def workers(process):
    """The processes that answer."""
    return list_processes(process)[0]


def wait_for(is_so):
    """Wait until something is so."""
    deadline = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_until(process, words):
    """Read the log until a line with these words; gives what was read."""
    lines = [process.stderr.readline()]
    while words not in lines[-1]:
        assert lines[-1], lines
        lines.append(process.stderr.readline())
    return "".join(lines)


def wait_for_both(process, address, key):
    """Wait until two workers answer: while one stands still, the other does."""

    def answers_without(still):
        os.kill(still, signal.SIGSTOP)
        try:
            return verify(address, key)[0] == 200  # 503: it stands still in the middle of a transaction
        finally:
            os.kill(still, signal.SIGCONT)

    def each_answers():
        try:
            return len(found := workers(process)) == 2 and all(map(answers_without, found))
        except ProcessLookupError:  # it could not begin, and its successor is tried next
            return False

    wait_for(each_answers)


def sell(program):
    """A key."""
    (key,) = program.stock(policy="domain")
    return key


@own_engine
def test_a_worker_that_dies_while_the_database_is_away_comes_back_with_it(program, own_postgres, engine_name):
    """One killed process must not end the server; nobody starts anything when PostgreSQL is back."""
    url = own_postgres.url(own_postgres.make())
    database = connect(url)
    migrate.upgrade(database)
    database.close()
    program.environ["LICSERVER_DATABASE_URL"] = url
    key = sell(program)
    with program.serve("--workers", "2") as (process, address):
        wait_for_both(process, address, key)
        own_postgres.stop()
        os.kill(min(workers(process)), signal.SIGKILL)
        output = read_until(process, "a worker waits for the database")
        assert verify(address, key)[0] == 503  # the other one answers
        own_postgres.start()
        wait_for(lambda: {verify(address, key)[0] for _ in range(8)} == {200})
        assert process.poll() is None
        assert "Traceback" not in output
        process.terminate()
        assert process.wait(LONG) == 0


def test_sighup_keeps_the_running_processes_when_fresh_ones_could_not_begin(program):
    """The secrets are away for a moment: the old generation serves on; when they are back a new one does."""
    key = sell(program)
    path, away = program.folder / "secrets.json", program.folder / "away"
    with program.serve("--workers", "2") as (process, address):
        wait_for_both(process, address, key)
        old = workers(process)
        path.rename(away)
        process.send_signal(signal.SIGHUP)
        assert "Traceback" not in read_until(process, "the running processes go on")
        assert workers(process) == old
        assert verify(address, key)[0] == 200
        away.rename(path)
        process.send_signal(signal.SIGHUP)
        wait_for(lambda: len(workers(process)) == 2 and workers(process).isdisjoint(old))
        assert verify(address, key)[0] == 200


def test_a_sigterm_does_not_wait_for_those_that_are_being_replaced(program):
    """One lets a request end for as long as that takes: until then, the first process once got nothing."""
    program.environ["LICSERVER_BODY_TIMEOUT"] = "60"
    program.environ["LICSERVER_DRAIN_TIMEOUT"] = "60"
    key = sell(program)
    with program.serve("--workers", "2") as (process, address):
        wait_for_both(process, address, key)
        old = workers(process)
        host, _, port = address.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as slow:
            slow.sendall(b"POST /api/v1/licenses/verify HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            assert verify(address, key)[0] == 200  # so the other one was accepted
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: len(workers(process) - old) == 2 and len(workers(process) & old) == 1)

            def is_over():
                process.terminate()
                return process.poll() is not None

            wait_for(is_over)
            assert process.returncode == 128 + signal.SIGTERM  # a second signal ends it at once


async def test_a_worker_sends_heartbeats_while_it_lets_requests_end(monkeypatch):
    """That of gunicorn ceases then, and who is silent for half a minute is killed."""
    monkeypatch.setattr(startups, "_NOTIFY_SECONDS", 0.01)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    notifications, often = [], asyncio.Event()

    def notify():
        notifications.append(True)
        if len(notifications) > 3:
            often.set()

    async def make():
        return "a runner"

    startup = startups.WorkerStartup(make, 0)
    startup.note(None, SimpleNamespace(notify=notify))
    assert await startup.begin() == "a runner"
    async with asyncio.timeout(20):
        await often.wait()


def test_a_worker_that_cannot_begin_is_tried_again_and_can_be_stopped(program):
    """The secrets are away when one dies: the other serves, and its successor begins when they are back."""
    key = sell(program)
    path, away = program.folder / "secrets.json", program.folder / "away"
    with program.serve("--workers", "2") as (process, address):
        for is_put_back in (True, False):
            wait_for_both(process, address, key)
            path.rename(away)
            os.kill(min(workers(process)), signal.SIGKILL)
            assert "Traceback" not in read_until(process, "a worker cannot start")
            assert verify(address, key)[0] == 200
            if is_put_back:
                away.rename(path)
        process.terminate()
        assert process.wait(LONG) == 0
    away.rename(path)


def test_what_can_never_begin_ends_at_once_in_a_line(program):
    """A Redis that cannot be: no worker ever answers, and the exit code is that of every failed command."""
    sell(program)
    program.environ["LICSERVER_REDIS_URL"] = "nonsense"
    done = program.run("serve", "--port", "0", "--workers", "2", check=False)
    assert done.returncode == 1
    assert "LICSERVER_REDIS_URL must look like" in done.stderr
    assert "Traceback" not in done.stderr


HOLD_THE_SECOND_WORKER = """
import os, time
from licserver.cli import main
from licserver.serving.workers import WorkerStartup

note = WorkerStartup.note

def hold(self, arbiter, worker):
    note(self, arbiter, worker)
    while worker.age == 2 and not os.path.exists(os.environ["GO_ON"]):
        time.sleep(0.01)

WorkerStartup.note = hold
main()
"""


def test_a_worker_that_is_still_being_forked_does_not_lose_its_sigterm(program, tmp_path):
    """The second worker is stopped before it has signal handlers of its own: it ends all the same."""
    go_on = tmp_path / "go on"
    program.environ["GO_ON"] = str(go_on)
    program.command = [sys.executable, "-c", HOLD_THE_SECOND_WORKER]
    with program.serve("--workers", "2") as (process, _):
        wait_for(lambda: len(workers(process)) == 2)
        process.terminate()
        wait_for(lambda: len(workers(process)) == 1)
        go_on.touch()
        assert process.wait(LONG / 2) == 0  # gunicorn would kill the worker after 47 s
