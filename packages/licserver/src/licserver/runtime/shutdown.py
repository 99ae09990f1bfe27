"""Bounds how long a process takes to end.

Python waits without bound for threads and tasks that do not end: for a database that does not answer, a name
that is never resolved, a library that loses its cancellation.
"""

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

END_SECONDS: Final = 15.0
"""Seconds besides those for running requests: idle connections, jobs, statistics, closing the database."""

LAST_SECONDS: Final = 2.0  # for threads and tasks that still run when everything is closed

_REPORT_SECONDS: Final = 1.0  # standard error may be blocked as well
_SAME_SIGNAL: Final = 0.5  # `timeout` and others send one signal twice: to the process, and to its group
_log = logging.getLogger("licserver.serving")


class ProcessEnd:
    """A bounded end of this process, even if threads or tasks do not end."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def begin(self) -> None:
        """Exit with 1 after the seconds, even if tasks are still running, and log those."""
        self._exit_after(self._seconds, 1, f"gave up stopping in order after {self._seconds:g} s")

    def finish(self, code: int) -> None:
        """Exit a moment later, now that everything is closed."""
        self._exit_after(LAST_SECONDS, code, "everything is closed; exiting")

    def _exit_after(self, seconds: float, code: int, why: str) -> None:
        loop = asyncio.get_running_loop()

        def report_and_exit() -> None:
            message = f"{why} without waiting for: {', '.join(describe_running(loop))}"
            _log.log(logging.ERROR if code else logging.WARNING, message)
            os._exit(code)

        _start_timer(seconds, report_and_exit)
        _start_timer(seconds + _REPORT_SECONDS, lambda: os._exit(code))


def _start_timer(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True  # the process may end earlier
    timer.start()


def describe_running(loop: asyncio.AbstractEventLoop) -> list[str]:
    """Name the tasks of a loop and the threads that Python waits for, these with the function they run."""
    frames = sys._current_frames()  # noqa: SLF001 - the standard library's way to see other threads
    threads = [thread for thread in threading.enumerate() if not thread.daemon]
    return [
        *(f"task {_name(task)}" for task in asyncio.all_tasks(loop)),
        *(f"thread {thread.name} in {_own_function(frames.get(thread.ident or 0))}" for thread in threads),
    ]


def _name(task: asyncio.Task[Any]) -> str:
    return getattr(task.get_coro(), "__qualname__", task.get_name())


def _own_function(frame: FrameType | None) -> str:
    """Return the innermost function of this package, else the innermost function."""
    innermost = frame
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.startswith("licserver."):
            return f"{module}.{frame.f_code.co_qualname}"
        frame = frame.f_back
    return "Python" if innermost is None else innermost.f_code.co_qualname


def exit_at_next_signal(before: Callable[[], None] = lambda: None) -> None:
    """Let the next SIGTERM or Ctrl-C call a function and end this process at once."""
    ignored_until = time.monotonic() + _SAME_SIGNAL

    def exit_now(number: int, _frame: FrameType | None) -> None:
        if time.monotonic() > ignored_until:
            before()
            os._exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        # Not a handler of the event loop, which may be blocked.
        with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; a process without a loop
            asyncio.get_running_loop().remove_signal_handler(number)
        signal.signal(number, exit_now)
