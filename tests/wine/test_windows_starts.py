"""A frozen app on Windows whose release does not start: the launcher goes back.

`nox -s windows`; elsewhere these tests are skipped. On Linux: `tests/frozen/test_frozen_starts.py`.
"""

import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from tools.windows.wine import Windows

from harness.frozen import lay_out_starts

pytestmark = pytest.mark.slow

ENDED = """
import ctypes, os, subprocess, sys, time
from pathlib import Path
launcher, pid = sys.argv[1], Path(sys.argv[2])
pid.unlink(missing_ok=True)
os.environ["PHOTO_LAB_PID"] = str(pid)
process = subprocess.Popen([launcher])
while not (pid.exists() and pid.read_text()):
    assert process.poll() is None
    time.sleep(0.05)
kernel = ctypes.windll.kernel32
kernel.OpenProcess.restype = kernel.GetCurrentProcess.restype = ctypes.c_void_p
process_handle = ctypes.c_void_p(kernel.OpenProcess(1, False, int(pid.read_text())))
assert kernel.TerminateProcess(process_handle, 1)  # as the task manager does
print("ended with", process.wait())
"""
CRASHED = """
import subprocess, sys
print("ended with", hex(subprocess.run([sys.argv[1]]).returncode))
"""
SESSION = """
import ctypes, sys
kernel = ctypes.windll.kernel32
print("level", kernel.SetProcessShutdownParameters(0x100, 0), ctypes.windll.user32.GetSystemMetrics(0x2000))
"""


@pytest.fixture(scope="module")
def built(windows: Windows) -> Path:
    """Freeze the app and both launchers, once; return what came of it."""
    folder = windows.drive / "starts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lay_out_starts(folder)
    arguments = ("--noconfirm", "--log-level", "ERROR", "starts.spec")
    done = windows.run("-m", "PyInstaller", *arguments, cwd=folder, timeout=900)
    assert done.returncode == 0, done.stdout
    return folder / "dist"


class Customer:
    """A Windows with the app, which starts it by its launcher."""

    def __init__(self, windows: Windows, built: Path, folder: Path) -> None:
        self.windows, self.built, self.folder = windows, built, folder
        self.root = folder / "Photo Lab"
        self.launcher = self.root / "photo-lab.exe"

    def install(self, version: str, behaviour: str) -> None:
        """Install a release by the command line."""
        (self.built / "one-folder" / "_internal" / "version.txt").write_text(
            f"{version} {behaviour}", "utf-8"
        )
        packed = Path(shutil.make_archive(str(self.folder / version), "zip", self.built / "one-folder"))
        options = ("--version", version, "--sha256", sha256(packed.read_bytes()).hexdigest())
        arguments = ("apply", self.windows.path(packed), *options, "--to", self.windows.path(self.root))
        program = self.windows.scripts / "licclient.exe"
        done = self.windows.run(*arguments, program=program, cwd=self.folder)
        assert done.returncode == 0, done.stdout

    def start(self, launcher: Path | None = None) -> tuple[int, str]:
        """Start the app; return its exit status and what it printed."""
        done = self.windows.run("a b", program=launcher or self.launcher, cwd=self.folder, timeout=120)
        return done.returncode, done.stdout.strip()

    def crash(self) -> str:
        """Start the app; return its exit status as Windows has it."""
        done = self.windows.run("-c", CRASHED, self.windows.path(self.launcher), cwd=self.folder, timeout=120)
        return done.stdout.splitlines()[-1]

    def end_what_hangs(self) -> str:
        """Start the app, and end it as the task manager does when it hangs."""
        arguments = ("-c", ENDED, self.windows.path(self.launcher), self.windows.path(self.folder / "pid"))
        return self.windows.run(*arguments, cwd=self.folder, timeout=120).stdout


@pytest.fixture
def customer(windows: Windows, built: Path, drive: Path) -> Customer:
    """A customer whose version 1.0.0 works."""
    customer = Customer(windows, built, drive)
    customer.install("1.0.0", "works")
    shutil.copy(built / "launcher.exe", customer.launcher)
    assert customer.start() == (0, "works 1.0.0 a b")
    return customer


def went_back(customer: Customer) -> bool:
    """Return whether the last good version runs, from now on."""
    return [customer.start() for _ in range(2)] == [(0, "works 1.0.0 a b")] * 2


def test_a_release_that_exits_with_3(customer: Customer) -> None:
    """Twice; the third start is that of the last good version."""
    customer.install("1.1.0", "exits")
    assert [customer.start() for _ in range(2)] == [(3, "exits 1.1.0 a b")] * 2
    assert went_back(customer)
    assert (customer.root / "rolled-back.txt").read_text() == "1.1.0\n"


def test_a_release_that_hangs_and_is_ended_by_the_task_manager(customer: Customer) -> None:
    """It counts, twice."""
    customer.install("1.1.0", "hangs")
    for _ in range(2):
        assert customer.end_what_hangs().splitlines()[-1] == "ended with 1"
    assert went_back(customer)


def test_two_bad_releases_in_a_row(customer: Customer) -> None:
    """The second, which crashes in native code, is installed while the first is on probation."""
    customer.install("1.1.0", "exits")
    assert customer.start()[0] == 3
    customer.install("1.2.0", "dies")
    assert [customer.crash() for _ in range(2)] == ["ended with 0xc0000005"] * 2
    assert went_back(customer)
    customer.install("1.3.0", "works")
    assert customer.start() == (0, "works 1.3.0 a b")


def test_an_old_launcher_with_new_files(customer: Customer, built: Path) -> None:
    """It starts what is current, as ever; a new launcher beside it goes back, and the old one follows."""
    old = customer.root / "old-launcher.exe"
    shutil.copy(built / "old_launcher.exe", old)
    customer.install("1.1.0", "exits")
    assert [customer.start(old) for _ in range(3)] == [(3, "exits 1.1.0 a b")] * 3
    assert [customer.start()[0] for _ in range(2)] == [3, 3]
    assert went_back(customer)
    assert customer.start(old) == (0, "works 1.0.0 a b")


def test_the_end_of_a_session_is_asked_for(windows: Windows, drive: Path) -> None:
    """Both calls exist; wine ends no session here."""
    assert windows.run("-c", SESSION, cwd=drive).stdout.split() == ["level", "1", "0"]
