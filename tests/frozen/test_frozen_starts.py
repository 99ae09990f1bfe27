"""A frozen app whose release does not start: the launcher goes back, in programs as a customer has them.

`nox -s frozen`; where PyInstaller is not installed, as in the plain test run, these tests are skipped. The
same with plain programs is in `test_probation_starts` of licclient.
"""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from harness.frozen import freeze, lay_out_starts
from harness.programs import environment
from licclient import Downloaded
from licclient.install import Installation

pytest.importorskip("PyInstaller", reason="PyInstaller is not installed here: nox -s frozen")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Freeze them, once; return what came of it."""
    folder = tmp_path_factory.mktemp("starts")
    lay_out_starts(folder)
    return freeze(folder, "starts.spec")


class Customer:
    """A computer with the app, which starts it by its launcher."""

    def __init__(self, built: Path, folder: Path) -> None:
        self.built, self.folder = built, folder
        self.root = folder / "Photo Lab"
        self.installation = Installation(self.root)
        self.launcher = self.root / "photo-lab"

    def install(self, version: str, behaviour: str) -> None:
        """Install a release, as an app does that has downloaded it."""
        (self.built / "one-folder" / "_internal" / "version.txt").write_text(
            f"{version} {behaviour}", "utf-8"
        )
        packed = shutil.make_archive(str(self.folder / version), "zip", self.built / "one-folder")
        digest = subprocess.run(
            ["sha256sum", packed], capture_output=True, text=True, check=True
        ).stdout.split()[0]
        size = Path(packed).stat().st_size
        self.installation.apply(Downloaded(Path(packed), size, digest, version, is_verified=True))

    def begin(self, launcher: Path) -> "subprocess.Popen[str]":
        """Start a launcher."""
        (self.folder / "temporary").mkdir(exist_ok=True)
        variables = {"PHOTO_LAB_PID": str(self.folder / "pid"), "TMPDIR": str(self.folder / "temporary")}
        variables["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
        environ = environment(self.folder / "home", **variables)
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([launcher, "a b"], env=environ, text=True, **pipes)  # type: ignore[call-overload,no-any-return]

    def start(self, launcher: Path | None = None) -> tuple[int, str]:
        """Start the app; return its exit status and what it printed."""
        with self.begin(launcher or self.launcher) as process:
            output, errors = process.communicate(timeout=60)
        assert errors == ""
        return process.returncode, output.strip()

    def kill_what_hangs(self, number: int) -> int:
        """Start the app, and end it by a signal when it hangs; return the launcher's exit status."""
        pid = self.folder / "pid"
        pid.unlink(missing_ok=True)
        with self.begin(self.launcher) as process:
            while not (pid.exists() and pid.read_text()):
                assert process.poll() is None
            os.kill(int(pid.read_text()), number)
            process.communicate(timeout=60)
        return process.returncode


@pytest.fixture
def customer(built: Path, tmp_path: Path) -> Customer:
    """A customer whose version 1.0.0 works."""
    customer = Customer(built, tmp_path)
    customer.install("1.0.0", "works")
    shutil.copy(built / "launcher", customer.launcher)
    assert customer.start() == (0, "works 1.0.0 a b")
    return customer


def went_back(customer: Customer) -> bool:
    """Return whether the last good version runs, from now on, and nothing is left of the launcher."""
    starts = [customer.start() for _ in range(2)]
    assert list((customer.folder / "temporary").iterdir()) == []
    return starts == [(0, "works 1.0.0 a b")] * 2


def test_a_release_that_exits_with_3(customer: Customer) -> None:
    """Twice; the third start is that of the last good version."""
    customer.install("1.1.0", "exits")
    assert [customer.start() for _ in range(2)] == [(3, "exits 1.1.0 a b")] * 2
    assert went_back(customer)
    assert (customer.root / "rolled-back.txt").read_text() == "1.1.0\n"


def test_a_release_that_a_signal_ends(customer: Customer) -> None:
    """A crash in native code."""
    customer.install("1.1.0", "dies")
    assert [customer.start()[0] for _ in range(2)] == [128 + signal.SIGSEGV] * 2
    assert went_back(customer)


def test_a_release_that_hangs_and_is_killed(customer: Customer) -> None:
    """Killed by force it counts; ended by SIGTERM, as at a logoff, it does not."""
    customer.install("1.1.0", "hangs")
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        assert customer.installation.current is not None
        assert customer.installation.current.version == "1.1.0"
        assert customer.kill_what_hangs(number) == 128 + number
    assert went_back(customer)


def test_two_bad_releases_in_a_row(customer: Customer) -> None:
    """The second is installed while the first is on probation."""
    customer.install("1.1.0", "exits")
    assert customer.start()[0] == 3
    customer.install("1.2.0", "dies")
    assert [customer.start()[0] for _ in range(2)] == [128 + signal.SIGSEGV] * 2
    assert went_back(customer)
    customer.install("1.3.0", "works")
    assert customer.start() == (0, "works 1.3.0 a b")
    customer.install("1.4.0", "exits")
    assert [customer.start()[0] for _ in range(3)] == [3, 3, 0]


def test_an_old_launcher_with_new_files(customer: Customer, built: Path) -> None:
    """It starts what is current, as ever; a new launcher beside it goes back, and the old one follows."""
    old = customer.root / "old-launcher"
    shutil.copy(built / "old_launcher", old)
    assert customer.start(old) == (0, "works 1.0.0 a b")
    customer.install("1.1.0", "exits")
    assert [customer.start(old) for _ in range(4)] == [(3, "exits 1.1.0 a b")] * 4
    assert [customer.start()[0] for _ in range(2)] == [3, 3]
    assert went_back(customer)
    assert customer.start(old) == (0, "works 1.0.0 a b")
