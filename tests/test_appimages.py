"""An app in an AppImage that updates itself: real files and processes, the runtime's variables (D-351)."""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import licclient
from harness.appimages import can_mount, make_appimage, make_runtime, missing_tools, unmount

pytestmark = [
    pytest.mark.system_tools,
    pytest.mark.skipif(bool(missing_tools()), reason=f"needs {', '.join(missing_tools())}"),
]

RUN = '#!/bin/sh\nexec {python} "$APPDIR/app.py" "$@"\n'

# Without arguments it notes its start beside the folder it was started in. With some it updates itself.
APP = """
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

VERSION = "{version}"
if len(sys.argv) == 1:
    with Path(os.environ["OWD"], "opened").open("a") as file:
        file.write(VERSION + "\\n")
    print(VERSION)
    sys.exit()

from licclient.errors import LicclientError
from licclient.install import _appimage, _verified
from licclient.testing import LicenseService

promised, image, state, how = sys.argv[1:]
with LicenseService() as service:
    key = service.issue("Photo Lab", slug="photo-lab")
    client = service.client(slug="photo-lab", version=VERSION, storage=state)
    service.publish(promised, slug="photo-lab", kind="appimage", content=Path(image).read_bytes())
    update = client.check_for_update(key, force=True).update
    if how == "damaged":
        service.misbehave("wrong_file")
    if how == "slow":
        write = _verified.sync_file
        def wait(file):
            write(file)
            print("midway", flush=True)
            time.sleep(60)
        _verified.sync_file = wait
    if how == "filled":
        check = _appimage.require_space
        def fill(folder, size, use):
            check(folder, size, use)
            with suppress(OSError), Path(folder, "filler").open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
        _appimage.require_space = fill
    if how == "open":
        print("open", flush=True)
        input()
        print(Path(os.environ["APPDIR"], "late.txt").read_text())
    try:
        done = client.install_update(update, key=key)
    except (LicclientError, OSError) as problem:
        print(type(problem).__name__, getattr(problem, "obstacle", None) or problem)
    else:
        receipt = client.installation_receipt()
        print(done.kind, done.version, done.is_reopened, receipt.version)
        print(Path(os.environ["APPDIR"], "app.py").read_text().count(VERSION) > 0)  # it goes on
"""


class Images:
    """AppImages of three versions, and the place of the one that a person uses."""

    def __init__(self, folder: Path, place: Path, *, is_mounted: bool) -> None:
        self.folder, self.place = folder, place / "My Photo Lab.AppImage"
        self.how = {} if is_mounted else {"APPIMAGE_EXTRACT_AND_RUN": "1"}
        self.leaked: dict[str, str] = {}
        self.runtime = make_runtime(folder)
        run = RUN.format(python=sys.executable)
        self.of = {
            version: make_appimage(
                folder,
                self.runtime,
                {"AppRun": run, "app.py": APP.format(version=version), "late.txt": f"late {version}"},
                version,
            )
            for version in ("1.0.0", "1.1.0", "1.2.0")
        }
        shutil.copy(self.of["1.0.0"], self.place)

    def start(self, *arguments: str | Path, folder: Path | None = None) -> "subprocess.Popen[str]":
        """Start the one that the person uses."""
        libraries = [str(Path(licclient.__file__).parents[1]), sysconfig.get_path("purelib")]
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(libraries)}
        environment |= {"HOME": str(self.folder / "home"), "TMPDIR": str(self.folder)}
        environment |= self.how | self.leaked
        command = [self.place, *arguments]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command,
            cwd=folder or self.folder,
            env=environment,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def version(self) -> str:
        """Start it, and return the version that it is: one that does not start has none."""
        output, _ = self.start(folder=self.folder).communicate(timeout=60)
        return output.strip()

    def update(self, promised: str, how: str = "") -> list[str]:
        """Have it update itself, and return what it printed."""
        running = self.start(promised, self.of[promised], self.folder / "state", how)
        return running.communicate(timeout=60)[0].splitlines()

    def opened(self) -> str:
        """Return the version that was opened by itself last."""
        note, deadline = self.folder / "opened", time.monotonic() + 20
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < deadline, "nothing was opened"
            time.sleep(0.05)
        version = note.read_text().split()[-1]
        note.unlink()
        return version


@pytest.fixture(params=["mounted", "extracted"])
def images(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Images]:
    """A person's AppImage in version 1.0.0, which its runtime mounts or extracts."""
    if request.param == "mounted" and not can_mount():
        pytest.skip("needs FUSE, and squashfuse")
    for name in ("place", "home"):
        (tmp_path / name).mkdir()
    yield Images(tmp_path, tmp_path / "place", is_mounted=request.param == "mounted")
    unmount(tmp_path)


