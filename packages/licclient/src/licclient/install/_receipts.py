"""What the last installation came to: the version that runs, compared with the promised one (D-353)."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.clock import process_age
from licclient._core.model import InstallObstacle
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
from licclient.install._plan import InstallationReceipt
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
    runs_promised = is_same_version(attempt.version, running)
    try:
        note = None if attempt.folder is None else read_note(Path(attempt.folder))
    except OSError:  # such as while the script of the set-up writes it
        if not runs_promised:
            return None
        note = None
    obstacle, code = read_outcome(attempt.kind, note, runs_promised=runs_promised)
    return InstallationReceipt(attempt.version, attempt.kind, attempt.at, obstacle, code)
