"""Zips of our making: good ones, and the table of those that may not be unpacked. A new row is a line."""

import io
import stat
import struct
import warnings
import zipfile
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from licclient import Downloaded

APP = {"photo-lab": b"#!/bin/sh\necho photo-lab\n", "_internal/base.txt": b"base", "_internal/a/b.txt": b""}
PROGRAMS = frozenset({"photo-lab"})

Write = Callable[[zipfile.ZipFile], object]


def pack(files: Mapping[str, bytes], programs: frozenset[str] = PROGRAMS) -> bytes:
    """Zip files as a Unix tool does, with their permissions."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name, content in files.items():
            zipped.writestr(entry(name, stat.S_IFREG | (0o755 if name in programs else 0o644)), content)
    return raw.getvalue()


def entry(name: str, mode: int = stat.S_IFREG | 0o644, **changes: int) -> zipfile.ZipInfo:
    """Describe one entry."""
    info = zipfile.ZipInfo("x", (2026, 11, 21, 12, 0, 0))
    info.filename = info.orig_filename = name
    info.compress_type = zipfile.ZIP_DEFLATED
    info.create_system = 3
    info.external_attr = mode << 16
    info.flag_bits = 0 if name.isascii() else 0x800
    for field, value in changes.items():
        setattr(info, field, value)
    return info


def downloaded(folder: Path, content: bytes, version: str = "1.0.0") -> Downloaded:
    """Lay down a file as `download` leaves it."""
    digest = sha256(content).hexdigest()
    path = folder / f"{digest[:8]}.zip"
    path.write_bytes(content)
    return Downloaded(path, len(content), digest, version, is_verified=True)


def app(version: str) -> bytes:
    """Return the zip of an app whose program prints its version."""
    program = f'#!/bin/sh\necho "photo-lab {version} $*"\n'.encode()
    return pack(APP | {"photo-lab": program, "_internal/version.txt": version.encode()})


def content_of(folder: Path) -> dict[str, bytes]:
    """Read a folder whole."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def names(root: Path) -> set[str]:
    """Return the names of everything in the folder of versions."""
    return {path.name for path in (root / "versions").iterdir()}


# --- what may not be unpacked -----------------------------------------------------------------


def zip_of(*entries: zipfile.ZipInfo, patch: tuple[bytes, bytes] | None = None) -> bytes:
    """Zip a good file and some entries."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as zipped, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # zipfile notices that a name is there twice
        zipped.writestr(entry("good.txt"), b"good")
        for entry_ in entries:
            zipped.writestr(entry_, b"bad")
    content = raw.getvalue()
    return content if patch is None else content.replace(*patch)


def _lying(field: int, value: int) -> bytes:
    """Change one four-byte field of the last entry in the directory, and nothing else."""
    content = bytearray(zip_of(entry("lie.txt")))
    at = content.rindex(b"PK\x01\x02")
    content[at + field : at + field + 4] = struct.pack("<I", value)
    return bytes(content)


NAMES = {
    "above": "../evil",
    "above, deep": "a/../../evil",
    "above, inside": "a/../b",
    "here": "./a",
    "absolute": "/etc/evil",
    "network share": "//host/share",
    "nothing between": "a//b",
    "drive": "C:/evil",
    "drive, relative": "C:evil",
    "stream": "a.txt:hidden",
    "backslash": "..\\evil",
    "backslash, inside": "a\\b",
    "device": "NUL",
    "device with an ending": "a/com1.txt",
    "device in lower case": "aux/b",
    "dot at the end": "evil.",
    "space at the end": "evil /b",
    "wildcard": "a*",
    "control character": "a\x1b[2J",
    "turned around": "a\u202egpj.exe",
    "invisible": "a\u200bb",
    "too long": "x" * 256,
    "too deep": "/".join("x" * 100 for _ in range(11)),
    "same file": "good.txt",
    "same but for case": "GOOD.TXT",
    "below a file": "good.txt/b",
    "folder where a file is": "Good.txt/",
}

MODES = {
    "link": stat.S_IFLNK | 0o777,
    "pipe": stat.S_IFIFO | 0o644,
    "device file": stat.S_IFCHR | 0o644,
    "socket": stat.S_IFSOCK | 0o644,
    "folder that is called like a file": stat.S_IFDIR | 0o755,
}

HOSTILE = {  # a few of the names and modes: all of them are for the plan alone (`test_archive`)
    **{name: zip_of(entry(NAMES[name])) for name in ("above", "absolute", "backslash", "same but for case")},
    "link": zip_of(entry("bad", MODES["link"])),
    "file that is called like a folder": zip_of(entry("bad/", stat.S_IFREG | 0o644)),
    "link that is called like a folder": zip_of(entry("bad/", stat.S_IFLNK | 0o777)),
    "NUL in the name": zip_of(entry("aXb"), patch=(b"aXb", b"a\0b")),
    "LZMA": zip_of(entry("bad", compress_type=zipfile.ZIP_LZMA)),
    "encrypted": _lying(8, 0x1),
    "larger than it says": _lying(24, 2),
    "smaller than it says": _lying(24, 300_000),
    "larger than any app": _lying(24, 0xFFFFFFF0),
    "another checksum": _lying(16, 7),
    "no data": _lying(42, 0x7FFFFFF0),
    "no file": pack({}),
    "no zip": b"<html>Please log in.</html>" * 20,
    "empty": b"",
    "cut off": app("1.0.0")[:-40],
}
