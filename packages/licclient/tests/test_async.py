"""Each method of the asynchronous client once; the rules are tested with the synchronous one."""

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
from stage.store import CONTENT

from licclient import AsyncLicenseClient, LicenseClient, LicenseState, Source
from licclient._core.storage import StateFolder
from licclient.errors import LicenseRefusedError, NotActivatedError, ServiceUnavailableError


@pytest.fixture
def clients(service, store, clock, tmp_path, http_answer):
    """A client of each class, on one state folder, for a service that grants and sells Notes 2.0."""
    grant = {"valid": True, "product": "Notes", "expiry": None, "lifetime": False}
    sell = service.script
    service.script = lambda request: http_answer(200, grant) if "verify" in request.path else sell(request)
    options = {"storage": tmp_path / "state", "clock": clock, "slug": "notes", "version": "1.0"}
    return LicenseClient(service.url, **options), AsyncLicenseClient(service.url, **options)


async def test_both_clients_return_the_same(clients, key, folder):
    """License, status, offer, skipped version, file and diagnosis, from the server and from the disk."""
    plain, client = clients
    async with client:
        assert (await client.activate(key)).source is Source.SERVER
        assert await client.verify() == plain.verify() == await client.require()
        check = await client.check_for_update()
        update = check.update
        assert await client.check_for_update() == plain.check_for_update() == check
        assert await client.status() == plain.status()
        await client.skip_update(update)
        assert (await client.is_skipped(update), plain.is_skipped(update)) == (True, True)
        progress = []
        done = await client.download(update, folder, lambda *seen: progress.append(seen))
        assert (done.path.read_bytes(), progress[-1][:2]) == (CONTENT, (len(CONTENT), len(CONTENT)))
        assert await client.diagnose() == plain.diagnose()


async def test_errors_are_the_same(clients, service, key):
    """A refusal, a key that is not there, and a key that was forgotten."""
    plain, client = clients
    async with client:
        for ask in (client.verify, client.require):
            with pytest.raises(NotActivatedError):
                await ask()
        assert not await client.check_for_update()
        await client.activate(key)
        service.refuses(403, "License has been revoked.")
        with pytest.raises(LicenseRefusedError, match="revoked"):
            await client.verify(force=True)
        await client.forget_key()
        assert plain.status().state is LicenseState.NOT_ACTIVATED


async def test_the_worker_ends_with_its_block_and_with_the_client(clients):
    """As with the synchronous client; nothing is left running in the event loop."""
    _, client = clients
    async with client:
        async with client.start() as first:
            assert first.is_running
        assert not first.is_running
        second = client.start()
    assert not second.is_running


# --- an event loop is never held up -------------------------------------------------------------


class SlowFolder(StateFolder):
    """A disk that is not written to before `may_write` is set."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.is_waiting, self.may_write = threading.Event(), threading.Event()

    def change(self, name, edit):
        """Change a record, once that is allowed."""
        self.is_waiting.set()
        self.may_write.wait(10)
        return super().change(name, edit)


async def test_a_cancelled_call_returns_at_once_and_leaves_its_state_whole(
    service, key, tmp_path, eventually
):
    """The step that waits for the disk ends by itself; only then is the lock of the call given back."""
    service.grants()
    storage = SlowFolder(tmp_path)
    async with AsyncLicenseClient(service.url, domain="d", storage=storage) as client:
        call = asyncio.ensure_future(client.verify(key))
        await eventually(storage.is_waiting.is_set)
        call.cancel()
        done, _ = await asyncio.wait([call], timeout=0.2)
        assert (done, call.cancelled(), list(tmp_path.glob("call-*.lock"))) == ({call}, True, [ANY])
        storage.may_write.set()
        await eventually(lambda: not list(tmp_path.glob("call-*.lock")))
        assert (await client.verify(key)).source is Source.CACHE


NOTES_WHERE_HTTPX_IS_LOADED = """
import asyncio, sys, threading
import licclient

class Finder:
    def find_spec(self, name, *_):
        if name == "httpx":
            print(threading.current_thread() is threading.main_thread())

sys.meta_path.insert(0, Finder())

async def main():
    url, folder, key = sys.argv[1:]
    async with licclient.AsyncLicenseClient(url, slug="n", version="1", storage=folder) as client:
        await client.download((await client.check_for_update(key)).update, folder)

asyncio.run(main())
"""


def test_a_loop_ends_while_a_name_is_still_looked_up(tmp_path, key, monkeypatch):
    """`asyncio.run` does not wait for the system's resolver, which may take half a minute."""
    over, ended = threading.Event(), []

    def slow(*_: Any, **__: Any):
        over.wait(20)
        ended.append(1)
        raise socket.gaierror

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    client = AsyncLicenseClient("https://licenses.invalid", storage=tmp_path, timeout=0.3)
    with pytest.raises(ServiceUnavailableError, match="in time"):
        asyncio.run(client.verify(key))
    assert ended == []
    over.set()


def test_a_loop_ends_after_a_diagnosis_was_cancelled(tmp_path, monkeypatch):
    """A diagnosis may take half a minute, for which neither its caller nor the end of the loop waits."""
    over, has_begun = threading.Event(), threading.Event()
    monkeypatch.setattr("licclient._doctor.diagnose", lambda *_: has_begun.set() or over.wait(20))

    async def story():
        async with AsyncLicenseClient("https://licenses.invalid", storage=tmp_path) as client:
            report = asyncio.ensure_future(client.diagnose())
            await asyncio.to_thread(has_begun.wait, 10)
            report.cancel()
            await asyncio.wait([report])

    began = time.monotonic()
    asyncio.run(story())
    assert time.monotonic() - began < 10
    over.set()


