"""A worker never repeats calls in a loop, whatever the answers (D-115), and there is one of it."""

import itertools
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from stage.flows import planned
from stage.keyrings import Keyring

from harness.threads import call_at_once
from licclient import LicenseClient
from licclient import _worker as background
from licclient import _worker as worker_module


@pytest.fixture
def turns(monkeypatch, eventually):
    """Workers turn without rest; wait until one has turned so often since."""
    monkeypatch.setattr(background, "SLICE", 0.001)
    monkeypatch.setattr(background, "LEAST_PAUSE", 0.001)

    async def wait(many):
        await planned(monkeypatch, eventually, 3 * many)

    return wait


async def _stop(worker):
    stopped = worker.stop()
    if stopped is not None:
        await stopped


SETTLES_NOTHING = {
    "the license has run out by this clock": lambda service, clock: service.grants(
        expiry=(clock.now - timedelta(days=2)).date().isoformat()
    ),
    "malformed": lambda service, _clock: service.responds(
        422, {"message": "x", "errors": {"domain": ["bad"]}}
    ),
}


@pytest.mark.parametrize("problem", SETTLES_NOTHING)
async def test_what_settles_nothing_is_not_asked_again_at_once(
    make_client, service, clock, key, turns, problem
):
    """While the clock stands there is one call; in five hours some ten, and not 3,600."""
    service.grants()
    await make_client().activate(key)
    clock.move(hours=97)
    SETTLES_NOTHING[problem](service, clock)
    client, before = make_client(version=None), service.count("verify")
    worker = client.client.start()
    try:
        await turns(10)
        assert service.count("verify") == before + 1
        for _ in range(33):
            clock.move(minutes=9)  # by ten, a computer would have slept
            await turns(2)
    finally:
        await _stop(worker)
    assert 6 < service.count("verify") - before < 16


async def test_a_check_that_cannot_be_made_is_not_tried_in_a_circle(
    make_client, service, clock, key, turns, use_keyring, monkeypatch
):
    """With the key in a locked keyring an update check stays due: one window, and no haste (D-118)."""
    keyring = use_keyring(Keyring())
    service.grants()
    await make_client().activate(key)
    keyring.lock()
    keyring.woken = 0
    client, tries = make_client(), []
    check = background.check_for_update
    monkeypatch.setattr(
        background, "check_for_update", lambda *how, **kw: tries.append(1) or check(*how, **kw)
    )
    worker = client.client.start()
    await turns(5)
    assert len(tries) == 1
    clock.move(minutes=3)
    await turns(5)
    await _stop(worker)
    assert (len(tries), keyring.woken, service.count("update-check")) == (2, 1, 0)


# --- everybody starts at nine (D-137) ----------------------------------------------------------


def answers_both(service):
    """Grant each verify, and list the installed version."""
    scripts = []
    for answer in (service.grants, lambda: service.offers("1.0")):
        answer()
        scripts.append(service.script)
    service.script = lambda request: scripts["update-check" in request.path](request)


@pytest.mark.parametrize("begins", ["woken", "restarted"])
async def test_the_morning_after(make_client, service, clock, key, turns, begins):
    """A computer that woke up, and an app that was started anew: within four hours, and not at once."""
    answers_both(service)
    client = make_client()
    await client.activate(key)
    worker = client.client.start()
    await turns(3)
    assert service.count("update-check") == 1, "a new key looks for updates at once"
    if begins == "restarted":
        await _stop(worker)
    clock.move(hours=30)
    if begins == "restarted":
        client = make_client()
        worker = client.client.start()
    await turns(3)
    assert service.count() == 2
    for _ in range(27):
        clock.move(minutes=9)  # nobody sleeps for less than ten
        await turns(2)
    await _stop(worker)
    assert (service.count("verify"), service.count("update-check")) == (2, 2)


async def test_an_app_that_starts_before_the_network_finds_its_update(
    make_client, service, clock, key, turns, eventually
):
    """The check that got no answer is repeated within the hour, and not after twelve (D-50)."""
    answers_both(service)
    client = make_client()
    await client.activate(key)
    await client.check_for_update()
    clock.move(hours=20)
    script, found = service.script, []
    service.goes_down()
    client = make_client()
    await client.check_for_update()  # as the app does at its start
    worker = client.client.start(on_update=found.append)
    await turns(2)
    service.offers("2.0")
    updates = service.script
    service.script = lambda request: (updates if "update-check" in request.path else script)(request)
    before = service.count("update-check")
    for minute in range(1, 61):
        clock.move(minutes=1)
        await turns(1)
        assert minute >= 30 or service.count("update-check") == before
    await eventually(lambda: found)
    await _stop(worker)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("look", range(1, 13))
async def test_a_computer_is_suspended_at_any_moment(
    make_client, service, clock, key, turns, monkeypatch, look
):
    """Also between two looks of the worker at its clock: it asks within four hours, and not at once."""
    answers_both(service)
    client = make_client()
    await client.activate(key)
    worker = client.client.start()
    await turns(3)
    looks, read = itertools.count(1), type(clock).__call__

    def suspends(clock):
        if next(looks) == look:
            clock.move(hours=30)
        return read(clock)

    monkeypatch.setattr(type(clock), "__call__", suspends)
    await turns(3 + look)
    await _stop(worker)
    assert next(looks) > look
    assert service.count() == 2


# --- one of it --------------------------------------------------------------------------------


def test_threads_that_start_one_at_once_get_one(service, tmp_path, monkeypatch):
    """The other calls raise an error; a second worker would outlive `close`."""
    make = worker_module.Worker.__init__
    made = []

    def slowly(worker, *args: object):
        made.append(worker)
        threading.Event().wait(0.05)
        make(worker, *args)

    monkeypatch.setattr(worker_module.Worker, "__init__", slowly)
    client = LicenseClient(service.url, storage=tmp_path)
    refused = [result for result in call_at_once([client.start] * 8) if isinstance(result, RuntimeError)]
    client.close()
    assert (len(made), len(refused)) == (1, 7)
    assert not made[0].is_running


def test_a_worker_that_a_callback_ended_can_be_started_anew(service, tmp_path, monkeypatch):
    """`sys.exit` in a callback ends its thread, and does not bar the next one."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # as Python does; pytest would report it
    client = LicenseClient(service.url, storage=tmp_path)
    worker = client.start(on_status=lambda _: sys.exit())
    worker._thread.join(10)
    assert not worker.is_running
    with client.start() as second:
        assert second.is_running


LOOP = """
import asyncio, sys
from licclient import AsyncLicenseClient
client = AsyncLicenseClient("https://licenses.example.com", storage=sys.argv[1])
loop = asyncio.new_event_loop()

async def start():
    return client.start()

worker = loop.run_until_complete(start())
print(worker.is_running)
loop.close()
print(worker.is_running)

async def again():
    async with client.start() as second:
        return second.is_running

print(asyncio.run(again()))
"""


@pytest.mark.parametrize("at_the_end", ["", "kept = asyncio.all_tasks(loop)"], ids=["gone", "kept"])
def test_a_worker_whose_loop_is_gone_can_be_started_anew(tmp_path, at_the_end):
    """A loop that was closed without ending its tasks took the worker along.

    A task that is kept until Python shuts down does not keep the program from ending.
    """
    program = LOOP.replace("loop.close()", f"{at_the_end}\nloop.close()")
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.split() == ["True", "False", "True"]
