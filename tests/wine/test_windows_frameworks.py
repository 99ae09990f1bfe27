"""Updates that WinSparkle and Velopack install on Windows, by their own libraries (D-390, D-391)."""

import io
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from tools.windows.wine import COMPILER, Windows

from harness.feeds import velopack_package
from harness.setups import make_nsis, missing_tools
from harness.shop import PRODUCT, SLUG
from harness.world import Server, World
from licserver.cli.signing import file_signer
from licserver.domain.records import FileKind
from licserver.protocol.ed25519_keys import PrivateKey
from licserver.protocol.file_signatures import PUBLIC_KEY_FORMS
from licserver.protocol.release_manifests import sign_with_keys

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"needs {', '.join(missing_tools())}"),
]
DRIVER = Path(__file__).with_name("handing_app.py")
KEY = PrivateKey(b"1" * 32)
PLATFORM = "windows-x86_64"


@pytest.fixture
def vendor(make_world: Callable[..., World]) -> Iterator[tuple[World, Server]]:
    """A vendor without releases, and his server."""
    world = make_world()
    world.stock({"products": [PRODUCT | {"releases": []}], "licenses": []})
    with world.serving() as server:
        yield world, server


def publish(world: World, file: Path, kind: FileKind) -> None:
    """Publish a signed file as version 2.0.0."""
    seal = sign_with_keys([KEY], sign_file=file_signer(file, KEY))
    world.services.releases.publish(SLUG, "2.0.0", file, "New.", seal, platform=PLATFORM, kind=kind)


def test_winsparkle_installs_what_its_feed_has(
    windows: Windows, drive: Path, local_data: Path, vendor: tuple[World, Server]
) -> None:
    """WinSparkle 0.9 sends the license in a header, verifies our signature, and starts the set-up."""
    world, server = vendor
    [library] = (windows.folder / "python").rglob("sparklehelper/winsparkle/x64/WinSparkle.dll")
    publish(world, make_nsis(drive, "2.0.0", "-DSILENT"), FileKind.NSIS)
    installed = local_data / "Programs" / "Photo Lab" / "photo-lab.exe"
    shutil.rmtree(installed.parent, ignore_errors=True)
    public = PUBLIC_KEY_FORMS["sparkle"](KEY.public)
    done = windows.run(
        windows.path(DRIVER),
        *("winsparkle", windows.path(library), public),
        *(server.url, world.new_key(SLUG), windows.path(drive / "state")),
        timeout=180,
    )
    lines = done.stdout.strip().splitlines()[-2:]
    assert lines[0] == "winsparkle 2.0.0 stays", done.stdout
    assert lines[1].split()[-1] == "shutdown_request", done.stdout
    assert any("WinSparkle/" in (agent or "") for agent in server.agents)
    deadline = time.monotonic() + 60
    while not installed.exists():
        assert time.monotonic() < deadline, "the set-up has installed nothing"
        time.sleep(0.1)
    shutil.rmtree(installed.parent)


UPDATER = r"""
#include <windows.h>
#include <stdio.h>
int main(void) {
    char path[1024];
    FILE *file;
    GetModuleFileNameA(0, path, sizeof path - 8);
    strcat(path, ".txt");
    file = fopen(path, "w");
    if (file) { fputs(GetCommandLineA(), file); fclose(file); }
    return 0;
}
"""


@pytest.fixture
def installed_by_velopack(windows: Windows, drive: Path) -> Iterator[Path]:
    """Make a copy of the Windows' Python an app that Velopack has installed; return its folder."""
    app, source = drive / "PhotoLab", drive / "updater.c"
    shutil.copytree(windows.python.parent, app / "current", copy_function=os.link)
    source.write_text(UPDATER)
    subprocess.run([COMPILER, "-mwindows", source, "-o", app / "Update.exe"], check=True)
    with ZipFile(io.BytesIO(velopack_package("1.0.0", "win"))) as package:
        (app / "current" / "sq.version").write_bytes(package.read("PhotoLab.nuspec"))
    yield app
    shutil.rmtree(app / "current")


def test_velopack_gets_the_verified_package(
    windows: Windows, drive: Path, vendor: tuple[World, Server], installed_by_velopack: Path
) -> None:
    """Velopack 1.2 finds its app, checks the package, and calls its updater, which waits for the end."""
    world, server = vendor
    package = velopack_package("2.0.0", "win")
    file = drive / "PhotoLab-2.0.0-full.nupkg"
    file.write_bytes(package)
    publish(world, file, FileKind.FOLDER)
    key = world.new_key(SLUG)
    arguments = (windows.path(DRIVER), "velopack", server.url, key, windows.path(drive / "state"))
    program = installed_by_velopack / "current" / "python.exe"
    done = windows.run(*arguments, program=program, timeout=180)
    assert done.stdout.strip().splitlines()[-1] == "velopack 2.0.0 quits", done.stdout
    note = installed_by_velopack / "Update.exe.txt"
    deadline = time.monotonic() + 60
    while not (note.exists() and note.read_text()):
        assert time.monotonic() < deadline, "the updater was not started"
        time.sleep(0.1)
    called, stored = note.read_text(), installed_by_velopack / "packages" / "PhotoLab-2.0.0-full.nupkg"
    assert "apply" in called
    assert "--waitPid" in called
    assert str(windows.path(stored)).lower() in called.lower()
    assert stored.read_bytes() == package
    assert key not in called
