"""Threads, forked children and file systems without locks: one call for all, and no change is lost."""

import errno
import fcntl
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
import pytest

from harness.threads import call_at_once
from licclient import Entitlements, License, LicenseClient, LicenseState, Quota
from licclient._core.storage import StateFolder
from licclient.errors import ServiceUnavailableError
from licclient.testing import LicenseService, MemoryStorage

THREADS = 8


@pytest.fixture
def shop() -> Iterator[LicenseService]:
    """A service that has issued nothing yet."""
    with LicenseService() as service:
        yield service


def _slowly(shop: LicenseService) -> httpx.MockTransport:
    """Send requests to the service, each for a tenth of a second."""

    def handle(request: httpx.Request) -> httpx.Response:
        sleep(0.1)
        return shop.transport.handler(request)  # type: ignore[return-value]

    return httpx.MockTransport(handle)


# --- a storage without files ----------------------------------------------------------------------


@pytest.mark.parametrize("clients", ["one client", "a client each"])
def test_one_call_for_all_threads_without_a_folder(shop: LicenseService, clients: str) -> None:
    """Eight threads ask at once: one of them sends the request."""
    key = shop.issue("Notes")
    transport = _slowly(shop)
    made = [shop.client(transport=transport) for _ in range(1 if clients == "one client" else THREADS)]
    found = call_at_once([partial(made[at % len(made)].verify, key) for at in range(THREADS)])
    assert all(isinstance(license_, License) for license_ in found)
    assert shop.count("verify") == 1


class SlowStorage(MemoryStorage):
    """A storage of an app in a database: each look takes a moment."""

    def load(self, name: str) -> Any:
        """Return a record."""
        sleep(0.002)
        return super().load(name)


@pytest.mark.parametrize("storage", [MemoryStorage, SlowStorage])
@pytest.mark.parametrize("patience", [True, False])
def test_an_allowance_is_never_passed(
    shop: LicenseService, monkeypatch: pytest.MonkeyPatch, storage: type[MemoryStorage], patience: bool
) -> None:
    """Ten uses are allowed offline; also if nobody waits for the lock, and 24 threads take what they can."""
    key = shop.issue("Notes", entitlements=Entitlements({"exports": Quota(100, "month")}))
    client = shop.client(storage=storage())
    client.activate(key)
    client.uses.consume("exports")
    if not patience:
        monkeypatch.setattr("licclient._core.storage.CallLock.is_ours", lambda _: True)
    taken: list[int] = []

    def use() -> None:
        with suppress(ServiceUnavailableError):
            taken.append(client.uses.consume("exports"))

    with shop.offline():
        call_at_once([use] * 24)
    assert len(taken) == 10
    assert client.uses.consume("exports") == 100 - 1 - 10 - 1


# --- fork ------------------------------------------------------------------------------------------


def _in_child(act: Callable[[], bool]) -> int:
    """Return the exit status of a child that is forked: 0 if `act` returned True."""
    child = os.fork()
    if child == 0:
        status = 2
        try:
            status = 0 if act() else 1
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_posthog_posthog_python_811(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process forks while a thread writes: the child writes at once, it does not wait for that thread."""
    monkeypatch.setattr("licclient._core.storage.LOCK_SECONDS", 60)
    state, is_over = StateFolder(tmp_path), threading.Event()

    def count(document: Any) -> dict[str, int]:
        return {"n": (document or {"n": 0})["n"] + 1}

    def work() -> None:
        while not is_over.wait(0.002):
            state.change("parent", count)

    def write() -> bool:
        began = monotonic()
        state.change("child", count)
        return monotonic() - began < 20  # for a lock it would wait a minute

    state.change(
        "parent", count
    )  # a module that is being imported at the fork would stay locked in the child
    thread = threading.Thread(target=work)
    thread.start()
    try:
        results = [_in_child(write) for _ in range(20)]
    finally:
        is_over.set()
        thread.join()
    assert results == [0] * 20
    written = StateFolder(tmp_path).load("child")
    assert written is not None
    assert written["n"] == 20


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_a_child_makes_calls_of_its_own(shop: LicenseService, tmp_path: Path) -> None:
    """Forked while threads make a call: its own call waits for no thread of the parent."""
    key = shop.issue("Notes")
    client: LicenseClient = shop.client(storage=tmp_path, transport=_slowly(shop), timeout=60)
    threads = [threading.Thread(target=client.verify, args=(key,), kwargs={"force": True}) for _ in range(4)]
    for thread in threads:
        thread.start()
    while not shop.requests:
        sleep(0.005)

    def verify() -> bool:
        began = monotonic()
        return client.verify(key, force=True).product == "Notes" and monotonic() - began < 20

    try:
        assert _in_child(verify) == 0
    finally:
        for thread in threads:
            thread.join()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not fork")
def test_langfuse_langfuse_python_1654(shop: LicenseService, tmp_path: Path) -> None:
    """A server loads the app, which starts its worker, and then forks: a child starts a worker of its own."""
    client = shop.client(storage=tmp_path)
    client.activate(shop.issue("Notes"))
    worker = client.start()

    def work() -> bool:
        reported: list[LicenseState] = []
        if worker.is_running:
            return False
        with client.start(on_status=lambda status: reported.append(status.state)):
            until = monotonic() + 5
            while not reported and monotonic() < until:
                sleep(0.01)
        client.close()
        return reported == [LicenseState.VALID]

    assert _in_child(work) == 0
    assert worker.is_running
    assert client.require().product == "Notes"


# --- file systems without locks --------------------------------------------------------------------


@pytest.fixture
def no_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a file system that cannot lock."""

    def flock(*_: object) -> None:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "flock", flock)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no file system without locks")
@pytest.mark.usefixtures("no_locks")
def test_a_file_system_without_locks(tmp_path: Path) -> None:
    """Threads of one process lose no change of the state."""
    states = [StateFolder(tmp_path / "state") for _ in range(4)]

    def count(state: StateFolder) -> None:
        for _ in range(10):
            state.change("counter", lambda document: {"n": (document or {"n": 0})["n"] + 1})

    call_at_once([partial(count, state) for state in states])
    counted = StateFolder(tmp_path / "state").load("counter")
    assert counted is not None
    assert counted["n"] == 40
