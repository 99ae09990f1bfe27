"""The worker behind an app, with the fakes that apps use: a clock that moves, a service that goes away."""

import asyncio
import gc
import importlib
import subprocess
import sys
import threading
import time
import weakref
from contextlib import asynccontextmanager, suppress
from datetime import date, timedelta
from functools import partial

import pytest
from stage.flavours import both
from stage.flows import planned

from harness.hands import qt_app
from harness.screen import without
from harness.standstill import Standstill
from licclient import LicenseClient, LicenseState
from licclient.deliver import to_loop, to_qt, to_tk
from licclient.errors import ServiceUnavailableError
from licclient.testing import LicenseService

APP = {"product": "Notes", "slug": "notes", "version": "1.0"}


@pytest.fixture
def app(flavour, license_service):
    """The app's client."""
    make = license_service.client if flavour is LicenseClient else license_service.async_client
    return make(**APP)


@pytest.fixture
def settled(monkeypatch, eventually):
    """Wait until the worker has turned twice with the clock as it stands: no call is on its way."""

    async def wait():
        await planned(monkeypatch, eventually, 8)

    return wait


@asynccontextmanager
async def working(app, **options: object):
    """Run a worker for a block."""
    worker = app.start(**options)
    try:
        yield worker
    finally:
        stopped = worker.stop()
        if stopped is not None:
            await stopped


@both
async def test_the_first_word_comes_from_the_disk(app, license_service, license_clock, eventually):
    """Online or not, the app hears at once what is remembered, and then what is new."""
    license_service.issue("Notes", activated=True)
    statuses = []
    async with working(app, on_status=statuses.append):
        await eventually(lambda: statuses and statuses[-1].state is LicenseState.VALID)
    assert [status.state for status in statuses] == [LicenseState.UNCONFIRMED, LicenseState.VALID]
    license_service.go_offline()
    license_clock.move(hours=20)
    statuses.clear()
    async with working(app, on_status=statuses.append):
        await eventually(lambda: statuses)
    assert statuses[0].state is LicenseState.VALID
    assert license_service.count("verify") == 1


@pytest.mark.slow
async def test_an_outage_from_beginning_to_end(app, license_service, license_clock, eventually, settled):
    """72 hours of grace after the cache has run out; then unconfirmed, asking on; then valid again."""
    license_service.issue("Notes", activated=True)
    statuses = []

    def states():
        return [status.state for status in statuses]

    async with working(app, on_status=statuses.append):
        await eventually(lambda: states()[-1:] == [LicenseState.VALID])
        license_service.go_offline()
        license_clock.move(hours=24 + 12)
        await eventually(lambda: states()[-1:] == [LicenseState.GRACE])
        assert statuses[-1].grace_ends_at == statuses[-1].checked_at + timedelta(hours=96)
        license_clock.move(hours=71 - 12)
        await asyncio.sleep(0.2)
        assert states()[-1] is LicenseState.GRACE
        license_clock.move(hours=2)
        await eventually(lambda: states()[-1:] == [LicenseState.UNCONFIRMED])
        count_before = license_service.count("verify")
        for _ in range(60):  # an hour
            license_clock.move(minutes=1)
            await asyncio.sleep(0.03)
        await settled()
        assert license_service.count("verify") > count_before, "it goes on asking"
        license_service.come_back()
        license_clock.move(minutes=59)
        await eventually(lambda: states()[-1:] == [LicenseState.VALID])


async def test_a_revoked_license_is_noticed(app, license_service, license_clock, eventually):
    """The next verify reports it to the app, with the reason; then it is not asked again and again."""
    key = license_service.issue("Notes", activated=True)
    statuses = []
    async with working(app, on_status=statuses.append):
        await eventually(lambda: statuses and statuses[-1].state is LicenseState.VALID)
        license_service.revoke(key)
        license_clock.move(hours=37)
        await eventually(lambda: statuses[-1].state is LicenseState.REFUSED)
        assert statuses[-1].reason.value == "revoked"
        count_before = license_service.count("verify")
        license_clock.move(hours=20)
        await asyncio.sleep(0.2)
        assert license_service.count("verify") == count_before


