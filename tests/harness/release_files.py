"""Files of each kind that can be published: as small as their marks allow."""

import io
import struct
import zipfile
from collections.abc import Callable, Mapping

_DIRECTORIES = 16


def zip_of(
    *names: str,
    mode: int = 0o644,
    contents: Mapping[str, bytes] | None = None,
    compression: int = zipfile.ZIP_STORED,
) -> bytes:
    """Return a zip of files with one mode."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", compression) as archive:
        for name in names:
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr = 3, mode << 16
            entry.compress_type = compression
            archive.writestr(entry, (contents or {}).get(name, name.encode()))
    return written.getvalue()


def appimage(
    version: bytes = b"AI\x02", content: bytes = b"", *, bits: int = 64, order: str = "<", machine: int = 62
) -> bytes:
    """Return an AppImage: a program of two sections, and a SquashFS of `content`; of type 2 by default."""
    is_wide = bits == 64
    size, section = (64, 64) if is_wide else (52, 40)
    head = bytearray(b"\x7fELF" + bytes((2 if is_wide else 1, 1 if order == "<" else 2, 1, 0)) + version)
    head = head.ljust(size, b"\0")
    struct.pack_into(order + "HH", head, 16, 2, machine)
    struct.pack_into(order + ("Q" if is_wide else "L"), head, 40 if is_wide else 32, size)
    struct.pack_into(order + "HH", head, size - 6, section, 2)
    sections = bytearray(2 * section)
    place = section + (24 if is_wide else 16)
    struct.pack_into(order + ("QQ" if is_wide else "LL"), sections, place, size + 2 * section, 8)
    image = b"hsqs" + bytes(36) + struct.pack("<Q", 96 + len(content)) + bytes(48) + content
    return bytes(head + sections) + b"section." + image


def program(
    resources: bytes = b"",
    data: bytes = b"",
    *,
    signed: bool = False,
    magic: int = 0x20B,
    sections: int = 1,
    machine: int = 0x8664,
) -> bytes:
    """Return a Windows program of one section, with data behind it."""
    directories_at = 112 if magic == 0x20B else 96
    optional = bytearray(directories_at + 8 * _DIRECTORIES)
    struct.pack_into("<H", optional, 0, magic)
    section = bytes(512) + resources
    header = b"MZ" + bytes(58) + struct.pack("<L", 64)
    header += b"PE\0\0" + struct.pack("<HHLLLHH", machine, sections, 0, 0, 0, len(optional), 2)
    begin = len(header) + len(optional) + 40
    if signed:
        end = begin + len(section) + len(data)
        struct.pack_into("<LL", optional, directories_at + 8 * 4, end, 8)
    table = b".rsrc\0\0\0" + struct.pack("<LLLL", len(section), 4096, len(section), begin) + bytes(16)
    return header + bytes(optional) + table + section + data + (b"signature"[:8] if signed else b"")


def nsis(*, signed: bool = True, content: bytes = b"") -> bytes:
    """Return a set-up as NSIS makes it, with its mark behind the program."""
    sizes = struct.pack("<LL", 0, 28 + len(content))
    return program(data=bytes(4) + b"\xef\xbe\xad\xdeNullsoftInst" + sizes + content, signed=signed)


def inno(*, signed: bool = True, content: bytes = b"", version: int = 1) -> bytes:
    """Return a set-up as Inno Setup makes it, with its table of a version in a resource."""

    def written(size: int) -> bytes:
        numbers = struct.pack("<LQ" if version > 1 else "<LL", version, size)
        table = (b"rDlPtS\xcd\xe6\xd7\x7b\x0b\x2a" + numbers).ljust(44, b"\xff")
        return program(table, b"idska32\x1a" + content, signed=signed, magic=0x10B)

    return written(len(written(0)))


def msi(
    *, signed: bool = True, class_id: str = "84100c0000000000c000000000000046", content: bytes = b""
) -> bytes:
    """Return an OLE file whose root has the class of an MSI, unless another is given."""
    head = bytearray(512)
    head[:8] = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
    struct.pack_into("<H", head, 30, 9)
    struct.pack_into("<L", head, 48, 1)  # the second sector: the directory
    root = bytearray(128)
    root[80:96] = bytes.fromhex(class_id)
    signature = "\x05DigitalSignature".encode("utf-16-le") if signed else b""
    return bytes(head) + bytes(512) + (bytes(root) + signature).ljust(512, b"\0") + content


def app(content: bytes = b"") -> bytes:
    """Return a zip of a macOS app, as Finder makes it."""
    program = "App.app/Contents/MacOS/App"
    names = ("App.app/Contents/Info.plist", program, "__MACOSX/._App.app")
    return zip_of(*names, mode=0o755, contents={program: content})


def folder(content: bytes = b"") -> bytes:
    """Return a zip of a folder with programs for each system."""
    return zip_of("app", "app.exe", mode=0o755, contents={"app": content})


KINDS: Mapping[str, Callable[..., bytes]] = {
    "folder": folder,
    "appimage": appimage,
    "nsis": nsis,
    "inno": inno,
    "msi": msi,
    "app": app,
}
"""Kind → the function that returns the bytes of a file."""


def file_of(kind: str, content: bytes = b"") -> bytes:
    """Return a file of a kind that has some content; signed, if it is a set-up."""
    return KINDS[kind](content=content)


PLATFORMS = {
    "folder": "windows-x86_64",
    "appimage": "linux-x86_64",
    "nsis": "windows-x86_64",
    "inno": "windows-x86_64",
    "msi": "windows-x86_64",
    "app": "macos-arm64",
}
"""Kind → a platform of its system."""
