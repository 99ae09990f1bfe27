"""Where people put apps, and as whom they update them, as they reported it of other updaters."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stage.archives import app, downloaded, names

from licclient._core.computer import list_app_folders
from licclient._core.kinds import InstallationKind
from licclient.install import Installation, Installed, _detection, detect
from licclient.install._signs import Signs, decide

needs_unix = pytest.mark.skipif(sys.platform == "win32", reason="needs modes of Unix")


def _install(folder: Path, version: str) -> Installed:
    return Installation(folder / "Photo Lab").apply(downloaded(folder, app(version), version))


def _run_from(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    """Run as this program: a loader resolves links, and the command line has the name that was started."""
    monkeypatch.setattr(sys, "executable", str(program.resolve()))
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setattr(sys, "frozen", True, raising=False)


# --- commands that people type ---------------------------------------------------------------------


def test_nextstrain_cli_114() -> None:
    """The app's environment of conda is not the one that is active in the person's shell."""
    signs = Signs(
        tool=InstallationKind.CONDA,
        distribution="photo-lab",
        installer="conda",
        prefix="'/home/me/my envs/lab'",
    )
    assert decide(signs).command == "conda update --prefix '/home/me/my envs/lab' photo-lab"


@pytest.mark.parametrize(
    ("path", "quoted"),
    [
        (r"C:\Users\Jelle&Hannes\env\python.exe", r'"C:\Users\Jelle&Hannes\env\python.exe"'),
        (r"C:\Users\Foo & Bar\env\python.exe", r'"C:\Users\Foo & Bar\env\python.exe"'),
        (r"C:\Apps (x86)\python.exe", r'"C:\Apps (x86)\python.exe"'),
        (r"C:\a^b;c\python.exe", r'"C:\a^b;c\python.exe"'),
        (r"C:\Users\Сергей\env\python.exe", r"C:\Users\Сергей\env\python.exe"),
    ],
)
def test_devolutions_unigetui_3904(monkeypatch: pytest.MonkeyPatch, path: str, quoted: str) -> None:
    """A user is called `Jelle&Hannes`: without quotes the shell takes that for two commands."""
    monkeypatch.setattr(_detection, "_SYSTEM", "win32")
    assert _detection._quote(path) == quoted


@pytest.mark.parametrize(
    ("tool", "environment", "command"),
    [
        (InstallationKind.UV, "studio", "uv tool upgrade studio"),
        (InstallationKind.UV, "photo-lab", "uv tool upgrade photo-lab"),
        (InstallationKind.PIPX, "studio", "pipx upgrade --include-injected studio"),
        (InstallationKind.PIPX, "photo-lab-beta", "pipx upgrade photo-lab-beta"),
    ],
)
def test_browser_use_browser_harness_716(tool: InstallationKind, environment: str, command: str) -> None:
    """The app is in the environment of another tool, such as one that needs it: no tool has its name."""
    signs = Signs(tool=tool, distribution="Photo_Lab", installer="uv", environment=environment)
    assert decide(signs).command == command


# --- folders that lie elsewhere --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lab", "versions"])
def test_heidisql_heidisql_1616(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The folder of versions is a link to another disk (memstechtips/Winhance#160): it stays an app's own."""
    _install(tmp_path, "1.0")
    versions, other = tmp_path / "Photo Lab" / "versions", tmp_path / "disk" / name
    other.parent.mkdir()
    shutil.move(versions, other)
    versions.symlink_to(other, target_is_directory=True)
    program = _install(tmp_path, "2.0").folder / "photo-lab"
    _run_from(monkeypatch, program)
    assert tmp_path / "Photo Lab" in list_app_folders(), "else confirming does nothing, and it is left"
    found = detect()
    assert (found.kind, found.is_certain) == (InstallationKind.FOLDER, True)
    assert found.folder == tmp_path / "Photo Lab"


def test_a_program_elsewhere_is_not_that_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name on the command line that leads to another program says nothing."""
    installed = _install(tmp_path, "1.0")
    _run_from(monkeypatch, installed.folder / "photo-lab")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "photo-lab"))
    assert not detect().is_certain


# --- what is not the user's own --------------------------------------------------------------------


@needs_unix
def test_sublimehq_sublime_text_1989(tmp_path: Path) -> None:
    """Updated by a user whose umask is 077 (keybase/keybase-issues#673): others run the new version, too."""
    first = _install(tmp_path, "1.0")
    for path in (tmp_path / "Photo Lab", first.folder):
        path.chmod(0o755)
    before = os.umask(0o077)
    try:
        second = _install(tmp_path, "2.0")
    finally:
        os.umask(before)
    modes = {
        path.relative_to(second.folder).as_posix(): stat.S_IMODE(path.stat().st_mode)
        for path in (second.folder, *second.folder.rglob("*"))
    }
    assert modes.pop("photo-lab") == 0o755
    assert {mode for name, mode in modes.items() if name.endswith(".txt")} == {0o644}
    assert {mode for name, mode in modes.items() if not name.endswith(".txt")} == {0o755}
    assert stat.S_IMODE((tmp_path / "Photo Lab" / "current.txt").stat().st_mode) == 0o644


@needs_unix
def test_a_file_system_without_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAT and network drives refuse them: the version is installed all the same."""
    _install(tmp_path, "1.0")
    (tmp_path / "Photo Lab").chmod(0o755)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    for function in ("chmod", "fchmod"):
        monkeypatch.setattr(os, function, refuse)
    assert _install(tmp_path, "2.0").version == "2.0"
    assert Installation(tmp_path / "Photo Lab").current == _install(tmp_path, "2.0")


@needs_unix
def test_a_private_app_stays_private(tmp_path: Path) -> None:
    """Nobody else can enter its folder, and nobody else gets a permission in it."""
    before = os.umask(0o077)
    try:
        installed = _install(tmp_path, "1.0")
    finally:
        os.umask(before)
    for path in (tmp_path / "Photo Lab", installed.folder, tmp_path / "Photo Lab" / "current.txt"):
        assert not path.stat().st_mode & 0o077


def test_ravibpatel_autoupdater_net_639(tmp_path: Path) -> None:
    """Files of the old version are read-only (Lakifume/True-Randomization#17): it is removed all the same."""
    first = _install(tmp_path, "1.0")
    for path in sorted(first.folder.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for version in ("2.0", "3.0", "4.0"):
        _install(tmp_path, version)
    assert not [name for name in names(tmp_path / "Photo Lab") if "1.0" in name]


# --- opened again ----------------------------------------------------------------------------------

TWICE = """
import sys
from pathlib import Path
from licclient.install._restart import start_after_end
for _ in range(2):
    start_after_end(sys.argv[1:], Path("."), {"PATH": "/usr/bin:/bin"})
"""


@needs_unix
def test_electron_userland_electron_builder_2745(tmp_path: Path) -> None:
    """The person clicks twice on "Install and restart": the app is opened once."""
    program, opened = tmp_path / "photo-lab", tmp_path / "opened"
    program.write_text("#!/bin/sh\necho opened >> opened\n")
    program.chmod(0o755)
    subprocess.run([sys.executable, "-c", TWICE, program], cwd=tmp_path, check=True, timeout=30)
    deadline = time.monotonic() + 20
    while not opened.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.3)  # what must not happen
    assert opened.read_text().split() == ["opened"]
