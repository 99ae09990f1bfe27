"""Set-ups of NSIS, Inno Setup and Windows Installer that update an app on Windows (D-352, D-353)."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest
from tools.windows.wine import Windows

from harness.setups import (
    WAITING,
    make_inno,
    make_msi,
    make_nsis,
    make_nsis_recipe,
    make_program,
    missing_tools,
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_tools()), reason=f"needs {', '.join(missing_tools())}"),
]
DRIVER = Path(__file__).with_name("updating_app.py")


class App:
    """An app that a set-up has installed, and the part of it that updates it."""

    def __init__(self, windows: Windows, drive: Path, kind: str) -> None:
        self.windows, self.drive, self.kind = windows, drive, kind
        self.folder = windows.drive / "Program Files" / "Photo Lab"
        self.program = self.folder / "photo-lab.exe"
        self.is_recipe = False

    def make(self, version: str, *options: str) -> Path:
        """Return a set-up; `options` are those of its kind."""
        match self.kind:
            case "nsis" if self.is_recipe:
                return make_nsis_recipe(self.drive, version)
            case "nsis":
                return make_nsis(self.drive, version, *options)
            case "inno":
                return make_inno(self.windows, self.drive, version, *options)
            case _:
                return make_msi(self.drive, version, *options)

    def install(self, version: str) -> None:
        """Install it as a person does who fetches the first version."""
        setup = self.windows.path(self.make(version))
        if self.kind == "inno":
            place = r"/DIR=C:\Program Files\Photo Lab"
            self.windows.run("/VERYSILENT", "/SP-", "/NORESTART", place, program=Path(setup))
        elif self.kind == "nsis":
            command = rf'start /wait "" "{setup}" /S /D=C:\Program Files\Photo Lab'
            script = self.drive / "install.cmd"
            script.write_text(command)
            self.windows.run("/d", "/c", self.windows.path(script), program=Path("cmd"))
        else:
            self.windows.run("/i", setup, "/qn", "/norestart", program=Path("msiexec"))
        assert self.version() == version

    def remove(self) -> None:
        """Remove it with all that Windows has recorded of it."""
        if self.kind == "msi":
            for setup in sorted(self.drive.glob("*.msi")):
                self.windows.run("/x", self.windows.path(setup), "/qn", program=Path("msiexec"))
        if (uninstaller := self.folder / "unins000.exe").exists():
            self.windows.run("/VERYSILENT", "/SUPPRESSMSGBOXES", program=uninstaller)
        shutil.rmtree(self.folder, ignore_errors=True)

    def version(self) -> str:
        """Start it, and return the version that it is: an app that does not start has none."""
        return self.windows.run(program=self.program).stdout.split()[-1]

    def update(self, setup: Path, promised: str, running: str, *seconds: int) -> str:
        """Install an update from within, and return what that said before the app ended."""
        self.note.unlink(missing_ok=True)
        times = map(str, seconds or (20, 60))
        return self._drive(running, promised, self.windows.path(setup), *times)

    def receipt(self, promised: str) -> str:
        """Return what the next start finds of the last installation."""
        return self._drive(self.version(), promised, "receipt")

    @property
    def note(self) -> Path:
        """The file that has a line for each start."""
        return self.program.with_name("photo-lab.exe.opened")

    def wait_until_opened(self) -> str:
        """Return the version that was opened by itself."""
        deadline = time.monotonic() + 120
        while not (self.note.exists() and self.note.read_text()):
            assert time.monotonic() < deadline, "nothing was opened"
            time.sleep(0.1)
        return self.note.read_text().split()[-1]

    def _drive(self, running: str, promised: str, *arguments: str) -> str:
        folder, state = self.windows.path(self.folder), self.windows.path(self.drive / "state")
        done = self.windows.run(
            self.windows.path(DRIVER), self.kind, folder, state, running, promised, *arguments
        )
        return done.stdout.strip().rpartition("\n")[2]


@contextmanager
def installed(windows: Windows, drive: Path, kind: str) -> Iterator[App]:
    """An app in version 1.0.0, for a block."""
    if kind == "inno" and windows.lacks_for_inno:
        pytest.skip(windows.lacks_for_inno)
    app = App(windows, drive, kind)
    app.install("1.0.0")
    try:
        yield app
    finally:
        app.remove()


@pytest.fixture(params=["nsis", "msi", "inno"])
def app(windows: Windows, drive: Path, request: pytest.FixtureRequest) -> Iterator[App]:
    """An app that each kind of set-up has installed."""
    with installed(windows, drive, request.param) as app:
        yield app


def test_two_updates_follow_each_other(app: App) -> None:
    """Each is opened again by itself, and its receipt says that it runs."""
    for before, promised in (("1.0.0", "1.1.0"), ("1.1.0", "1.2.0")):
        assert app.update(app.make(promised), promised, before) == "quits"
        assert app.wait_until_opened() == promised
        assert app.receipt(promised) == "installed 0"
        assert app.note.read_text().split() == [promised] * 2  # by itself once, and by the line above
        assert len(list((app.drive / "state" / "updates").glob("attempt-*"))) == 1


@pytest.mark.parametrize(
    ("kind", "options", "receipt"),
    [
        ("nsis", ("-DREFUSE",), "refused 1223"),
        ("msi", ("0.9.0",), "failed 1603"),
        ("inno", ("/DREFUSE",), "failed 1"),
        ("inno", ("/DRAISE",), "failed 3"),
        ("inno", ("/DPREPARE=7",), "failed 7"),
        ("inno", ("/DPREPARE=8",), "restart_needed 8"),
    ],
)
def test_a_set_up_that_refuses_leaves_the_old_version(
    windows: Windows, drive: Path, kind: str, options: tuple[str, ...], receipt: str
) -> None:
    """As without the permission, or with a package of a lower number; the old one is opened again."""
    with installed(windows, drive, kind) as app:
        assert app.update(app.make("1.1.0", *options), "1.1.0", "1.0.0") == "quits"
        assert app.wait_until_opened() == "1.0.0"
        assert app.receipt("1.1.0") == receipt


def test_a_damaged_set_up_leaves_the_old_version(app: App) -> None:
    """One that the vendor has published so: its digest fits, and the set-up itself finds out.

    That of Inno Setup 6.3 does so in a window, and ends when a person closes it.
    """
    setup = app.make("1.1.0")
    raw = setup.read_bytes()
    setup.write_bytes(raw[: len(raw) // 2])
    seconds = 15 if app.kind == "inno" else 60
    assert app.update(setup, "1.1.0", "1.0.0", 20, seconds) == "quits"
    assert app.wait_until_opened() == "1.0.0"
    expected = {"nsis": "aborted 2", "inno": "timed_out"}.get(app.kind, "failed ")
    assert app.receipt("1.1.0").startswith(expected)


def test_a_set_up_that_needs_a_restart_says_so(windows: Windows, drive: Path) -> None:
    """By the exit code that Inno Setup is asked for; what it has replaced runs already."""
    with installed(windows, drive, "inno") as app:
        assert app.update(app.make("1.1.0", "/DRESTART"), "1.1.0", "1.0.0") == "quits"
        assert app.wait_until_opened() == "1.1.0"
        assert app.receipt("1.1.0") == "installed 3010"


def test_a_file_of_another_kind_is_not_started(app: App) -> None:
    """Such as a page, or a zip."""
    other = app.drive / "other.bin"
    other.write_bytes(b"PK\x03\x04 this is a zip")
    assert app.update(other, "1.1.0", "1.0.0") == "InstallationError wrong_file"
    assert app.receipt("1.1.0") == "none"


def test_an_app_that_runs_a_second_time_keeps_its_version(app: App, windows: Windows) -> None:
    """Its file is in use: whatever the set-up says of that, the receipt says what runs."""
    second = windows.folder  # any folder: the program is started by its whole path
    running = _start(app, second, "12")
    try:
        assert app.update(app.make("1.1.0"), "1.1.0", "1.0.0") == "quits"
        opened = app.wait_until_opened()
    finally:
        running()
    assert opened in ("1.0.0", "1.1.0")
    receipt = app.receipt("1.1.0")
    assert receipt.startswith("installed" if app.version() == "1.1.0" else ("failed", "no_effect", "restart"))


def test_an_app_that_does_not_end_is_left_alone(app: App) -> None:
    """The person may have kept it open for unsaved work; nothing is installed under it, or opened."""
    assert app.update(app.make("1.1.0"), "1.1.0", "1.0.0", 3, 20, 12) == "quits"
    assert app.receipt("1.1.0") == "still_running None"
    assert not app.note.exists() or app.version() == "1.0.0"


@pytest.mark.parametrize(("kind", "sleep"), [("nsis", "-DSLEEP=60000"), ("inno", "/DSLEEP=60000")])
def test_a_set_up_that_is_killed_midway(windows: Windows, drive: Path, kind: str, sleep: str) -> None:
    """It takes too long and is stopped in the middle: the old version is opened, and a next try succeeds."""
    with installed(windows, drive, kind) as app:
        assert app.update(app.make("1.1.0", sleep), "1.1.0", "1.0.0", 15, 5) == "quits"
        assert app.wait_until_opened() == "1.0.0"
        assert app.receipt("1.1.0") == "timed_out None"
        assert app.update(app.make("1.1.0"), "1.1.0", "1.0.0") == "quits"
        assert app.wait_until_opened() == "1.1.0"


@pytest.mark.parametrize("app", ["msi"], indirect=True)
def test_a_package_that_is_killed_midway(app: App, windows: Windows, drive: Path) -> None:
    """As by the task manager, before its files are there: the old version is, and a next try succeeds."""
    waiting = windows.drive / WAITING
    waiting.unlink(missing_ok=True)
    setup, deadline = make_msi(drive, "1.1.0", waits=True), time.monotonic() + 90
    with ThreadPoolExecutor() as pool:  # it is read to its end, which is that of all that it started
        ended = pool.submit(app.update, setup, "1.1.0", "1.0.0", 20, 200)
        while not waiting.exists():
            assert time.monotonic() < deadline, "the package was not started"
            time.sleep(0.1)
        assert windows.kill("msiexec")
        assert ended.result() == "quits"
    assert app.wait_until_opened() == "1.0.0"
    assert app.receipt("1.1.0").startswith(("failed ", "no_effect "))  # by the code that a kill leaves
    assert app.update(make_msi(drive, "1.1.0"), "1.1.0", "1.0.0") == "quits"
    assert app.wait_until_opened() == "1.1.0"
    assert app.receipt("1.1.0") == "installed 0"
    waiting.unlink()
    setup.unlink()  # its removal would wait as well


def test_an_app_in_a_folder_is_opened_again(windows: Windows, drive: Path) -> None:
    """By its launcher, and not before it has ended; the new version is current then."""
    app = App(windows, drive, "folder")
    app.folder = drive / "Photo & Lab 100% (x)"
    app.program = app.folder / "photo-lab.exe"
    for version in ("1.0.0", "1.1.0"):
        (drive / version).mkdir()
        shutil.copy(make_program(drive, version), drive / version / app.program.name)
        shutil.make_archive(str(drive / version), "zip", drive / version)
    first = drive / "1.0.0.zip"
    options = ("--version", "1.0.0", "--sha256", sha256(first.read_bytes()).hexdigest())
    arguments = ("apply", windows.path(first), *options, "--to", windows.path(app.folder))
    done = windows.run(*arguments, program=windows.scripts / "licclient.exe", cwd=drive)
    assert done.returncode == 0, done.stdout
    shutil.copy(make_program(drive, "launcher"), app.program)
    ended = app.update(drive / "1.1.0.zip", "1.1.0", "1.0.0", 20, 60, 5)
    assert ended == "stays, reopened: True"
    assert app.wait_until_opened() == "launcher"
    assert app.note.stat().st_mtime - (drive / "1.1.0.zip").stat().st_mtime > 5, "the app still ran"
    assert (app.folder / "current.txt").read_text().startswith("1.1.0-")


@pytest.fixture
def recipe(windows: Windows, drive: Path) -> Iterator[App]:
    """An app that the recipe of `examples` has installed."""
    app = App(windows, drive, "nsis")
    app.is_recipe = True
    app.install("1.0.0")
    try:
        yield app
    finally:
        windows.run("/S", r"_?=C:\Program Files\Photo Lab", program=app.folder / "uninstall.exe")
        app.remove()


def files_of(app: App) -> set[str]:
    """Return the versions that the installed files are of."""
    data = {path.read_text() for path in app.folder.rglob("*.txt")}
    return {app.version(), *data}


def folders_beside(app: App) -> list[str]:
    """Return the folders that a set-up leaves beside the app's own."""
    return sorted(path.name for path in app.folder.parent.glob("Photo Lab.*"))


