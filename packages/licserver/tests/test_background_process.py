"""The background work of `licserver serve`: a process that comes back, and ends with the server."""

import os
import signal
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from harness.cluster import wait_for
from harness.commands import list_processes
from licserver.database.repositories.webhooks import DELIVERIES
from licserver.jobs import process
from licserver.jobs.worker import POLL_SECONDS
from licserver.services.installation import open_services
from licserver.services.queues import measure_queues
from licserver.settings import Settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").exists(), reason="/proc lists the processes"),
]


def find_background(server):
    """The process that does a server's background work, as it says itself; it waits for that."""
    wait_for(lambda: len(list_processes(server)[1]) == 1)
    (found,) = list_processes(server)[1]
    return found


def has_ended(pid):
    """Whether a process is gone, or only its entry is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Running:
    """A process that neither ends nor responds."""

    was_killed = False

    def poll(self):
        """It runs."""

    def kill(self):
        """Note it."""
        self.was_killed = True


def add_job(services, key, pause=timedelta()):
    """Add a delivery to an endpoint that has been removed: the background ends it, and sends nothing."""
    services.repositories.queue.add(DELIVERIES, key, {}, services.now() + pause)


IMPATIENT = """
import sys
from licserver.cli import main
from licserver.serving.server import BackgroundProcess
sys.modules[BackgroundProcess.__module__]._MOST_SILENT = 3.0
main()
"""


def wait_until_done(services):
    """Wait until no job is to be done."""
    wait_for(lambda: not services.repositories.queue.find_due({DELIVERIES}, services.now()))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_work_goes_on_after_its_process_was_killed_and_ends_with_the_server(program, workers):
    """One for all workers: jobs wait while it hangs. Another follows a killed one; SIGTERM loses no job."""
    with closing(open_services(Settings(data_dir=program.folder))) as services:
        add_job(services, "first")
        with program.serve("--workers", workers) as (server, _):
            wait_until_done(services)
            first = find_background(server)
            os.kill(first, signal.SIGTERM)  # the server goes on, and so does this
            with services.database.writing():  # while it writes nothing itself
                os.kill(first, signal.SIGSTOP)
            add_job(services, "second")
            time.sleep(2 * POLL_SECONDS)  # in which nobody else does it, and that is seen
            states = measure_queues(services.repositories, services.settings, services.now())
            os.kill(first, signal.SIGKILL)
            assert [state.name for state in states if state.oldest_due >= POLL_SECONDS] == ["webhooks"]
            wait_for(lambda: has_ended(first))
            wait_until_done(services)
            second = find_background(server)
            os.kill(second, signal.SIGTERM)
            server.terminate()
            log = server.communicate(timeout=30)[1]
            assert (server.returncode, has_ended(second)) == (0, True)
    assert "the background process is started again in 1 s: it exited with -9" in log


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_ends_with_a_server_that_is_killed(program, workers):
    """Otherwise it would do jobs for a server that nobody runs, and hold its files."""
    with (
        closing(open_services(Settings(data_dir=program.folder))) as services,
        program.serve("--workers", workers) as (server, _),
    ):
        add_job(services, "first")
        wait_until_done(services)
        background = find_background(server)
        server.kill()
        wait_for(lambda: has_ended(background))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_one_that_hangs_is_replaced_though_no_job_is_late(program, workers):
    """Otherwise it would be seen at the next sale alone. That its database hangs is no reason to kill it."""
    program.command[-2:] = ["-c", IMPATIENT]  # instead of half a minute
    with (
        closing(open_services(Settings(data_dir=program.folder))) as services,
        program.serve("--workers", workers) as (server, _),
    ):
        add_job(services, "first")
        wait_until_done(services)
        first = find_background(server)
        add_job(services, "second", timedelta(seconds=1))
        with services.database.writing():
            time.sleep(5)  # it waits for this since the job is due
        assert find_background(server) == first
        wait_until_done(services)
        os.kill(first, signal.SIGSTOP)
        wait_for(lambda: has_ended(first))
        add_job(services, "third")
        wait_until_done(services)
        server.terminate()
        log = server.communicate(timeout=30)[1].splitlines()
    messages = [line.partition("licserver.background: ")[2] for line in log if "background" in line]
    assert messages == [
        "the background process has stopped responding, and is killed",
        "the background process is started again in 1 s: it exited with -9",
    ]


def test_a_server_that_stood_still_kills_nothing(tmp_path, monkeypatch):
    """A computer wakes up: both have been silent for hours."""
    now = time.monotonic()
    monkeypatch.setattr(process.time, "monotonic", lambda: now)
    background = process.BackgroundProcess(Settings(data_dir=tmp_path))
    background._process, background._due = Running(), now
    os.write(background._beat, b"!")
    background.tend()
    for _ in range(20):
        now += 3600
        background.tend()
    assert not background._process.was_killed
    for _ in range(20):
        now += 1
        background.tend()
    assert background._process.was_killed


def test_one_that_still_starts_is_not_waited_for(tmp_path, monkeypatch):
    """It sees neither that its input has ended nor what wakes it; so many wake-ups that the pipe is full."""
    starting = tmp_path / "starting"
    starting.write_text("#!/bin/sh\nexec sleep 3600\n")
    starting.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(starting))
    monkeypatch.setattr(process, "_HEAD_START", 0.0)
    background = process.BackgroundProcess(Settings(data_dir=tmp_path))
    background.tend()
    for _ in range(70_000):
        background.wake()
    background.end()
    assert background._process.returncode == -signal.SIGTERM  # and not killed after all seconds for its end
