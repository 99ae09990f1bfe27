"""The background work of `licserver serve`: a process that comes back, and ends with the server."""

import os
import signal
from contextlib import closing
from pathlib import Path

import pytest

from harness.cluster import wait_for
from licserver.database.repositories.webhooks import DELIVERIES
from licserver.services import open_services
from licserver.settings import Settings

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc").exists(), reason="/proc tells which processes there are"),
]


def find_background(server):
    """The process that does a server's background work, as it says itself; it waits for that."""
    found = []

    def is_found():
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii")
        found[:] = [pid for pid in map(int, children.split()) if not has_ended(pid)]
        return len(found) == 1

    wait_for(is_found)
    return found[0]


def has_ended(pid):
    """Whether a process is gone, or only its entry is left."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def add_job(services, key):
    """Add a delivery to an endpoint that has been removed: the background ends it, and sends nothing."""
    services.repositories.queue.add(DELIVERIES, key, {}, services.now())


def wait_until_done(services):
    """Wait until no job is to be done."""
    wait_for(lambda: not services.repositories.queue.find_due({DELIVERIES}, services.now()))


def test_work_goes_on_after_its_process_was_killed_and_ends_with_the_server(program):
    """A new process follows a killed one; SIGTERM to all, as supervisors send it, loses no job."""
    with closing(open_services(Settings(data_dir=program.folder))) as services:
        add_job(services, "first")
        with program.serve() as (server, _):
            wait_until_done(services)
            first = find_background(server)
            os.kill(first, signal.SIGTERM)  # the server goes on, and so does this
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: has_ended(first))
            add_job(services, "second")
            wait_until_done(services)
            second = find_background(server)
            os.kill(second, signal.SIGTERM)
            server.terminate()
            log = server.communicate(timeout=30)[1]
            assert (server.returncode, has_ended(second)) == (0, True)
    assert "the background process is started again in 1 s: it exited with -9" in log


def test_it_ends_with_a_server_that_is_killed(program):
    """Otherwise it would do jobs for a server that nobody runs, and hold its files."""
    with (
        closing(open_services(Settings(data_dir=program.folder))) as services,
        program.serve() as (server, _),
    ):
        add_job(services, "first")
        wait_until_done(services)
        background = find_background(server)
        server.kill()
        wait_for(lambda: has_ended(background))