def test_the_recipe_for_nsis_updates_twice(recipe: App, windows: Windows) -> None:
    """All files are replaced, one that the new version lacks is gone, and Windows lists its version."""
    (recipe.folder / "removed since.txt").write_text("1.0.0")
    for before, promised in (("1.0.0", "1.1.0"), ("1.1.0", "1.2.0")):
        assert recipe.update(recipe.make(promised), promised, before) == "quits"
        assert recipe.wait_until_opened() == promised
        assert recipe.receipt(promised) == "installed 0"
        assert (files_of(recipe), folders_beside(recipe)) == ({promised}, [])
    key = r"HKCU\Software\Microsoft\Windows\CurrentVersion\Uninstall\Photo Lab"
    listed = windows.run("query", key, "/v", "DisplayVersion", program=Path("reg")).stdout
    assert "1.2.0" in listed
    windows.run("/S", r"_?=C:\Program Files\Photo Lab", program=recipe.folder / "uninstall.exe")
    assert not recipe.program.exists()


def test_the_recipe_for_nsis_beside_a_second_instance(recipe: App) -> None:
    """A folder in use, as one is for Windows if a file in it is: it stays as it was, to the last file."""
    ended = _start(recipe, recipe.folder, "40")
    try:
        assert recipe.update(recipe.make("1.1.0"), "1.1.0", "1.0.0") == "quits"
        recipe.wait_until_opened()
        assert (files_of(recipe), folders_beside(recipe)) == ({"1.0.0"}, [])
    finally:
        ended()
    assert recipe.receipt("1.1.0") == "failed 5"
    assert recipe.update(recipe.make("1.1.0"), "1.1.0", "1.0.0") == "quits"
    assert recipe.wait_until_opened() == "1.1.0"
    assert (files_of(recipe), folders_beside(recipe)) == ({"1.1.0"}, [])


