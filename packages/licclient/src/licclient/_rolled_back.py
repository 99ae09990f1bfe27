"""The versions that were rolled back in an app's own folder: they are offered only on request (D-179).

`Installation.roll_back` adds a version to a file beside `current.txt`, and `apply` of it removes it again.
A client finds the file from the running program, which lies in a folder of `versions`.
"""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from licclient._storage import read_private

ROLLED_BACK: Final = "rolled-back.txt"
"""The file's name: one version a line."""

VERSIONS: Final = "versions"
"""The folder with a folder for each version."""


def is_rolled_back(version: str) -> bool:
    """Return whether a version was rolled back in the folder that this program runs from."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - most starts offer nothing

    with suppress(InvalidVersion):
        return Version(version) in map(Version, list_rolled_back())
    return False


def list_rolled_back() -> list[str]:
    """Return the versions that were rolled back in the folder that this program runs from."""
    return [one for folder in _app_folders() for one in read_rolled_back(folder)]


def read_rolled_back(folder: Path) -> list[str]:
    """Return the versions that were rolled back in an app's own folder, as PEP 440 writes them."""
    return (read_private(folder / ROLLED_BACK) or b"").decode("ascii", errors="replace").split()


def _app_folders() -> list[Path]:
    """Return the folders of which the running program is an installed version; mostly none."""
    folders = []
    for program in filter(None, (sys.executable, *sys.argv[:1])):
        with suppress(OSError, RuntimeError):  # a loop of links
            folders += [path.parent for path in Path(program).resolve().parents if path.name == VERSIONS]
    return folders
