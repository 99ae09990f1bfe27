"""How an app calls the dialogs, in both toolkits: from where, with what, and what waits for what."""

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import Future
from functools import partial

import pytest

from licclient import ClientSettings
from licclient.deliver import to_qt, to_tk
from licclient.testing import LicenseService, answer_dialog

pytestmark = pytest.mark.window
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.0")


@pytest.fixture
def client(license_service):
    """The client of an app."""
    return license_service.client(SETTINGS)


@pytest.fixture
def deliver(hands):
    """What brings calls to the thread of the windows."""
    return to_tk(hands.parent) if hands.kit.__name__.endswith(".tk") else to_qt()


# --- what waits for what ----------------------------------------------------------------------


def test_the_click_goes_on_before_an_update_is_offered(
    hands, client, license_service, deliver, tmp_path, monkeypatch
):
    """News that comes while a key is entered waits until the caller has its answer; then its window opens."""
    happened = []
    license_service.publish("2.0")
    key = license_service.issue("Notes")
    activate = client.activate

    def ask(problem):
        return hands.kit.ask_for_key(client, hands.parent, problem=problem)

    def offer(update):
        happened.append("offered")
        hands.kit.offer_update(client, update, tmp_path, hands.parent)
        happened.append("answered")

    def activate_slowly(typed):
        found = activate(typed)
        deliver(partial(offer, client.check_for_update().update))
        time.sleep(0.3)  # Tk looks for calls ten times a second: the news comes before the thanks
        return found

    monkeypatch.setattr(client, "activate", activate_slowly)
    export = client.licensed(otherwise=ask)(lambda: happened.append("exported"))
    with answer_dialog("Activate", "Close", key=key), answer_dialog("Later"):
        export()
        assert happened == ["exported"]
        hands.until(lambda: "answered" in happened)


def test_calls_keep_their_order_across_a_dialog(hands, client, deliver):
    """What came while it was open runs before what comes later, each once."""
    seen = []

    def ask():
        for number in range(3):
            deliver(partial(seen.append, number))
        hands.kit.ask_for_key(client, hands.parent)
        seen.append("closed")
        deliver(partial(seen.append, 3))

    with answer_dialog("Not now"):
        deliver(ask)
        hands.until(lambda: 3 in seen)
    assert seen == ["closed", 0, 1, 2, 3]


def test_a_loop_of_the_apps_own_does_not_end_the_others(hands, deliver):
    """A call that waits in a loop, as one that shows a message box, takes no other call away."""
    seen = []

    def wait():
        hands.until(lambda: seen)
        seen.append("waited")

    deliver(wait)
    deliver(lambda: seen.append("came"))
    too_late = threading.Timer(3, deliver, [lambda: seen.append("stuck until the next call")])
    too_late.start()
    hands.until(lambda: len(seen) >= 2)
    too_late.cancel()
    assert seen == ["came", "waited"]


def test_a_window_of_tk_that_is_gone_leaves_no_complaint(screen, capfd):
    """Another window's loop runs the timers of both, as in the tests of an app."""
    tkinter = pytest.importorskip("tkinter")
    gone, other = (tkinter.Tk(screenName=screen.display or None) for _ in range(2))
    to_tk(gone)
    gone.update()  # what Tk itself has put off
    gone.destroy()
    other.after(300, other.quit)
    other.mainloop()
    other.destroy()
    assert capfd.readouterr().err == ""


def test_an_app_with_an_event_loop_asks_on_the_thread_of_the_windows(hands, license_service, deliver):
    """As docs/app/dialogs.md says: a client of their own for the dialogs, and a future."""
    client = license_service.async_client(SETTINGS)
    dialog_client = license_service.client(client.settings)
    key, results = license_service.issue("Notes"), []

    async def ask(problem):
        answer = Future()
        deliver(
            lambda: answer.set_result(hands.kit.ask_for_key(dialog_client, hands.parent, problem=problem))
        )
        return await asyncio.wrap_future(answer)

    @client.licensed(otherwise=ask)
    async def export():
        return "exported"

    async def run():
        async with client:
            results.extend([await export(), (await client.require()).product])

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    with answer_dialog("Activate", "Close", key=key):
        thread.start()
        hands.until(lambda: not thread.is_alive())
    assert results == ["exported", "Notes"]


