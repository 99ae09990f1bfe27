"""The programs in `examples`, started as a reader starts them, and used with real keys and a real mouse.

With `LICENSING_PICTURES=docs/images` the pictures of the documentation are taken anew.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest

from harness.engines import sqlite_only
from harness.programs import environment
from harness.screen import Screen, without
from harness.sockets import Cable
from harness.world import Server, World
from licclient._dialogs.words import say

EXAMPLES = Path(__file__).parents[1] / "examples"
BIGGEST_PICTURE = 100_000
NAME = "Demo Notes"


@contextmanager
def running(program: str, language: str, server: str, screen: Screen, home: Path) -> Iterator[Path]:
    """Run an example for a block; it must end in order, and complain of nothing.

    Yields:
        The folder of the app.
    """
    module = {"tk": "tkinter", "qt": "PySide6.QtWidgets"}[program]
    found = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, check=False)
    if found.returncode:
        without(f"{module} cannot be imported: {found.stderr.decode().splitlines()[-1]}")
    folder = home / "work"
    folder.mkdir(parents=True)
    more = {"LANGUAGE": language, "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring", **screen.environ}
    process = subprocess.Popen(
        [sys.executable, str(EXAMPLES / f"notes_{program}.py"), "--server", server, "--folder", str(folder)],
        env=environment(home, **more),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield folder
        screen.wait_for(NAME)
        screen.press("alt+F4")
        said = process.communicate(timeout=20)[1]
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in said, said


def eventually(holds: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something holds."""
    until = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def photograph(screen: Screen, tmp_path: Path) -> Callable[[str, str], None]:
    """Takes pictures for the documentation, and looks whether there is anything on them."""
    folder = Path(os.environ.get("LICENSING_PICTURES") or tmp_path)

    def take(window: str, name: str) -> None:
        file = folder / f"{name}.png"
        screen.photograph(window, file)
        taken = file.read_bytes()
        assert taken.startswith(b"\x89PNG")
        assert 2_000 < len(taken) < BIGGEST_PICTURE, len(taken)

    return take


PRODUCT: dict[str, Any] = {
    "slug": "demo-notes",
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


class Customer:
    """Somebody with an example on the screen.

    Attributes:
        activation, update: The titles of the dialogs, in the customer's language.
        work: The folder of the app.
    """

    def __init__(
        self, screen: Screen, server: Server, cable: Cable, look: Callable[[str, str], None]
    ) -> None:
        self.screen, self.server, self.cable, self.look = screen, server, cable, look

    def in_language(self, program: str, language: str, work: Path) -> Self:
        """Sit down in front of one of them."""
        self.suffix, self.work = f"{program}-{language}", work
        self.activation = say("activation.title", language, NAME)
        self.update = say("update.title", language)
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
        """Empty the field, enter a good key; skip the offer that comes with it, and find the export done."""
        screen = self.screen
        screen.wait_for(self.activation)
        screen.press(*["BackSpace"] * len(key))
        screen.write(key.lower().replace("-", " "))
        screen.press("Return")
        eventually(lambda: self.server.verifies == 2)
        offered = screen.wait_for(self.update)  # the worker looked for updates with the new key
        self.look(offered, f"update-{self.suffix}")
        screen.press("alt+s")
        screen.wait_until_gone(self.update)
        screen.wait_for(self.activation)
        screen.press("Return")
        screen.wait_until_gone(self.activation)
        exported = self.work / "notes.html"
        eventually(exported.exists)
        assert "Typed by hand." in exported.read_text(encoding="utf-8")

    def updates(self) -> None:
        """Ask for updates, which shows a skipped one too; stop the download, go on, and have it."""
        screen = self.screen
        self.cable.pause = 0.02
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
        self.cable.pause = 0.0
        assert screen.windows(self.update), "Escape stops the download, and does not close the window"
        screen.press("Return")
        eventually(self.downloaded)
        assert self.server.ranges[0] is None
        assert self.server.ranges[-1] is not None, "it went on where it was stopped"
        time.sleep(0.3)
        screen.press("Return")
        screen.wait_until_gone(self.update)
        self.look(screen.wait_for(NAME), f"notes-{self.suffix}")

    def downloaded(self) -> list[Path]:
        """The files that have arrived."""
        return [path for path in self.work.iterdir() if path.suffix == ".zip"]


@pytest.mark.parametrize(("program", "language"), [("tk", "en"), ("qt", "ja")])
@sqlite_only
def test_a_customer_activates_exports_and_updates(
    program: str,
    language: str,
    world: World,
    screen: Screen,
    photograph: Callable[[str, str], None],
    tmp_path: Path,
) -> None:
    """A refusal, a good key and the export it unlocks; an update skipped, asked for, stopped, and had."""
    world.stock({"products": [PRODUCT], "licenses": []})
    revoked, good = world.new_key("demo-notes", revoked=True), world.new_key("demo-notes")
    with (
        world.serving() as server,
        Cable(server.port).plugged() as cable,
        running(program, language, cable.url, screen, tmp_path / "home") as work,
    ):
        customer = Customer(screen, server, cable, photograph).in_language(program, language, work)
        customer.is_refused(revoked)
        customer.activates(good)
        customer.updates()
        (file,) = customer.downloaded()
    assert file.read_bytes() == world.files["1.1.0"]


@pytest.mark.parametrize("program", ["notes_tk.py", "notes_qt.py"])
def test_the_examples_are_short(program: str) -> None:
    """Something that is read in one sitting."""
    assert len((EXAMPLES / program).read_text(encoding="utf-8").splitlines()) < 150
