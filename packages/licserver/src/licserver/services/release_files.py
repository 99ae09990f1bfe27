"""The kind of a file that is published, by its content, and what is wrong with it (D-370)."""

import enum
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from licserver.domain.offers import is_file_kind
from licserver.domain.records import FileKind
from licserver.errors import InvalidInputError
from licserver.security.private_files import validate_file
from licserver.services.program_headers import (
    DOS_MAGIC,
    ELF_MAGIC,
    HEAD,
    MACH_O_MAGIC,
    PLATFORMS,
    UNIVERSAL_MAGIC,
    list_platforms,
)

NAMES: Final = {
    FileKind.FOLDER: "",
    FileKind.APPIMAGE: "AppImage",
    FileKind.NSIS: "NSIS set-up",
    FileKind.INNO: "Inno set-up",
    FileKind.MSI: "MSI",
    FileKind.APP: "macOS app",
}
"""What pages call a kind; a folder is what a file is usually."""

_SYSTEMS: Final = {
    FileKind.APPIMAGE: "linux",
    FileKind.NSIS: "windows",
    FileKind.INNO: "windows",
    FileKind.MSI: "windows",
    FileKind.APP: "macos",
}
_SET_UPS: Final = (FileKind.NSIS, FileKind.INNO)
_APPIMAGE_MAGIC: Final = b"AI\x02"  # at 8 of a Linux program: type 2, which all tools write today
_SQUASHFS, _DWARFS = b"hsqs", b"DWARFS"  # file systems that follow the program of an AppImage
_URUNTIME: Final = b"URUNTIME"  # in each program of uruntime: how its variables begin
_OLE_MAGIC: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MSI_CLASS: Final = bytes.fromhex("84100c0000000000c000000000000046")  # of the root; a document has another
_MSI_SIGNATURE: Final = "\x05DigitalSignature".encode("utf-16-le")  # a stream's name
_NSIS_MARK: Final = b"\xef\xbe\xad\xdeNullsoftInst"  # at the head of the data behind the program
_INNO_MARK: Final = b"rDlPtS"  # of the table of offsets, in a resource of the program
_MAX_PROGRAM: Final = 64 * 1024**2  # bytes of a set-up's program, without its data
_BLOCK: Final = 256 << 10
_MAX_GAP: Final = 4096  # between a program and its data, which NSIS aligns to 512
_PE32_PLUS: Final = 0x20B
_CERTIFICATES: Final = 4  # the number of the data directory
_MAX_SECTIONS: Final = 96  # as Windows has it
_SCRIPT: Final = b"#!"
_PROGRAMS: Final = (ELF_MAGIC, _SCRIPT, MACH_O_MAGIC, UNIVERSAL_MAGIC)
"""How programs of Linux and macOS begin, and scripts; those of Windows may be set-ups."""

_SOURCES: Final = frozenset({".py", ".pyw"})
_EXECUTABLE: Final = 0o111 << 16  # of a zip entry's mode
_MAX_PROGRAMS: Final = 100  # at the top of a zip, of which the head is read
_MAX_LIST: Final = 16 << 20  # bytes of a zip's directory, and entries: as `licclient.install` has them
_MAX_ENTRIES: Final = 100_000
_ENTRY: Final = b"PK\x01\x02"
_FILE: Final = b"PK\x03\x04"  # begins a zip; its directory is at the end
_OWN_FILES: Final = ".licclient-"  # of `licclient`, in the folder of an installed version


class Flaw(enum.StrEnum):
    """What customers stumble over, or what looks like a mistake, in a file that can be published."""

    UNSIGNED = "unsigned"
    UNMARKED = "unmarked"
    CUT_OFF = "cut-off"
    NOT_UNPACKED = "not-unpacked"
    PROGRAM = "program"
    OTHER_SYSTEM = "other-system"
    OTHER_MACHINE = "other-machine"
    NO_EXE = "no-exe"
    NO_PROGRAM = "no-program"
    NO_ZIP = "no-zip"
    NESTED = "nested"
    NO_IMAGE = "no-image"
    OTHER_RUNTIME = "other-runtime"
    INSTALLED = "installed"


