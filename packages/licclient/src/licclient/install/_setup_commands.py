"""Pure: how set-ups of Windows are started silently, and what their exit codes mean (D-352).

The vendors document them: NSIS (`/S`, `/D=` last and without quotes, chapter 3.2), Inno Setup ("Setup Command
Line Parameters", "Setup Exit Codes"), Windows Installer (`msiexec`, "Error Codes").
"""

import re
from typing import Final

from licclient._core.kinds import InstallationKind
from licclient._core.model import InstallObstacle
from licclient._updates.attempts import read_exit_code
from licclient.install._plan import SETUPS

EXTENSIONS: Final = {InstallationKind.MSI: ".msi"}
"""How the file of a set-up is called; `.exe` for all others."""

_OLE: Final = bytes.fromhex("d0cf11e0a1b11ae1")
"""How an MSI begins, as every compound file does."""

_REFUSED: Final = frozenset({1223})
"""Of Windows itself: a person did not give the administrator's permission."""

_CODES: Final[dict[InstallationKind, dict[int, InstallObstacle | None]]] = {
    InstallationKind.NSIS: {
        0: None,
        1: InstallObstacle.REFUSED,
        2: InstallObstacle.ABORTED,  # by its script, or as its checksum is wrong
    },
    InstallationKind.INNO: {
        0: None,
        2: InstallObstacle.REFUSED,  # nobody can cancel a silent one: the administrator's permission
        8: InstallObstacle.RESTART_NEEDED,
        3010: InstallObstacle.RESTART_NEEDED,  # by our `/RESTARTEXITCODE`
    },
    InstallationKind.MSI: {
        0: None,
        1602: InstallObstacle.REFUSED,
        1618: InstallObstacle.BUSY,
        1625: InstallObstacle.FORBIDDEN,
        1640: InstallObstacle.FORBIDDEN,
        1643: InstallObstacle.FORBIDDEN,
        1641: None,  # a restart has begun
        3010: None,  # a restart is needed
    },
}
_WITH_RESTART: Final = frozenset({1641, 3010})

_WORDS: Final = {
    "still-running": InstallObstacle.STILL_RUNNING,
    "timed-out": InstallObstacle.TIMED_OUT,
}
"""What our own script notes in place of an exit code."""


def is_setup(kind: InstallationKind, head: bytes) -> bool:
    """Return whether a file begins as a set-up of this kind: a program, or a package of Windows Installer."""
    return head.startswith(_OLE if kind is InstallationKind.MSI else b"MZ")


def file_name(kind: InstallationKind, token: str) -> str:
    """Return the name under which a set-up runs.

    Never `setup.exe` or the like: Windows loads libraries and fixes for programs of that name.
    """
    return f"update-{token}{EXTENSIONS.get(kind, '.exe')}"


def setup_command(
    kind: InstallationKind, path: str, folder: str, windows: str, *, is_administrator_asked: bool
) -> str:
    """Return the command line that installs silently; NSIS does not read what a list would quote.

    Args:
        kind: One of `SETUPS`.
        path: The set-up.
        folder: Where the app is installed now.
        windows: The folder of Windows.
        is_administrator_asked: Whether the permission has to be asked for; Windows Installer asks only if it
            may show something.

    Raises:
        ValueError: A path cannot be part of a command line.
    """
    folder = folder.rstrip("\\")
    for text in (path, folder, windows):
        if '"' in text or any(ord(letter) < ord(" ") for letter in text):
            raise ValueError("a path of Windows has no quotes and no control characters")
    match kind:
        case InstallationKind.NSIS:
            return f'"{path}" /S /D={folder}'
        case InstallationKind.INNO:
            quiet = "/VERYSILENT /SUPPRESSMSGBOXES /SP- /NOCANCEL"
            alone = "/NORESTART /RESTARTEXITCODE=3010 /NORESTARTAPPLICATIONS"  # we open the app
            return f'"{path}" {quiet} {alone} /DIR="{folder}"'
        case InstallationKind.MSI:
            shown = "/passive" if is_administrator_asked else "/qn"
            return f'"{windows}\\System32\\msiexec.exe" /i "{path}" {shown} /norestart'
        case _:
            raise ValueError(f"kind must be one of {', '.join(sorted(SETUPS))}, not {kind}")


def escape_for_script(command: str) -> str:
    """Return a command line as a script of `cmd` takes it from a variable: escaped outside of quotes."""
    parts = command.split('"')
    outside = [re.sub(r"([&|<>^()@])", r"^\1", part) for part in parts[::2]]
    parts[::2] = outside
    return '"'.join(parts)


def read_outcome(
    kind: InstallationKind, note: str | None, *, runs_promised: bool
) -> tuple[InstallObstacle | None, int | None]:
    """Return why the promised version does not run, None if it does, and the exit code of the set-up.

    Args:
        kind: How the app was installed.
        note: What was noted of the set-up: its exit code, or a word of our own; None if nothing was.
        runs_promised: Whether the promised version runs. It counts most: an exit code proves nothing.
    """
    code = read_exit_code(note)
    if runs_promised:
        return None, code
    if code is None:
        return _WORDS.get((note or "").strip(), InstallObstacle.INTERRUPTED), None
    if code in _REFUSED:
        return InstallObstacle.REFUSED, code
    if kind is InstallationKind.MSI and code in _WITH_RESTART:
        return InstallObstacle.RESTART_NEEDED, code
    obstacle = _CODES.get(kind, {0: None}).get(code, InstallObstacle.FAILED)
    return obstacle or InstallObstacle.NO_EFFECT, code
