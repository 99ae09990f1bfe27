"""Run an app with a watch on its event loop: how long its windows stood still, and in which line.

As a program: `python -m harness.loop_watch PROGRAM RECORD [ARGUMENTS…]` runs a program of Tk or Qt. RECORD
gets a line of JSON for each time in which the loop turned too late; `stood_still` returns the app's part.
"""

import json
import runpy
import sys
import threading
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.standstill import Standstill

TURN_SECONDS: Final = 0.005
"""How often the loop is to turn."""

NOTED_SECONDS: Final = 0.03
"""A turn that comes later by so much is noted."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A time in which the loop did not turn.

    Attributes:
        seconds: Without what the machine took: while it stood still, or while its processors were busy.
        at: Where the app's thread was, as the innermost lines of its stack.
    """

    seconds: float
    at: list[str]


def stood_still(record: Path, machine: Standstill) -> list[Stop]:
    """Return the stops of an app that has ended, longest first; `machine` watched meanwhile."""
    stops = []
    for line in record.read_text().splitlines():
        stop = json.loads(line)
        began, ended = stop["began"], stop["ended"]
        taken = max(machine.within(began, ended), stop["queued"])
        stops.append(Stop(max(0.0, ended - began - TURN_SECONDS - taken), stop["at"]))
    return sorted(stops, key=lambda stop: -stop.seconds)


class LoopWatch:
    """Takes note of each turn of a loop, on the windows' thread; another thread looks where it stands."""

    def __init__(self, record: Path) -> None:
        self._record = record.open("w")
        self._thread = threading.get_ident()
        self._at: list[str] = []
        self._turned_at, self._queued = time.monotonic(), _queued_seconds()
        threading.Thread(target=self._look, daemon=True).start()

    def turn(self) -> None:
        """Take note of a turn."""
        now = time.monotonic()
        if now - self._turned_at > TURN_SECONDS + NOTED_SECONDS:
            # Of whichever thread: the windows may wait for another one, such as for its start.
            queued = max(at - self._queued.get(thread, 0.0) for thread, at in _queued_seconds().items())
            stop = {"began": self._turned_at, "ended": now, "queued": queued, "at": self._at}
            self._record.write(json.dumps(stop) + "\n")
            self._record.flush()
        self._at = []
        self._turned_at = time.monotonic()

    def _look(self) -> None:
        while True:
            time.sleep(TURN_SECONDS)
            if time.monotonic() - self._turned_at < TURN_SECONDS:
                self._queued = _queued_seconds()
            elif not self._at and time.monotonic() - self._turned_at > NOTED_SECONDS:
                frame = sys._current_frames().get(self._thread)  # documented
                if frame is not None:
                    lines = traceback.extract_stack(frame)[-8:]
                    self._at = [f"{Path(line.filename).name}:{line.lineno} {line.name}" for line in lines]


def _queued_seconds() -> dict[str, float]:
    """Return for how long each thread was ready to run without a free processor; Linux counts it."""
    queued = {"": 0.0}
    for schedule in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(OSError, IndexError):  # a thread that has ended
            queued[schedule.parent.name] = int(schedule.read_text().split()[1]) / 1e9
    return queued


def _watch_tk(record: Path) -> None:
    import tkinter as tk  # noqa: PLC0415 - the other toolkit may be missing

    mainloop = tk.Misc.mainloop

    def watched(window: tk.Misc, n: int = 0) -> None:
        watch = LoopWatch(record)

        def turn() -> None:
            watch.turn()
            window.after(round(TURN_SECONDS * 1000), turn)

        turn()
        mainloop(window, n)
        watch.turn()  # a loop that ends with its first event after a stop does not turn again

    setattr(tk.Misc, "mainloop", watched)  # noqa: B010 - the app's own loop is what is watched


def _watch_qt(record: Path) -> None:
    from PySide6.QtCore import Qt, QTimer  # noqa: PLC0415 - the other toolkit may be missing
    from PySide6.QtWidgets import QApplication  # noqa: PLC0415 - as above

    run: Any = QApplication.exec

    def watched(*_: object) -> int:
        watch, timer = LoopWatch(record), QTimer()
        timer.setTimerType(Qt.TimerType.PreciseTimer)
        timer.timeout.connect(watch.turn)
        timer.start(round(TURN_SECONDS * 1000))
        status = int(run())
        watch.turn()  # as above
        return status

    setattr(QApplication, "exec", watched)  # noqa: B010 - as above


def main(program: str, record: str, *arguments: str) -> None:
    """Run a program under watch."""
    (_watch_tk if program.endswith("_tk.py") else _watch_qt)(Path(record))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