FLAWS: Final = {
    Flaw.UNSIGNED: "The file is not signed, so Windows warns people of it: use signtool or osslsigncode.",
    Flaw.UNMARKED: "The file has no marks of such a set-up: check that it is one.",
    Flaw.CUT_OFF: "The file is cut off, and cannot be installed: build or copy it again.",
    Flaw.NOT_UNPACKED: "The file cannot be unpacked as a zip: build or copy it again.",
    Flaw.PROGRAM: "The file is a Windows program: if it is a set-up, give its kind, so that apps can run it.",
    Flaw.OTHER_SYSTEM: "The kind is for another system than the platform: apps on that are offered it.",
    Flaw.OTHER_MACHINE: "The program is for another machine than the platform, and does not start there.",
    Flaw.NO_EXE: "The zip has no .exe: check that it is the one to publish.",
    Flaw.NO_PROGRAM: "The zip has no file that can be run: zip it on Linux or macOS, to keep the modes.",
    Flaw.NO_ZIP: "The file is a program and no zip, which no app in a folder can install: zip its folder.",
    Flaw.NESTED: "All files of the zip are in one folder: zip its content, unless apps look for it there.",
    Flaw.NO_IMAGE: "The AppImage has no file system behind its program: check that it starts.",
    Flaw.OTHER_RUNTIME: "The AppImage has uruntime or a DwarFS: licclient cannot replace such an app, and "
    "whether a DwarFS is whole was not checked. Use AppImage's own runtime.",
    Flaw.INSTALLED: "The zip has .licclient- files of an installed version: pack the folder that was built.",
}
"""Flaw → the sentence about it."""


class InspectedFile(NamedTuple):
    """The kind of a file, and its flaws."""

    kind: FileKind
    is_guessed: bool = False
    flaws: tuple[Flaw, ...] = ()

    @property
    def warning(self) -> str | None:
        """The sentences about the flaws; None without any."""
        return " ".join(FLAWS[flaw] for flaw in self.flaws) or None


def name_kind(kind: FileKind) -> str:
    """Return a kind's name to append to a sentence; nothing for a folder."""
    return f" as {NAMES[kind]}" if NAMES[kind] else ""


def inspect_file(file: Path, kind: str = "", platform: str = "") -> InspectedFile:
    """Guess the kind of a file, or check the one that is given.

    Raises:
        InvalidInputError: There is no such kind, or the file is of another.
    """
    if kind and not is_file_kind(kind):
        raise InvalidInputError(f"{kind!r} is not a kind of file: use one of {', '.join(FileKind)}")
    with validate_file(file).open("rb") as source:
        content = _read_content(source, file.suffix)
        chosen = FileKind(kind) if kind else content.kind or FileKind.FOLDER
        if chosen is not FileKind.FOLDER and not content.fits(chosen):
            raise InvalidInputError(
                f"the file is {content.description}, not {_ARTICLES[chosen]}; choose another file, or "
                "leave the kind out"
            )
    flaws = tuple(flaw for check in _CHECKS if (flaw := check(chosen, content, platform)) is not None)
    return InspectedFile(chosen, not kind, flaws)


_ARTICLES: Final = {
    FileKind.APPIMAGE: "an AppImage of type 2",
    FileKind.NSIS: "a set-up by NSIS",
    FileKind.INNO: "a set-up by Inno Setup",
    FileKind.MSI: "an MSI",
    FileKind.APP: "a zip of one macOS app",
}


class _Content(NamedTuple):
    """What a file is; `kind` is None for a program without marks, and for all that is not looked at."""

    description: str
    kind: FileKind | None = None
    is_program: bool = False
    is_signed: bool = False
    is_cut_off: bool = False
    is_no_zip: bool = False  # although its name or its content says so (D-414)
    is_script: bool = False  # or a program that is no set-up
    has_image: bool = True
    has_other_runtime: bool = False  # of an AppImage
    runs_on: Collection[str] = ()  # platforms; empty if that is not known
    entries: tuple[zipfile.ZipInfo, ...] = ()

    def fits(self, kind: FileKind) -> bool:
        """Return whether the file can be of a kind; a set-up's marks may be of a later version."""
        return self.kind is kind or (self.is_program and self.kind is None and kind in _SET_UPS)


def _read_content(source: BinaryIO, suffix: str) -> _Content:
    head = source.read(HEAD)
    if head.startswith(ELF_MAGIC):
        if head[8:].startswith(_APPIMAGE_MAGIC):
            return _read_appimage(source, head)
        return _Content("a Linux program", is_script=True, runs_on=list_platforms(head))
    if head.startswith(_OLE_MAGIC):
        return _read_compound_file(source, head)
    if head.startswith(DOS_MAGIC):
        return _read_program(source, head)
    if head.startswith(_PROGRAMS) or suffix.lower() in _SOURCES:
        return _Content("a program or its source", is_script=True, runs_on=list_platforms(head))
    return _read_zip(source, suffix)


