"""Run a program of a version, and wait for it: for the launcher."""

import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from licclient._core.environment import clean_environment
from licclient._core.lazy import lazy

if TYPE_CHECKING:
    import ctypes
else:
    ctypes = lazy("ctypes")

_PASSED_ON: Final = ("SIGTERM", "SIGHUP")
_OF_THE_TERMINAL: Final = ("SIGINT", "SIGBREAK")
"""The program gets them from the terminal as well: they must only not end the launcher before it."""

_SIGN: Final = 1 << 31
_SM_SHUTTINGDOWN: Final = 0x2000
_LAST_TO_END: Final = 0x100
"""Windows ends programs with a higher level first; theirs is 0x280."""


@dataclass
class _Watch:
    """The program that is waited for, and what the launcher was asked meanwhile."""

    process: "subprocess.Popen[bytes] | None" = None
    received: list[int] = field(default_factory=list)

    def receive(self, number: int, _: object) -> None:
        self.received.append(number)
        self.pass_on(number)

    def pass_on(self, number: int) -> None:
        if self.process is not None and signal.Signals(number).name in _PASSED_ON:
            self.process.send_signal(number)


def run(path: Path, arguments: Sequence[str]) -> int:
    """Run a program and wait for it: what Windows calls exec keeps neither the console nor the status."""
    with _named_errors(path):
        command, environment = _command(path, arguments), clean_environment()
        return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603 - ours


def run_watched(path: Path, arguments: Sequence[str]) -> tuple[int, bool]:
    """Run a program and wait for it; return its status, and whether it was asked to end through us.

    It behaves as if it had taken this process's place: SIGTERM and SIGHUP are passed on, and what a terminal
    sends reaches both.
    """
    watch = _Watch()
    with _receiving(watch), _named_errors(path):
        _end_last()
        command, environment = _command(path, arguments), clean_environment()
        watch.process = subprocess.Popen(command, env=environment)  # noqa: S603 - ours, and no shell
        for number in list(watch.received):  # before there was a program
            watch.pass_on(number)
        status = watch.process.wait()
    return status, bool(watch.received) or _is_session_ending()


def exit_status(status: int) -> int:
    """Return a status as `sys.exit` takes it: for a signal 128 and its number, as a shell does.

    A crash on Windows, such as 0xC0000005, is an unsigned number that `sys.exit` would make -1 of.
    """
    if status < 0:
        return 128 - status
    return status if status < _SIGN else status - 2 * _SIGN


def _command(path: Path, arguments: Sequence[str]) -> list[str]:
    return [str(_program(path)), *arguments]


def _program(path: Path) -> Path:
    """Return the file to start; `.exe` may have been left out."""
    program = path.with_name(f"{path.name}.exe")
    return program if program.is_file() and not path.is_file() else path


@contextmanager
def _named_errors(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as problem:
        if problem.filename is None:  # Windows' own call names no file
            problem.filename = str(_program(path))
        raise


@contextmanager
def _receiving(watch: _Watch) -> Generator[None]:
    """Receive signals for a block; Python allows that in the main thread alone."""
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for name in (*_PASSED_ON, *_OF_THE_TERMINAL):
            number = getattr(signal, name, None)
            # What the parent ignores, as `nohup` does, the program ignores as well.
            if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, watch.receive)
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:  # of a library that is not Python's
                signal.signal(number, handler)


def _end_last() -> None:
    """Let Windows end the program before the launcher when the session ends: it must see that."""
    if sys.platform == "win32":
        ctypes.windll.kernel32.SetProcessShutdownParameters(_LAST_TO_END, 0)


def _is_session_ending() -> bool:
    if sys.platform == "win32":
        return bool(ctypes.windll.user32.GetSystemMetrics(_SM_SHUTTINGDOWN))
    return False