@pytest.fixture
def mounted(images: Images) -> Iterator[Callable[..., None]]:
    """Put the person's AppImage on a file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts file systems")
    place = images.place.parent

    def mount(*options: str) -> None:
        subprocess.run(["mount", *options, place], check=True)

    yield mount
    # Lazily: the runtime of an image that has just ended may still hold it.
    while subprocess.run(["umount", "--lazy", place], check=False, capture_output=True).returncode == 0:
        pass


def test_two_updates_follow_each_other(images: Images) -> None:
    """The running one goes on, each is opened again as the new version, and the name stays."""
    assert images.version() == "1.0.0"
    (images.folder / "opened").unlink()
    for promised in ("1.1.0", "1.2.0"):
        assert images.update(promised) == [f"appimage {promised} True {promised}", "True"]
        assert images.opened() == promised
        assert [path.name for path in images.place.parent.iterdir()] == ["My Photo Lab.AppImage"]


def test_the_variables_of_an_editor(images: Images) -> None:
    """Its own runtime overwrites those of the terminal that it is started from."""
    images.leaked = {"APPIMAGE": "/opt/Editor.AppImage", "APPDIR": "/tmp/.mount_Editor"}  # noqa: S108
    assert images.update("1.1.0") == ["appimage 1.1.0 True 1.1.0", "True"]
    assert images.opened() == "1.1.0"


def test_an_unpacked_appimage_in_the_terminal_of_an_editor(images: Images) -> None:
    """Its AppRun is started without a runtime: the editor's AppImage is not replaced, and neither is ours."""
    editor = images.folder / "Editor.AppImage"
    shutil.copy(images.of["1.2.0"], editor)
    before = editor.read_bytes()
    app_dir = images.folder / "squashfs-root"
    shutil.copytree(images.folder / "1.0.0.content", app_dir)
    images.place.unlink()
    images.place.symlink_to(app_dir / "AppRun")
    images.leaked = {"APPIMAGE": str(editor), "APPDIR": str(app_dir)}
    assert images.update("1.1.0") == ["InstallationError not_replaceable"]
    assert editor.read_bytes() == before


def test_what_another_image_has_mounted(images: Images) -> None:
    """Started from the mount of its own AppImage, in the terminal of an editor's."""
    editor = images.folder / "Editor.AppImage"
    shutil.copy(images.of["1.2.0"], editor)
    before = editor.read_bytes()
    assert images.version() == "1.0.0"
    (mount,) = images.folder.glob(".mount_*") if not images.how else [images.folder / "1.0.0.content"]
    images.place.unlink()
    images.place.symlink_to(mount / "AppRun")
    images.leaked = {"APPIMAGE": str(editor), "APPDIR": str(mount)}
    assert images.update("1.1.0") == ["InstallationError not_replaceable"]
    assert editor.read_bytes() == before


def test_a_damaged_file_leaves_the_old_version(images: Images) -> None:
    """It does not get a name."""
    assert images.update("1.1.0", "damaged")[0].startswith("UntrustedResponseError")
    assert images.version() == "1.0.0"


def test_a_kill_midway_leaves_the_old_version(images: Images) -> None:
    """What it had written is in nobody's way: the next update succeeds, and removes it."""
    running = images.start("1.1.0", images.of["1.1.0"], images.folder / "state", "slow")
    assert running.stdout is not None
    assert running.stdout.readline() == "midway\n"
    running.send_signal(signal.SIGKILL)
    running.communicate()
    assert len(list(images.place.parent.iterdir())) == 2
    assert images.version() == "1.0.0"
    assert images.update("1.1.0")[0].startswith("appimage 1.1.0")
    assert [path.name for path in images.place.parent.iterdir()] == ["My Photo Lab.AppImage"]


def test_a_full_disk_leaves_the_old_version(images: Images, mounted: Callable[..., None]) -> None:
    """It is noticed before a byte is written."""
    size = images.of["1.0.0"].stat().st_size
    mounted("-t", "tmpfs", "-o", f"size={size + 200_000}", "tmpfs")
    shutil.copy(images.of["1.0.0"], images.place)
    assert images.update("1.1.0")[0].startswith("NoRoomError")
    assert images.version() == "1.0.0"


def test_a_disk_that_fills_up_meanwhile_leaves_the_old_version(
    images: Images, mounted: Callable[..., None]
) -> None:
    """Another program takes the room that was there; nothing is left of the new version."""
    size = images.of["1.0.0"].stat().st_size
    mounted("-t", "tmpfs", "-o", f"size={size + 24_000_000}", "tmpfs")
    shutil.copy(images.of["1.0.0"], images.place)
    [problem] = images.update("1.1.0", "filled")
    assert "No space left on device" in problem
    assert [path.name for path in images.place.parent.iterdir()] == ["My Photo Lab.AppImage"]
    assert images.version() == "1.0.0"


def test_a_second_process_goes_on_from_the_replaced_file(images: Images) -> None:
    """It reads what it has not read before, and does not put its older update in place of the new one."""
    if images.how:
        pytest.skip("the runtime removes the folder of both when the first one ends")
    second = images.start("1.1.0", images.of["1.1.0"], images.folder / "state", "open")
    assert second.stdout is not None
    assert second.stdout.readline() == "open\n"
    assert images.update("1.2.0")[0].startswith("appimage 1.2.0")
    output, _ = second.communicate("\n", timeout=60)
    assert output.splitlines() == ["late 1.0.0", "InstallationError newer_installed"]
    assert images.opened() == "1.2.0"
    assert images.version() == "1.2.0"


def test_a_read_only_place_is_named(images: Images, mounted: Callable[..., None]) -> None:
    """Nothing is downloaded for it."""
    mounted("-t", "tmpfs", "tmpfs")
    shutil.copy(images.of["1.0.0"], images.place)
    mounted("-o", "remount,ro")
    assert images.update("1.1.0") == ["InstallationError not_writable"]
    assert not list((images.folder / "state").glob("updates/*"))
    assert images.version() == "1.0.0"
