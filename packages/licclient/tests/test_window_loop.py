"""Nothing waits for network or keyring in the event loop of an app's windows, in both toolkits."""

import sys
import threading
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
from stage.keyrings import Keyring
from stage.signing import SIGNER, Vendor

from harness.standstill import Standstill
from licclient import LicenseClient, LicenseState, Outage, Source, Trust
from licclient._core.window_loop import is_in_window_loop
from licclient.dialogs._states import Action
from licclient.errors import ServiceUnavailableError

pytestmark = pytest.mark.window
MOST = 0.1 if sys.platform != "win32" else 1.0  # files take longer under wine; a keyring is far slower
"""Seconds for which a window may stand still."""


@pytest.fixture
def in_loop(hands):
    """Run a function in the loop of the windows, as a click does; returns its outcome, and its seconds."""

    def run(work):
        done = []

        def clicked():
            began = time.monotonic()
            try:
                outcome = work()
            except Exception as problem:  # noqa: BLE001 - returned
                outcome = problem
            ended = time.monotonic()
            done.append((outcome, ended - began - standstill.within(began, ended)))

        if hands.kit.__name__.endswith(".tk"):
            hands.parent.after(0, clicked)
            hands.until(lambda: done)
        else:
            from PySide6.QtCore import QEventLoop, QTimer  # noqa: PLC0415 - an extra

            loop = QEventLoop()
            QTimer.singleShot(0, lambda: (clicked(), loop.quit()))
            loop.exec()
        return done[0]

    with Standstill() as standstill:
        yield run


@pytest.fixture
def slow(service, clock, tmp_path):
    """A customer whose license holds no more, and a service that answers when it is let to."""
    opened = threading.Event()
    service.grants()
    script = service.script
    with LicenseClient(
        service.url, product="Notes", storage=tmp_path / "state", clock=clock, timeout=20
    ) as client:
        client.activate("CP-ABC123-DEF456-GHI789-JKL012-MNO345")
        clock.move(days=5)
        service.requests.clear()
        service.script = lambda request: opened.wait(20) and script(request)
        yield SimpleNamespace(client=client, open=opened.set)
        opened.set()


def test_the_loop_is_known(hands, in_loop):
    """It is the loop and its thread that count, and not that there are windows."""
    assert not is_in_window_loop()
    assert in_loop(is_in_window_loop)[0]
    found = []

    def elsewhere():
        thread = threading.Thread(target=lambda: found.append(is_in_window_loop()))
        thread.start()
        thread.join()

    in_loop(elsewhere)
    assert found == [False]


def test_a_click_waits_for_no_network(hands, in_loop, slow, service):
    """The answer is what is known; beside it the service is asked, and the next click has its answer."""
    export = slow.client.licensed(lambda: "exported")
    in_loop(lambda: None)
    problem, seconds = in_loop(export)
    assert isinstance(problem, ServiceUnavailableError)
    assert (problem.outage, seconds < MOST) == (Outage.PENDING, True)
    slow.open()
    hands.until(lambda: in_loop(export)[0] == "exported")
    assert service.count() == 1


def test_the_dialog_checks_the_key_and_goes_on_by_itself(hands, in_loop, slow, service):
    """Opened at once; when the answer is there it closes, and the function runs."""
    shown = []
    dialog = []

    def ask(problem):
        dialog.append(hands.kit.ActivationDialog(slow.client, hands.parent, problem=problem, language="en"))
        if hasattr(dialog[0], "show"):
            dialog[0].show()
        shown.append(problem.outage)

    export = slow.client.licensed(otherwise=ask)(lambda: "exported")
    assert in_loop(export)[0] is None
    hands.dialog = dialog[0]
    hands.until(lambda: hands.message() == "Checking the license key …")
    assert hands.heading() == "License check"
    assert hands.body() == "CP-AB…O345"
    assert hands.buttons() == ["Not now", "Try again"] or hands.buttons() == ["Try again", "Not now"]
    slow.open()
    hands.until(lambda: not hands.is_open())
    assert hands.dialog.license.source in (Source.SERVER, Source.CACHE)
    assert in_loop(export)[0] == "exported"
    assert (service.count(), shown) == (1, [Outage.PENDING])


def test_after_an_outage_try_again_asks_at_once(hands, slow, service):
    """With the key that is there, in the window; another one can be entered."""
    service.script = lambda _: b""
    with pytest.raises(ServiceUnavailableError) as caught:
        slow.client.require()
    before = service.count()
    hands.open(hands.kit.ActivationDialog(slow.client, hands.parent, problem=caught.value, language="en"))
    assert hands.message().startswith("⚠")
    assert sorted(hands.buttons()) == ["Enter another key", "Not now", "Try again"]
    assert service.count() == before
    hands.click(Action.SKIP)
    assert hands.buttons() != []
    assert hands.body() == ""
    assert hands.focus() == "body"


def test_a_click_waits_for_no_keyring(hands, in_loop, service, clock, tmp_path, http_answer, use_keyring):
    """With pinned keys the license key is needed; a keyring that asks for a password holds no loop."""
    ring = use_keyring(Keyring())
    Vendor(service, http_answer, clock, SIGNER).responds()
    options = {"trust": Trust(public_keys=[SIGNER.text]), "storage": tmp_path / "state", "clock": clock}
    with LicenseClient(service.url, **options) as client:
        client.activate("CP-ABC123-DEF456-GHI789-JKL012-MNO345")
    with LicenseClient(service.url, **options) as client:
        opened = ring.stand_open()
        problem, seconds = in_loop(client.require)
        assert problem.outage is Outage.PENDING
        assert seconds < MOST
        status, seconds = in_loop(client.status)
        assert (status.state, seconds < MOST) == (LicenseState.UNCONFIRMED, True)
        opened.set()
        hands.until(lambda: getattr(in_loop(client.require)[0], "source", None) is Source.CACHE)


def test_signing_out_waits_for_no_keyring(in_loop, service, clock, tmp_path, use_keyring, monkeypatch):
    """The key is forgotten at once, and removed when the keyring lets it; a new one stays."""
    ring, opened, deleted = use_keyring(Keyring()), threading.Event(), []
    delete = ring.delete_password

    def delete_slowly(*account: str):
        opened.wait(20)
        deleted.append(1)
        delete(*account)

    service.grants()
    with LicenseClient(service.url, storage=tmp_path / "state", clock=clock) as client:
        client.activate("CP-ABC123-DEF456-GHI789-JKL012-MNO345")
        monkeypatch.setattr(ring, "delete_password", delete_slowly)
        _, seconds = in_loop(client.forget_key)
        assert seconds < MOST
        assert client.status().state is LicenseState.NOT_ACTIVATED
        threading.Timer(0.2, opened.set).start()
        client.activate("CP-ABC123-DEF456-GHI789-JKL012-MNO346")
        assert deleted
        assert ring.licenses == ["CP-ABC123-DEF456-GHI789-JKL012-MNO346"]
        with suppress(ServiceUnavailableError):
            assert client.verify(force=True)
