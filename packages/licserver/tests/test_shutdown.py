"""The end of a process takes a bounded time, whatever does not answer, and a second signal cuts it short."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request

import aiohttp
import pytest
from aiohttp import web

from harness.cluster import wait_for
from harness.engines import sqlite_only
from licserver.database import migrate
from licserver.database.engine import connect
from licserver.database.postgres import LAST_WAIT
from licserver.errors import StoreUnavailableError
from licserver.jobs.worker import JobWorker
from licserver.runtime import shutdown
from licserver.serving.connections import Runner
from licserver.serving.name_lookups import MOST, install_threaded_resolver
from licserver.serving.server import make_runner
from licserver.web.app import create_app

forking = pytest.mark.skipif(os.name == "nt", reason="workers need fork, which Windows does not have")

PROGRAM = """
import asyncio, logging, time
from licserver.runtime.shutdown import ProcessEnd

class Blocked(logging.Handler):
    def emit(self, record):
        time.sleep(60)

async def main():
    logging.basicConfig(handlers=[Blocked()] if {is_blocked} else None)
    {call}
    asyncio.get_running_loop().run_in_executor(None, time.sleep, 60)
    {then}

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("call", "then", "is_blocked", "code", "named"),
    [
        ("ProcessEnd(0.1).begin()", "await asyncio.sleep(60)", False, 1, "task main"),
        ("ProcessEnd(0.1).begin()", "time.sleep(60)", False, 1, "thread MainThread in main"),
        ("ProcessEnd(0.1).begin()", "", False, 1, "thread asyncio_0"),
        ("ProcessEnd(0.1).begin()", "", True, 1, ""),
        ("ProcessEnd(60).finish(0)", "", False, 0, "everything is closed"),
    ],
    ids=["a task", "the loop", "a thread", "standard error as well", "a thread after the end"],
)
def test_what_does_not_end_keeps_no_process_from_ending(call, then, is_blocked, code, named):
    """It exits, and says which tasks and threads were still running."""
    program = PROGRAM.format(call=call, then=then, is_blocked=is_blocked)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == code
    assert named in done.stderr


@sqlite_only
async def test_a_process_says_when_it_begins_to_end_and_waits_for_no_database_then(world, monkeypatch):
    """The time is counted from the signal; the database gets little of it once the requests have ended."""
    began = []
    monkeypatch.setattr(shutdown, "_start_timer", lambda seconds, _work: began.append(seconds))
    ended_soon = []
    monkeypatch.setattr(world.services, "end_soon", lambda: ended_soon.append(list(began)))
    runner = make_runner(world.services, None, [])
    await runner.setup()
    await runner.cleanup()
    longest = world.settings.drain_timeout + shutdown.END_SECONDS
    assert began[0] == longest
    assert ended_soon == [began[:2]]
    assert began[2] == shutdown.LAST_SECONDS


def test_a_process_that_ends_waits_for_no_silent_database(own_postgres):
    """Also in a statement that has begun; it once waited for 75 seconds."""
    url = own_postgres.url(own_postgres.make())
    database = connect(url)
    migrate.upgrade(database)
    began, failed = threading.Event(), []

    def read():
        try:
            with database.reading() as connection:
                began.set()
                connection.exec_driver_sql("SELECT pg_sleep(60)")
        except StoreUnavailableError as problem:
            failed.append(problem)

    thread = threading.Thread(target=read)
    thread.start()
    assert began.wait(30)
    with own_postgres.frozen():
        database.end_soon()
        thread.join(LAST_WAIT + 20)
        assert "no answer in time" in str(failed[0])
    database.close()


@pytest.mark.slow
@sqlite_only
async def test_a_download_that_nobody_reads_is_broken_off(world, tmp_path):
    """With the drain timeout; aiohttp waits twice as long, and with a timeout of 0 for ever."""
    world.publish("2.0", os.urandom(1 << 20) * 32)
    key = world.key()
    app = create_app(world.services, world.clock)
    runner = Runner(app, world.settings, shutdown_timeout=0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    query = {"license_key": key, "slug": "app", "current_version": "1.0", "domain": "a.example"}
    address = f"http://127.0.0.1:{port}/api/v1/update-check"
    async with aiohttp.ClientSession() as session, session.get(address, params=query) as answer:
        link = (await answer.json())["download_url"].partition("//")[2].partition("/")[2]
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1000)
    writer.write(f"GET /{link} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200")
    cleanup = asyncio.create_task(runner.cleanup())
    await asyncio.wait([cleanup], timeout=20)
    assert cleanup.done()
    writer.close()


@sqlite_only
async def test_a_job_that_is_cancelled_cleans_up(world, monkeypatch):
    """The process ends after it, and not in the middle of what it does then."""
    monkeypatch.setattr("licserver.jobs.worker.DRAIN_SECONDS", 0.01)
    began, cleaned_up = asyncio.Event(), []

    async def job(_job):
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned_up.append(True)

    worker = JobWorker(world.repositories, world.clock)
    worker.register("slow", job)
    world.repositories.queue.add("slow", "one", {}, world.clock())
    running = worker.running(web.Application())
    await anext(running)
    async with asyncio.timeout(20):
        await began.wait()
    assert await anext(running, None) is None
    assert cleaned_up == [True]


def answers(address):
    """Whether a server accepts connections there, and answers."""
    try:
        with urllib.request.urlopen(f"{address}/healthz", timeout=20) as answer:  # noqa: S310 - ours
            return answer.status == 200
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", pytest.param("2", marks=forking)])
def test_a_second_signal_ends_it_at_once(program, workers):
    """It does not wait for a request; one that follows the first at once is the same signal, sent twice."""
    program.stock()
    with program.serve("--workers", workers) as (process, address):
        host, _, port = address.removeprefix("http://").rpartition(":")
        with socket.create_connection((host, int(port))) as stalled:
            stalled.sendall(b"POST /api/v1/licenses/verify HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{")
            assert answers(address)  # so the other one was accepted
            process.terminate()
            process.terminate()
            wait_for(lambda: not answers(address))
            assert process.poll() is None

            def is_over():
                process.terminate()
                return process.poll() is not None

            wait_for(is_over)
            assert process.returncode == 128 + signal.SIGTERM  # it would read the body for ten seconds
            wait_for(lambda: stalled.recv(1) == b"")


async def test_names_that_nobody_resolves_hold_nothing_else_up(monkeypatch):
    """Neither the threads that others need nor the end of the loop; there are not more than so many."""
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(60) and [])
    loop = asyncio.get_running_loop()
    install_threaded_resolver(loop)
    looking_up = [asyncio.create_task(loop.getaddrinfo("slow.example", 443)) for _ in range(MOST)]
    try:
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            assert await asyncio.to_thread(lambda: "free") == "free"
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("one-too-many.example", 443)
        looking_up.pop().cancel()
        release.set()
        assert await asyncio.gather(*looking_up) == [[]] * (MOST - 1)
    finally:
        release.set()