def _disk(monkeypatch, noted):
    monkeypatch.setattr(StateFolder, "change", noted(StateFolder.change))


def _resolver(monkeypatch, noted):
    monkeypatch.setattr(socket, "getaddrinfo", noted(socket.getaddrinfo))


def _proxy_settings(monkeypatch, noted):
    monkeypatch.setattr("licclient._core.network.getproxies", noted(dict))


@pytest.mark.parametrize("replace", [_disk, _resolver, _proxy_settings])
async def test_what_may_block_runs_on_threads(service, tmp_path, key, monkeypatch, replace):
    """Else a window would stand still while the disk or the network's settings are slow."""
    service.grants()
    url = service.url.replace("127.0.0.1", "localhost")
    async with AsyncLicenseClient(url, storage=tmp_path) as client:
        threads = set()

        def noted(plain):
            def call(*given: Any, **options: Any):
                threads.add(threading.get_ident())
                return plain(*given, **options)

            return call

        replace(monkeypatch, noted)
        assert (await client.verify(key)).source is Source.SERVER
    assert threads
    assert threading.get_ident() not in threads


# --- transports of an application ---------------------------------------------------------------


class Asynchronous(httpx.AsyncBaseTransport):
    """Sends nothing by threads."""

    def __init__(self, handler) -> None:
        self._mock = httpx.MockTransport(handler)

    async def handle_async_request(self, request):
        """Respond in the loop."""
        return await self._mock.handle_async_request(request)


class Synchronous(httpx.BaseTransport):
    """Sends nothing in a loop."""

    def __init__(self, handler) -> None:
        self._mock = httpx.MockTransport(handler)

    def handle_request(self, request):
        """Respond on a thread."""
        return self._mock.handle_request(request)


def respond(request):
    """Respond as the real service."""
    with httpx.Client() as plain:
        given = {"headers": request.headers, "content": request.content}
        return plain.send(plain.build_request(request.method, request.url, **given))


def network(_):
    """A synchronous transport that sends requests itself, and reports each step of them."""
    return httpx.HTTPTransport()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", [Asynchronous, Synchronous, httpx.MockTransport, network])
async def test_an_application_may_send_the_requests(kind, tmp_path, store, key, folder, http_answer):
    """An asynchronous transport, synchronous ones, and one that is both; for requests and downloads."""
    sell, grant = store.service.script, {"valid": True, "product": "Notes", "expiry": None, "lifetime": True}
    store.service.script = lambda request: (
        http_answer(200, grant) if "verify" in request.path else sell(request)
    )
    options = {"storage": tmp_path, "slug": "notes", "version": "1.0"}
    async with AsyncLicenseClient(store.service.url, transport=kind(respond), **options) as client:
        assert (await client.verify(key)).is_lifetime
        done = await client.download((await client.check_for_update(key)).update, folder, key=key)
    assert done.path.read_bytes() == CONTENT


def test_a_transport_of_the_wrong_kind_is_refused(service):
    """The message says what to pass."""
    with pytest.raises(TypeError, match="is for AsyncLicenseClient"):
        LicenseClient(service.url, transport=Asynchronous(print))
    with pytest.raises(TypeError, match=r"AsyncBaseTransport or httpx\.BaseTransport"):
        AsyncLicenseClient(service.url, transport=print)


class Stalling(Asynchronous, httpx.AsyncByteStream):
    """Responds to a download with a body of which nothing comes, and waits to be closed."""

    waits = is_closed = False

    async def handle_async_request(self, request):
        """Respond as usual, but to a download."""
        if "update-download" not in str(request.url):
            return await super().handle_async_request(request)
        return httpx.Response(200, headers={"Content-Length": "9"}, stream=self)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        self.waits = True
        await asyncio.Event().wait()
        yield b""

    async def aclose(self):
        """Take note."""
        self.is_closed = True


async def test_a_cancelled_download_ends_what_the_transport_waits_for(
    tmp_path, store, key, folder, eventually
):
    """Of an app's asynchronous transport: its response is closed in the loop, though a thread reads it."""
    transport = Stalling(respond)
    options = {"storage": tmp_path, "slug": "notes", "version": "1.0"}
    async with AsyncLicenseClient(store.service.url, transport=transport, **options) as client:
        update = (await client.check_for_update(key)).update
        call = asyncio.ensure_future(client.download(update, folder, key=key))
        await eventually(lambda: transport.waits)
        call.cancel()
        done, _ = await asyncio.wait([call], timeout=0.2)
        assert done
        await eventually(lambda: transport.is_closed)


async def test_a_cancelled_request_closes_its_connection(service, key, tmp_path, eventually):
    """The service sees the client hang up at once."""
    hung_up = threading.Event()

    def script(_request):
        try:
            while True:
                yield b"HTTP/1.1 100 Continue\r\n\r\n"
                time.sleep(0.02)
        finally:
            hung_up.set()

    service.script = script
    async with AsyncLicenseClient(service.url, storage=tmp_path) as client:
        call = asyncio.ensure_future(client.verify(key))
        await eventually(lambda: service.count() == 1)
        call.cancel()
        done, _ = await asyncio.wait([call], timeout=0.2)
        assert done
        await eventually(hung_up.is_set)


@pytest.mark.slow
def test_httpx_is_not_loaded_in_the_loop(store, tmp_path, key):
    """Importing it takes a third of a second, in which a window would stand still."""
    done = subprocess.run(
        [sys.executable, "-c", NOTES_WHERE_HTTPX_IS_LOADED, store.service.url, str(tmp_path), key],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "False\n", done.stderr
