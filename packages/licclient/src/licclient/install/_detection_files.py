"""The files that show a program as part of an AppImage, or of a folder of `Installation` (D-402)."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.computer import find_version_folders
from licclient._core.environment import is_folder_of_an_app
from licclient._core.lazy import lazy
from licclient._core.storage import is_absence, open_plain, read_with_retries
from licclient.install._signs import find_mount
from licclient.install._versions import POINTER, read_pointer

if TYPE_CHECKING:
    import hashlib
else:
    hashlib = lazy("hashlib")

_MAX_FILE_BYTES: Final = 8 * 1024 * 1024
_APPIMAGE_HEAD: Final = 16  # bytes that show one
_EXTRACTED: Final = re.compile(r"appimage_extracted_([0-9a-f]{32})")
MOUNTS: Final = "/proc/self/mountinfo"
"""The mounts that this process sees; of Linux."""


def resolve(path: str) -> Path:
    """Return a path without links, as far as it can be followed."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of links
        return Path(path)


def read_beginning(path: Path, size: int = _MAX_FILE_BYTES) -> bytes | None:
    """Return the beginning of a file; None for none. Raise `OSError` if it cannot be read."""
    try:
        with open_plain(path) as file:
            return file.read(size)
    except OSError as problem:
        if is_absence(problem):
            return None
        raise


def find_own_folder(program: Path) -> Path | None:
    """Return the folder of `Installation` that a program is an installed version of.

    It is the one above `versions/NAME`, with a pointer in it; a file of that name elsewhere is a person's.
    Raise `OSError` if the pointer cannot be read.
    """
    for path in (resolve(str(program)), *_other_names(program)):
        for version in find_version_folders(path)[:1]:
            folder = version.parents[1]
            raw = read_with_retries(folder / POINTER)
            if raw is not None and read_pointer(raw) is not None:
                return folder
    return None


def _other_names(program: Path) -> Iterator[Path]:
    """Return the paths by which the running program was started, if it is this one.

    The folder `versions` may be a link to another disk, and no name there says what it is.
    """
    for name in filter(None, (sys.executable, *sys.argv[:1])):
        with suppress(OSError, ValueError, TypeError):  # no name of a file; the working folder is gone
            path = Path(os.fsdecode(name)).absolute()
            if resolve(str(path)) == resolve(str(program)):
                yield path


def find_appimage(program: Path) -> Path | None:
    """Return the AppImage that a program was started from.

    `APPIMAGE` may be that of an editor whose terminal has started this program, and `APPDIR` be set by the
    AppRun of an unpacked AppImage. The file counts if its runtime has mounted or extracted it there.
    """
    file, folder = os.environ.get("APPIMAGE", ""), os.environ.get("APPDIR", "")
    if not Path(file).is_absolute() or not is_folder_of_an_app(folder):
        return None
    image, root = Path(file), resolve(folder)
    if root not in program.parents or not _is_appimage(image):
        return None
    return image if _is_mounted(image, root) or _is_extracted(image, root) else None


def _is_appimage(image: Path) -> bool:
    raw = read_beginning(image, _APPIMAGE_HEAD)
    return raw is not None and raw[:4] == b"\x7fELF" and raw[8:10] == b"AI"


def _is_mounted(image: Path, root: Path) -> bool:
    """Return whether a runtime has mounted this file: the mount has its name."""
    table = os.fsdecode(read_beginning(Path(MOUNTS)) or b"")
    mount = find_mount(table, str(root))
    return mount is not None and mount.type.startswith("fuse") and Path(mount.source).name == image.name


def _is_extracted(image: Path, root: Path) -> bool:
    """Return whether a runtime has extracted this file: the folder's name has its digest."""
    match = _EXTRACTED.fullmatch(root.name)
    if match is None:
        return False
    status = image.stat()
    return match[1] == _digest(image, status.st_ino, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=1)
def _digest(image: Path, *_signature: int) -> str:
    """Return the MD5 of a file, as the runtime names it; once, as large ones take a second."""
    with open_plain(image) as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
