"""What other apps' windows met: grabs, parents that go away."""

from pathlib import Path

import pytest

from harness.hands import QtHands, TkHands
from licclient import LicenseClient

pytestmark = pytest.mark.window


@pytest.fixture
def client(tmp_path: Path) -> LicenseClient:
    """A client without a key."""
    return LicenseClient("https://licenses.example.com", product="Notes", storage=tmp_path)


def test_robotframework_robotframework_2460(hands: TkHands | QtHands, client: LicenseClient) -> None:
    """A menu is open when a dialog comes up by itself: it opens, and has the grab later."""
    if not isinstance(hands, TkHands):
        pytest.skip("Qt takes no grab of the screen for a dialog")
    from tkinter import TclError  # noqa: PLC0415 - not every Python has it

    dialog = hands.kit.ActivationDialog(client, hands.parent, language="en")
    tried: list[int] = []
    real = dialog.grab_set

    def grab_set() -> None:
        tried.append(1)
        if len(tried) < 3:
            raise TclError("grab failed: another application has grab")
        real()
        hands.parent.after(50, dialog.destroy)

    dialog.grab_set = grab_set
    assert dialog.run() is None
    assert len(tried) == 3


def test_limafresh_brushshe_10(hands: TkHands | QtHands, client: LicenseClient) -> None:
    """The app's window is minimized or hidden when its worker asks for a key: the dialog is shown."""
    hide = hands.parent.withdraw if isinstance(hands, TkHands) else hands.parent.hide
    hide()
    hands.turn()
    dialog = hands.kit.ActivationDialog(client, hands.parent, language="en")
    hands.show(dialog)
    hands.until(lambda: hands.is_shown(dialog))
    hands.close(dialog)


def test_aotuai_brainframe_qt_69(hands: TkHands | QtHands, client: LicenseClient) -> None:
    """The window behind an open dialog is destroyed: the dialog ends without a license."""
    dialog = hands.kit.ActivationDialog(client, hands.parent, language="en")
    parent, hands.parent = hands.parent, None
    if isinstance(hands, TkHands):
        parent.after(200, parent.destroy)
    else:
        hands.core.QTimer.singleShot(200, parent.deleteLater)
    assert dialog.run() is None
