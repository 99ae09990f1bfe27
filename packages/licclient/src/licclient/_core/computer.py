"""This computer: its platform (D-187), the id of its system, its disk, and what was rolled back on it."""

import errno
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from licclient._core.lazy import lazy
from licclient._core.model import AUTO, is_platform, is_version_folder
from licclient._core.storage import is_absence, open_plain, read_with_retries, repeat
from licclient.errors import StateUnreadableError

if TYPE_CHECKING:
    import hmac
    import platform
    import shutil
    import subprocess

    from packaging import version as packaging_version

    from licclient._core import environment
else:
    hmac = lazy("hmac")
    environment = lazy("licclient._core.environment")
    packaging_version = lazy("packaging.version")
    platform = lazy("platform")
    shutil = lazy("shutil")
    subprocess = lazy("subprocess")

_SYSTEMS: Final = {"win32": "windows", "darwin": "macos"}
_MACHINES: Final = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "aarch64": "arm64",
    "i386": "x86",
    "i486": "x86",
    "i586": "x86",
    "i686": "x86",
}


def name_platform(system: str, machine: str) -> str | None:
    """Return the name of a platform, such as windows-x86_64, by `sys.platform` and `platform.machine()`."""
    machine = machine.lower()
    name = f"{_SYSTEMS.get(system, system)}-{_MACHINES.get(machine, machine)}"
    return name if machine and is_platform(name) else None


def own_platform(setting: str | None) -> str | None:
    """Return what update checks send: the setting, or the platform of this computer."""
    if setting != AUTO:
        return setting
    return name_platform(sys.platform, platform.machine())


# --- what its system calls it: hashes name it in a trial and bind what is stored, never the id ------


LINUX_FILES: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_MAX_ID_BYTES: Final = 1024
_IOREG: Final = ("/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice")
_IOREG_SECONDS: Final = 5.0


def hash_machine(slug: str, machine_id: str) -> str:
    """Return a machine's name for one product: keyed by the id, as `machine-id(5)` asks for.

    Neither the id nor whether two products run on the same machine can be derived from it.
    """
    return hmac.digest(machine_id.encode(), f"licclient trial {slug}".encode(), "sha256").hex()


def bind_to_machine(text: str, machine_id: str) -> str:
    """Return a proof that a text belongs to this machine; it never leaves the computer."""
    return hmac.digest(machine_id.encode(), f"licclient installation {text}".encode(), "sha256").hex()


def read_machine_id() -> str | None:
    """Return the id that the operating system gave this computer; None if it gave none that an app may read.

    Raise `StateUnreadableError` if reading it fails: another id would be another computer's trial.
    """
    try:
        if sys.platform == "win32":
            import winreg  # noqa: PLC0415 - this one platform

            access = winreg.KEY_READ | winreg.KEY_WOW64_64KEY
            path = r"SOFTWARE\Microsoft\Cryptography"
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, path, 0, access) as key:
                return _clean(str(winreg.QueryValueEx(key, "MachineGuid")[0]))
        if sys.platform == "darwin":
            return _read_ioreg()
        return next(filter(None, map(_read_file, LINUX_FILES)), None)
    except (FileNotFoundError, PermissionError):  # the latter in a sandbox, always
        return None
    except OSError as problem:
        raise StateUnreadableError(problem.strerror or type(problem).__name__, problem.filename) from problem


def _read_ioreg() -> str | None:
    try:
        done = subprocess.run(
            _IOREG,
            capture_output=True,
            timeout=_IOREG_SECONDS,
            check=False,
            env=environment.clean_environment(),
        )
    except subprocess.TimeoutExpired:
        raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), _IOREG[0]) from None
    match = re.search(rb'"IOPlatformUUID" = "([^"]+)"', done.stdout)
    return None if match is None else _clean(match[1].decode("ascii", "replace"))