def _read_appimage(source: BinaryIO, head: bytes) -> _Content:
    """Read an AppImage of type 2: whether the file system behind its program is there, and whole."""
    size = source.seek(0, os.SEEK_END)
    try:
        end = _find_program_end(source, head)
        source.seek(min(end, size))
        image = source.read(48)
        image_size = struct.unpack_from("<Q", image, 40)[0] if image.startswith(_SQUASHFS) else 0
    except struct.error:
        end, image, image_size = size, b"", 1
    return _Content(
        _ARTICLES[FileKind.APPIMAGE],
        FileKind.APPIMAGE,
        is_cut_off=end + image_size > size,
        has_image=image.startswith((_SQUASHFS, _DWARFS)),
        has_other_runtime=image.startswith(_DWARFS) or _has_mark(source, _URUNTIME, min(end, _MAX_PROGRAM)),
        runs_on=list_platforms(head),
    )


def _find_program_end(source: BinaryIO, head: bytes) -> int:
    """Return where an ELF program ends, as the runtime of an AppImage finds what follows.

    It is the end of the table of sections or of the last one, whichever is later. Raise `struct.error` for a
    program that is cut off in these.
    """
    order, is_wide = ">" if head[5:6] == b"\x02" else "<", head[4:5] == b"\x02"
    number, header_size, places_at = ("Q", 64, 24) if is_wide else ("L", 52, 16)
    (table,) = struct.unpack_from(order + number, head, 40 if is_wide else 32)
    section_size, count = struct.unpack_from(order + "HH", head, header_size - 6)
    last = table + section_size * (count - 1)
    if not count or last > source.seek(0, os.SEEK_END):
        return int(table + section_size * count)
    source.seek(last)
    offset, size = struct.unpack_from(order + number * 2, source.read(section_size), places_at)
    return int(max(last + section_size, offset + size))


def _read_compound_file(source: BinaryIO, head: bytes) -> _Content:
    """Read an OLE file, as an MSI is; its root is the first entry of its directory."""
    try:
        (sector_shift,), (first,) = struct.unpack_from("<H", head, 30), struct.unpack_from("<L", head, 48)
    except struct.error:
        return _Content("a damaged OLE file")
    size = source.seek(0, os.SEEK_END)
    root = ((first + 1) << min(sector_shift, 16)) + 80
    source.seek(min(root, size))  # a system has a highest place
    if source.read(16) != _MSI_CLASS:
        return _Content("an OLE document", is_cut_off=root > size)
    is_signed = _has_mark(source, _MSI_SIGNATURE, size)
    return _Content(_ARTICLES[FileKind.MSI], FileKind.MSI, is_signed=is_signed)


def _has_mark(source: BinaryIO, mark: bytes, size: int) -> bool:
    """Search the beginning of a file in blocks: 1 GiB in one piece keeps all threads waiting for 6 s."""
    source.seek(0)
    block = b""
    while more := source.read(min(_BLOCK, size - source.tell())):
        block = block[1 - len(mark) :] + more
        if mark in block:
            return True
    return False


def _read_program(source: BinaryIO, head: bytes) -> _Content:
    """Read a PE program: where its sections end, and whether it has a signature."""
    damaged = _Content("a damaged Windows program")
    try:
        (offset,) = struct.unpack_from("<L", head, 0x3C)
        source.seek(offset)
        header = source.read(24)
        sections, optional_size = struct.unpack_from("<H12xH", header, 6)
        optional = source.read(optional_size)
        (magic,) = struct.unpack_from("<H", optional)
        directories = 112 if magic == _PE32_PLUS else 96
        _, certificates_size = struct.unpack_from("<LL", optional, directories + 8 * _CERTIFICATES)
        table = source.read(40 * min(sections, _MAX_SECTIONS))
        ends = [sum(struct.unpack_from("<LL", table, place + 16)) for place in range(0, len(table), 40)]
    except struct.error:
        return damaged
    if not header.startswith(b"PE\0\0"):
        return damaged
    end = min(max(ends, default=0), _MAX_PROGRAM)
    source.seek(0)
    program = source.read(end)
    gap, size = source.read(_MAX_GAP), source.seek(0, os.SEEK_END)
    is_nsis = _NSIS_MARK in gap
    least = end + _read_nsis_size(gap) if is_nsis else _read_inno_size(program)
    kind = FileKind.NSIS if is_nsis else FileKind.INNO if _INNO_MARK in program else None
    return _Content(
        _ARTICLES[kind] if kind else "a Windows program",
        kind,
        is_program=True,
        is_signed=certificates_size > 0,
        is_cut_off=kind is not None and size < least,
        runs_on=list_platforms(head),
    )


