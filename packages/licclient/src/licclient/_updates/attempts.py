"""Pure: the last installation of an update that was begun on this computer (D-353).

Its record is written before a set-up is started. What did not bring its version is not offered again by
itself for a day, so that an app that installs without asking cannot do so at each of its starts.
"""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from licclient._core.kinds import InstallationKind
from licclient._core.lazy import lazy
from licclient._core.model import Settings
from licclient._core.records import Document, reader, record_name, require_instant, require_type

if TYPE_CHECKING:
    from packaging import version as packaging_version
else:
    packaging_version = lazy("packaging.version")

PAUSE: Final = timedelta(days=1)
"""How long a version is not offered by itself after an attempt in vain."""


CODE: Final = "code.txt"
"""The file with the exit code of a set-up, in the folder of the attempt."""


class InstallAttempt(NamedTuple):
    """An installation that was begun.

    Attributes:
        version: The promised version.
        kind: How the app was installed.
        at: When it was begun; aware, UTC.
        folder: The folder in which a set-up leaves its exit code; None without a set-up.
        app: What was replaced: a folder of `Installation`, or a file; None if that is not known.
    """

    version: str
    kind: InstallationKind
    at: datetime
    folder: str | None
    app: str | None = None


def attempt_name(settings: Settings, slug: str) -> str:
    """Return the name of the record."""
    return record_name("installed_update", settings.server, slug)


def write_attempt(attempt: InstallAttempt) -> Document:
    """Return the record of an attempt."""
    return {
        "version": attempt.version,
        "kind": attempt.kind.value,
        "at": attempt.at.isoformat(),
        "folder": attempt.folder,
        "app": attempt.app,
    }


@reader
def read_attempt(document: Document) -> InstallAttempt:
    """Read the record of an attempt; None without one, or for a damaged one."""
    return InstallAttempt(
        require_type(document["version"], str),
        InstallationKind(document["kind"]),
        require_instant(document["at"]),
        require_type(document["folder"], str | None),
        require_type(document.get("app"), str | None),  # earlier versions wrote none
    )


def read_exit_code(note: str | None) -> int | None:
    """Return the exit code of a set-up, if that was noted.

    Windows' own codes are numbers of 32 bits that scripts show with a sign.
    """
    text = (note or "").strip()
    if not text.removeprefix("-").isdecimal() or len(text) > len("-2147483648"):
        return None
    return int(text) % 2**32


def is_same_version(first: str, second: str) -> bool:
    """Return whether two texts are the same version of PEP 440."""
    try:
        return packaging_version.Version(first) == packaging_version.Version(second)
    except packaging_version.InvalidVersion:
        return first == second


def is_held_back(attempt: InstallAttempt | None, version: str, now: datetime) -> bool:
    """Return whether a version is not offered by itself, as it was tried lately and still is not there.

    An attempt in the future was made by another clock, and holds nothing back.
    """
    if attempt is None or not timedelta(0) <= now - attempt.at < PAUSE:
        return False
    return is_same_version(attempt.version, version)
