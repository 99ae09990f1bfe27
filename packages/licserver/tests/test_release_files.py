"""The kind of a file that is published: guessed by its content, or checked, and the warnings (D-370)."""

import contextlib
import os
import shutil
import struct
import subprocess
import threading
import time
import tracemalloc
import zipfile

import pytest

from harness import release_files
from harness.release_files import KINDS, PLATFORMS, file_of, program, zip_of
from licserver.domain.records import FileKind
from licserver.errors import InvalidInputError
from licserver.services.release_files import inspect_file

WINDOWS, LINUX = "windows-x86_64", "linux-x86_64"


@pytest.fixture
def inspect(tmp_path):
    """Inspect a file of these bytes."""

    def inspect(content, kind="", platform="", name="app.bin"):
        file = tmp_path / name
        file.write_bytes(content)
        return inspect_file(file, kind, platform)

    return inspect


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_guessed(inspect, kind):
    """It is what its content says, and nothing is wrong with a file of its own platform."""
    assert [*KINDS] == [*FileKind]
    assert inspect(file_of(kind), platform=PLATFORMS[kind]) == (kind, True, ())
    assert inspect(file_of(kind), kind, PLATFORMS[kind]) == (kind, False, ())


def patched(content: bytes, place: int, *values: int) -> bytes:
    """Return a file with other bytes at a place."""
    changed = bytearray(content)
    place %= len(changed)
    changed[place : place + len(values)] = bytes(values)
    return bytes(changed)


ZIP64 = struct.pack("<4sLQL", b"PK\x06\x07", 7, 0, 9)
"""Where the end of a zip of nine disks is."""

OTHERS = {
    "text": b"a file",
    "a Windows program": program(signed=True),
    "a DOS program": b"MZ" + bytes(100),
    "half a Windows program": program()[:80],
    "a Windows program without a header": program().replace(b"PE\0\0", b"NE\0\0"),
    "the head of an OLE file": release_files.msi()[:40],
    "an OLE document": release_files.msi(class_id="00" * 16),
    "a Windows patch": release_files.msi(class_id="86100c0000000000c000000000000046"),
    "a zip": zip_of("app/app"),
    "an empty zip": zip_of(),
    "a zip of two apps": zip_of("A.app/Contents/Info.plist", "B.app/Contents/Info.plist"),
    "an app and a text": zip_of("A.app/Contents/Info.plist", "README"),
    "an app without a description": zip_of("A.app/Contents/MacOS/A"),
    "a folder with the files of an app": zip_of("app/Contents/Info.plist"),
}
DAMAGED = {
    "nothing": (b"", "app.exe", "cut off"),
    "a page in the place of a zip": (b"<html>404</html>", "app.ZIP", "cannot be unpacked"),
    "zeros in the place of a zip": (bytes(3000), "app.zip", "cannot be unpacked"),
    "a zip for a program of 2030": (
        bytes(patched(zip_of("app/app"), -22 - 53 + 6, 99)),
        "app",
        "cannot be unpacked",
    ),
    "a zip of a disk of several": (
        zip_of("app")[:-22] + ZIP64 + zip_of("app")[-22:],
        "app",
        "cannot be unpacked",
    ),
    "a zip without its directory": (
        zip_of("a" * 50, "b")[:-60] + zip_of("a")[-22:],
        "app",
        "cannot be unpacked",
    ),
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS.keys())
def test_every_other_file_is_a_folder(inspect, content):
    """As before there were kinds; a file that is certainly no set-up is refused as one."""
    assert inspect(content) == ("folder", True, ())
    assert inspect(content, "folder")[:2] == ("folder", False)
    for kind in set(KINDS) - {"folder", "nsis", "inno"}:
        with pytest.raises(InvalidInputError, match=r"the file is .*, not an?"):
            inspect(content, kind)


@pytest.mark.parametrize(("content", "name", "warning"), DAMAGED.values(), ids=DAMAGED.keys())
def test_what_no_app_can_unpack_is_warned_of(inspect, content, name, warning):
    """A build step that has failed leaves such files, and a version that is published never changes."""
    for kind in ("", "folder"):
        found = inspect(content, kind, name=name)
        assert (found.kind, warning in (found.warning or "")) == ("folder", True)
    with pytest.raises(InvalidInputError, match=r"the file is .*, not an?"):
        inspect(content, "msi", name=name)


