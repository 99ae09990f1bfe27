"""What the last installation came to: the version that runs, compared with the promised one (D-353)."""

from pathlib import Path
from typing import TYPE_CHECKING

from licclient._core.records import Put
from licclient._updates.attempts import (
    InstallAttempt,
    attempt_name,
    is_same_version,
    read_attempt,
    write_attempt,
)
from licclient._updates.check import installed_version
from licclient.install._plan import InstallationReceipt
from licclient.install._setup_commands import read_outcome
from licclient.install._windows_setups import read_note

if TYPE_CHECKING:
    from licclient._core.session import Session


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


def read_receipt(session: "Session") -> InstallationReceipt | None:
    """Return what the last installation came to; None if none was begun, or it is still under way."""
    attempt = find_attempt(session)
    if attempt is None:
        return None
    _, running = installed_version(session.settings)
    note = None if attempt.folder is None else read_note(Path(attempt.folder))
    obstacle, code = read_outcome(attempt.kind, note, runs_promised=is_same_version(attempt.version, running))
    return InstallationReceipt(attempt.version, attempt.kind, attempt.at, obstacle, code)
