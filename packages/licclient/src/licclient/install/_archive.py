"""Pure: the directory of a zip → a plan for unpacking it, or its flaw (D-80).

The whole directory is checked before a file is created, by the same rules on every platform: a vendor finds
out on the own machine, not on a customer's.
"""

import re
import stat
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from licclient._core.download_headers import is_device_name
from licclient.errors import UnusableArchiveError

MAX_ENTRIES: Final = 100_000
"""Files and folders; each costs a system call."""

MAX_DIRECTORY_BYTES: Final = 16 * 1024**2
"""Size of the directory, 167 bytes an entry. In memory it takes several times that."""

MAX_UNPACKED_BYTES: Final = 8 * 1024**3
"""Size of all files, unpacked: a larger zip is taken for a zip bomb, whatever room the disk has."""

MAX_PATH_BYTES: Final = 1024
"""The longest path within the zip, in UTF-8."""

MAX_DEPTH: Final = 64
"""Folders in each other: a path of 1,024 bytes could name 512, and each is created."""

MAX_PART_BYTES: Final = 255
"""The longest single name, in UTF-8, as of common file systems."""

OWN: Final = ".licclient-"
"""How our own files at the top of a version's folder begin: those of an archive are left out (D-401)."""

STORED: Final = 0
DEFLATED: Final = 8
"""The two methods that every zip tool writes, and whose memory is bounded; LZMA may ask for gigabytes."""

_ENTRY: Final = b"PK\x01\x02"
_UTF8: Final = 0x800
_UNIX: Final = frozenset({3, 19})  # 19 is macOS
_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_FORBIDDEN: Final = re.compile(r'[<>:"|?*\\]')


class ZipEntry(Protocol):
    """The attributes of `zipfile.ZipInfo` that are checked."""

    filename: str
    orig_filename: str
    file_size: int
    compress_size: int
    compress_type: int
    create_system: int
    flag_bits: int
    external_attr: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A file to create.

    `path` is from the top of the version's folder, joined by `/`, each name harmless everywhere. `size` must
    come out exactly; `index` is the number of the zip's entry.
    """

    path: str
    size: int
    executable: bool
    index: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The folders and files that unpacking will create; parents before children."""

    folders: tuple[str, ...]
    files: tuple[Entry, ...]
    size: int

    @property
    def has_program(self) -> bool:
        """Whether the archive marks any file as executable."""
        return any(file.executable for file in self.files)


def check_directory(size: int) -> None:
    """Raise `UnusableArchiveError` for a directory of so many bytes before it is read."""
    if size > MAX_DIRECTORY_BYTES:
        raise UnusableArchiveError(f"The archive's list of files is larger than {MAX_DIRECTORY_BYTES} bytes.")


def check_entries(directory: bytes) -> None:
    """Raise `UnusableArchiveError` for too many entries before an object is created for each."""
    _check_count(directory.count(_ENTRY))  # the number that the zip states may be wrong


def _check_count(count: int) -> None:
    if count > MAX_ENTRIES:
        raise UnusableArchiveError(f"The archive has more than {MAX_ENTRIES} entries.")


def read_plan(entries: Sequence[ZipEntry]) -> Plan:
    """Check the whole directory of a zip, as of `zipfile.ZipFile.infolist`.

    Raise `UnusableArchiveError` if an entry is not allowed, or not on every platform.
    """
    _check_count(len(entries))
    folders: dict[str, None] = {}  # a set that keeps its order
    files: list[Entry] = []
    size = length = 0
    for index, entry in enumerate(entries):
        parts, is_folder = _read_name(entry)
        mode = _read_mode(entry, is_folder=is_folder)
        if _folded(parts[0]).startswith(OWN):  # a vendor has packed the folder of an installed version
            continue
        length += _add_folders(folders, parts if is_folder else parts[:-1])
        check_directory(length)
        _check_count(len(folders) + len(files))
        if is_folder:
            continue
        size += _read_size(entry)
        if size > MAX_UNPACKED_BYTES:
            raise UnusableArchiveError(
                f"The archive is larger than {MAX_UNPACKED_BYTES} bytes when unpacked."
            )
        files.append(Entry("/".join(parts), entry.file_size, bool(mode & 0o111), index))
    if not files:
        raise UnusableArchiveError("The archive holds no file.")
    _demand_distinct(folders, files)
    return Plan(tuple(folders), tuple(files), size)