@pytest.mark.parametrize("given", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_kind_is_refused(inspect, kind, given):
    """Whatever is said; only a folder may be everything."""
    if given in (kind, "folder"):
        assert inspect(file_of(kind), given).kind == given
        return
    with pytest.raises(InvalidInputError, match="choose another file, or leave the kind out"):
        inspect(file_of(kind), given)


def test_an_unknown_kind_is_refused_with_those_that_there_are(inspect):
    """Before the file is read."""
    with pytest.raises(
        InvalidInputError, match="'exe' is not a kind of file: use one of folder, appimage, nsis"
    ):
        inspect(b"", "exe")


def test_a_file_that_is_none_is_refused(tmp_path):
    """As by publishing."""
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(InvalidInputError, match="is not a file"):
            inspect_file(path)


WARNINGS = {
    "an NSIS set-up without a signature": (release_files.nsis(signed=False), "", WINDOWS, "not signed"),
    "an Inno set-up without a signature": (release_files.inno(signed=False), "", WINDOWS, "not signed"),
    "an MSI without a signature": (release_files.msi(signed=False), "", WINDOWS, "not signed"),
    "a program said to be a set-up": (program(signed=True), "inno", WINDOWS, "no marks"),
    "a program for a platform": (program(), "", WINDOWS, "give its kind"),
    "a set-up for macOS": (release_files.nsis(), "", "macos-arm64", "another system"),
    "an AppImage for Windows": (release_files.appimage(), "", WINDOWS, "another system"),
    "an AppImage of eleven bytes": (release_files.appimage()[:11], "", LINUX, "cut off"),
    "an AppImage that ends": (release_files.appimage()[:-1], "", LINUX, "cut off"),
    "an AppImage without a file system": (
        release_files.appimage().replace(b"hsqs", b"\0\0\0\0"),
        "",
        LINUX,
        "file system",
    ),
    "an installed version's folder": (
        zip_of("app", ".licclient-confirmed", mode=0o755),
        "",
        LINUX,
        "installed version",
    ),
    "a folder of a launcher's": (zip_of(".LICCLIENT-new/x"), "", "", "installed version"),
    "an ELF program": (release_files.appimage(b"\0\0\0"), "", LINUX, "no zip"),
    "an AppImage of type 1": (release_files.appimage(b"AI\x01"), "", "", "no zip"),
    "a script": (b"#!/bin/sh", "", LINUX, "no zip"),
    "a program of macOS": (bytes.fromhex("cafebabe00000002"), "", "macos-arm64", "no zip"),
    "an MSI that ends": (release_files.msi()[:600], "", "", "cut off"),
    "an OLE file of wild places": (release_files.msi()[:8] + b"\xff" * 600, "", "", "cut off"),
    "a zip that ends": (zip_of("app")[:-30], "", "", "cut off"),
    "an NSIS set-up that ends": (release_files.nsis(signed=False, content=b"files")[:-1], "", "", "cut off"),
    "a zip of a folder": (zip_of("app/", "app/run", mode=0o755), "", LINUX, "in one folder"),
    "a zip of a folder for Windows": (zip_of("APP/APP.EXE", "APP/A"), "", WINDOWS, "in one folder"),
    "a zip for Windows without a program": (zip_of("app/app.py"), "", WINDOWS, "no .exe"),
    "a zip for Linux that lost its modes": (zip_of("app/app"), "", "linux-x86_64", "can be run"),
    "a zip for macOS that lost its modes": (zip_of("app/app"), "", "macos-arm64", "can be run"),
}


@pytest.mark.parametrize(("content", "kind", "platform", "warning"), WARNINGS.values(), ids=WARNINGS.keys())
def test_what_customers_would_stumble_over_is_warned_of(inspect, content, kind, platform, warning):
    """Without a refusal: there are reasons for each."""
    assert warning in (inspect(content, kind, platform).warning or "")


def test_what_is_usual_is_not_warned_of(inspect):
    """A plugin's zip for all platforms, a platform's name of the vendor's own, a program in upper case."""
    assert inspect(zip_of("plugin/plugin.php")).warning is None
    assert inspect(zip_of("app/app"), platform="haiku").warning is None
    assert inspect(zip_of("app/app", "read.me", mode=0o755), platform=LINUX).warning is None
    assert inspect(release_files.msi(), platform="win11").warning is None
    assert inspect(zip_of("APP.EXE"), platform=WINDOWS).warning is None
    assert inspect(zip_of("run", "app/", "app/a", mode=0o755), platform="linux-arm64").warning is None


def test_numbers_that_a_damaged_file_names_are_not_believed(inspect):
    """A header of thousands of sections, or of a place behind the end, reads as a damaged program."""
    for place, number in ((0x3C, 0xFFFFFFF0), (64 + 6, 0xFFFF), (64 + 20, 0xFFFF)):
        content = bytearray(program())
        struct.pack_into("<L" if place == 0x3C else "<H", content, place, number)
        assert inspect(bytes(content)).kind == "folder"


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_whole_appimage_has_no_flaw(inspect, bits, order):
    """Of each size of number and order of bytes; a DwarFS names no size, and so it is warned of."""
    content = release_files.appimage(content=b"files", bits=bits, order=order)
    assert inspect(content, platform=LINUX) == ("appimage", True, ())
    assert inspect(content[:-1], platform=LINUX).flaws == ("cut-off",)
    assert inspect(content.replace(b"hsqs", b"DWARFS"), platform=LINUX).flaws == ("other-runtime",)
    assert inspect(content.replace(b"section.", b"URUNTIME"), platform=LINUX).flaws == ("other-runtime",)


def zipped(contents: dict[str, bytes], mode: int = 0o755, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a zip of programs."""
    return zip_of(*contents, mode=mode, contents=contents, compression=compression)


def mach_o(*machines: int) -> bytes:
    """Return the head of a program of macOS, universal for several machines."""
    if len(machines) == 1:
        return bytes.fromhex("cffaedfe") + struct.pack("<L", machines[0])
    parts = [struct.pack(">L16x", machine) for machine in machines]
    return bytes.fromhex("cafebabe") + struct.pack(">L", len(parts)) + b"".join(parts)


X86, X64, ARM64 = 0x14C, 0x8664, 0xAA64
ELF_ARM64 = release_files.appimage(machine=183)
MACHINES = {
    "an AppImage for arm64": (release_files.appimage(machine=183), "linux-x86_64", True),
    "an AppImage for x86_64": (release_files.appimage(), "linux-arm64", True),
    "the same, of the other order": (release_files.appimage(machine=183, order=">"), "linux-x86_64", True),
    "its own": (release_files.appimage(machine=183), "linux-arm64", False),
    "of 32 bits, which those of 64 start": (
        release_files.appimage(machine=3, bits=32),
        "linux-x86_64",
        False,
    ),
    "of 32 bits, on arm64": (release_files.appimage(machine=3, bits=32), "linux-arm64", True),
    "of an unknown machine": (release_files.appimage(machine=999), "linux-x86_64", False),
    "for a platform of the vendor's own": (release_files.appimage(machine=183), "steamdeck", False),
    "for a machine that is not known": (release_files.appimage(), "linux-riscv64", False),
    "for all platforms": (release_files.appimage(machine=183), "", False),
    "a program for arm64": (program(machine=ARM64), WINDOWS, True),
    "a program for x86_64 on arm64, which starts it": (program(machine=X64), "windows-arm64", False),
    "a program of 64 bits on 32": (program(machine=X64), "windows-x86", True),
    "a set-up of 32 bits": (program(machine=X86), "windows-arm64", False),
    "a zip for arm64": (zipped({"app": ELF_ARM64, "lib/x.so": release_files.appimage()}), LINUX, True),
    "a zip with a folder": (zipped({"app/app": ELF_ARM64, "app/README": b"text"}), LINUX, True),
    "a zip with its own": (zipped({"app": ELF_ARM64, "README": b"text"}), "linux-arm64", False),
    "a zip for two machines": (zipped({"app": ELF_ARM64, "app64": release_files.appimage()}), LINUX, False),
    "a zip with a script": (zipped({"app": ELF_ARM64, "run.sh": b"#!/bin/sh"}), LINUX, False),
    "a zip with a tool of another system": (zipped({"app": ELF_ARM64, "x.exe": program()}), LINUX, True),
    "a zip of Windows": (zipped({"app.exe": program(machine=ARM64)}, mode=0), WINDOWS, True),
    "a zip without programs": (zipped({"plugin.php": b"<?php"}), LINUX, False),
    "a zip of many programs": (zipped({f"app{i}": ELF_ARM64 for i in range(101)}), LINUX, False),
    "a zip that cannot be read": (zipped({"app": ELF_ARM64}).replace(ELF_ARM64[:9], bytes(9)), LINUX, False),
    "a zip by bzip2": (zipped({"app": ELF_ARM64}, compression=zipfile.ZIP_BZIP2), LINUX, False),
    "a program of macOS": (mach_o(0x100000C), "macos-x86_64", True),
    "one for x86_64 on arm64, which starts it": (mach_o(0x1000007), "macos-arm64", False),
    "a universal one": (mach_o(0x1000007, 0x100000C), "macos-x86_64", False),
    "a class of Java": (bytes.fromhex("cafebabe00000034"), "macos-arm64", False),
    "a bundle for arm64": (release_files.app(mach_o(0x100000C)), "macos-x86_64", True),
    "a bundle on its own": (release_files.app(mach_o(0x100000C)), "macos-arm64", False),
    "a DOS program": (b"MZ" + bytes(100), WINDOWS, False),
}


@pytest.mark.parametrize(("content", "platform", "is_other"), MACHINES.values(), ids=MACHINES)
def test_a_program_for_another_machine_is_warned_of(inspect, content, platform, is_other):
    """Of a program itself, or of all at the top of a zip (D-407)."""
    assert ("other-machine" in inspect(content, platform=platform).flaws) == is_other


DAMAGED = {
    **{kind: file_of(kind, b"content") for kind in KINDS},
    "program": program(b"resources", b"data"),
    "zip of a program": zipped({"app": ELF_ARM64}, compression=zipfile.ZIP_DEFLATED),
}


def check(file, kind):
    """Inspect a damaged file as any kind, and as the one that it was of."""
    for given in {"", kind} & {"", *KINDS}:
        with contextlib.suppress(InvalidInputError):
            assert inspect_file(file, given, LINUX).kind in FileKind


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_file_that_ends_is_of_another_kind_or_refused(tmp_path, kind):
    """Wherever: nothing else is raised."""
    file = tmp_path / "app.bin"
    file.write_bytes(DAMAGED[kind])
    for size in reversed(range(len(DAMAGED[kind]))):
        os.truncate(file, size)
        check(file, kind)


VALUES = (b"\0", b"\xff", b"\xff\xff", bytes(4), b"\xff" * 4, b"\xff\xff\xff\x7f", b"\xff" * 8)


@pytest.mark.sampled(6, "kind")
@pytest.mark.parametrize("value", VALUES, ids=bytes.hex)
@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_file_is_of_another_kind_or_refused(tmp_path, kind, value):
    """Whatever each of its bytes and numbers is: nothing else is raised."""
    file, whole = tmp_path / "app.bin", DAMAGED[kind]
    file.write_bytes(whole)
    with file.open("r+b", buffering=0) as content:
        for place in range(len(whole) - len(value)):
            os.pwrite(content.fileno(), value, place)
            check(file, kind)
            os.pwrite(content.fileno(), whole[place : place + len(value)], place)


def memory_of(function):
    """Return the most memory that Python's objects take while a function runs."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("directory", [zip_of("a")[-69:-22] * 200_000, bytes(20 << 20)], ids=["many", "long"])
def test_a_zip_of_too_many_files_is_not_read(tmp_path, directory):
    """Neither many entries nor a long list: in memory an entry takes several times its size."""
    file = tmp_path / "app.zip"
    file.write_bytes(directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 1, 1, len(directory), 0, 0))
    with pytest.raises(InvalidInputError, match="the file is a zip with too many files, not"):
        inspect_file(file, "app")
    assert inspect_file(file, platform=LINUX) == ("folder", True, ())
    assert memory_of(lambda: inspect_file(file)) < 24 << 20


@pytest.mark.slow  # a second of a core
def test_a_large_file_holds_up_no_other_thread(tmp_path):
    """A server answers requests while it looks for the signature of an MSI."""
    file = tmp_path / "app.msi"
    file.write_bytes(release_files.msi(signed=False))
    os.truncate(file, 300 << 20)
    pauses, has_ended = [0.0], threading.Event()

    def measure():
        last = time.perf_counter()
        while not has_ended.wait(0.002):
            last, before = time.perf_counter(), last
            pauses.append(last - before)

    thread = threading.Thread(target=measure)
    thread.start()
    assert inspect_file(file) == ("msi", True, ("unsigned",))
    has_ended.set()
    thread.join()
    assert len(pauses) > 20
    assert max(pauses) < 0.5


@pytest.mark.parametrize("place", [(1 << 20) - 20, (1 << 20) - 1, 1 << 20, (2 << 20) - 30])
def test_the_signature_of_an_msi_is_found_anywhere(inspect, place):
    """Also across the blocks in which it is looked for."""
    mark = "\x05DigitalSignature".encode("utf-16-le")
    content = release_files.msi(signed=False)
    assert inspect(content.ljust(place, b"\0") + mark, platform=WINDOWS).flaws == ()
    assert inspect(content.ljust(place, b"\0") + mark[:-1], platform=WINDOWS).flaws == ("unsigned",)


@pytest.mark.parametrize("kind", KINDS)
def test_the_kind_of_a_large_file_takes_little_memory(tmp_path, kind):
    """A set-up's program is read up to its own end, and the data behind it is not."""
    file = tmp_path / "app.bin"
    file.write_bytes(file_of(kind))
    os.truncate(file, 300 << 20)  # a file with a hole
    assert memory_of(lambda: inspect_file(file)) < 1 << 20


INNO_TABLE = bytes.fromhex(
    "72446c507453cde6d77b0b2a01000000e4291a0099790d0000922f00729932aca41e0d0000d80b00c3d61745"
)
"""Of a set-up of 1,714,660 bytes by Inno Setup 6.3.1."""


def test_the_table_of_a_real_set_up_is_read(inspect):
    """What is smaller than its file was is cut off."""
    padding = bytes(1_714_660 - len(program(INNO_TABLE, magic=0x10B)))
    whole = program(INNO_TABLE, padding, magic=0x10B)
    assert inspect(whole, platform=WINDOWS) == ("inno", True, ("unsigned",))
    assert inspect(whole[:-1], platform=WINDOWS).flaws == ("cut-off", "unsigned")


@pytest.mark.parametrize("version", [1, 2])
def test_a_set_up_that_is_cut_off_is_warned_of(inspect, version):
    """Inno Setup records the size of the file, in two forms; a table that is cut off itself names none."""
    content = release_files.inno(version=version)
    assert inspect(content, platform=WINDOWS) == ("inno", True, ())
    assert inspect(content[:-1], platform=WINDOWS).flaws == ("cut-off",)
    assert "cut off" in (inspect(content[:-1]).warning or "")
    head = content.partition(b"rDlPtS")[0]
    assert inspect(head + b"rDlPtS", platform=WINDOWS).kind == "inno"


NSIS = 'OutFile "{file}"\nName "App"\nInstallDir "$TEMP\\App"\nTarget {target}\nSection\nSectionEnd\n'
WIX = """<?xml version="1.0"?><Wix xmlns="http://schemas.microsoft.com/wix/2006/wi">
<Product Id="*" UpgradeCode="12345678-1234-1234-1234-111111111111" Name="App" Version="1.0.0"
 Manufacturer="Acme" Language="1033"><Package InstallerVersion="200" Compressed="yes"/>
<Media Id="1" Cabinet="app.cab" EmbedCab="yes"/><Directory Id="TARGETDIR" Name="SourceDir">
<Directory Id="ProgramFilesFolder"><Directory Id="INSTALLDIR" Name="App">
<Component Id="App" Guid="12345678-1234-1234-1234-222222222222"><File Id="App" Source="app.txt"/></Component>
</Directory></Directory></Directory>
<Feature Id="App" Level="1"><ComponentRef Id="App"/></Feature></Product></Wix>"""


def run(*command: str, folder):
    """Run a tool in a folder, or skip the test without it."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"needs {command[0]}, which .ci/run installs")
    subprocess.run(command, cwd=folder, check=True, capture_output=True)


def sign(folder, name):
    """Sign a file with a certificate of the test's own."""
    key = ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "key.pem", "-out", "cert.pem")
    run("openssl", *key, "-subj", "/CN=Acme", folder=folder)
    signed = ("-certs", "cert.pem", "-key", "key.pem", "-in", name, "-out", f"signed-{name}")
    run("osslsigncode", "sign", *signed, folder=folder)
    return folder / f"signed-{name}"