def test_the_recipe_for_nsis_after_a_kill(recipe: App) -> None:
    """One killed between both renames: the next one puts the old version back, and goes on."""
    recipe.folder.rename(recipe.folder.with_name("Photo Lab.old"))
    recipe.install("1.1.0")
    assert (files_of(recipe), folders_beside(recipe)) == ({"1.1.0"}, [])


def test_the_recipe_for_nsis_replaces_no_other_folder(windows: Windows, drive: Path) -> None:
    """Such as one of documents, named by mistake."""
    documents = drive / "documents"
    documents.mkdir()
    (documents / "letter.txt").write_text("Dear")
    setup = windows.path(make_nsis_recipe(drive, "1.0.0"))
    script = drive / "install.cmd"
    script.write_text(f'start /wait "" "{setup}" /S /D={windows.path(documents)}\nexit /b %errorlevel%\n')
    assert windows.run("/d", "/c", windows.path(script), program=Path("cmd")).returncode == 5
    assert [path.name for path in documents.iterdir()] == ["letter.txt"]
    assert not documents.with_name("documents.new").exists()


@pytest.mark.parametrize("name", ["Фото Лаб", "写真"])
def test_a_folder_of_a_user_with_another_alphabet(windows: Windows, drive: Path, name: str) -> None:
    """No script holds its name; the program here notes no start, as C reads it in one alphabet."""
    app = App(windows, drive, "nsis")
    app.folder = drive / name
    app.folder.mkdir()
    app.program = app.folder / "photo-lab.exe"
    shutil.copy(make_program(drive, "1.0.0"), app.program)
    assert app.update(make_nsis(drive, "1.1.0"), "1.1.0", "1.0.0") == "quits"
    deadline = time.monotonic() + 60
    while not (codes := list(drive.glob("state/updates/attempt-*/code.txt"))) or not codes[0].read_text():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert app.receipt("1.1.0") == "installed 0"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a small disk")
