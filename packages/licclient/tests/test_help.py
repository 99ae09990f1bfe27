"""What a developer has who knows only `help(licclient)`."""

import os
import pydoc
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import licclient
from licclient import LicenseClient, dialogs, install, testing, types

PROGRAM, WINDOWS = (
    textwrap.dedent(block) for block in re.findall(r"::\n\n((?:(?: {4}.*)?\n)+)", licclient.__doc__ or "")
)

SYSTEM = {name: value for name, value in os.environ.items() if name == "SYSTEMROOT"}
"""Without it no Python starts on Windows; other systems have none."""

STAND_IN = """
import tkinter
from pathlib import Path
from licclient.testing import LicenseService, answer_dialog

service = LicenseService()
service.attach(client)
key = service.issue("Notes Pro", slug="notes-pro")
run_windows = tkinter.Tk.mainloop

def press():
    try:
        with answer_dialog("Activate", "Close", key=key):
            window.winfo_children()[0].invoke()
        service.publish("1.5.0")
        with answer_dialog("Download", "Continue"):
            offer(client.check_for_update(force=True).update)
        print(*Path("downloads").iterdir())
    finally:
        window.destroy()

def mainloop(window):
    window.after(1, press)
    run_windows(window)

tkinter.Tk.mainloop = mainloop
"""


def test_the_program_runs_as_it_stands_there(tmp_path):
    """Copied into a file: a gated feature and a downloaded update, without a server."""
    path = tmp_path / "notes.py"
    path.write_text(PROGRAM, encoding="utf-8")
    home = SYSTEM | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "LANG": "en", "PATH": ""}
    done = subprocess.run(
        [sys.executable, path], cwd=tmp_path, env=home, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    exported, offered, downloaded = done.stdout.splitlines()
    assert (exported, offered) == ("exported", "Notes Pro 1.5.0 is available.")
    assert (tmp_path / downloaded).is_file()
    assert {entry.name for entry in tmp_path.iterdir()} == {"notes.py", "downloads"}, "no state of a real app"


@pytest.mark.window
def test_the_windows_open_as_they_stand_there(screen, tmp_path):
    """With a key typed into the dialog the button's function runs, and the update is offered."""
    code = PROGRAM.partition("if __name__")[0] + STAND_IN + WINDOWS
    environment = SYSTEM | {"HOME": str(tmp_path), "DISPLAY": screen.display, "LANG": "en"}
    options = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "timeout": 30}
    done = subprocess.run([sys.executable, "-c", code], **options, check=False)
    assert done.stderr == ""
    exported, downloaded = done.stdout.splitlines()
    assert (exported, Path(downloaded)) == ("exported", Path("downloads", "app-1.5.0.zip"))


@pytest.mark.parametrize(
    "module",
    [licclient, licclient.errors, types, testing, install, dialogs],
    ids=lambda module: module.__name__,
)
def test_no_public_help_cites_a_decision_of_ours(module):
    """`help` is for developers of apps: an id leads them nowhere."""
    public = [module, *(getattr(module, name) for name in module.__all__)]
    texts = [pydoc.plaintext.document(thing) for thing in public]
    assert [line for text in texts for line in text.splitlines() if re.search(r"\bD-\d", line)] == []


def test_the_client_lists_its_methods_by_purpose():
    """A public method that the list leaves out is found by nobody."""
    doc = LicenseClient.__doc__ or ""
    public = {name for name in dir(LicenseClient) if not name.startswith("_")}
    named = set(re.findall(r"`(?:@client\.)?(\w+)", doc.partition("Args:")[0]))
    features = {name for name in public if f"client.{name}" in (getattr(LicenseClient, name).__doc__ or "")}
    assert public - named - features == {"settings"}, "what the app itself has passed"