def _read_file(path: str) -> str | None:
    def read() -> bytes:
        with open_plain(Path(path)) as file:  # links are followed: some systems have one here
            return file.read(_MAX_ID_BYTES)

    try:
        return _clean(repeat(read).decode("ascii"))
    except ValueError:
        return None
    except OSError as problem:
        if is_absence(problem) or isinstance(problem, PermissionError) or problem.errno == errno.EINVAL:
            return None
        raise


def _clean(text: str) -> str | None:
    text = text.strip().lower()
    return None if text in ("", "uninitialized") else text  # the latter is a system on its first start


# --- its disk -------------------------------------------------------------------------------------


SPARE_BYTES: Final = 16 * 1024 * 1024
"""Bytes left free on the disk: filling it to the last byte would harm everything else."""


class NoRoomError(OSError):
    """A disk has no room; app developers see an `OSError` (`ENOSPC`), and `explain` has the numbers."""

    needed_bytes: int
    free_bytes: int


def require_space(folder: Path, needed: int, purpose: str) -> None:
    """Raise `OSError` if there is no room for so many bytes of `purpose`, such as `the download`."""
    disk = shutil.disk_usage(folder)
    needed += SPARE_BYTES
    if disk.total and disk.free < needed:
        numbers = f"it needs {-(-needed // 10**6)} MB, and {disk.free // 10**6} MB are free"
        problem = NoRoomError(errno.ENOSPC, f"No room for {purpose}: {numbers}", str(folder))
        problem.needed_bytes, problem.free_bytes = needed, disk.free
        raise problem


# --- versions that were rolled back in an app's own folder: offered only on request (D-179) --------

# `Installation.roll_back` adds a version to a file beside `current.txt`, and `apply` of it removes it again.
# A client finds the file from the running program, which lies in a folder of `versions`.

ROLLED_BACK: Final = "rolled-back.txt"
"""The file's name: one version a line."""

VERSIONS: Final = "versions"
"""The folder with a folder for each version."""


def is_rolled_back(version: str) -> bool:
    """Return whether a version was rolled back in the folder that this program runs from."""
    with suppress(packaging_version.InvalidVersion):
        return packaging_version.Version(version) in map(packaging_version.Version, list_rolled_back())
    return False


def is_running(version: str) -> bool:
    """Return whether this program runs from the folder that this version was installed in."""
    with suppress(packaging_version.InvalidVersion):
        return packaging_version.Version(version) in (
            packaging_version.Version(folder.name.rpartition("-")[0]) for folder in _version_folders()
        )
    return False


def list_rolled_back() -> list[str]:
    """Return the versions that were rolled back in the folder that this program runs from.

    Raise `StateUnreadableError` if that cannot be read.
    """
    try:
        return [version for folder in list_app_folders() for version in read_rolled_back(folder)]
    except OSError as problem:
        raise StateUnreadableError(problem.strerror or type(problem).__name__, problem.filename) from problem


def read_rolled_back(folder: Path) -> list[str]:
    """Return the versions that were rolled back in an app's own folder, as PEP 440 writes them.

    Raise `OSError` if the list cannot be read.
    """
    return (read_with_retries(folder / ROLLED_BACK) or b"").decode("ascii", errors="replace").split()


def list_app_folders() -> list[Path]:
    """Return the folders of which the running program is an installed version; mostly none."""
    # A frozen app is found twice: by `sys.executable`, and by the first argument.
    return list(dict.fromkeys(folder.parents[1] for folder in _version_folders()))


def _version_folders() -> list[Path]:
    """Return the folders of the version that runs; mostly none."""
    folders = []
    for program in filter(None, (sys.executable, *sys.argv[:1])):
        with suppress(OSError, RuntimeError, ValueError, TypeError):  # a loop of links, no name of a file
            path = Path(os.fsdecode(program))
            # The folder `versions` may be a link to another disk: the pointer is where the link is.
            folders += find_version_folders(path.resolve()) + find_version_folders(path.absolute())
    return folders


def find_version_folders(program: Path) -> list[Path]:
    """Return the folders of versions that a path leads through, the innermost first."""
    return [path for path in program.parents if path.parent.name == VERSIONS and is_version_folder(path.name)]