def _add_folders(folders: dict[str, None], parts: list[str]) -> int:
    """Add a folder and those that it is in, which need not be listed; return the length of new paths."""
    path, length = "", 0
    for part in parts:
        path = f"{path}/{part}" if path else part
        if path not in folders:
            folders[path] = None
            length += len(path)
    return length


def _read_name(entry: ZipEntry) -> tuple[list[str], bool]:
    """Return the parts of a name, and whether it is a folder's."""
    # `zipfile` ends a name at a NUL, and on Windows replaces backslashes: check the original name.
    name = _decode_name(entry)
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        length = 0
    if not length or "\0" in entry.orig_filename or "\\" in entry.orig_filename:
        raise _bad(entry, "has a name that no file may have")
    if name.startswith("/"):
        raise _bad(entry, "has an absolute path")
    if length > MAX_PATH_BYTES:
        raise _bad(entry, "has a path that is too long")
    is_folder = name.endswith("/")
    parts = name.removesuffix("/").split("/")
    if len(parts) > MAX_DEPTH:
        raise _bad(entry, f"is in more than {MAX_DEPTH} folders")
    for part in parts:
        if part in {"", ".", ".."}:
            raise _bad(entry, "has a path that could lead out of the folder")
        if flaw := _name_flaw(part):
            raise _bad(entry, flaw)
    return parts, is_folder


def _decode_name(entry: ZipEntry) -> str:
    """Return a name in the encoding that the archive states, or that Unix tools use without stating it.

    `zipfile` reads undeclared names as code page 437.
    """
    if entry.flag_bits & _UTF8 or entry.orig_filename.isascii() or entry.filename != entry.orig_filename:
        return entry.filename  # the last: it has a field with the name in UTF-8 and a check
    try:
        if entry.create_system in _UNIX:
            return entry.orig_filename.encode("cp437").decode()
    except UnicodeError:
        pass
    raise _bad(entry, "has a name whose encoding is not stated; pack it with names in UTF-8")


def _name_flaw(part: str) -> str | None:
    """Return why a single name does not work on every platform: Windows is the strictest."""
    if not part.isprintable():
        return "has invisible characters in its name"
    if _FORBIDDEN.search(part):
        return "has characters in its name that Windows forbids"
    if part[-1] in ". ":
        return "has a name that ends with a dot or a space"
    if is_device_name(part):
        return "has the name of a device"
    if len(part.encode()) > MAX_PART_BYTES:
        return "has a name that is too long"
    return None


def _read_mode(entry: ZipEntry, *, is_folder: bool) -> int:
    """Return the permissions as a Unix tool stored them; 0 for other tools."""
    mode = entry.external_attr >> 16
    kind = stat.S_IFMT(mode)
    if kind == stat.S_IFLNK:
        raise _bad(entry, "is a link; pack the file that it points to")
    if kind not in {0, stat.S_IFDIR if is_folder else stat.S_IFREG}:
        raise _bad(entry, "is neither a file nor a folder")
    return mode


def _read_size(entry: ZipEntry) -> int:
    if entry.flag_bits & _ENCRYPTED:
        raise _bad(entry, "is encrypted")
    if entry.compress_type not in {STORED, DEFLATED}:
        raise _bad(entry, "is compressed in a way that is not supported; use deflate")
    if entry.file_size < 0 or entry.compress_size < 0:
        raise _bad(entry, "has a negative size")
    return entry.file_size


def _demand_distinct(folders: dict[str, None], files: list[Entry]) -> None:
    """Check that no file replaces another, also on disks that ignore case or accents."""
    taken = {_folded(folder) for folder in folders}  # folders may differ in case: they merely become one
    for file in files:
        folded = _folded(file.path)
        if folded in taken:
            raise UnusableArchiveError(f"Two entries of the archive are one on some disks: {file.path!r}")
        taken.add(folded)


def _folded(path: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", path).casefold())


def _bad(entry: ZipEntry, flaw: str) -> UnusableArchiveError:
    shown = (
        entry.orig_filename if len(entry.orig_filename) <= MAX_PART_BYTES else entry.orig_filename[:80] + "…"
    )
    return UnusableArchiveError(f"An entry of the archive {flaw}: {shown!r}")
