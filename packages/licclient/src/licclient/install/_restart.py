"""Open the app again as soon as this process has ended.

A shell waits for the end of a pipe that only this process holds: no process id is looked at, which another
program could have meanwhile.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from licclient._core.environment import clean_environment

_SYSTEM: str = sys.platform  # with any value for mypy

_WAIT: Final = 'read -r _; exec "$@" </dev/null'

# Names are in variables, so that none is read as a command. The pause is that of `_windows_setups`: within it
# a session that ends takes the shell along, and does not open the app.
_ON_WINDOWS: Final = (
    '"{}" /d /v:off /s /c "set /p licclient_line=& ping -n 3 127.0.0.1 >nul'
    ' & start "" /d "%LICCLIENT_START%" "%LICCLIENT_PROGRAM%""'
)

# By number: the constants exist on Windows only.
_DETACHED: Final = 0x08000000 | 0x00000200  # CREATE_NO_WINDOW, CREATE_NEW_PROCESS_GROUP
_BREAKAWAY: Final = 0x01000000  # CREATE_BREAKAWAY_FROM_JOB

_held: Final[dict[tuple[str, ...], object]] = {}
"""Command → its end of a pipe, which stays open as long as this process lives; children do not inherit it."""


def _release() -> None:
    """Close the pipes in a process that was forked off: it may live on, and the app would not open."""
    for end in _held.values():
        if isinstance(end, int):
            os.close(end)
    _held.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_release)


def start_after_end(command: Sequence[str], folder: Path | None, environment: Mapping[str, str]) -> None:
    """Have a command started when this process has ended; raise `OSError` if that cannot be arranged.

    On Windows it is a program without arguments. A command that waits already is not started twice.
    """
    if tuple(command) in _held:  # the update was installed once more, such as by another click
        return
    if _SYSTEM == "win32":
        [program] = command
        values = {"LICCLIENT_PROGRAM": program, "LICCLIENT_START": str(folder or Path(program).parent)}
        shell = command_shell()
        _held[(program,)] = spawn_on_windows(
            _ON_WINDOWS.format(shell), {**environment, **values}, folder, subprocess.PIPE
        )
        return
    read_end, write_end = os.pipe()
    try:
        quiet = subprocess.DEVNULL
        subprocess.Popen(  # noqa: S603 - ours, and the shell gets it as arguments
            ["/bin/sh", "-c", _WAIT, "sh", *command],
            stdin=read_end,
            stdout=quiet,
            stderr=quiet,
            cwd=folder,
            env=environment,
            start_new_session=True,  # a terminal that is closed with the app must not end it
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    _held[tuple(command)] = write_end


def command_shell() -> Path:
    """Return the shell of Windows."""
    return Path(os.environ.get("SYSTEMROOT", r"C:\Windows")) / "System32" / "cmd.exe"


def spawn_on_windows(
    command: str, environment: Mapping[str, str], folder: Path | None, stdin: int = subprocess.DEVNULL
) -> "subprocess.Popen[bytes]":
    """Start a process that outlives this one, and has no window; raise `OSError` if that fails."""
    quiet = subprocess.DEVNULL

    def spawn(flags: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(  # noqa: S603 - ours
            command,
            stdin=stdin,
            stdout=quiet,
            stderr=quiet,
            cwd=folder,
            env=environment,
            creationflags=_DETACHED | flags,
        )

    try:
        return spawn(_BREAKAWAY)
    except PermissionError:  # some jobs let nothing leave
        return spawn(0)


def own_environment() -> dict[str, str]:
    """Return the environment that the app is opened with again: without what its bundle put into ours."""
    return clean_environment()


def starting_folder() -> Path | None:
    """Return the folder that a person started the app in; None if it is gone."""
    folders = [os.environ.get("OWD", "")]
    with suppress(OSError):  # the working folder was removed, or may not be read
        folders.append(os.getcwd())  # noqa: PTH109 - a text
    return next((Path(folder) for folder in folders if folder and Path(folder).is_dir()), None)
