"""Many who ask in the same moment: threads, tasks and processes of one user (D-58)."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest
from filelock import FileLock

from licclient import AsyncLicenseClient, LicenseClient, Source
from licclient._core import session
from licclient._core import storage as _storage
from licclient._core.session import Session, call_name
from licclient._core.storage import LEAST_SECONDS, CallLock
from licclient._core.transport import Transport
from licclient.errors import LicenseRefusedError, ServiceUnavailableError

PROGRAM = """
import sys
from licclient import LicclientError, LicenseClient
server, folder, key, timeout = sys.argv[1:5]
client = LicenseClient(server, storage=folder, timeout=float(timeout))
print("ready", flush=True)
sys.stdin.readline()
try:
    print(client.verify(key or None).product)
except LicclientError as problem:
    print(type(problem).__name__)
"""


def _start(service, folder, key="", timeout=10.0):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, service.url, str(folder), key, str(timeout)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


def _go(processes):
    """Let all ask at once; returns what each of them printed."""
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    with ThreadPoolExecutor(len(processes)) as pool:
        return list(pool.map(lambda process: process.communicate(timeout=60)[0].strip(), processes))


def lock_of(client, key):
    """The lock of a client's call for a key."""
    context = client._session
    return context.lock(call_name(context.successes.subject(key, context.domain())))


@pytest.fixture
def slowly(service):
    """Let the service answer as it would, after a while; returns the function that says so."""

    def say(seconds):
        script = service.script

        def wait(request):
            time.sleep(seconds)
            return script(request)

        service.script = wait

    return say


@pytest.fixture
def together(monkeypatch):
    """Have so many threads begin to verify before any of them goes on: all find the same on the disk."""

    @contextmanager
    def wait_for(many):
        gate, lock = threading.Barrier(many), Session.lock

        def lock_together(*args: object):
            gate.wait(20)
            return lock(*args)

        with monkeypatch.context() as patch:
            patch.setattr(Session, "lock", lock_together)
            yield

    return wait_for


@pytest.mark.slow
def test_processes_that_verify_at_once_make_one_call(service, slowly, tmp_path, key):
    """They start with nothing in the cache: one calls, and the others wait for its answer."""
    service.grants()
    slowly(1)  # the others start within this second; who is later finds the answer in the cache
    assert _go([_start(service, tmp_path, key) for _ in range(4)]) == ["Notes"] * 4
    assert service.count("verify") == 1


async def test_fifty_tasks_make_one_call(service, slowly, tmp_path, key):
    """Waiting tasks hold no thread that the one who calls needs."""
    service.grants()
    slowly(0.3)
    async with AsyncLicenseClient(service.url, storage=tmp_path) as client:
        found = await asyncio.gather(*(client.verify(key) for _ in range(50)))
    assert {license_.product for license_ in found} == {"Notes"}
    assert service.count("verify") == 1


def test_threads_make_one_call_and_all_are_refused(service, slowly, tmp_path, key, together):
    """Who waited is refused in the same words; who comes later asks again: a refusal is not cached (D-41)."""
    service.refuses(403, "License has been revoked.")
    slowly(0.3)
    client = LicenseClient(service.url, storage=tmp_path)

    def ask(_):
        with pytest.raises(LicenseRefusedError) as caught:
            client.verify(key)
        return caught.value.message

    with together(6), ThreadPoolExecutor(6) as pool:
        assert set(pool.map(ask, range(6))) == {"License has been revoked."}
    assert service.count("verify") == 1
    service.grants()
    assert client.verify(key).product == "Notes"


def test_other_keys_do_not_wait(service, tmp_path, key):
    """A call for one key holds up nobody who asks about another."""
    service.grants()
    client = LicenseClient(service.url, storage=tmp_path)
    with lock_of(client, key[:-1] + "9") as turn:
        assert turn.is_ours()
        assert client.verify(key).product == "Notes"


def test_a_cancelled_task_lets_go(service, slowly, tmp_path, key):
    """The next one gets its turn at once."""
    service.grants()
    slowly(0.5)

    async def story():
        async with AsyncLicenseClient(service.url, storage=tmp_path) as client:
            task = asyncio.ensure_future(client.verify(key))
            await asyncio.sleep(0.2)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return (await client.verify(key)).product

    assert asyncio.run(story()) == "Notes"


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs signals of Unix")
def test_an_owner_that_hangs_is_waited_for_only_so_long(service, tmp_path, key):
    """One that was stopped in its call keeps others for the time of a call; then they go ahead."""
    service.grants()
    go_on, say = threading.Event(), service.script
    service.script = lambda request: go_on.wait(60) and say(request)
    owner = _start(service, tmp_path, key)
    owner.stdin.write("go\n")
    owner.stdin.flush()
    while service.count("verify") == 0:
        time.sleep(0.01)
    owner.send_signal(signal.SIGSTOP)
    try:
        client = LicenseClient(service.url, storage=tmp_path, timeout=1)
        lock = lock_of(client, key)._path
        assert lock_of(client, key)._timeout == 2.0  # a limit of 10 s and a call of one's own: 13 s in all
        with CallLock(lock, lock, 60) as turn:
            assert not turn.is_ours()
            turn._timeout = 0.0  # as if so long had been waited
            assert turn.is_ours()
    finally:
        go_on.set()
        owner.send_signal(signal.SIGCONT)
        assert owner.communicate(timeout=30)[0].strip() == "Notes"


