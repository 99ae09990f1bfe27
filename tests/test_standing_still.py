"""Both examples beside a server that hangs, is slow, resets or lies: how long do their windows stand still?

`pytest -m '' tests/test_standing_still.py -rP` prints the figures.
"""

import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from harness.customer import NAME, SLUG, eventually, example, running
from harness.loop_watch import Stop, stood_still
from harness.screen import Screen
from harness.standstill import Standstill
from licclient import ClientSettings, LicenseClient
from licclient._core.texts import text_of
from licclient.testing import LicenseClock, LicenseService

pytestmark = [pytest.mark.window, pytest.mark.slow]

MOST_SECONDS = 0.1
"""For so long may a click keep the windows from moving (issue 33)."""

MOST_RUNS = 3

ASKED_SECONDS = 0.4
"""For so long the windows are watched after each click, while the server is asked."""

ACTIVATION = text_of("activation.title", "en", NAME)
CHECK = text_of("activation.check_title", "en")

LIE = b'{"valid": "true", "product": ["Demo Notes"], "expiry": 0, "version": 2, "download_url": "file:///"}'


def _hang(line: socket.socket, over: threading.Event) -> None:
    over.wait(60)


def _slow(line: socket.socket, over: threading.Event) -> None:
    line.recv(65536)
    for letter in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"{" * 100_000:
        line.sendall(bytes([letter]))
        if over.wait(0.2):
            return


def _reset(line: socket.socket, _: threading.Event) -> None:
    line.recv(65536)
    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # closing sends a reset


def _lie(line: socket.socket, _: threading.Event) -> None:
    line.recv(65536)
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(LIE)}\r\n\r\n"
    line.sendall(head.encode() + LIE)


SERVERS: dict[str, Callable[[socket.socket, threading.Event], None]] = {
    "hanging": _hang,
    "slow": _slow,
    "resetting": _reset,
    "lying": _lie,
}


@contextmanager
def _serving(behave: Callable[[socket.socket, threading.Event], None]) -> Iterator[str]:
    """Accept connections for a block, and do with each what the server does; yield its address."""
    over = threading.Event()

    def talk(line: socket.socket) -> None:
        with line, suppress(OSError):
            behave(line, over)

    def accept() -> None:
        with suppress(OSError):
            while True:
                line, _ = listener.accept()
                threading.Thread(target=talk, args=(line,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(5)


def _activate(server: str, state: Path, ago: timedelta) -> None:
    """Activate the app on its computer, so long ago."""
    with LicenseService(LicenseClock(datetime.now(UTC) - ago)) as service:
        settings = ClientSettings(server, product=NAME, slug=SLUG, version="1.0.0", storage=state)
        with LicenseClient(settings, transport=service.transport, clock=service.clock) as client:
            client.activate(service.issue(NAME, slug=SLUG))


def _use(screen: Screen, dialog: str | None) -> None:
    """Click on everything that may ask the server, and go on clicking while it is asked.

    `dialog` is what an export opens; None if it is done.
    """
    screen.wait_for(NAME)
    for letter in "eue":  # export, check for updates, export
        screen.press(f"alt+{letter}")
        if letter == "e" and dialog is not None:
            screen.wait_for(dialog)
        time.sleep(ASKED_SECONDS)
        _leave_dialogs(screen)
    screen.press("alt+k")
    for title in (ACTIVATION, CHECK):
        if screen.windows(title):
            screen.wait_for(title)
    screen.write("CP-ABC123-DEF456-GHI789-JKL012-MNO345")
    screen.press("Return")
    time.sleep(ASKED_SECONDS)
    _leave_dialogs(screen)
    screen.click(screen.wait_for(NAME), 300, 250)
    screen.write("Typed while the service is asked.")
    time.sleep(ASKED_SECONDS)


def _leave_dialogs(screen: Screen) -> None:
    def is_left() -> bool:
        if not any(screen.windows(title) for title in (ACTIVATION, CHECK)):
            return True
        screen.press("Escape")
        time.sleep(0.3)
        return False

    eventually(is_left)


@pytest.mark.parametrize("ago", [None, timedelta(hours=30), timedelta(days=9)], ids=["new", "grace", "over"])
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("program", ["tk", "qt"])
def test_no_click_waits_for_the_server(
    program: str, server: str, ago: timedelta | None, screen: Screen, tmp_path: Path
) -> None:
    """Without a key, in the grace period, and after it: each click on each button, with the real windows.

    A click that waits for the server does so in each run; the machine's own stops are elsewhere each time.
    """
    longest: list[Stop] = []
    for run in range(MOST_RUNS):
        stops = _stops(program, server, ago, screen, tmp_path / str(run))
        longest.append(max(stops, key=lambda stop: stop.seconds, default=Stop(0.0, [])))
        milliseconds = longest[-1].seconds * 1000
        sys.stdout.write(f"{program} beside a {server} server: still for at most {milliseconds:.0f} ms\n")
        if longest[-1].seconds <= MOST_SECONDS:
            return
    pytest.fail(f"The windows stood still in each run: {longest}")


def _stops(program: str, server: str, ago: timedelta | None, screen: Screen, folder: Path) -> list[Stop]:
    """Use the app once; return when its windows stood still."""
    record, state = folder / "stops", folder / "state"
    folder.mkdir()
    python, path = example(program)
    command = [python, "-m", "harness.loop_watch", path, str(record), "--state-dir", str(state)]
    with Standstill() as machine, _serving(SERVERS[server]) as url:
        if ago is not None:
            _activate(url, state, ago)
        with running(command, "en", url, screen, folder / "home", PYTHONPATH=":".join(sys.path)) as work:
            _use(screen, {None: ACTIVATION, timedelta(days=9): CHECK}.get(ago))
        assert (work / "notes.html").exists() is (ago == timedelta(hours=30))
        return stood_still(record, machine)
