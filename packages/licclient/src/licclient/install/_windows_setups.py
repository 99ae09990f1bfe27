"""Run a set-up of Windows after the app has ended, and open the app again (D-352).

A script waits for the end of this process, runs the set-up within a time limit, notes its exit code, and
opens the app: the old or the new version, whatever came of it. It is text without any path: all paths are
variables of its environment, so that no name of a folder is read as a command.
"""

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.clock import real_clock, uptime
from licclient._core.environment import clean_environment
from licclient._core.storage import look_at, read_with_retries
from licclient._updates.attempts import CODE
from licclient.install._restart import command_shell, spawn_on_windows
from licclient.install._setup_commands import escape_for_script, file_name, is_setup, setup_command
from licclient.install._verified import copy_verified

if TYPE_CHECKING:
    from licclient._core.kinds import InstallationKind
    from licclient._core.update_model import Downloaded

SETUP_SECONDS: Final = 900
"""How long a set-up may take; then it is stopped, and the app is opened again."""

QUIT_SECONDS: Final = 120
"""How long the end of the app is waited for; a person may not want to close it after all."""

_SCRIPT_NAME: Final = "update.cmd"
_SCRIPT: Final = rf".\{_SCRIPT_NAME}"
_HELD: Final = "running"

# Windows removes no open file, and this process holds one: when it can be removed, the app has ended. The
# pause after it keeps a set-up from beginning while Windows shuts down, which ends the script within it. The
# part of a set-up of Inno Setup that installs is another program, whose name ends with `.tmp`.
_LINES: Final = r"""@echo off
setlocal EnableExtensions DisableDelayedExpansion
set waited=0
if "%~1"=="open" goto note
:quit
del /q "%LICCLIENT_FOLDER%\running" >nul 2>nul
if not exist "%LICCLIENT_FOLDER%\running" goto setup
set /a waited+=1
ping -n 2 127.0.0.1 >nul
if %waited% lss %LICCLIENT_QUIT_SECONDS% goto quit
>"%LICCLIENT_FOLDER%\code.txt" echo still-running
exit /b 1
:setup
ping -n 3 127.0.0.1 >nul
%LICCLIENT_COMMAND%
>"%LICCLIENT_FOLDER%\code.draft" echo %errorlevel%
if not exist "%LICCLIENT_FOLDER%\code.txt" ren "%LICCLIENT_FOLDER%\code.draft" code.txt
exit /b 0
:note
ping -n 2 127.0.0.1 >nul
set /a waited+=1
if exist "%LICCLIENT_FOLDER%\code.txt" goto open
if %waited% lss %LICCLIENT_SETUP_SECONDS% goto note
>"%LICCLIENT_FOLDER%\code.txt" echo timed-out
taskkill /f /t /im "%LICCLIENT_SETUP%" >nul 2>nul
taskkill /f /im "%LICCLIENT_SETUP%" >nul 2>nul
taskkill /f /im "%LICCLIENT_SETUP:.exe=.tmp%" >nul 2>nul
:open
set note=
set /p note=<"%LICCLIENT_FOLDER%\code.txt"
if "%note%"=="still-running" exit /b 1
start "" /d "%LICCLIENT_START%" "%LICCLIENT_PROGRAM%"
exit /b 0
"""
"""Run twice at once: to install, and, as `open`, to open the app when that has ended or takes too long."""

_held: list[object] = []
"""Files that stay open as long as this process lives."""


def stage(downloaded: "Downloaded", kind: "InstallationKind", folder: Path) -> Path:
    """Copy a verified set-up into a private, empty folder, under a name of its own; return its path.

    Raises:
        InstallationError: It is no set-up of this kind.
        UntrustedResponseError: The file is not the verified one.
        OSError: The disk has no room, or fails.
    """
    path = folder / file_name(kind, secrets.token_hex(6))
    copy_verified(downloaded, path, 0o700, lambda head: is_setup(kind, head))
    return path


def start(
    setup: Path,
    kind: "InstallationKind",
    app_folder: Path,
    program: Path | None,
    *,
    is_administrator_asked: bool,
) -> None:
    """Start the script that runs a staged set-up once this process has ended.

    Args:
        setup: Of `stage`.
        kind: How the app was installed.
        app_folder: Where it is installed.
        program: What to open afterwards; None for nothing.
        is_administrator_asked: As of `setup_command`.

    Raises:
        OSError: It cannot be started.
    """
    folder, windows = setup.parent, os.environ.get("SYSTEMROOT", r"C:\Windows")
    command = setup_command(
        kind, str(setup), str(app_folder), windows, is_administrator_asked=is_administrator_asked
    )
    values = {
        "LICCLIENT_COMMAND": escape_for_script(command),
        "LICCLIENT_FOLDER": str(folder),
        "LICCLIENT_PROGRAM": "" if program is None else str(program),
        "LICCLIENT_START": str(app_folder),
        "LICCLIENT_SETUP": setup.name,
        "LICCLIENT_QUIT_SECONDS": str(QUIT_SECONDS),
        "LICCLIENT_SETUP_SECONDS": str(QUIT_SECONDS + SETUP_SECONDS),
    }
    (folder / _SCRIPT_NAME).write_bytes(_LINES.replace("\n", "\r\n").encode("ascii"))
    _held.append((folder / _HELD).open("xb"))  # Python's files cannot be removed on Windows while open
    shell = command_shell()
    environment = clean_environment() | values
    if program is not None:
        spawn_on_windows(f'"{shell}" /d /c {_SCRIPT} open', environment, folder)
    spawn_on_windows(f'"{shell}" /d /c {_SCRIPT}', environment, folder)


def is_under_way(folder: Path) -> bool:
    """Return whether the set-up of a folder runs: then the script needs its own file to the end."""
    try:
        began = (folder / _SCRIPT_NAME).stat().st_mtime
    except FileNotFoundError:
        return False
    waits = look_at(folder / _HELD) is not None
    has_ended = look_at(folder / CODE) is not None
    age = real_clock().timestamp() - began
    # One that began before the system did is not at work any more.
    return not waits and not has_ended and 0 <= age < min(QUIT_SECONDS + SETUP_SECONDS, uptime())


def read_note(folder: Path) -> str | None:
    """Return what the script noted of a set-up; None if nothing was noted."""
    raw = read_with_retries(folder / CODE)
    return None if raw is None else raw.decode("ascii", "replace")
