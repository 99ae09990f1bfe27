"""Make a Python for Windows of packages.

The wheels of panda3d for Windows contain the interpreter as a DLL, the compiled modules of the standard
library, and the libraries that these need. What they lack: the standard library's Python files, which are
those of a Linux Python of the same version; and `python.exe` and two small DLLs, which are compiled here.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final

from tools.windows.wine import COMPILER, Windows, run

ROOT: Final = Path(__file__).parents[2]
PANDA3D: Final = "panda3d==1.10.16"
QT: Final = ("PySide6-Essentials==6.8.3", "shiboken6==6.8.3")
"""Newer ones need a DLL of Windows 10 that wine 8 lacks; the packages allow this one."""
FRAMEWORKS: Final = ("sparklehelper==0.1.2", "velopack==1.2.161")
"""Frameworks for updates: of the first the tests need the DLL of WinSparkle alone."""
TCL: Final = Path("/usr/share/tcltk")
TCL_VERSION: Final = "8.6.12"
"""Of the DLLs in the wheel; Tcl's scripts demand to the digit the version that they came with."""

_HERE: Final = Path(__file__).parent
_LEFT_OUT: Final = ("__pycache__", "lib-dynload", "site-packages", "test", "config-*", "_sysconfigdata*")
WINE_32: Final = Path("/usr/lib/i386-linux-gnu/wine")
"""Where the packages of Debian and Ubuntu put what runs programs of 32 bits."""

_CRASHES: Final = "_wmi.pyd"
"""Python 3.12 and newer ask it for the version of Windows, which ends the program under wine 8.

`platform` does without it.
"""
_BESIDE_PROGRAM: Final = re.compile(r"python\d+\.dll|vcruntime.*|msvcp.*", re.IGNORECASE)
_PACKAGES: Final = ("licclient", "licconform")


class MissingError(Exception):
    """Something is not on this machine; the message says what, and how to get it."""


def find_standard_library(version: str) -> Path:
    """Return the folder of the standard library of a Python of this version on this machine.

    Raises:
        MissingError: There is no such Python.
    """
    for program in _pythons(version):
        code = "import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('stdlib'), sep='\\n')"
        with suppress(OSError, subprocess.CalledProcessError):  # such as a shim without a Python behind it
            *found, folder = run(program, "-I", "-c", code, quiet=True).splitlines()
            if found == version.split("."):
                return Path(folder)
    raise MissingError(f"Python {version} for its standard library: `uv python install {version}`")


def _pythons(version: str) -> Iterator[str | Path]:
    yield sys.executable
    if program := shutil.which(f"python{version}"):
        yield program
    with suppress(OSError, subprocess.CalledProcessError):  # there may be no uv on the path
        yield run("uv", "python", "find", "--managed-python", "--no-python-downloads", version, quiet=True)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from sorted(root.glob(f"versions/{version}.*/bin/python3"))


def build(folder: Path, version: str) -> Windows:
    """Make a Python of a version in a folder, or keep what is there, and install the packages anew.

    Raises:
        MissingError: Its standard library is not on this machine.
    """
    library, stamp = find_standard_library(version), folder / "built"
    sources = b"".join(path.read_bytes() for path in (Path(__file__), *sorted(_HERE.glob("*.c"))))
    wine = run("wine", "--version", quiet=True)
    bits = "32 and 64 bits" if WINE_32.is_dir() else "64 bits"  # a Windows is made for what there is then
    state = f"{library} {wine} {bits} {sha256(sources + _requirements()).hexdigest()}"
    windows = Windows(folder)
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != state:
        shutil.rmtree(folder, ignore_errors=True)
        windows.python.parent.mkdir(parents=True)
        _copy_interpreter(windows.python.parent, folder / "wheel", version)
        _copy_standard_library(library, windows.python.parent)
        _compile(windows.python.parent, f"python{version.replace('.', '')}")
        _install_requirements(windows.python.parent, version)
        windows.create_prefix()
        stamp.write_text(state, encoding="utf-8")
    _install_packages(windows, folder / "packages")
    return windows


