"""What the last installation came to: the version that runs, and the promised one (D-353, D-408)."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.clock import process_age
from licclient._core.computer import is_rolled_back, is_running, list_app_folders
from licclient._core.model import InstallObstacle
from licclient._core.policy import is_at_least
from licclient._core.records import Put
from licclient._updates.attempts import (
    InstallAttempt,
    attempt_name,
    is_same_version,
    read_attempt,
    write_attempt,
)
from licclient._updates.check import installed_version
from licclient.errors import StateUnreadableError
from licclient.install import Installation
from licclient.install._detection import detect
from licclient.install._plan import REPLACED, InstallationReceipt, read_replaced
from licclient.install._setup_commands import read_outcome
from licclient.install._windows_setups import read_note

if TYPE_CHECKING:
    from licclient._core.session import Session


_INSTALLED: Final = frozenset({InstallObstacle.NO_EFFECT, InstallObstacle.RESTART_NEEDED})
"""What a set-up comes to that has succeeded, as long as the version before runs."""


def note_attempt(session: "Session", attempt: InstallAttempt) -> None:
    """Remember an installation before it is begun."""
    slug, _ = installed_version(session.settings)
    session.storage.change(attempt_name(session.settings, slug), Put(write_attempt(attempt)))


def forget_attempt(session: "Session") -> None:
    """Forget an installation that was not begun after all."""
    slug, _ = installed_version(session.settings)
    session.storage.change(attempt_name(session.settings, slug), lambda _: None)


def find_attempt(session: "Session") -> InstallAttempt | None:
    """Return the last installation that was begun."""
    slug, _ = installed_version(session.settings)
    return read_attempt(session.storage.load(attempt_name(session.settings, slug)))


def find_known_attempt(session: "Session") -> InstallAttempt | None:
    """Return the last installation that was begun; None also when that cannot be read."""
    with suppress(StateUnreadableError):
        return find_attempt(session)
    return None


def find_installed_since(session: "Session") -> str | None:
    """Return the version that another instance of the app has installed since this one was started.

    Also one whose set-up is still under way; None for none, or if that failed. What was installed before is
    what runs, or a person has replaced it since.
    """
    attempt, now = find_known_attempt(session), session.now()
    if attempt is None or not now - process_age() <= attempt.at <= now:  # later: of another clock
        return None
    note = None if attempt.folder is None else read_note(Path(attempt.folder))
    obstacle, _ = read_outcome(attempt.kind, note, runs_promised=False)
    has_failed = note is not None and obstacle not in _INSTALLED
    return None if has_failed else attempt.version


def read_receipt(session: "Session") -> InstallationReceipt | None:
    """Return what the last installation came to; None if none was begun, or that cannot be known yet."""
    attempt = find_attempt(session)
    if attempt is None:
        return None
    _, running = installed_version(session.settings)
    runs_promised = (
        is_same_version(attempt.version, running)
        or is_at_least(running, attempt.version)
        or is_running(attempt.version)  # it calls itself another version, of which the update check says so
    )
    if attempt.kind in REPLACED:
        return _read_replaced(attempt, runs_promised=runs_promised)
    try:
        note = None if attempt.folder is None else read_note(Path(attempt.folder))
    except OSError:  # such as while the script of the set-up writes it
        if not runs_promised:
            return None
        note = None
    obstacle, code = read_outcome(attempt.kind, note, runs_promised=runs_promised)
    return InstallationReceipt(attempt.version, attempt.kind, attempt.at, obstacle, code)


def _read_replaced(attempt: InstallAttempt, *, runs_promised: bool) -> InstallationReceipt | None:
    """Return what came of a replaced folder or file; None in another copy of the app with the same state."""
    folders = list_app_folders()
    current, has_rolled_back = None, False
    if not runs_promised:
        if attempt.app is not None and _is_elsewhere(attempt, attempt.app, folders):
            return None
        has_rolled_back = is_rolled_back(attempt.version)
        with suppress(OSError):  # the pointer cannot be read: the version is there
            current = next((_current_version(folder) for folder in folders), None)
    obstacle = read_replaced(
        attempt.version, current, runs_promised=runs_promised, is_rolled_back=has_rolled_back
    )
    return InstallationReceipt(attempt.version, attempt.kind, attempt.at, obstacle)


def _is_elsewhere(attempt: InstallAttempt, app: str, folders: list[Path]) -> bool:
    """Return whether this program is another copy than the replaced one; False if that cannot be known."""
    if folders:
        return Path(app) not in folders
    installation = detect()
    return installation.kind is attempt.kind and str(installation.program.resolve()) != app


def _current_version(folder: Path) -> str | None:
    current = Installation(folder).current
    return None if current is None else current.version
