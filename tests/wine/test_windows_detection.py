"""How `detect()` sees what set-ups have installed on Windows: those of `examples/`, really installed.

`nox -s windows`; elsewhere these tests are skipped.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tools.windows.wine import Windows

from harness.setups import make_inno
from licserver.services.release_files import inspect_file

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"
ASK = """
import dataclasses, json, sys
program = sys.argv[1]
sys.frozen, sys._MEIPASS, sys.executable = True, program.rpartition("\\\\")[0], program
from licclient.install import detect
print(json.dumps(dataclasses.asdict(detect()), default=str))
"""


def ask(windows: Windows, program: str) -> dict[str, Any]:
    """Return what a frozen program in a place of Windows would find."""
    done = windows.run("-c", ASK, program)
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, dict)
    return found


def build(kind: str, folder: Path, *command: str) -> Path:
    """Build a set-up of a folder with a program that does nothing."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed here")
    (folder / "photo-lab").mkdir()
    shutil.copy(
        "/usr/lib/x86_64-linux-gnu/wine/x86_64-windows/notepad.exe", folder / "photo-lab" / "photo-lab.exe"
    )
    shutil.copytree(EXAMPLES / kind, folder / kind)
    subprocess.run(command, cwd=folder / kind, check=True, capture_output=True)
    (made,) = (path for path in (folder / kind).iterdir() if path.suffix in (".exe", ".msi"))
    return made


def test_nsis(windows: Windows, drive: Path) -> None:
    """By what its script records; the same folder without that is some folder."""
    place = r"C:\lab nsis"
    command = ["makensis", "-V2", "-DVERSION=1.0.0", f"-DFOLDER={drive / 'photo-lab'}", "photo_lab.nsi"]
    setup = build("nsis", drive, *command)
    done = windows.run("/c", f"{windows.path(setup)} /S /D={place}", program=Path("cmd"))
    assert done.returncode == 0, done.stdout
    found = ask(windows, place + r"\photo-lab.exe")
    assert (found["kind"], found["is_certain"], found["updater"]) == ("nsis", True, None)
    assert (found["folder"], found["is_writable"]) == (place, True)
    shutil.copytree(windows.drive / "lab nsis", windows.drive / "lab copied")
    found = ask(windows, r"C:\lab copied\photo-lab.exe")
    shutil.rmtree(windows.drive / "lab copied")
    assert (found["kind"], found["is_certain"]) == ("folder", False)
    windows.run("/S", f"_?={place}", program=windows.drive / "lab nsis" / "uninstall.exe")


def test_msi(windows: Windows, drive: Path) -> None:
    """By the place that it records (ARPINSTALLLOCATION), and the mark of Windows Installer."""
    command = ["wixl", "-a", "x64", "-D", "VERSION=1.0.0", "-D", "FOLDER=../photo-lab", "photo_lab.wxs"]
    setup = build("msi", drive, *command)
    done = windows.run("/i", windows.path(setup), "/qn", "/norestart", program=Path("msiexec"))
    assert done.returncode == 0, done.stdout
    found = ask(windows, r"C:\Program Files\Photo Lab\photo-lab.exe")
    windows.run("/x", windows.path(setup), "/qn", program=Path("msiexec"))
    assert (found["kind"], found["is_certain"]) == ("msi", True)


def test_inno(windows: Windows, drive: Path) -> None:
    """By what Windows lists; a copy of its folder has the uninstaller too, and is some folder."""
    if windows.lacks_for_inno:
        pytest.skip(windows.lacks_for_inno)
    setup, place = make_inno(windows, drive, "1.0.0"), r"C:\lab inno"
    published = inspect_file(setup, platform="windows-x86_64")
    assert (published.kind, published.flaws) == ("inno", ("unsigned",))
    windows.run("/VERYSILENT", "/SP-", f"/DIR={place}", program=setup)
    found = ask(windows, place + r"\photo-lab.exe")
    shutil.copytree(windows.drive / "lab inno", windows.drive / "lab copied")
    copied = ask(windows, r"C:\lab copied\photo-lab.exe")
    shutil.rmtree(windows.drive / "lab copied")
    windows.run("/VERYSILENT", program=windows.drive / "lab inno" / "unins000.exe")
    assert (found["kind"], found["is_certain"], found["updater"]) == ("inno", True, None)
    assert (found["folder"], found["is_writable"]) == (place, True)
    assert (copied["kind"], copied["is_certain"]) == ("folder", False)


RECORD = """
import sys, winreg
view, place = getattr(winreg, sys.argv[1]), sys.argv[2]
path = "SOFTWARE\\\\Microsoft\\\\Windows\\\\CurrentVersion\\\\Uninstall\\\\{6B1F3C2A}_is1"
access = winreg.KEY_ALL_ACCESS | view
if place:
    with winreg.CreateKeyEx(winreg.HKEY_LOCAL_MACHINE, path, 0, access) as key:
        winreg.SetValueEx(key, "InstallLocation", 0, winreg.REG_SZ, place)
else:
    winreg.DeleteKeyEx(winreg.HKEY_LOCAL_MACHINE, path, view, 0)
"""


@pytest.mark.parametrize("view", ["KEY_WOW64_64KEY", "KEY_WOW64_32KEY"])
def test_what_inno_setup_records(windows: Windows, view: str) -> None:
    """For all users, by set-ups of 32 and 64 bits: the place with a backslash at its end, in any case."""
    assert windows.run("-c", RECORD, view, "c:\\LAB inno\\").returncode == 0
    try:
        found = ask(windows, r"C:\lab inno\photo-lab.exe")
        other = ask(windows, r"C:\lab inno 2\photo-lab.exe")
    finally:
        assert windows.run("-c", RECORD, view, "").returncode == 0
    assert (found["kind"], found["is_certain"]) == ("inno", True)
    assert (other["kind"], other["is_certain"]) == ("folder", False)
