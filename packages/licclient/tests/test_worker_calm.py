"""A worker never asks in a circle, whatever it is told (D-115), and there is one of it."""

import itertools
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from stage.keyrings import Keyring

from harness.threads import call_at_once
from licclient import LicenseClient
from licclient import _worker as worker_room


@pytest.fixture
def turns(monkeypatch, eventually):
    """Workers turn without rest; wait until one has turned so often since."""
    monkeypatch.setattr(worker_room, "SLICE", 0.001)
    monkeypatch.setattr(worker_room, "LEAST_PAUSE", 0.001)

    async def wait(client, many):
        steps, done = client.client._steps, []
        plan = type(steps).plan
        # Whoever has planned after a turn began has seen all that was there when it began.
        steps.plan = lambda course, now: done.append(now) or plan(steps, course, now)
        await eventually(lambda: len(done) >= 3 * many)
        del steps.plan

    return wait


async def _stop(worker):
    stopped = worker.stop()
    if stopped is not None:
        await stopped


SETTLES_NOTHING = {
    "the license has run out by this clock": lambda service, clock: service.grants(
        expiry=(clock.now - timedelta(days=2)).date().isoformat()
    ),
    "malformed": lambda service, _clock: service.says(422, {"message": "x", "errors": {"domain": ["bad"]}}),
}


@pytest.mark.parametrize("told", SETTLES_NOTHING)
async def test_what_settles_nothing_is_not_asked_again_at_once(make_client, service, clock, key, turns, told):
    """While the clock stands there is one call; in a day some thirty, and not 17,000."""
    service.grants()
    await make_client().activate(key)
    clock.move(hours=97)
    SETTLES_NOTHING[told](service, clock)
    client, before = make_client(version=None), service.count("verify")
    worker = client.client.start()
    try:
        await turns(client, 10)
        assert service.count("verify") == before + 1
        for _ in range(48):
            clock.move(minutes=30)
            await turns(client, 2)
    finally:
        await _stop(worker)
    assert 20 < service.count("verify") - before < 40


async def test_a_check_that_cannot_be_made_is_not_tried_in_a_circle(
    make_client, service, clock, key, turns, use_keyring
):
    """With the key in a locked keyring an update check stays due: one window, and no haste (D-118)."""
    keyring = use_keyring(Keyring())
    service.grants()
    await make_client().activate(key)
    keyring.lock()
    keyring.woken = 0
    client, tries = make_client(), []
    check = client.client.check_for_update
    client.client.check_for_update = lambda: tries.append(clock.now) or check()
    worker = client.client.start()
    await turns(client, 5)
    assert len(tries) == 1
    clock.move(minutes=3)
    await turns(client, 5)
    await _stop(worker)
    assert (len(tries), keyring.woken, service.count("update-check")) == (2, 1, 0)


# --- everybody starts at nine (D-137) ----------------------------------------------------------


@pytest.mark.parametrize("begins", ["woken", "restarted"])
async def test_the_morning_after(make_client, service, clock, key, turns, begins):
    """A computer that woke up, and an app that was started anew: within four hours, and not at once."""
    service.grants()
    client = make_client()
    await client.activate(key)
    worker = client.client.start()
    await turns(client, 3)
    assert service.count("update-check") == 1, "a new key looks for updates at once"
    if begins == "restarted":
        await _stop(worker)
    clock.move(hours=30)
    if begins == "restarted":
        client = make_client()
        worker = client.client.start()
    await turns(client, 3)
    assert service.count() == 2
    for _ in range(27):
        clock.move(minutes=9)  # nobody sleeps for less than ten
        await turns(client, 2)
    await _stop(worker)
    assert (service.count("verify"), service.count("update-check")) == (2, 2)


@pytest.mark.parametrize("look", range(1, 13))
async def test_a_computer_is_suspended_at_any_moment(
    make_client, service, clock, key, turns, monkeypatch, look
):
    """Also between two looks of the worker at its clock: it asks within four hours, and not at once."""
    service.grants()
    client = make_client()
    await client.activate(key)
    worker = client.client.start()
    await turns(client, 3)
    looks, read = itertools.count(1), type(clock).__call__

    def suspends(clock):
        if next(looks) == look:
            clock.move(hours=30)
        return read(clock)

    monkeypatch.setattr(type(clock), "__call__", suspends)
    await turns(client, 3 + look)
    await _stop(worker)
    assert next(looks) > look
    assert service.count() == 2


async def test_a_few_minutes_a_day(make_client, service, clock, key, turns):
    """An app that is always ended too soon: the next worker finds that on the disk, and asks sooner."""
    service.grants()
    await make_client().activate(key)
    for _ in range(4):
        client = make_client()
        worker = client.client.start()
        for _ in range(2):
            await turns(client, 3)
            clock.move(minutes=9)
        await turns(client, 3)
        await _stop(worker)
        clock.move(hours=23, minutes=42)
    assert service.count("update-check") >= 2, "four hours on the second day, one, and then a quarter of one"


# --- one of it --------------------------------------------------------------------------------


def test_threads_that_start_one_at_once_get_one(service, tmp_path, monkeypatch):
    """The others are told that it runs already; a second one would outlive `close`."""
    make = worker_room.Worker.__init__
    made = []

    def slowly(worker, *told: object):
        made.append(worker)
        threading.Event().wait(0.05)
        make(worker, *told)

    monkeypatch.setattr(worker_room.Worker, "__init__", slowly)
    client = LicenseClient(service.url, state_dir=tmp_path)
    refused = [one for one in call_at_once([client.start] * 8) if isinstance(one, RuntimeError)]
    client.close()
    assert (len(made), len(refused)) == (1, 7)
    assert not made[0].is_running


def test_a_worker_that_a_callback_ended_can_be_started_anew(service, tmp_path, monkeypatch):
    """`sys.exit` in a callback ends its thread, and does not bar the next one."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)  # as Python does; pytest would be told
    client = LicenseClient(service.url, state_dir=tmp_path)
    worker = client.start(on_status=lambda _: sys.exit())
    worker._thread.join(10)
    assert not worker.is_running
    with client.start() as second:
        assert second.is_running


LOOP = """
import asyncio, sys
from licclient import AsyncLicenseClient
client = AsyncLicenseClient("https://licenses.example.com", state_dir=sys.argv[1])
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


def test_a_worker_whose_loop_is_gone_can_be_started_anew(tmp_path):
    """A loop that was closed without ending its tasks took the worker along."""
    done = subprocess.run(
        [sys.executable, "-c", LOOP, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "False", "True"]