async def test_an_update_is_reported_once(app, license_service, license_clock, eventually, settled):
    """Found on schedule, reported once, also after a restart of the worker only once each."""
    license_service.issue("Notes", activated=True)
    updates = []
    async with working(app, on_update=updates.append):
        await eventually(lambda: license_service.count("update-check") == 1)
        await settled()  # asked is not yet answered
        license_service.publish("2.0")
        license_clock.move(hours=11)
        await asyncio.sleep(0.2)
        assert updates == []
        license_clock.move(hours=15)
        await eventually(lambda: updates)
        license_clock.move(hours=17)
        await eventually(lambda: license_service.count("update-check") == 3)
    assert [update.version for update in updates] == ["2.0"]


@both
async def test_a_key_that_is_entered_while_it_works(app, license_service, eventually):
    """No activation, no calls; then everything."""
    key = license_service.issue("Notes")
    statuses = []
    async with working(app, on_status=statuses.append):
        await eventually(lambda: statuses)
        assert (statuses[0].state, license_service.count()) == (LicenseState.NOT_ACTIVATED, 0)
        activated = app.activate(key)
        if asyncio.iscoroutine(activated):
            await activated
        await eventually(lambda: statuses[-1].state is LicenseState.VALID)


async def test_an_expiry_day_passes(app, license_service, license_clock, eventually):
    """Days left count down, and after the last one the license is expired, with or without the service."""
    license_service.issue("Notes", activated=True, expires=date(2030, 1, 16))
    statuses = []
    async with working(app, on_status=statuses.append):
        await eventually(lambda: statuses and statuses[-1].days_left == 1)
        license_clock.move(hours=13)
        await eventually(lambda: statuses[-1].days_left == 0)
        license_clock.move(days=1)
        await eventually(lambda: statuses[-1].state is LicenseState.REFUSED)
        assert statuses[-1].reason.value == "expired"


@both
async def test_one_worker_at_a_time(app, license_service):
    """A second one would ask everything twice."""
    async with working(app):
        with pytest.raises(RuntimeError, match="runs already"):
            app.start()
    async with working(app) as worker:
        assert worker.is_running
    assert not worker.is_running


def test_it_stops_within_a_second_in_the_middle_of_a_call(service, tmp_path, key):
    """A service that does not answer holds up nobody's exit, and nobody is called back afterwards."""
    hang = threading.Event()

    def script(_request):
        hang.wait(20)
        return b""

    service.grants()
    client = LicenseClient(service.url, storage=tmp_path, timeout=20)
    client.activate(key)
    for record in ("license", "call"):  # nothing is known of any success, so it is asked for at once
        next(tmp_path.glob(f"{record}-*.state")).unlink()
    service.script = script
    statuses = []
    client.start(on_status=statuses.append)
    while service.count("verify") < 2:
        time.sleep(0.01)
    before = len(statuses)
    with Standstill() as machine:
        began = time.monotonic()
        client.close()
        ended = time.monotonic()
    assert ended - began - machine.within(began, ended) < 8
    hang.set()
    time.sleep(0.3)
    assert len(statuses) == before


