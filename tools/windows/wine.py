"""Run programs for Windows by wine, each environment with a Windows of its own."""

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import Final

Done = subprocess.CompletedProcess[str]

COMPILER: Final = "x86_64-w64-mingw32-gcc"
NEEDED: Final = {
    "wine": "wine wine64",
    COMPILER: "gcc-mingw-w64-x86-64-win32",
    "Xvfb": "xvfb",
    "openbox": "openbox",
    "/usr/share/tcltk/tk8.6/tk.tcl": "libtk8.6",
}
"""Program or file → the packages of Debian and Ubuntu that it is in."""

INNO: Final = "innosetup-compiler@6.3.1"
"""A package of npm with the compiler of Inno Setup."""
INNO_FOLDER: Final = Path(__file__).parents[2] / ".nox" / "inno"
"""Where `npm install --prefix` puts it."""
INNO_COMPILER: Final = "LICENSING_ISCC"
"""The environment variable that names another compiler."""


def find_inno_compiler() -> Path | None:
    """Return the compiler of Inno Setup, a program for Windows; None if it is not here."""
    package = INNO_FOLDER / "node_modules" / INNO.partition("@")[0]
    compiler = Path(os.environ.get(INNO_COMPILER) or package / "bin" / "ISCC.exe")
    return compiler if compiler.is_file() else None


def run(*command: str | Path, folder: Path | None = None, quiet: bool = False) -> str:
    """Run a program of this machine and return what it prints; it must succeed."""
    errors = subprocess.DEVNULL if quiet else None
    done = subprocess.run(  # noqa: S603 - ours
        list(map(str, command)), cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True, check=True
    )
    return done.stdout.strip()


def missing() -> list[str]:
    """Return the packages that this machine lacks, as `apt-get install` takes them."""
    absent = (name for name in NEEDED if shutil.which(name) is None and not Path(name).is_file())
    return " ".join(NEEDED[name] for name in absent).split()


class Windows:
    """A Windows below a folder, with a Python in it."""

    def __init__(self, folder: Path, display: str = "") -> None:
        self.folder = folder
        self.python = folder / "python" / "python.exe"
        self.scripts = folder / "python" / "Scripts"
        self.display = display

    @property
    def drive(self) -> Path:
        """Return the folder of drive C."""
        return self.folder / "prefix" / "drive_c"

    @property
    def lacks_for_inno(self) -> str:
        """Return what set-ups of Inno Setup lack here, and how to get it; empty if nothing.

        They and their compiler are programs of 32 bits, which Debian's wine64 alone does not run.
        """
        if not (self.drive / "windows" / "syswow64" / "kernel32.dll").exists():
            return "32-bit programs need `dpkg --add-architecture i386; apt-get install wine32:i386`"
        if find_inno_compiler() is None:
            place = INNO_FOLDER.relative_to(Path(__file__).parents[2])
            return f"no {INNO_COMPILER}, and no `npm install --prefix {place} {INNO}`"
        return ""

    def path(self, path: Path) -> str:
        """Return the name that Windows has for a file of this machine."""
        if path.is_relative_to(self.drive):
            return str(PureWindowsPath("C:/", path.relative_to(self.drive)))
        return str(PureWindowsPath(f"Z:{path.absolute()}"))

    def environ(self, **more: str) -> dict[str, str]:
        """Return what the programs find in their environment; nothing of this machine's user but the path."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",  # of what is passed on to programs
            "DISPLAY": self.display,
            "WINEARCH": "win64",
            "WINEDEBUG": "-all",
            "WINEDLLOVERRIDES": "mscoree,mshtml=",  # or it offers to fetch Mono and Gecko
            "WINEPREFIX": str(self.folder / "prefix"),
            "PYTHONUNBUFFERED": "1",
            "PYTHONPYCACHEPREFIX": r"C:\pycache",  # none of the other system's beside the sources
            **more,
        }

    def create_prefix(self) -> None:
        """Create the Windows, which calls itself Windows 10."""
        version = ("reg", "add", r"HKCU\Software\Wine", "/v", "Version", "/d", "win10", "/f")
        for command in (("wineboot", "-i"), version):
            self._call(["wine", *command], self.environ())

    def run(
        self,
        *arguments: str,
        program: Path | None = None,
        cwd: Path | None = None,
        timeout: float = 600,
        **environ: str,
    ) -> Done:
        """Run a program, Python unless another one is named, to its end; its errors are part of the output.

        A pipe: with a file in its place Python does not start under wine.
        """
        command = ["wine", str(program or self.python), *arguments]
        return self._call(command, self.environ(**environ), cwd, timeout)

    def _call(
        self, command: list[str], environ: dict[str, str], cwd: Path | None = None, timeout: float = 600
    ) -> Done:
        return subprocess.run(  # noqa: S603 - ours
            command,
            env=environ,
            cwd=cwd or self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=timeout,
            check=False,
        )

    def stream(self, write: Callable[[str], object], *arguments: str, cwd: Path, **environ: str) -> int:
        """Run Python, and pass on each line that it prints; return its exit status.

        wine's server may fail in the middle (an assertion in its `sock.c`): then nothing ends by itself.
        """
        with subprocess.Popen(  # noqa: S603 - ours
            ["wine", str(self.python), *arguments],  # noqa: S607 - as above
            env=self.environ(**environ),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        ) as process:
            for line in process.stdout or ():
                write(line)
                if line.startswith("wineserver") and "Assertion" in line:
                    self.kill()
        return process.returncode

    def kill(self, name: str = "") -> int:
        """Kill all programs that run in it, or those of a name, past its server; return how many."""
        mark, killed = f"WINEPREFIX={self.folder / 'prefix'}".encode(), 0
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended, or is another user's
                is_meant = name.encode() in place.joinpath("cmdline").read_bytes()
                if is_meant and mark in place.joinpath("environ").read_bytes().split(b"\0"):
                    os.kill(int(place.name), signal.SIGKILL)
                    killed += 1
        return killed

    def close(self) -> None:
        """End everything that still runs in it."""
        self._call(["wine", "wineboot", "-k"], self.environ(), timeout=60)
