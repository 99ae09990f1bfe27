"""Pure: which version of an app is the current one, which the one before, and what is left over (D-81).

All of it stands in one small text file with two lines: the name of the current version's folder, then of
the one before it. It is so plain that a launcher in any language can read it.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

POINTER: Final = "current.txt"
"""The pointer's file, in the installation's folder."""

DRAFT: Final = ".incoming-"
"""How a folder is called while it is being filled."""

DISCARDED: Final = ".discarded-"
"""How a folder is called while it is being removed."""

_FOLDER: Final = re.compile(r"([0-9A-Za-z][0-9A-Za-z.!+_-]{0,200})-([0-9a-f]{16})")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Pointer:
    """What the pointer says; names of folders, as from `folder_name`."""

    current: str
    previous: str | None = None


def folder_name(version: str, sha256: str) -> str:
    """Name a version's folder after the version and its archive: another archive is another folder.

    Args:
        version: As PEP 440 has it.
        sha256: The archive's digest in lower-case hex.

    Raises:
        ValueError: One of them is none.
    """
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - a launcher only reads

    if not _DIGEST.fullmatch(sha256):
        raise ValueError("no SHA-256 digest in lower-case hex")
    try:
        name = f"{Version(version)}-{sha256[:16]}"
    except InvalidVersion:
        name = ""
    if not _FOLDER.fullmatch(name):
        raise ValueError(f"no version that PEP 440 can read: {version[:80]!r}")
    return name


def version_of(folder: str) -> str:
    """Return the version that a folder is named after."""
    return folder.rpartition("-")[0]


def read_pointer(raw: bytes) -> Pointer | None:
    """Read the pointer's file; None when anything in it is not as `write_pointer` left it."""
    lines = raw.decode("ascii", errors="replace").replace("\r\n", "\n").removesuffix("\n").split("\n")
    names = [line for line in lines if _FOLDER.fullmatch(line)]
    if len(names) != len(lines) or len(names) > 2 or len(set(names)) != len(names):  # noqa: PLR2004 - as told
        return None
    return Pointer(*names)


def write_pointer(pointer: Pointer) -> bytes:
    """Write the pointer's file."""
    names = [pointer.current] if pointer.previous is None else [pointer.current, pointer.previous]
    return "".join(f"{name}\n" for name in names).encode("ascii")


def applied(before: Pointer | None, folder: str) -> Pointer:
    """Return the pointer once another folder has become the current one."""
    return Pointer(folder, before.current if before is not None else None)


def rolled_back(before: Pointer) -> Pointer | None:
    """Return the pointer after a roll back; None when there is nothing to go back to.

    What was current is named no more: it is not gone back to by a second roll back, and the next `apply`
    removes it.
    """
    return None if before.previous is None else Pointer(before.previous)


def leftovers(pointer: Pointer | None, names: Collection[str], needed: Collection[str]) -> list[str]:
    """Say which entries of the folder of versions nobody needs any more.

    Args:
        pointer: What is in force; None when nobody knows: then whole versions are left alone.
        names: All that there are.
        needed: Those that are needed whatever the pointer says.

    Returns:
        Names that this library made, and no others.
    """
    made = [name for name in names if name.startswith((DRAFT, DISCARDED))]
    if pointer is not None:
        kept = {pointer.current, pointer.previous, *needed}
        made += [name for name in names if _FOLDER.fullmatch(name) and name not in kept]
    return made
