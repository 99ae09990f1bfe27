"""Pure: which version is on probation, and what the launcher does with it (D-360).

A version is on probation from its first start to its confirmation, if the version before it was confirmed.
The launcher counts each start before it begins. This is protocol 1 of `docs/app/launcher.md`, which is
frozen: launchers are never replaced.
"""

import re
from collections.abc import Collection
from enum import Enum
from typing import Final

from licclient.install._versions import Pointer, version_of

STARTS: Final = "probation.txt"
"""The launcher's file, in the installation's folder: protocol, version's folder, number of starts."""

CONFIRMED: Final = ".licclient-confirmed"
"""The app's file, in the version's folder: an empty one, which ends with the folder."""

STARTING: Final = ".licclient-starting"
"""The file in the version's folder that a launcher locks while it waits for a counted start."""

MAX_STARTS: Final = 2
"""So many starts without a confirmation, and the version before runs again."""

_FORMAT: Final = re.compile(rb"1\r?\n([!-~]+)\r?\n([0-9])\r?\n")

_SIGNALS: Final = (1, 2, 15)  # SIGHUP, SIGINT, SIGTERM: terminal closed, Ctrl+C, logoff or shutdown
_ENDED: Final = frozenset(
    {
        0,
        *(-number for number in _SIGNALS),  # as `subprocess` reports them
        *(128 + number for number in _SIGNALS),  # as a shell does
        0xC000013A,  # Windows: Ctrl+C, or its console was closed
        0x40010004,  # Windows: ended with the session
    }
)


class Step(Enum):
    """What the launcher does."""

    START = "start"
    COUNT = "count and start"
    GO_BACK = "go back"


def read_starts(raw: bytes | None, folder: str) -> int | None:
    """Return how often a version was started without a confirmation; None for a damaged file.

    No file, and a file about another version, are 0. A number that no launcher writes is damage.
    """
    if raw is None:
        return 0
    match = _FORMAT.fullmatch(raw)
    if match is None or (count := int(match[2])) > MAX_STARTS:
        return None
    return count if match[1].decode("ascii") == folder else 0


def write_starts(folder: str, count: int) -> bytes:
    """Write the launcher's file."""
    return f"1\n{folder}\n{count}\n".encode("ascii")


def is_on_probation(pointer: Pointer, confirmed: Collection[str], rolled_back: Collection[str]) -> bool:
    """Return whether the current version must still prove itself, and there is a good one to go back to.

    `confirmed` are names of folders, `rolled_back` versions. Where no version was ever confirmed, none is on
    probation: the app does not confirm.
    """
    previous = pointer.previous
    if previous is None or pointer.current in confirmed:
        return False
    return previous in confirmed and version_of(previous) not in rolled_back


def next_step(
    pointer: Pointer, starts: int | None, confirmed: Collection[str], rolled_back: Collection[str]
) -> Step:
    """Decide about a start; `starts` of None, which a damaged file gives, never goes back."""
    if starts is None or not is_on_probation(pointer, confirmed, rolled_back):
        return Step.START
    return Step.GO_BACK if starts >= MAX_STARTS else Step.COUNT


def is_counted(status: int, *, was_asked: bool) -> bool:
    """Return whether a start that ended without a confirmation counts.

    Not if the user or the system ended the program, or it ended in order, as a second instance does.

    Args:
        status: As `subprocess` reports it.
        was_asked: The launcher was asked to end, and passed that on; or the session was ending.
    """
    return not was_asked and status not in _ENDED


def next_pointer(
    before: Pointer | None,
    name: str,
    names: Collection[str],
    confirmed: Collection[str],
    rolled_back: Collection[str],
) -> Pointer:
    """Return the pointer to a new version; the one before it is the last that was confirmed.

    So two bad versions in a row end at the good one: what is on probation is no version to go back to.
    `names` are all folders that its archive may have: a damaged one is no other version.
    """
    if before is None:
        return Pointer(name)
    is_repaired = before.current in names
    is_kept = before.previous not in names and is_on_probation(before, confirmed, rolled_back)
    previous = before.previous if is_repaired or is_kept else before.current
    return Pointer(name, None if previous in names else previous)


def without_way_back(pointer: Pointer, running: str) -> Pointer:
    """Return the pointer that leads to no version before the one that runs: it has changed the data."""
    return Pointer(running) if pointer.current == running else Pointer(pointer.current, running)


def is_noted(current: str, previous: str) -> bool:
    """Return whether the version that is left is remembered as bad.

    Not if the one before has the same number, as after a file was replaced: that would name the good one.
    """
    return version_of(current) != version_of(previous)


def is_noted_by_mistake(pointer: Pointer | None, confirmed: str, rolled_back: Collection[str]) -> bool:
    """Return whether a version that was confirmed is noted as bad: `roll_back` was interrupted (D-400).

    Nothing would go back into it from the next one. A version that the pointer does not name was left.
    """
    names = () if pointer is None else (pointer.current, pointer.previous)
    return confirmed in names and version_of(confirmed) in rolled_back
