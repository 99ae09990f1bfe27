"""A screen that nobody sees: Xvfb with a window manager, for tests that use windows like people do."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

REQUIRED = "LICENSING_SCREEN"
"""Set to `required`, as CI does: a machine without what the windows need fails instead of skipping."""

_PROGRAMS = ("Xvfb", "openbox", "xdotool")
_PHOTOGRAPH = """
import sys
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication
where, x, y, width, height = sys.argv[1], *map(int, sys.argv[2:])
app = QApplication([])
seen = app.primaryScreen().grabWindow(0, x, y, width, height).toImage()
seen.convertToFormat(QImage.Format.Format_RGB888).save(where, quality=0)
"""


def without(what: str) -> None:
    """End the test that needs something which is not there: loudly where it has to be."""
    if os.environ.get(REQUIRED) == "required":
        pytest.fail(f"{what} ({REQUIRED}=required)")
    pytest.skip(what)


class Screen:
    """A virtual screen, used as a person would, by `xdotool`."""

    def __init__(self, display: str) -> None:
        self.display = display
        self.environ = {"DISPLAY": display, "QT_QPA_PLATFORM": "xcb"}

    def do(self, *words: str) -> str:
        """Run `xdotool`; returns what it prints."""
        if sys.platform == "win32":
            without("xdotool is for X11: there is nothing that presses keys on Windows")
        done = subprocess.run(
            ["xdotool", *words],
            env={**os.environ, "DISPLAY": self.display},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        return done.stdout.strip()

    def windows(self, title: str) -> list[str]:
        """The visible windows whose title this is."""
        return self.do("search", "--onlyvisible", "--name", f"^{title}$").split()

    def wait_for(self, title: str, seconds: float = 20) -> str:
        """Wait until a window has come up and has the keyboard; returns its id."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.do("getactivewindow", "getwindowname") == title:
                time.sleep(0.3)  # drawn, and not in the middle of it
                return self.do("getactivewindow")
            time.sleep(0.05)
        raise AssertionError(f"there is no window {title!r}, but {self.titles()}")

    def wait_until_gone(self, title: str, seconds: float = 20) -> None:
        """Wait until a window has been closed."""
        until = time.monotonic() + seconds
        while self.windows(title):
            assert time.monotonic() < until, f"{title!r} is still there"
            time.sleep(0.05)

    def titles(self) -> list[str]:
        """What is open."""
        ids = self.do("search", "--onlyvisible", "--name", ".").split()
        return [self.do("getwindowname", window) for window in ids]

    def press(self, *keys: str) -> None:
        """Press keys, one after the other, as `Return` or `alt+a`."""
        self.do("key", "--delay", "20", *keys)

    def write(self, text: str) -> None:
        """Type a text."""
        self.do("type", "--delay", "5", text)

    def click(self, window: str, x: int, y: int) -> None:
        """Click into a window; negative places count from its right and its lower edge."""
        geometry = self.place(window)
        x, y = x % geometry["WIDTH"], y % geometry["HEIGHT"]
        self.do("mousemove", "--window", window, str(x), str(y), "click", "1")

    def place(self, window: str) -> dict[str, int]:
        """Where a window is: X, Y, WIDTH, HEIGHT, without its frame."""
        lines = self.do("getwindowgeometry", "--shell", window).splitlines()
        fields = dict(line.split("=", 1) for line in lines if "=" in line)
        return {name: int(fields[name]) for name in ("X", "Y", "WIDTH", "HEIGHT")}

    def photograph(self, window: str, file: Path) -> None:
        """Take a picture of a window with its frame, as an optimised PNG."""
        self.do("mousemove", "1", "1")
        time.sleep(0.2)
        geometry = self.place(window)
        # xdotool counts the frame twice; this is openbox's.
        where = (geometry["X"] - 2, geometry["Y"] - 40, geometry["WIDTH"] + 2, geometry["HEIGHT"] + 24)
        subprocess.run(
            [sys.executable, "-c", _PHOTOGRAPH, str(file), *map(str, where)],
            env={**os.environ, **self.environ},
            check=True,
            timeout=60,
        )


@contextmanager
def virtual_screen(home: Path) -> Iterator[Screen]:
    """Put up a screen with a window manager, whose home folder is empty, for a block."""
    read, write = os.pipe()
    server = subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1000x760x24", "-nolisten", "tcp", "-noreset"],
        pass_fds=[write],
        stderr=subprocess.DEVNULL,
    )
    os.close(write)
    with os.fdopen(read) as pipe:
        display = f":{pipe.readline().strip()}"
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "DISPLAY": display}
    manager = subprocess.Popen(["openbox"], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield Screen(display)
    finally:
        for process in (manager, server):
            process.terminate()
            process.wait(10)


@pytest.fixture(scope="session")
def screen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Screen]:
    """A virtual screen, put up once a run; on Windows its desktop, which opens windows by itself."""
    if sys.platform == "win32":
        yield Screen("")
        return
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        without(f"there is no virtual screen: {', '.join(missing)} not found (apt: xvfb openbox xdotool)")
    with virtual_screen(tmp_path_factory.mktemp("screen")) as screen:
        yield screen
