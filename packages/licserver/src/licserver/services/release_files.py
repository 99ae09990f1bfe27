"""The kind of a file that is published, by its content, and what is wrong with it (D-370)."""

import enum
import mmap
import os
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from licserver.domain.offers import is_file_kind
from licserver.domain.records import FileKind
from licserver.errors import InvalidInputError
from licserver.security.private_files import validate_file

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
_APPIMAGE_MAGIC: Final = (b"\x7fELF", b"AI\x02")  # at 0 and at 8: type 2, which all tools write today
_OLE_MAGIC: Final = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_MSI_CLASS: Final = bytes.fromhex("84100c0000000000c000000000000046")  # of the root; a document has another
_MSI_SIGNATURE: Final = "\x05DigitalSignature".encode("utf-16-le")  # a stream's name
_NSIS_MARK: Final = b"\xef\xbe\xad\xdeNullsoftInst"  # at the head of the data behind the program
_INNO_MARK: Final = b"rDlPtS"  # of the table of offsets, in a resource of the program
_MAX_PROGRAM: Final = 64 * 1024**2  # bytes of a set-up's program, without its data
_MAX_GAP: Final = 4096  # between a program and its data, which NSIS aligns to 512
_PE32_PLUS: Final = 0x20B
_CERTIFICATES: Final = 4  # the number of the data directory
_MAX_SECTIONS: Final = 96  # as Windows has it
_EXECUTABLE: Final = 0o111 << 16  # of a zip entry's mode


class Flaw(enum.StrEnum):
    """What customers stumble over, or what looks like a mistake, in a file that can be published."""

    UNSIGNED = "unsigned"
    UNMARKED = "unmarked"
    CUT_OFF = "cut-off"
    PROGRAM = "program"
    OTHER_SYSTEM = "other-system"
    NO_EXE = "no-exe"
    NO_PROGRAM = "no-program"


FLAWS: Final = {
    Flaw.UNSIGNED: "The file is not signed, so Windows warns people of it: use signtool or osslsigncode.",
    Flaw.UNMARKED: "The file has no marks of such a set-up: check that it is one.",
    Flaw.CUT_OFF: "The set-up is cut off, and cannot install anything: build or copy it again.",
    Flaw.PROGRAM: "The file is a Windows program: if it is a set-up, give its kind, so that apps can run it.",
    Flaw.OTHER_SYSTEM: "The kind is for another system than the platform: apps on that are offered it.",
    Flaw.NO_EXE: "The zip has no .exe: check that it is the one to publish.",
    Flaw.NO_PROGRAM: "The zip has no file that can be run: zip it on Linux or macOS, to keep the modes.",
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
        content = _read_content(source)
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
    entries: tuple[zipfile.ZipInfo, ...] = ()

    def fits(self, kind: FileKind) -> bool:
        """Return whether the file can be of a kind; a set-up's marks may be of a later version."""
        return self.kind is kind or (self.is_program and self.kind is None and kind in _SET_UPS)


def _read_content(source: BinaryIO) -> _Content:
    head = source.read(512)
    if head.startswith(_APPIMAGE_MAGIC[0]):
        is_appimage = head[8:].startswith(_APPIMAGE_MAGIC[1])
        kind = FileKind.APPIMAGE if is_appimage else None
        return _Content(_ARTICLES[kind] if kind else "a Linux program", kind)
    if head.startswith(_OLE_MAGIC):
        return _read_compound_file(source, head)
    if head.startswith(b"MZ"):
        return _read_program(source, head)
    if zipfile.is_zipfile(source):
        return _read_zip(source)
    return _Content("a file of another kind")


def _read_compound_file(source: BinaryIO, head: bytes) -> _Content:
    """Read an OLE file, as an MSI is; its root is the first entry of its directory."""
    (sector_shift,), (first,) = struct.unpack_from("<H", head, 30), struct.unpack_from("<L", head, 48)
    source.seek(((first + 1) << min(sector_shift, 16)) + 80)
    if source.read(16) != _MSI_CLASS:
        return _Content("an OLE document")
    with mmap.mmap(source.fileno(), 0, access=mmap.ACCESS_READ) as content:
        is_signed = content.find(_MSI_SIGNATURE) >= 0
    return _Content(_ARTICLES[FileKind.MSI], FileKind.MSI, is_signed=is_signed)


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
    is_nsis = _NSIS_MARK in source.read(_MAX_GAP)
    kind = FileKind.NSIS if is_nsis else FileKind.INNO if _INNO_MARK in program else None
    return _Content(
        _ARTICLES[kind] if kind else "a Windows program",
        kind,
        is_program=True,
        is_signed=certificates_size > 0,
        is_cut_off=kind is FileKind.INNO and source.seek(0, os.SEEK_END) < _read_inno_size(program),
    )


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


def _read_zip(source: BinaryIO) -> _Content:
    try:
        with zipfile.ZipFile(source) as archive:
            entries = tuple(archive.infolist())
    except (zipfile.BadZipFile, ValueError):  # its directory, or a name in it
        return _Content("a damaged zip")
    roots = {entry.filename.partition("/")[0] for entry in entries} - {"__MACOSX"}
    root = min(roots, default="")
    has_plist = any(entry.filename == f"{root}/Contents/Info.plist" for entry in entries)
    if len(roots) == 1 and root.endswith(".app") and has_plist:
        return _Content(_ARTICLES[FileKind.APP], FileKind.APP, entries=entries)
    return _Content("a zip", entries=entries)


# --- flaws --------------------------------------------------------------------------------------


def _check_signature(kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    needs_it = kind in (*_SET_UPS, FileKind.MSI)
    return Flaw.UNSIGNED if needs_it and not content.is_signed else None


def _check_marks(kind: FileKind, content: _Content, platform: str) -> Flaw | None:
    if kind in _SET_UPS and content.kind is None:
        return Flaw.UNMARKED
    is_program = kind is FileKind.FOLDER and content.is_program
    return Flaw.PROGRAM if is_program and platform else None


def _check_size(_kind: FileKind, content: _Content, _platform: str) -> Flaw | None:
    return Flaw.CUT_OFF if content.is_cut_off else None


def _check_system(kind: FileKind, _content: _Content, platform: str) -> Flaw | None:
    system = platform.partition("-")[0]
    is_other = system in _SYSTEMS.values() and _SYSTEMS.get(kind, system) != system
    return Flaw.OTHER_SYSTEM if is_other else None


def _check_program(_kind: FileKind, content: _Content, platform: str) -> Flaw | None:
    """Look for a program in a zip that is for a platform; a plugin's zip has none."""
    system, files = platform.partition("-")[0], [entry for entry in content.entries if not entry.is_dir()]
    if not files or system not in _SYSTEMS.values():
        return None
    if system == "windows":
        has_exe = any(entry.filename.lower().endswith(".exe") for entry in files)
        return None if has_exe else Flaw.NO_EXE
    return None if any(entry.external_attr & _EXECUTABLE for entry in files) else Flaw.NO_PROGRAM


_CHECKS: Final[tuple[Callable[[FileKind, _Content, str], Flaw | None], ...]] = (
    _check_signature,
    _check_marks,
    _check_size,
    _check_system,
    _check_program,
)