def test_a_full_disk_is_noticed_before(windows: Windows, drive: Path) -> None:
    """The app is not even asked to end."""
    app = App(windows, drive, "nsis")
    app.folder = windows.drive / "small"
    app.folder.mkdir()
    app.program = app.folder / "photo-lab.exe"
    with _small_disk(app.folder):
        shutil.copy(make_program(drive, "1.0.0"), app.program)
        said = app.update(make_nsis(drive, "1.1.0"), "1.1.0", "1.0.0")
        assert said.startswith("OSError") or "No room" in said
        assert app.version() == "1.0.0"
    app.folder.rmdir()


@pytest.mark.skipif(shutil.which("osslsigncode") is None, reason="needs osslsigncode")
def test_windows_names_the_publisher_of_a_set_up(windows: Windows, drive: Path) -> None:
    """A changed byte or no signature has none. That the authority is unknown, wine does not mind (D-354)."""
    key, certificate, setup = drive / "key.pem", drive / "cert.pem", make_nsis(drive, "1.1.0")
    files = ("-keyout", key, "-out", certificate)
    usage = ("-days", "30", "-subj", "/CN=Example GmbH", "-addext", "extendedKeyUsage=codeSigning")
    _run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files, *usage)
    _run(
        "osslsigncode", "sign", "-certs", certificate, "-key", key, "-in", setup, "-out", drive / "signed.exe"
    )
    raw = bytearray((drive / "signed.exe").read_bytes())
    raw[5000] ^= 1
    (drive / "changed.exe").write_bytes(raw)
    code = "import pathlib, sys; from licclient.install._publisher import read_publisher as read\n"
    code += "sys.stdout.write(str([read(pathlib.Path(name)) for name in sys.argv[1:]]))"
    names = [windows.path(path) for path in (drive / "signed.exe", setup, drive / "changed.exe")]
    assert windows.run("-c", code, *names).stdout.strip() == "['Example GmbH', None, None]"


def _run(*command: str | Path) -> None:
    subprocess.run(command, capture_output=True, check=True)


def _start(app: App, folder: Path, *arguments: str) -> Callable[[], object]:
    """Start the app beside everything else; return what waits for its end."""
    command = ["wine", str(app.program), *arguments]
    process = subprocess.Popen(command, env=app.windows.environ(), cwd=folder)
    deadline = time.monotonic() + 60
    while not app.note.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process.wait


@contextmanager
def _small_disk(folder: Path) -> Iterator[None]:
    """Mount a disk of 600 kB at a folder."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
