"""The platforms on which a program starts, by the head of its file."""

from collections.abc import Mapping
from typing import Final

HEAD: Final = 4096
"""Bytes of a file that are read; the header of a Windows program is behind a small program of DOS."""

PLATFORMS: Final = frozenset(
    f"{system}-{machine}"
    for system in ("linux", "windows", "macos")
    for machine in ("x86", "x86_64", "arm64")
)
"""Those whose programs are known by their header."""

_Codes = Mapping[int, tuple[str, ...]]
_ELF: Final[_Codes] = {3: ("linux-x86", "linux-x86_64"), 62: ("linux-x86_64",), 183: ("linux-arm64",)}
_PE: Final[_Codes] = {
    0x14C: ("windows-x86", "windows-x86_64", "windows-arm64"),
    0x8664: ("windows-x86_64", "windows-arm64"),
    0xAA64: ("windows-arm64",),
}
_MACH_O: Final[_Codes] = {0x1000007: ("macos-x86_64", "macos-arm64"), 0x100000C: ("macos-arm64",)}
"""Machine in a header → the platforms that start it, by an emulation as well."""

ELF_MAGIC: Final = b"\x7fELF"
DOS_MAGIC: Final = b"MZ"
_PE_MAGIC: Final = b"PE\0\0"
MACH_O_MAGIC: Final = bytes.fromhex("cffaedfe")
UNIVERSAL_MAGIC: Final = bytes.fromhex("cafebabe")
_MAX_PARTS: Final = 30  # of a universal program; in a class file of Java, a version follows that is higher


def list_platforms(head: bytes) -> frozenset[str]:
    """Return the platforms on which a program starts; none if that is not known, or it is no program."""
    if head.startswith(ELF_MAGIC):
        machine = int.from_bytes(head[18:20], "big" if head[5:6] == b"\x02" else "little")
        return frozenset(_ELF.get(machine, ()))
    if head.startswith(DOS_MAGIC):
        header = head[int.from_bytes(head[0x3C:0x40], "little") :][:6]
        is_program = header.startswith(_PE_MAGIC)
        return frozenset(_PE.get(int.from_bytes(header[4:6], "little"), ()) if is_program else ())
    if head.startswith(MACH_O_MAGIC):
        return frozenset(_MACH_O.get(int.from_bytes(head[4:8], "little"), ()))
    parts = int.from_bytes(head[4:8], "big")
    if head.startswith(UNIVERSAL_MAGIC) and parts <= _MAX_PARTS:
        machines = (int.from_bytes(head[8 + 20 * part :][:4], "big") for part in range(parts))
        return frozenset(name for machine in machines for name in _MACH_O.get(machine, ()))
    return frozenset()