def test_an_app_that_forgets_to_stop_it_ends_all_the_same(service, tmp_path, key):
    """The end of the process does not wait for the worker."""
    code = (
        "import sys, licclient\n"
        f"client = licclient.LicenseClient({service.url!r}, storage={str(tmp_path)!r})\n"
        "client.start()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=10)


@both
async def test_an_answer_that_a_person_asked_for_is_reported_at_once(
    flavour, license_service, license_clock, monkeypatch, eventually
):
    """After "Try again" the main window showed the outage for half a minute more."""
    monkeypatch.setattr(type(license_clock), "worker_pause", 60.0)
    license_service.issue("Notes", activated=True)
    make = license_service.client if flavour is LicenseClient else license_service.async_client
    client, statuses = make(**APP), []

    async def try_again():
        with suppress(ServiceUnavailableError):
            answer = client.verify(force=True)
            if flavour is not LicenseClient:
                await answer

    async with working(client, on_status=statuses.append):
        await eventually(lambda: statuses and statuses[-1].state is LicenseState.VALID)
        license_service.go_offline()
        license_clock.move(days=30)
        await try_again()
        await eventually(lambda: statuses[-1].state is LicenseState.UNCONFIRMED)
        license_service.come_back()
        await try_again()
        await eventually(lambda: statuses[-1].state is LicenseState.VALID)


@both
async def test_a_callback_that_fails_ends_nothing(
    app, license_service, license_clock, eventually, monkeypatch
):
    """An error in the app's callback goes to the hooks for errors of threads and tasks."""
    license_service.issue("Notes", activated=True)
    exceptions = []
    monkeypatch.setattr(threading, "excepthook", lambda args: exceptions.append(args.exc_value))
    asyncio.get_running_loop().set_exception_handler(
        lambda _, context: exceptions.append(context["exception"])
    )
    async with working(app, on_status=lambda _: 1 / 0):
        await eventually(lambda: license_service.count("verify") == 1)
    assert isinstance(exceptions[0], ZeroDivisionError)


# --- on whose thread --------------------------------------------------------------------------


class _ClosedJustNow:
    """An event loop that closes between the question and the call."""

    def is_closed(self):
        return False

    def call_soon_threadsafe(self, _):
        raise RuntimeError("Event loop is closed")


async def test_in_an_event_loop(license_service, eventually):
    """`to_loop` brings the synchronous client's callbacks into the loop."""
    license_service.issue("Notes", activated=True)
    threads = []
    client = license_service.client(**APP)
    loop = asyncio.get_running_loop()
    async with working(
        client, on_status=lambda _: threads.append(threading.get_ident()), deliver=to_loop(loop)
    ):
        await eventually(lambda: len(threads) > 1)
    assert set(threads) == {threading.get_ident()}
    closed = asyncio.new_event_loop()
    closed.close()
    to_loop(closed)(lambda: 1 / 0)  # too late, and no mistake
    to_loop(_ClosedJustNow())(lambda: 1 / 0)


def _tcl_root():
    try:
        import tkinter  # noqa: ICN001, PLC0415 - not every Python has it
    except ImportError as missing:
        without(f"this Python has no Tk: {missing}")
    return tkinter.Tcl()  # the same loop, without a screen


def _destroy(root):
    """End the calls into it, as `Tk.destroy` does, which needs a screen."""
    for name in root.tk.splitlist(root.tk.call("info", "commands", "*look")):
        root.deletecommand(name)


def _tk_loop():
    root = _tcl_root()
    return to_tk(root), root.update, partial(_destroy, root)


def test_windows_that_a_test_leaves_are_freed_on_its_thread():
    """Not on one of a later client, which Tk does not survive; nothing is searched where there were none."""
    root = _tcl_root()
    collected = []
    gc.callbacks.append(lambda phase, info: collected.append((phase, info["generation"])))
    try:
        LicenseService().close()
        assert ("start", 2) not in collected
        to_tk(root)
        _destroy(root)
        root.itself, left = root, weakref.ref(root)
        del root
        LicenseService().close()
        assert left() is None
    finally:
        gc.callbacks.pop()


def _qt_loop():
    try:
        app = qt_app()
        return to_qt(), app.processEvents, lambda: None
    except ImportError as missing:
        without(f"PySide6 cannot be used: {missing}")


@pytest.mark.parametrize("needs", ["deliver.to_qt", "dialogs.qt"])
def test_without_qt_the_package_to_install_is_named(monkeypatch, needs):
    """Python's own message names a module, which is not what one installs."""
    monkeypatch.setitem(sys.modules, "PySide6.QtCore", None)
    monkeypatch.delitem(sys.modules, "licclient.dialogs.qt", raising=False)
    with pytest.raises(
        ImportError, match=rf"^licclient\.{needs} needs PySide6: pip install 'licclient\[qt\]'$"
    ):
        to_qt() if needs == "deliver.to_qt" else importlib.import_module(f"licclient.{needs}")


@pytest.mark.parametrize("make_loop", [_tk_loop, _qt_loop])
def test_in_the_loop_of_a_toolkit(license_service, make_loop):
    """`to_tk` and `to_qt` bring the callbacks into the main loop, as long as there is one."""
    license_service.issue("Notes", activated=True)
    license_service.publish("2.0")
    threads = []

    def note(_news):
        threads.append(threading.get_ident())

    client = license_service.client(**APP)
    deliver, turn, end = make_loop()
    with client.start(on_status=note, on_update=note, deliver=deliver):
        until = time.monotonic() + 10
        while len(threads) < 2 and time.monotonic() < until:
            turn()
            time.sleep(0.01)
    end()
    assert len(threads) >= 2
    assert set(threads) == {threading.get_ident()}
