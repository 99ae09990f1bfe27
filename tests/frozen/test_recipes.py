"""The recipes of `examples/`: built as their pages say, started, and recognised as what they are.

`nox -s frozen`; where a recipe's tool is not installed, its test is skipped.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.appimages import can_mount, make_runtime, missing_tools, unmount
from licserver.services.release_files import inspect_file

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytest.importorskip("PyInstaller", reason="PyInstaller is not installed here: nox -s frozen")


def build(recipe: str, folder: Path, *more: Path) -> None:
    """Run a recipe's script."""
    script = EXAMPLES / recipe / "build.py"
    subprocess.run([sys.executable, script, folder, *more], check=True, capture_output=True, timeout=300)


def ask(program: Path) -> dict[str, Any]:
    """Return how an app finds that it was installed."""
    done = subprocess.run([program, "--installation"], check=True, capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What PyInstaller makes, which the AppImage is made of as well."""
    folder = tmp_path_factory.mktemp("recipes")
    build("pyinstaller-folder", folder)
    return folder


def test_pyinstaller_in_a_folder(built: Path) -> None:
    """As it is unpacked it is some folder; laid down with its launcher it updates itself."""
    found = ask(built / "photo-lab" / "photo-lab")
    assert (found["kind"], found["is_certain"]) == ("folder", False)
    assert found["plan"].startswith("This app cannot update itself here.")
    found = ask(built / "Photo Lab" / "photo-lab")
    assert (found["kind"], found["is_certain"]) == ("folder", True)
    assert found["plan"] == "The new version is used from the next start on."
    assert inspect_file(built / "photo-lab-1.0.0.zip").kind == "folder"


def test_cx_freeze(tmp_path: Path) -> None:
    """A folder, without the sign of PyInstaller."""
    pytest.importorskip("cx_Freeze", reason="cx_Freeze is not installed here: nox -s frozen")
    build("cx-freeze", tmp_path)
    found = ask(tmp_path / "photo-lab" / "photo-lab")
    assert (found["kind"], found["is_certain"]) == ("folder", False)


@pytest.mark.parametrize("is_mounted", [True, False])
def test_an_appimage(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mounted: bool) -> None:
    """The file that was started is what an update replaces, also by a link and from another folder."""
    if missing_tools():
        pytest.skip(f"{', '.join(missing_tools())} is not installed here")
    if is_mounted and not can_mount():
        pytest.skip("needs FUSE, and squashfuse")
    if not is_mounted:
        monkeypatch.setenv("APPIMAGE_EXTRACT_AND_RUN", "1")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    build("appimage", built, make_runtime(tmp_path))
    (image,) = built.glob("*.AppImage")
    link = tmp_path / "photo-lab"
    link.symlink_to(image)
    try:
        for program in (image, link):
            found = ask(program)
            assert (found["kind"], found["is_certain"]) == ("appimage", True)
            assert (found["program"], found["folder"]) == (str(image), str(image.parent))
    finally:
        unmount(tmp_path)
    assert inspect_file(image).kind == "appimage"


def test_set_ups_for_windows(tmp_path: Path) -> None:
    """Both scripts build, from a folder with a program; what comes out is published as its kind."""
    app = tmp_path / "photo-lab"
    app.mkdir()
    (app / "photo-lab.exe").write_bytes(b"MZ")
    commands = {
        "nsis": ["makensis", "-V2", "-DVERSION=1.0.0", f"-DFOLDER={app}", "photo_lab.nsi"],
        "msi": ["wixl", "-a", "x64", "-D", "VERSION=1.0.0", "-D", "FOLDER=../photo-lab", "photo_lab.wxs"],
    }
    for kind, command in commands.items():
        if shutil.which(command[0]) is None:
            pytest.skip(f"{command[0]} is not installed here")
        place = tmp_path / kind
        shutil.copytree(EXAMPLES / kind, place)
        subprocess.run(command, cwd=place, check=True, capture_output=True)
        (made,) = (path for path in place.iterdir() if path.suffix in (".exe", ".msi"))
        assert inspect_file(made).kind == kind
