"""A flow that is cancelled, at whatever operation and in whatever moment, leaves nothing behind.

Derived from the flows themselves: a first run counts a flow's operations, and then it is cancelled at each of
them: before it, during it, and after it, when its outcome is not yet in the flow.
"""

import asyncio
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
from stage.flavours import both
from stage.operations import FLOWS, descriptors, serve_all, threads
from stage.scripts import digest
from stage.store import CONTENT

from licclient import AsyncLicenseClient, LicenseClient
from licclient._features import runners
from licclient.errors import DownloadCancelledError

BEFORE, DURING, AFTER = "before", "during", "after"


class Stopped(BaseException):
    """In the place of Ctrl-C, which would end the test run if it came late."""


class Stopper:
    """Cancels a flow at its n-th operation, of which `done` have begun."""

    def __init__(self, monkeypatch) -> None:
        self.at, self.moment, self.done = -1, BEFORE, 0
        self.task: asyncio.Task | None = None
        self._plain, self._plain_async = runners.carry_out, runners.carry_out_async
        monkeypatch.setattr(runners, "carry_out", self._carry_out)
        monkeypatch.setattr(runners, "carry_out_async", self._carry_out_async)

    def set(self, at: int, moment: str) -> None:
        """Cancel there from now on; nowhere for a negative number."""
        self.at, self.moment, self.done = at, moment, 0

    def _is_now(self) -> bool:
        self.done += 1
        return self.done - 1 == self.at

    def _carry_out(self, *given: Any):
        if threading.current_thread() is not threading.main_thread() or not self._is_now():
            return self._plain(*given)
        if self.moment == BEFORE:
            raise Stopped
        if self.moment == DURING:
            threading.Timer(0.002, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        self._plain(*given)
        if self.moment == DURING:
            time.sleep(20)  # the signal ends it
        raise Stopped

    async def _carry_out_async(self, *given: Any):
        if not self._is_now():
            return await self._plain_async(*given)
        assert self.task is not None
        if self.moment == BEFORE:
            self.task.cancel()
            await asyncio.sleep(0)
        if self.moment == DURING:
            asyncio.get_running_loop().call_later(0.002, self.task.cancel)
        outcome = await self._plain_async(*given)
        if self.moment == DURING:
            await asyncio.sleep(20)
        self.task.cancel()
        return outcome


@pytest.fixture
def stopper(monkeypatch):
    """Cancels flows."""
    return Stopper(monkeypatch)


@pytest.fixture
def _signal():
    """Have a signal raise in the main thread, as Ctrl-C does."""

    def stop(*_: object):
        raise Stopped

    before = signal.signal(signal.SIGUSR1, stop)
    yield
    signal.signal(signal.SIGUSR1, before)


async def _cancelled(driver, flow, stopper, *given: Any) -> bool:
    """Run a flow; return whether it was cancelled."""
    if isinstance(driver.client, LicenseClient):
        try:
            await flow(driver, *given)
        except Stopped:
            return True
        return False
    stopper.task = asyncio.ensure_future(flow(driver, *given))
    await asyncio.wait([stopper.task])
    return stopper.task.cancelled()


NAMES = [
    pytest.param(name, marks=() if name in ("verify", "download", "seat") else pytest.mark.slow)
    for name in FLOWS
]


@pytest.mark.sampled(1)
@both
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(sys.platform == "win32", reason="a thread is interrupted by a signal of POSIX")
@pytest.mark.usefixtures("_signal")
async def test_a_cancelled_flow_leaves_nothing(
    flavour, drive, service, store, clock, key, tmp_path, stopper, eventually, name
):
    """No thread, file, connection or seat; and no lock, for another client's next call succeeds at once."""
    serve_all(store)
    prepare, flow = FLOWS[name]
    numbers = count()

    async def run(at, moment):
        folder = tmp_path / str(next(numbers))
        options = {"storage": folder / "state", "clock": clock, "slug": "notes", "version": "1.0"}
        driver = drive(flavour(service.url, **options))
        stopper.set(-1, moment)
        await prepare(driver, key)
        stopper.set(at, moment)
        before = descriptors()
        was_cancelled = await _cancelled(driver, flow, stopper, key, folder / "files")
        begun = stopper.done
        stopper.set(-1, moment)
        await eventually(lambda: not threads())
        await eventually(lambda: descriptors() <= before)
        assert not store.held
        await driver.close()
        other = drive(flavour(service.url, **options))
        began = time.monotonic()
        await flow(other, key, folder / "files")
        assert time.monotonic() - began < 5
        await other.close()
        assert not [path for path in (folder / "files").glob(".*") if path.suffix != ".zip"]
        return was_cancelled, begun

    was_cancelled, operations = await run(-1, BEFORE)
    assert not was_cancelled
    assert operations
    for at in range(operations):
        for moment in (BEFORE, DURING, AFTER):
            was_cancelled, _ = await run(at, moment)
            assert was_cancelled, (at, moment)


@pytest.mark.slow
@both
@pytest.mark.parametrize("cancels", [40, pytest.param(200, marks=pytest.mark.slow)])
async def test_a_download_is_cancelled_in_its_first_moments(
    flavour, drive, service, store, clock, key, tmp_path, eventually, cancels
):
    """At any moment of its first milliseconds: between two operations as well, which no count reaches."""
    serve_all(store)
    store.content = CONTENT * 30  # more than is received ahead
    store.digest = digest(store.content)
    options = {"storage": tmp_path / "state", "clock": clock, "slug": "notes", "version": "1.0"}
    driver = drive(flavour(service.url, **options))
    update = (await driver.check_for_update(key)).update
    await driver.download(update, tmp_path / "first", key=key)
    await eventually(lambda: not threads())
    before = descriptors()
    for number in range(cancels):
        stop, moment = threading.Event(), number / cancels * 0.008
        timer = threading.Timer(moment, stop.set)
        call = asyncio.ensure_future(driver.download(update, tmp_path / str(number), cancel=stop, key=key))
        timer.start()
        if flavour is AsyncLicenseClient and number % 2:
            await asyncio.sleep(moment)
            call.cancel()
        with suppress(asyncio.CancelledError, DownloadCancelledError):
            await call
        timer.join()
    await eventually(lambda: not threads())
    await eventually(lambda: descriptors() <= before)
    await driver.close()


async def test_a_seat_that_is_granted_after_its_release_is_released_again(
    service, store, clock, key, tmp_path, eventually, monkeypatch
):
    """The request that takes it is cut off with its connection, but may still be in the hands of a proxy."""
    monkeypatch.setattr("licclient._seats.seat.RELEASE_PAUSE", 1.0)
    serve_all(store)
    answer, asked, granted, released = service.script, [], [], threading.Event()

    def script(request):
        is_seat = request.path.endswith("seat")
        is_release = is_seat and "release" in request.json
        if is_seat and not is_release:
            asked.append(request)
            released.wait(20)
        reply = answer(request)
        if is_release:
            released.set()
        elif is_seat:
            granted.append(request)
        return reply

    service.script = script
    options = {"storage": tmp_path, "clock": clock, "slug": "notes", "version": "1.0"}
    async with AsyncLicenseClient(service.url, **options) as client:
        await client.activate(key)
        taking = asyncio.ensure_future(client.seats.take())
        await eventually(lambda: asked)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
        await eventually(lambda: granted and not store.held)


def test_a_seat_is_released_when_the_loop_ends(service, store, clock, key, tmp_path):
    """`asyncio.run` is left by Ctrl-C while a seat is taken: closing the client gives it up."""
    serve_all(store)
    answer = service.script

    def script(request):
        grant = answer(request)
        if request.path.endswith("seat") and "release" not in request.json:
            time.sleep(1)
        return grant

    service.script = script
    options = {"storage": tmp_path, "clock": clock, "slug": "notes", "version": "1.0"}

    async def story():
        async with AsyncLicenseClient(service.url, **options) as client:
            await client.activate(key)
            asyncio.get_running_loop().call_later(0.2, asyncio.current_task().cancel)
            async with client.seats.take():
                pytest.fail("it was not granted in time")

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(story())
    assert not store.held
