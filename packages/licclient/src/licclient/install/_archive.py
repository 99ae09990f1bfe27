"""Pure: what a zip says about itself → a plan for unpacking it, or what is wrong with it (D-80).

Everything is read from the zip's directory before a single file is made, and the same zip is good or bad on
every platform: a vendor finds out on his own machine, not on a customer's.
"""

import re
import stat
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from licclient._protocol.downloads import is_device_name
from licclient.errors import UnusableArchiveError

MAX_ENTRIES: Final = 100_000
"""More files and folders than this no desktop app has; each costs a call to the system."""

MAX_DIRECTORY_BYTES: Final = 16 * 1024**2
"""What the directory may have, 167 for each of so many entries. In memory it takes several times that."""

MAX_UNPACKED_BYTES: Final = 8 * 1024**3
"""What an app may have in all, unpacked: beyond it a zip is taken for a bomb, whatever the disk holds."""

MAX_PATH_BYTES: Final = 1024
"""The longest path within the zip, in UTF-8."""

MAX_NAME_BYTES: Final = 255
"""The longest single name, in UTF-8: as common file systems have it."""

STORED: Final = 0
DEFLATED: Final = 8
"""The two methods that every zip tool writes, and whose memory is bounded; LZMA may ask for gigabytes."""

_ENTRY: Final = b"PK\x01\x02"
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_FORBIDDEN: Final = re.compile(r'[<>:"|?*\\]')


class Told(Protocol):
    """What a zip tells about one entry: the attributes of `zipfile.ZipInfo` that are looked at."""

    filename: str
    orig_filename: str
    file_size: int
    compress_size: int
    compress_type: int
    flag_bits: int
    external_attr: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One file to be made.

    Attributes:
        path: Where, from the top of the version's folder; names joined by `/`, each harmless everywhere.
        size: In bytes; it must come out exactly.
        executable: Whether it may be run.
        index: Which entry of the zip it is.
    """

    path: str
    size: int
    executable: bool
    index: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What unpacking will make.

    Attributes:
        folders: Every folder, also those that only a file's path names; parents before children.
        files: Every file.
        size: Bytes of all files.
    """

    folders: tuple[str, ...]
    files: tuple[Entry, ...]
    size: int


def check_directory(size: int) -> None:
    """Refuse a directory before it is read.

    Args:
        size: In bytes.

    Raises:
        UnusableArchiveError: It is too large.
    """
    if size > MAX_DIRECTORY_BYTES:
        raise UnusableArchiveError(f"The archive's list of files is larger than {MAX_DIRECTORY_BYTES} bytes.")


def check_entries(directory: bytes) -> None:
    """Refuse a directory before an object is made of each of its entries.

    Raises:
        UnusableArchiveError: There are too many of them.
    """
    if directory.count(_ENTRY) > MAX_ENTRIES:  # what the zip itself says of their number need not be true
        raise UnusableArchiveError(f"The archive has more than {MAX_ENTRIES} entries.")


def read_plan(told: Sequence[Told]) -> Plan:
    """Judge the whole directory of a zip.

    Args:
        told: Its entries, as in `zipfile.ZipFile.infolist`.

    Raises:
        UnusableArchiveError: Something in it may not be, or not be everywhere; says what, and which entry.
    """
    if len(told) > MAX_ENTRIES:
        raise UnusableArchiveError(f"The archive has more than {MAX_ENTRIES} entries.")
    folders: dict[str, None] = {}  # a set that keeps the order
    files: list[Entry] = []
    size = 0
    for index, one in enumerate(told):
        parts, is_folder = _read_name(one)
        mode = _read_mode(one, is_folder=is_folder)
        parents = ["/".join(parts[:depth]) for depth in range(1, len(parts) + is_folder)]
        folders.update(dict.fromkeys(parents))
        if is_folder:
            continue
        size += _read_size(one)
        if size > MAX_UNPACKED_BYTES:
            raise UnusableArchiveError(
                f"The archive is larger than {MAX_UNPACKED_BYTES} bytes when unpacked."
            )
        files.append(Entry("/".join(parts), one.file_size, bool(mode & 0o111), index))
    if not files:
        raise UnusableArchiveError("The archive holds no file.")
    _demand_distinct(folders, files)
    return Plan(tuple(folders), tuple(files), size)


def _read_name(one: Told) -> tuple[list[str], bool]:
    """Take a name apart; whether it is a folder's."""
    # `zipfile` ends a name at a NUL, and on Windows turns backslashes round: the name as it was tells.
    name = one.filename
    if not name or "\0" in one.orig_filename or "\\" in one.orig_filename:
        raise _bad(one, "has a name that no file may have")
    if name.startswith("/"):
        raise _bad(one, "has an absolute path")
    if len(_utf8(one, name)) > MAX_PATH_BYTES:
        raise _bad(one, "has a path that is too long")
    is_folder = name.endswith("/")
    parts = name.removesuffix("/").split("/")
    for part in parts:
        if part in {"", ".", ".."}:
            raise _bad(one, "has a path that could lead out of the folder")
        if flaw := _name_flaw(part):
            raise _bad(one, flaw)
    return parts, is_folder


def _utf8(one: Told, name: str) -> bytes:
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise _bad(one, "has a name that no file may have") from None


def _name_flaw(part: str) -> str | None:
    """Say why a single name would not do everywhere: Windows is the strictest (D-80)."""
    if not part.isprintable():
        return "has invisible characters in its name"
    if _FORBIDDEN.search(part):
        return "has characters in its name that Windows forbids"
    if part[-1] in ". ":
        return "has a name that ends with a dot or a space"
    if is_device_name(part):
        return "has the name of a device"
    if len(part.encode()) > MAX_NAME_BYTES:
        return "has a name that is too long"
    return None


def _read_mode(one: Told, *, is_folder: bool) -> int:
    """Return the permissions that a Unix tool noted; 0 when it was none."""
    mode = one.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise _bad(one, "is a link; pack what it leads to")
    if kind not in {0, stat.S_IFDIR if is_folder else stat.S_IFREG}:
        raise _bad(one, "is neither a file nor a folder")
    return mode


def _read_size(one: Told) -> int:
    if one.flag_bits & _ENCRYPTED:
        raise _bad(one, "is encrypted")
    if one.compress_type not in {STORED, DEFLATED}:
        raise _bad(one, "is compressed in a way that is not supported; use deflate")
    if one.file_size < 0 or one.compress_size < 0:
        raise _bad(one, "has a negative size")
    return one.file_size


def _demand_distinct(folders: dict[str, None], files: list[Entry]) -> None:
    """See that no entry lands on another, also where case and accents make no difference."""
    taken = {_folded(folder) for folder in folders}  # folders may differ in case: they merely become one
    for file in files:
        folded = _folded(file.path)
        if folded in taken:
            raise UnusableArchiveError(f"Two entries of the archive are one on some disks: {file.path!r}")
        taken.add(folded)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _bad(one: Told, flaw: str) -> UnusableArchiveError:
    shown = one.orig_filename if len(one.orig_filename) <= MAX_NAME_BYTES else one.orig_filename[:80] + "…"
    return UnusableArchiveError(f"An entry of the archive {flaw}: {shown!r}")
