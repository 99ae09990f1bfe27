"""Pure: which version of an app is current, which was before it, and which ones are unused (D-81).

The pointer is a text file with two lines: the name of the current version's folder, then of the previous
one. A launcher in any language can read it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from licclient._core.lazy import lazy
from licclient._core.model import is_version_folder

if TYPE_CHECKING:
    from packaging import version as packaging_version
else:
    packaging_version = lazy("packaging.version")

POINTER: Final = "current.txt"
"""The file of the pointer, in the installation's folder."""

DRAFT: Final = ".incoming-"
"""Start of a folder's name while it is being filled."""

DISCARDED: Final = ".discarded-"
"""Start of a folder's name while it is being removed."""

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pointer:
    """The content of the pointer: names of folders, as from `folder_names`."""

    current: str
    previous: str | None = None


def folder_names(version: str, sha256: str) -> tuple[str, ...]:
    """Return the names that the folder of a version and its archive may have; another archive has others.

    The first is the usual one, and there are more of them than a pointer has: a damaged version to which it
    leads keeps its own, and is replaced by one beside it. Raise `ValueError` for no version of PEP 440, or no
    digest.
    """
    if not _DIGEST.fullmatch(sha256):
        raise ValueError("sha256 must be 64 lower-case hexadecimal digits")
    try:
        normalized = str(packaging_version.Version(version))
    except packaging_version.InvalidVersion:
        normalized = ""
    names = tuple(f"{normalized}-{sha256[start : start + 16]}" for start in (0, 16, 32))
    if not all(map(is_version_folder, names)):
        raise ValueError(f"version must be one of PEP 440, such as 1.4.0, not {version[:80]!r}")
    return names


def version_of(folder: str) -> str:
    """Return the version that a folder is named after."""
    return folder.rpartition("-")[0]


def read_pointer(raw: bytes) -> Pointer | None:
    """Read the pointer's file; None unless it is exactly as `write_pointer` writes it."""
    lines = raw.decode("ascii", errors="replace").replace("\r\n", "\n").removesuffix("\n").split("\n")
    names = [line for line in lines if is_version_folder(line)]
    if len(names) != len(lines) or len(names) > 2 or len(set(names)) != len(names):  # noqa: PLR2004 - two lines
        return None
    return Pointer(*names)


def write_pointer(pointer: Pointer) -> bytes:
    """Write the pointer's file."""
    return "".join(f"{name}\n" for name in (pointer.current, pointer.previous) if name).encode("ascii")


def leftovers(pointer: Pointer | None, names: Collection[str], needed: Collection[str]) -> list[str]:
    """Return which of our own folders in the folder of versions are not needed any more.

    Without a pointer whole versions are kept; `needed` ones are kept, whatever the pointer has.
    """
    folders = [name for name in names if name.startswith((DRAFT, DISCARDED))]
    if pointer is not None:
        needed_names = {pointer.current, pointer.previous, *needed}
        folders += [name for name in names if is_version_folder(name) and name not in needed_names]
    return folders