def _copy_interpreter(python: Path, wheel: Path, version: str) -> None:
    """Copy the files of the wheel; not those of the C runtime, which wine has, nor what crashes there."""
    _install(wheel, version, "--no-deps", PANDA3D)
    (python / "DLLs").mkdir()
    for file in (wheel / "deploy_libs").iterdir():
        if not file.name.startswith("api-ms-win-") and file.name != _CRASHES:
            shutil.copy(file, python if _BESIDE_PROGRAM.fullmatch(file.name) else python / "DLLs")
    shutil.rmtree(wheel)


def _copy_standard_library(library: Path, python: Path) -> None:
    shutil.copytree(library, python / "Lib", ignore=shutil.ignore_patterns(*_LEFT_OUT))
    for name in ("tcl8.6", "tk8.6"):
        if not (TCL / name).is_dir():
            continue  # its tests fail, and `missing` names the package
        shutil.copytree(TCL / name, python / "tcl" / name)
        for file in (python / "tcl" / name).rglob("*.tcl"):
            text = file.read_text(encoding="utf-8")
            exact = re.sub(r"(package require -exact T(?:cl|k)\s+)8\.6\.\d+", rf"\g<1>{TCL_VERSION}", text)
            file.write_text(exact, encoding="utf-8")


def _compile(python: Path, interpreter: str) -> None:
    name = f'-DINTERPRETER=L"{interpreter}.dll"'
    run(COMPILER, "-O1", "-municode", name, "-o", python / "python.exe", _HERE / "python.c")
    run(COMPILER, "-O1", "-shared", "-o", python / "bcryptprimitives.dll", _HERE / "random.c", "-ladvapi32")
    # In the table of exports: `[ 42] +base[ 43] 002a PyArg_Parse`, or without the words in between.
    table = run(COMPILER.replace("gcc", "objdump"), "-p", python / f"{interpreter}.dll")
    names = sorted(set(re.findall(r"^\s*\[ *\d+\].*\s(_?Py\w+)$", table, re.MULTILINE)))
    exports = python / "python3.def"
    lines = ["LIBRARY python3.dll", "EXPORTS", *(f"  {name}={interpreter}.{name}" for name in names)]
    exports.write_text("\n".join(lines) + "\n", encoding="ascii")
    nothing = ("-shared", "-nostdlib", "-e", "DllMain", _HERE / "empty.c")
    run(COMPILER, *nothing, exports, "-o", python / "python3.dll")
    exports.unlink()


def _requirements() -> bytes:
    """Return the locked versions of what the packages and their tests need, PyInstaller and pip."""
    locked = ("uv", "export", "--quiet", "--locked", "--no-header", "--no-emit-workspace")
    packages = (word for package in _PACKAGES for word in ("--package", package))
    without = ("--no-emit-package", "pyside6-essentials", "--no-emit-package", "shiboken6")
    tests = run(*locked, *packages, *without, "--all-extras", "--group", "test", folder=ROOT)
    tools = run(*locked, "--only-group", "frozen", "--only-group", "deploy", folder=ROOT)
    return f"{tests}\n{tools}\n".encode()


def _install_requirements(python: Path, version: str) -> None:
    requirements = python.parent / "requirements.txt"
    requirements.write_bytes(_requirements())
    site = python / "Lib" / "site-packages"
    _install(site, version, "--no-deps", "--require-hashes", "-r", requirements)
    _install(site, version, "--no-deps", *QT, *FRAMEWORKS)


def _install(target: Path, version: str, *arguments: str | Path) -> None:
    """Install packages for Windows into a folder."""
    kind = ("--python-platform", "x86_64-pc-windows-msvc", "--python-version", version)
    run("uv", "pip", "install", "--quiet", *kind, "--only-binary", ":all:", "--target", target, *arguments)


def _install_packages(windows: Windows, wheels: Path) -> None:
    """Install our own packages as a user does, by pip on Windows, which makes their `.exe` as well."""
    shutil.rmtree(wheels, ignore_errors=True)
    for package in _PACKAGES:
        run("uv", "build", "--quiet", "--wheel", "--out-dir", wheels, ROOT / "packages" / package)
    names = [windows.path(wheel) for wheel in sorted(wheels.glob("*.whl"))]
    pip = ("-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-warn-script-location")
    done = windows.run(*pip, "--no-index", "--no-deps", "--force-reinstall", *names)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout)