# --- which dialogs are open -------------------------------------------------------------------


def test_a_dialog_that_a_test_leaves_open_is_in_nobodys_way(hands, client):
    """A service closes its clients, and these their dialogs: shown ones, and those that wait."""
    with LicenseService() as service:
        owner = service.client(SETTINGS)
        shown = hands.kit.ActivationDialog(owner, hands.parent)
        hands.open(shown)
        waiting = hands.kit.ActivationDialog(owner, hands.parent)
        hands.show(waiting)
    with answer_dialog("Not now"):
        assert hands.kit.ask_for_key(client, hands.parent) is None
    assert not hands.is_shown(shown)
    assert not hands.is_shown(waiting)


def test_closing_a_client_ends_the_call_that_asks(hands, client, monkeypatch):
    """On another thread, too; the call returns without a license."""
    closing = threading.Thread(target=client.close)
    monkeypatch.setattr("licclient.dialogs._driver.watchers", [lambda _: closing.start()])  # when it is shown
    assert hands.kit.ask_for_key(client, hands.parent) is None
    closing.join()


def test_closing_a_client_ends_the_call_whose_dialog_waits(hands, client, monkeypatch):
    """Also that of a window that was never shown, because another one was there first."""

    def ask():
        return hands.kit.ask_for_key(client, hands.parent)

    def ask_again(driver):
        driver._deliver(client.close)
        results.append(ask())

    results = []
    monkeypatch.setattr("licclient.dialogs._driver.watchers", [ask_again])
    results.append(ask())
    assert results == [None, None]


def test_a_window_that_is_destroyed_makes_room_for_the_next(hands, client):
    """The app may take its windows away without the dialogs' knowledge."""
    shown = hands.kit.ActivationDialog(client, hands.parent)
    hands.show(shown)
    waiting = hands.kit.ActivationDialog(client, hands.parent)
    hands.show(waiting)
    hands.destroy(shown)
    hands.until(lambda: hands.is_shown(waiting))
    hands.close(waiting)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["asynchronous", "none"])
def test_a_client_that_the_dialogs_cannot_use_is_refused(hands, license_service, client, tmp_path, kind):
    """At once, and with what to do; not when a person has typed a key (D-88)."""
    other = license_service.async_client(SETTINGS) if kind == "asynchronous" else None
    wanted = r"AsyncLicenseClient: create LicenseClient\(client\.settings\)" if other else "not NoneType$"
    license_service.issue("Notes", activated=True)
    license_service.publish("2.0")
    update = client.check_for_update().update
    with pytest.raises(TypeError, match=wanted):
        hands.kit.ask_for_key(other, hands.parent)
    with pytest.raises(TypeError, match=wanted):
        hands.kit.offer_update(other, update, tmp_path, hands.parent)


def test_another_thread_is_refused(hands, client, license_service, tmp_path):
    """Neither toolkit can be used there: it would hang, or end the process."""
    license_service.issue("Notes", activated=True)
    license_service.publish("2.0")
    update = client.check_for_update().update
    client.skip_update(update)  # a window that would not even open
    problems = []

    def call():
        for dialog in (
            lambda: hands.kit.ask_for_key(client, hands.parent),
            lambda: hands.kit.offer_update(client, update, tmp_path, hands.parent),
        ):
            try:
                dialog()
            except RuntimeError as problem:
                problems.append(str(problem))

    thread = threading.Thread(target=call, name="export", daemon=True)
    thread.start()
    thread.join(10)
    assert len(problems) == 2
    for problem in problems:
        assert "'export': create there deliver = to_" in problem


@pytest.mark.parametrize("hands", ["tk"], indirect=True)
def test_a_parent_that_is_no_window_is_refused(hands, client):
    """Tk would give a window of its own first."""
    with pytest.raises(TypeError, match="parent must be a window of Tk"):
        hands.kit.ask_for_key(client, None)


def test_qt_needs_its_application_first():
    """Qt itself would end the process without a traceback."""
    pytest.importorskip("PySide6")
    code = """
from licclient import LicenseClient
from licclient.dialogs.qt import ask_for_key
ask_for_key(LicenseClient("https://licenses.example.com"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        "RuntimeError: dialogs need a QApplication: create it first",
    )
