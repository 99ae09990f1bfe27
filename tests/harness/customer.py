"""Somebody in front of one of the programs in `examples`, with real keys and a real mouse."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Self

from harness.programs import environment
from harness.screen import Screen, without
from harness.sockets import Cable
from harness.world import Server
from licclient._core.texts import text_of

EXAMPLES = Path(str(files("licserver") / "deploy_files" / "examples"))
SLUG, NAME = "demo-notes", "Demo Notes"

PRODUCT: dict[str, Any] = {
    "slug": SLUG,
    "name": NAME,
    "environment": "domain",
    "support_policy": False,
    "releases": [
        {
            "version": "1.1.0",
            "published_at": "2026-11-05T08:30:00Z",
            "changelog": "<ul><li>Export to PDF, with pictures.</li>"
            "<li>Search is ten times faster in long notes.</li>"
            "<li>Notes that were closed by accident can be opened again: Ctrl-Shift-T.</li></ul>",
            "size": 4 << 20,
        }
    ],
}


def example(program: str) -> list[str]:
    """Say how a reader starts an example, `tk` or `qt`; ends the test where its toolkit is not there."""
    module = {"tk": "tkinter", "qt": "PySide6.QtWidgets"}[program]
    found = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False)
    if found.returncode:
        without(f"{module} cannot be imported: {found.stderr.decode().splitlines()[-1]}")
    return [sys.executable, str(EXAMPLES / f"notes_{program}.py")]


@contextmanager
def running(
    command: Sequence[str], language: str, server: str, screen: Screen, home: Path, **environ: str
) -> Iterator[Path]:
    """Run an example for a block and yield the app's folder; it must exit without an error."""
    folder = home / "work"
    folder.mkdir(parents=True)
    more = {"LANGUAGE": language, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring", **screen.environ}
    process = subprocess.Popen(
        [*command, "--server", server, "--folder", str(folder)],
        env=environment(home, **more, **environ),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield folder
        screen.wait_for(NAME)
        screen.press("alt+F4")
        process.wait(20)
    finally:
        process.terminate()  # and no kill: a one-file app is two processes, and the first hands this on
        errors = process.communicate(timeout=10)[1]
    assert process.returncode == 0, errors
    assert "Traceback" not in errors, errors


def eventually(holds: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


class Customer:
    """Use an example on the screen; `look` is called with each window and its name."""

    def __init__(self, screen: Screen, server: Server, look: Callable[[str, str], None]) -> None:
        self.screen, self.server, self.look = screen, server, look

    def in_language(self, program: str, language: str, work: Path) -> Self:
        """Sit down in front of one of them."""
        self.suffix, self.work = f"{program}-{language}", work
        self.activation = text_of("activation.title", language, NAME)
        self.activated = text_of("activation.done_title", language, NAME)
        self.update = text_of("update.title", language)
        return self

    def is_refused(self, key: str) -> None:
        """Write something, export it, enter a revoked key; nothing is exported."""
        screen = self.screen
        screen.click(screen.wait_for(NAME), 300, 250)
        screen.write("Typed by hand. ")
        screen.press("alt+e")
        dialog = screen.wait_for(self.activation)
        screen.write(key.lower())
        screen.press("Return")
        eventually(lambda: self.server.verifies == 1)
        time.sleep(0.5)
        self.look(dialog, f"activation-{self.suffix}")
        assert list(self.work.iterdir()) == []

    def activates(self, key: str) -> None:
        """Empty the field, enter a good key; skip the offer that comes after it, and find the export done."""
        screen = self.screen
        screen.wait_for(self.activation)
        screen.press("ctrl+a")
        screen.write(key.lower().replace("-", " "))
        screen.press("Return")
        eventually(lambda: self.server.verifies == 2)
        time.sleep(1)  # the worker checks for updates with the new key meanwhile
        screen.wait_for(self.activated)
        assert not screen.windows(self.update), "one window at a time"
        screen.press("Return")
        screen.wait_until_gone(self.activated)
        self.look(screen.wait_for(self.update), f"update-{self.suffix}")
        screen.press("alt+s")
        screen.wait_until_gone(self.update)
        exported = self.work / "notes.html"
        eventually(exported.exists)
        assert "Typed by hand." in exported.read_text(encoding="utf-8")

    def updates(self, cable: Cable) -> None:
        """Ask for updates, which shows a skipped one too; stop the download, go on, and have it."""
        screen = self.screen
        cable.pause = 0.1
        screen.wait_for(NAME)
        screen.press("alt+u")
        offered = screen.wait_for(self.update)
        screen.press("Return")
        eventually(lambda: self.server.downloads)
        time.sleep(2)
        self.look(offered, f"download-{self.suffix}")
        assert self.downloaded() == []
        screen.press("Escape")
        time.sleep(0.7)
        cable.pause = 0.0
        assert screen.windows(self.update), "Escape stops the download, and does not close the window"
        screen.press("Return")
        eventually(self.downloaded)
        assert self.server.ranges[0] is None
        assert self.server.ranges[-1] is not None, "it went on where it was stopped"
        eventually(self.is_dismissed)
        self.look(screen.wait_for(NAME), f"notes-{self.suffix}")

    def is_dismissed(self) -> bool:
        """Press Return, which the window heeds when it says that the file is there, until it is gone."""
        if not self.screen.windows(self.update):
            return True
        self.screen.press("Return")
        time.sleep(0.5)  # or the next one would be for the window behind it
        return False

    def downloaded(self) -> list[Path]:
        """The files that have arrived."""
        return [path for path in self.work.iterdir() if path.suffix == ".zip"]