def _read_nsis_size(gap: bytes) -> int:
    """Return how many bytes a set-up by NSIS has behind its program at least; 0 if that cannot be read."""
    place = gap.index(_NSIS_MARK) - 4  # of flags, before the mark; both sizes are behind it
    try:
        (size,) = struct.unpack_from("<L", gap, place + 24)
    except struct.error:
        return 0
    return place + int(size)


def _read_inno_size(program: bytes) -> int:
    """Return the size that a set-up by Inno Setup has at least; 0 if that cannot be read.

    The set-up itself compares it as well, but before Inno Setup 6.6 in a window, even if it runs silently.
    """
    _, _, table = program.partition(_INNO_MARK)
    try:
        version, size = struct.unpack_from("<LL", table, 6)
        return int(size if version == 1 else struct.unpack_from("<Q", table, 10)[0])
    except struct.error:
        return 0


class _TooManyFilesError(Exception):
    """The directory of a zip is longer than any that can be installed."""


class _ZipFile(io.BufferedReader):
    """A zip whose directory is checked as it is read: `zipfile` reads it at once, and keeps all of it."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read as usual; only the directory is read in a large piece."""
        if (size or 0) > _MAX_LIST:
            raise _TooManyFilesError
        content = super().read(size)
        if content.count(_ENTRY) > _MAX_ENTRIES:
            raise _TooManyFilesError
        return content


def _read_zip(source: BinaryIO, suffix: str) -> _Content:
    if source.seek(0, os.SEEK_END) == 0:
        return _Content("an empty file", is_cut_off=True)
    is_no_zip = suffix.lower() == ".zip"
    with _ZipFile(io.FileIO(source.fileno(), closefd=False)) as file:
        try:
            if not zipfile.is_zipfile(file):
                file.seek(0)
                is_cut_off = file.read(4) == _FILE
                return _Content("a file of another kind", is_cut_off=is_cut_off, is_no_zip=is_no_zip)
            with zipfile.ZipFile(file) as archive:
                return _describe_zip(archive)
        except _TooManyFilesError:
            return _Content("a zip with too many files")
        # A damaged directory, a name that cannot be read, a version of the format that Python does not know.
        except (zipfile.BadZipFile, ValueError, NotImplementedError):
            return _Content("a damaged zip", is_no_zip=True)


def _describe_zip(archive: zipfile.ZipFile) -> _Content:
    entries = tuple(archive.infolist())
    roots = {entry.filename.partition("/")[0] for entry in entries} - {"__MACOSX"}
    root = min(roots, default="")
    has_plist = any(entry.filename == f"{root}/Contents/Info.plist" for entry in entries)
    if len(roots) == 1 and root.endswith(".app") and has_plist:
        runs_on = _list_zipped_platforms(archive, f"{root}/Contents/MacOS/")
        return _Content(_ARTICLES[FileKind.APP], FileKind.APP, runs_on=runs_on, entries=entries)
    place = _find_only_folder(entries) or ""
    return _Content("a zip", runs_on=_list_zipped_platforms(archive, place), entries=entries)


def _find_only_folder(entries: tuple[zipfile.ZipInfo, ...]) -> str | None:
    """Return the folder in which all files of a zip are, with a slash behind it; None without such a one."""
    files = [entry.filename for entry in entries if not entry.filename.endswith("/")]
    roots = {"".join(name.partition("/")[:2]) for name in files} - {"__MACOSX/"}
    root = min(roots, default="")
    return root if len(roots) == 1 and root.endswith("/") else None


