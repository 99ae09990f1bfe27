"""How an app calls the dialogs, in both toolkits: from where, with what, and what waits for what."""

import subprocess
import sys
import threading

import pytest

from licclient import ClientSettings

pytestmark = pytest.mark.window
SETTINGS = ClientSettings("https://licenses.example.com", product="Notes", slug="notes", version="1.0")


@pytest.fixture
def client(license_service):
    """The client of an app."""
    return license_service.client(SETTINGS)


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["asynchronous", "none"])
def test_a_client_that_the_dialogs_cannot_use_is_refused(hands, license_service, client, tmp_path, kind):
    """At once, and with what to do; not when a person has typed a key (D-88)."""
    other = license_service.async_client(SETTINGS) if kind == "asynchronous" else None
    wanted = r"AsyncLicenseClient: create LicenseClient\(client\.settings\)" if other else "not NoneType$"
    license_service.issue("Notes", activated=True)
    license_service.publish("2.0")
    update = client.check_for_update()
    with pytest.raises(TypeError, match=wanted):
        hands.kit.ask_for_key(other, hands.parent)
    with pytest.raises(TypeError, match=wanted):
        hands.kit.offer_update(other, update, tmp_path, hands.parent)


def test_another_thread_is_refused(hands, client, license_service, tmp_path):
    """Neither toolkit can be used there: it would hang, or end the process."""
    license_service.issue("Notes", activated=True)
    license_service.publish("2.0")
    update = client.check_for_update()
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
        assert "'export': create deliver = to_" in problem


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
