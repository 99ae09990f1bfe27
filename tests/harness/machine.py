"""A Debian with systemd as its first process, in a namespace of its own: what `nox -s deploy` boots.

Nothing of it is simulated but the hardware: systemd-nspawn boots a tree made by debootstrap, whose network is
a loopback and nothing else. The tree is kept between runs; what a run changes lies above it and goes with it.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SUITE, PYTHON = "trixie", "3.13"
PACKAGES = "systemd,systemd-sysv,dbus,python3-venv,nginx,ca-certificates,curl"

Done = subprocess.CompletedProcess[str]


def why_not() -> str | None:
    """Say what a machine cannot be had for, if anything."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it takes root on Linux"
    missing = [name for name in ("systemd-nspawn", "debootstrap", "nsenter") if shutil.which(name) is None]
    return f"apt-get install systemd-container debootstrap: no {', '.join(missing)}" if missing else None


def tell(*command: Any, **more: Any) -> str:
    """Run a command of ours to its end; returns what it printed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **more
    )
    assert done.returncode == 0, f"{command[0]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    printed: str = done.stdout
    return printed


def debian(kept: Path) -> Path:
    """The tree of a small Debian, with what `docs/deploy.md` has apt install; made once, in two minutes."""
    tree = kept / SUITE
    if not tree.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as raw:
            tell("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, f"{raw}/tree")
            Path(raw, "tree").rename(tree)
    return tree


def wheelhouse(kept: Path) -> Path:
    """A folder of all wheels that licserver needs there, as `uv.lock` has them."""
    extras = ("--extra", "postgres", "--extra", "s3", "--extra", "redis")
    wanted = tell(
        *("uv", "export", "--quiet", "--locked", "--no-default-groups", "--package", "licserver", *extras),
        *("--no-emit-workspace", "--no-hashes", "--no-header"),
        cwd=ROOT,
    )
    folder, listed = kept / "wheels", kept / "wheels" / "wanted.txt"
    if not listed.exists() or listed.read_text() != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        (folder / "new.txt").write_text(wanted)
        kinds = [f"--platform=manylinux{kind}_{platform.machine()}" for kind in ("_2_28", "_2_17", "2014")]
        tell(
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"),
            *(f"--python-version={PYTHON}", *kinds, "-d", folder, "-r", folder / "new.txt"),
        )
        (folder / "new.txt").rename(listed)
    return folder


class Machine:
    """A machine on a read-only tree; all that it writes goes into an empty folder."""

    def __init__(self, tree: Path, folder: Path) -> None:
        for name in ("over", "work", "root"):
            (folder / name).mkdir()
        self._console = folder / "console"
        # The mount is seen by these processes alone, and they end with us, whatever becomes of us.
        layers = f"lowerdir={tree},upperdir={folder}/over,workdir={folder}/work"
        script = (
            f"mount -t overlay overlay -o {layers} {folder}/root && "
            f"exec systemd-nspawn --quiet --boot --directory={folder}/root --register=no --keep-unit "
            "--private-network --console=pipe --machine=licserver-tests"
        )
        self._command = ["setpriv", "--pdeathsig", "TERM", "unshare", "--mount", "sh", "-c", script]
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._console.open("ab") as console:
            return subprocess.Popen(
                self._command,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
            )

    def wait_until_up(self) -> None:
        """Wait until everything has started, and nothing has failed."""
        deadline, state = time.monotonic() + 60, ""
        while state != "running":
            details = f"{state}; on its console: {self._console.read_text(errors='replace')[-3000:]}"
            assert self._process.poll() is None, f"systemd-nspawn has ended: {details}"
            assert time.monotonic() < deadline, f"the machine does not come up: {details}"
            time.sleep(0.1)
            if self._first() is not None:
                done = self.run("systemctl", "is-system-running", "--wait", check=False)
                state = (done.stdout or done.stderr).strip()
                assert state != "degraded", self.run("systemctl", "--failed").stdout

    def reboot(self) -> None:
        """Start it anew, in order."""
        self.run("systemctl", "reboot", check=False)
        assert self._process.wait(90) == 133  # what nspawn says when it wants to be started again
        self._process = self._start()
        self.wait_until_up()

    def shut_down(self) -> None:
        """End it, in order."""
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _first(self) -> int | None:
        """The machine's first process, by the number that it has here."""
        process = self._process.pid
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
        return int(children[0]) if children else None

    def run(self, *command: str, check: bool = True, stdin: str = "", **environ: str) -> Done:
        """Run a command as root, in root's home, to its end."""
        there = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        variables = [f"{name}={value}" for name, value in {**there, "LANG": "C.UTF-8", **environ}.items()]
        enter = ["nsenter", "--all", "--root", "--wd", "-t", str(self._first())]
        done = subprocess.run(
            [*enter, "env", "-i", "-C", "/root", *variables, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
        return done

    def sh(self, script: str, **more: Any) -> str:
        """Run lines of a shell, up to the first that fails; returns what they printed."""
        return self.run("sh", "-eu", "-c", script, **more).stdout

    def write(self, path: str, text: str) -> None:
        """Write a file, mode 0644."""
        self.run("sh", "-c", 'mkdir -p "${1%/*}" && cat >"$1"', "sh", path, stdin=text)

    def bring(self, folder: Path, there: str) -> None:
        """Copy a folder's files into one."""
        packed = subprocess.run(["tar", "-C", folder, "-c", "."], capture_output=True, check=True).stdout
        enter = ["nsenter", "-m", "-p", "--root", "--wd", "-t", str(self._first())]
        subprocess.run([*enter, "mkdir", "-p", there], check=True)
        subprocess.run([*enter, "tar", "-C", there, "--no-same-owner", "-x"], input=packed, check=True)


@contextmanager
def booted(tree: Path) -> Iterator[Machine]:
    """Boot a machine for a block."""
    with tempfile.TemporaryDirectory() as folder:
        machine = Machine(tree, Path(folder))
        try:
            machine.wait_until_up()
            yield machine
        finally:
            machine.shut_down()