@pytest.mark.crash
@pytest.mark.skipif(os.name == "nt", reason="needs signals of Unix")
def test_killed_in_the_middle_nothing_is_left_behind(service, tmp_path, key, crashes):
    """`kill -9` at any moment of a call leaves a state that reads, a lock that is free, and the same id."""
    service.grants()
    first = LicenseClient(service.url, storage=tmp_path)
    first.activate(key)
    domain = service.requests[0].json["domain"]
    held = next(tmp_path.glob("license-*.state"))
    for round_ in range(crashes):
        held.unlink(missing_ok=True)  # as if the cache had run out
        victim = _start(service, tmp_path)
        victim.stdin.write("go\n")
        victim.stdin.flush()
        # From before the call to after its end, which takes some 150 ms in a fresh process.
        time.sleep(0.2 * round_ / crashes)
        victim.kill()
        victim.wait()
        victim.stdin.close()
        victim.stdout.close()
        began = time.monotonic()
        after = LicenseClient(service.url, storage=tmp_path)
        assert after.verify().product == "Notes"
        assert after.verify(force=True).product == "Notes"
        assert time.monotonic() - began < 5  # a lock held by the dead would take longer than this
    assert {request.json["domain"] for request in service.requests} == {domain}


def test_without_locks_everybody_asks(service, tmp_path, key, monkeypatch):
    """On a file system that has none, twice is better than never."""
    service.grants()
    lock = tmp_path / "call.lock"
    lock.mkdir()  # nothing that could be locked
    with CallLock(lock, lock, 1) as turn:
        assert turn.is_ours()
    with CallLock("call", None, 1) as turn:
        assert turn.is_ours()


def test_who_waited_for_an_outage_has_grace(service, slowly, tmp_path, key, clock, together):
    """No answer for the one who asked: the last success holds for all of them (D-42)."""
    service.grants()
    client = LicenseClient(service.url, storage=tmp_path, clock=clock)
    client.verify(key)
    clock.move(hours=30)
    service.responds(500)  # of what is not asked twice (D-54)
    slowly(0.3)
    before = service.count("verify")
    with together(4), ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: client.verify(key).source.value, range(4))) == ["grace"] * 4
    assert service.count("verify") == before + 1
    clock.move(hours=72)
    with pytest.raises(ServiceUnavailableError):
        client.verify(key)


def test_an_outage_in_the_background_answers_nobody(service, http_answer, tmp_path, key, clock):
    """A refresh that began while the service was down: a call of now is made, and gets an answer of now."""
    service.grants()
    client = LicenseClient(service.url, storage=tmp_path, clock=clock)
    client.activate(key)
    clock.move(hours=30)
    go_on, good = threading.Event(), service.script
    service.script = lambda _: go_on.wait(30) and http_answer(500)
    assert client.require().source is Source.GRACE
    while service.count("verify") < 2:
        time.sleep(0.005)
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.verify, force=True)
        time.sleep(0.1)  # it waits for the refresh
        service.script = good
        go_on.set()
        assert asked.result(30).source is Source.SERVER
    assert service.count("verify") == 3
    client.close()


# --- the wait is part of the call's time limit (D-120) ------------------------------------------


@pytest.mark.parametrize(
    ("limit", "waited", "left"),
    [(10, 0, 10), (10, 7, 3), (10, 9, LEAST_SECONDS), (10, 15, LEAST_SECONDS), (1, 0, 1), (1, 5, 1)],
)
def test_what_is_left_for_a_call(monkeypatch, limit, waited, left):
    """The limit without the wait; but two seconds, or all of a shorter limit, so that a call can succeed."""
    times = iter([100.0, 100.0 + waited])
    monkeypatch.setattr(_storage, "monotonic", lambda: next(times))
    assert CallLock("call", None, 15).left(limit) == left


async def test_who_waited_in_vain_calls_briefly(make_client, service, tmp_path, key, monkeypatch):
    """Behind an owner that was stopped in its call, one's own is not given the whole limit again (D-120)."""
    given = []
    plain_send = Transport.send

    def send(transport, call, seconds, is_cancelled):
        given.append(seconds)
        return plain_send(transport, call, seconds, is_cancelled)

    monkeypatch.setattr(Transport, "send", send)
    monkeypatch.setattr(session, "CALL_MARGIN", timedelta(seconds=-9.7))
    service.grants()
    client = make_client(timeout=10)
    await client.verify(key)
    assert given.pop() > 9
    [lock] = _locks(tmp_path)
    with FileLock(lock, thread_local=False):
        await client.verify(key, force=True)
    assert given.pop() <= 9.7


def _locks(folder: Path) -> list[Path]:
    return list((folder / "state").glob("call-*.lock")) or [
        path.with_suffix(".lock") for path in (folder / "state").glob("call-*.state")
    ]