@pytest.mark.system_tools
@pytest.mark.parametrize("target", ["x86-unicode", "amd64-unicode"])
def test_a_real_nsis_set_up(tmp_path, target):
    """Made by makensis; it is signed or not."""
    (tmp_path / "app.nsi").write_text(NSIS.format(file="setup.exe", target=target))
    run("makensis", "-V1", "app.nsi", folder=tmp_path)
    unsigned = inspect_file(tmp_path / "setup.exe", platform=WINDOWS)
    assert (unsigned.kind, "not signed" in (unsigned.warning or "")) == ("nsis", True)
    assert inspect_file(sign(tmp_path, "setup.exe"), platform=WINDOWS) == ("nsis", True, ())


@pytest.mark.system_tools
def test_a_real_msi(tmp_path):
    """Made by wixl; it is signed or not."""
    (tmp_path / "app.txt").write_text("app")
    (tmp_path / "app.wxs").write_text(WIX)
    run("wixl", "-o", "app.msi", "app.wxs", folder=tmp_path)
    unsigned = inspect_file(tmp_path / "app.msi", platform=WINDOWS)
    assert (unsigned.kind, "not signed" in (unsigned.warning or "")) == ("msi", True)
    assert inspect_file(sign(tmp_path, "app.msi"), platform=WINDOWS) == ("msi", True, ())
