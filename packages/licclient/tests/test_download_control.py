"""What an app sees of a download while it runs, and how it stops one."""

import asyncio
import threading
import time
from itertools import pairwise

import pytest
from stage.flavours import asynchronous, both
from stage.store import CONTENT

from harness.standstill import Standstill
from licclient import AsyncLicenseClient, LicenseClient
from licclient._updates.download import PROGRESS_SECONDS
from licclient.errors import DownloadCancelledError, ServiceUnavailableError


@pytest.fixture
def slowly(store):
    """The store hands the file out in thirty pieces over about a second; `open` lets it all through."""
    plain, gate = store.file, threading.Event()

    def script(request):
        raw = plain(request)
        for start in range(0, len(raw), 10_000):
            yield raw[start : start + 10_000]
            gate.wait(0.04)

    store.file = script
    yield gate
    gate.set()


@pytest.mark.slow
async def test_progress_reports_bytes_total_and_speed(client, slowly, folder, key):
    """Growing bytes, the same total, a speed that is near the real one, and not too often."""
    progress = []
    update = (await client.check_for_update(key)).update
    began = time.monotonic()
    await client.download(update, folder, lambda *seen: progress.append((time.monotonic(), *seen)), key=key)
    took = time.monotonic() - began
    assert [done for _, done, _, _ in progress] == sorted(done for _, done, _, _ in progress)
    assert {total for _, _, total, _ in progress} == {len(CONTENT)}
    assert progress[-1][1] == len(CONTENT)
    real = len(CONTENT) / took
    assert real / 3 < progress[-1][3] < real * 3
    assert len(progress) <= took / PROGRESS_SECONDS + 3


@both
async def test_progress_is_called_where_the_app_lives(client, store, folder, key):
    """In the caller's thread; for the asynchronous client that is the loop's."""
    seen = set()
    update = (await client.check_for_update(key)).update
    await client.download(update, folder, lambda *_: seen.add(threading.current_thread()), key=key)
    assert seen == {threading.current_thread()}


@both
async def test_a_cancelled_download_ends_at_once_and_goes_on_later(client, store, folder, key):
    """An event that the app sets, from whatever thread, ends it; the part stays for the next time."""
    plain, go_on = store.file, threading.Event()

    def stalls(request):
        raw = plain(request)
        yield raw[:150_000]
        go_on.wait(20)
        yield raw[150_000:]

    store.file = stalls
    cancel, began = threading.Event(), []
    update = (await client.check_for_update(key)).update

    def soon(done, *_: object):
        if done and not began:
            began.append(time.monotonic())
            threading.Timer(0.1, cancel.set).start()

    with Standstill() as machine:
        with pytest.raises(DownloadCancelledError):
            await client.download(update, folder, soon, cancel=cancel, key=key)
        ended = time.monotonic()
    assert ended - began[0] - machine.within(began[0], ended) < 8
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == []
    go_on.set()
    done = await client.download(update, folder, key=key)
    assert done.path.read_bytes() == CONTENT
    assert store.requested_ranges[-1] not in (None, "bytes=0-")


@pytest.mark.parametrize("where", ["connect", "head", "link"])
async def test_cancelling_waits_for_nobody(make_client, service, http_answer, folder, key, clock, where):
    """Also while the server is silent, and while a fresh link is asked for."""
    service.offers()
    client = make_client(timeout=30)
    update = (await client.check_for_update(key)).update
    if where == "link":
        clock.move(hours=2)
    reached, cancel, over = threading.Event(), threading.Event(), threading.Event()

    def silent(_):
        reached.set()
        over.wait(10)
        return b""

    if where == "connect":
        cancel.set()
    service.script = silent
    watcher = threading.Thread(target=lambda: (reached.wait(10), cancel.set()))
    if where != "connect":
        watcher.start()
    with Standstill() as machine:
        began = time.monotonic()
        with pytest.raises(DownloadCancelledError):
            await client.download(update, folder, cancel=cancel, key=key)
        ended = time.monotonic()
    assert ended - began - machine.within(began, ended) < 6
    over.set()


@asynchronous
async def test_a_cancelled_task_ends_the_download_behind_it(
    make_client, store, slowly, folder, key, eventually
):
    """No callback follows, and the lock is given back as soon as the disk allows; the part goes on later."""
    progress = []
    client = make_client()
    update = (await client.check_for_update(key)).update
    task = asyncio.ensure_future(
        client.download(update, folder, lambda *seen: progress.append(seen), key=key)
    )
    await eventually(lambda: progress)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    count = len(progress)
    await eventually(lambda: not list(folder.glob(".*.lock")))
    await asyncio.sleep(0.2)
    assert len(progress) == count
    slowly.set()
    assert (await client.download(update, folder, key=key)).path.read_bytes() == CONTENT
    assert store.requested_ranges[-1] not in (None, "bytes=0-")


async def test_the_loop_goes_on_while_a_file_is_fetched(store, slowly, service, folder, key, tmp_path, clock):
    """An asynchronous app is never blocked by hashing, by the disk or by the network."""
    async with AsyncLicenseClient(
        service.url, storage=tmp_path / "s", slug="notes", version="1.0", clock=clock
    ) as client:
        update = (await client.check_for_update(key)).update
        looks = [time.monotonic()]
        with Standstill() as machine:
            task = asyncio.ensure_future(client.download(update, folder, key=key))
            while not task.done():
                await asyncio.sleep(0.005)
                looks.append(time.monotonic())
        assert (await task).path.read_bytes() == CONTENT
    pauses = [now - before - machine.within(before, now) for before, now in pairwise(looks)]
    assert max(pauses) < 0.5


async def test_closing_the_client_ends_a_download(client, store, folder, key, monkeypatch):
    """No request follows."""
    monkeypatch.setattr("licclient._core.pace.RETRY_SECONDS", 0.01)
    store.cuts = [100_000]
    update = (await client.check_for_update(key)).update
    with pytest.raises(ServiceUnavailableError):
        await client.download(update, folder, lambda *_: client.client.close(), key=key)
    assert store.requested_ranges == [None]


@both
async def test_closing_the_client_waits_for_no_silent_server(client, flavour, store, folder, key):
    """A download ends soon, also if it waits for the next byte."""
    whole, over, closed = store.file, threading.Event(), []

    def stalls(request):
        yield whole(request)[:150_000]
        over.wait(20)

    def close(*_: object):
        closed.append(time.monotonic())
        closed.append(
            client.client.close() if flavour is LicenseClient else asyncio.create_task(client.close())
        )

    store.file = stalls
    update = (await client.check_for_update(key)).update
    with Standstill() as machine:
        with pytest.raises(ServiceUnavailableError):
            await client.download(update, folder, close, key=key)
        ended = time.monotonic()
    over.set()
    assert ended - closed[0] - machine.within(closed[0], ended) < 8