def _list_zipped_platforms(archive: zipfile.ZipFile, place: str) -> Collection[str]:
    """Return the platforms on which any program at the top of a zip starts; none if that is not known.

    Programs of several systems and machines may be in a zip, and libraries below; a script starts anywhere.
    """
    files = [entry for entry in archive.infolist() if entry.filename.rpartition("/")[0] == place[:-1]]
    programs = [entry for entry in files if _is_program(entry)]
    platforms: set[str] = set()
    for entry in programs[:_MAX_PROGRAMS]:
        head = _read_head(archive, entry)
        if head is None or head.startswith(_SCRIPT):
            return ()
        platforms |= list_platforms(head)
    return () if len(programs) > _MAX_PROGRAMS else platforms


def _read_head(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes | None:
    """Return how a file in a zip begins; None if that is damaged, encrypted or of a rare compression."""
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return None
    try:
        with archive.open(entry) as file:
            return file.read(HEAD)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError):
        return None


def _is_program(entry: zipfile.ZipInfo) -> bool:
    name = entry.filename.lower()  # may be empty
    return name.endswith(".exe") or (bool(entry.external_attr & _EXECUTABLE) and not name.endswith("/"))


# --- flaws --------------------------------------------------------------------------------------


def _check_signature(kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    needs_it = kind in (*_SET_UPS, FileKind.MSI)
    return Flaw.UNSIGNED if needs_it and not content.is_signed else None


def _check_marks(kind: FileKind, content: _Content, platform: str) -> Flaw | None:
    if kind in _SET_UPS and content.kind is None:
        return Flaw.UNMARKED
    is_program = kind is FileKind.FOLDER and content.is_program
    return Flaw.PROGRAM if is_program and platform else None


def _check_zip(_kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    return Flaw.NO_ZIP if content.is_script else None  # it can only be published as a folder


def _check_image(kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    is_whole = content.has_image or content.is_cut_off
    return Flaw.NO_IMAGE if kind is FileKind.APPIMAGE and not is_whole else None


def _check_runtime(kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    is_other = kind is FileKind.APPIMAGE and content.has_other_runtime
    return Flaw.OTHER_RUNTIME if is_other else None


def _check_origin(_kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    """Look for the record of a launcher: a new version would count as confirmed, or as rolled back."""
    is_installed = any(entry.filename.lower().startswith(_OWN_FILES) for entry in content.entries)
    return Flaw.INSTALLED if is_installed else None


def _check_size(_kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    return Flaw.CUT_OFF if content.is_cut_off else None


def _check_zip_itself(_kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    return Flaw.NOT_UNPACKED if content.is_no_zip and not content.is_cut_off else None


def _check_system(kind: FileKind, _content: _Content, platform: str) -> Flaw | None:
    system = platform.partition("-")[0]
    is_other = system in _SYSTEMS.values() and _SYSTEMS.get(kind, system) != system
    return Flaw.OTHER_SYSTEM if is_other else None


def _check_machine(kind: FileKind, content: _Content, platform: str) -> Flaw | None:
    """Compare the machine in the header of a program, or of each one at the top of a zip (D-407)."""
    is_other = bool(content.runs_on) and platform in PLATFORMS - {*content.runs_on}
    return Flaw.OTHER_MACHINE if is_other and not _check_system(kind, content, platform) else None


def _check_place(kind: FileKind, content: _Content, platform: str) -> Flaw | None:
    """Look for a program at the top of a zip that is for a platform, where the launcher starts it."""
    if kind is not FileKind.FOLDER or platform.partition("-")[0] not in _SYSTEMS.values():
        return None
    return Flaw.NESTED if _find_only_folder(content.entries) else None


def _check_program(_kind: FileKind, content: _Content, platform: str) -> Flaw | None:
    """Look for a program in a zip that is for a platform; a plugin's zip has none."""
    system = platform.partition("-")[0]
    files = [entry for entry in content.entries if not entry.filename.endswith("/")]
    if not files or system not in _SYSTEMS.values():
        return None
    if system == "windows":
        has_exe = any(entry.filename.lower().endswith(".exe") for entry in files)
        return None if has_exe else Flaw.NO_EXE
    return None if any(entry.external_attr & _EXECUTABLE for entry in files) else Flaw.NO_PROGRAM


_CHECKS: Final[tuple[Callable[[FileKind, _Content, str], Flaw | None], ...]] = (
    _check_size,
    _check_zip_itself,
    _check_image,
    _check_runtime,
    _check_origin,
    _check_system,
    _check_machine,
    _check_program,
    _check_zip,
    _check_place,
    _check_marks,
    _check_signature,
)
"""The gravest flaw first: the console shows one."""
