"""Ctrl-C in the terminal of a program whose dialog is open."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

pytestmark = [
    pytest.mark.window,
    pytest.mark.skipif(sys.platform == "win32", reason="a test cannot press Ctrl-C in another console"),
]

TK = """
import signal, sys, threading, tkinter
from licclient import LicenseClient
from licclient.dialogs.tk import ask_for_key

root = tkinter.Tk()
client = LicenseClient("https://store.example", product="Notes", storage=sys.argv[1])
if "own" in sys.argv:
    signal.signal(signal.SIGINT, lambda *_: print("own handler", flush=True) or root.destroy())

def click():
    root.after(500, lambda: print("open", flush=True))
    try:
        ask_for_key(client, root)
    finally:
        print("closed", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)

if "button" in sys.argv:
    root.after(1, click)
    root.mainloop()
else:
    click()
print("went on")
"""


QT = """
import signal, sys
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QWidget
from licclient import LicenseClient
from licclient.dialogs.qt import ask_for_key

app = QApplication([])
window = QWidget()
window.show()
client = LicenseClient("https://store.example", product="Notes", storage=sys.argv[1])
if "own" in sys.argv:
    signal.signal(signal.SIGINT, lambda *_: print("own handler", flush=True) or window.deleteLater())

def click():
    QTimer.singleShot(500, lambda: print("open", flush=True))
    try:
        ask_for_key(client, window)
    finally:
        print("closed", signal.getsignal(signal.SIGINT) is signal.default_int_handler, flush=True)

if "button" in sys.argv:
    QTimer.singleShot(1, click)
    app.exec()
else:
    click()
print("went on")
"""

PROGRAMS = {"tk": TK, "qt": QT}


@pytest.fixture(params=PROGRAMS)
def toolkit(request):
    """Each toolkit."""
    return request.param


@contextmanager
def program(toolkit, screen, folder, option="plain"):
    """Run a program whose dialog is open when the block begins."""
    environment = {**os.environ, "DISPLAY": screen.display}
    command = [sys.executable, "-c", PROGRAMS[toolkit], str(folder), option]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(command, env=environment, **pipes)
    try:
        assert process.stdout.readline() == "open\n"
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("opened_by", ["the program", "button"])
def test_ctrl_c_ends_the_program(toolkit, screen, tmp_path, opened_by):
    """Also if a button of the app has opened it: toolkits print what their callbacks raise, and go on."""
    with program(toolkit, screen, tmp_path, opened_by) as process:
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=10)
    assert (output, errors, process.returncode) == ("closed True\n", "", 130)


def test_a_handler_of_the_app_stays_its_own(toolkit, screen, tmp_path):
    """It runs although no event comes, and what it does is its own affair."""
    with program(toolkit, screen, tmp_path, "own") as process:
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=10)
    assert output == "own handler\nclosed False\nwent on\n"
